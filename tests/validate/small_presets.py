"""Presets that train in a second, for tests of the main job."""

from __future__ import annotations

CURVES = """
[[experiment]]
name = "linear-curves"
[experiment.base.task]
context = 16
spectrum = { kind = "power_law", dim = 4, capacity = 1.0, source = 1.0 }
[experiment.base.training]
optimizer = "sgd"
learning_rate = 1.0
batch = 4096
steps = 120
eval_contexts = 256
[experiment.grid]
"model.depth" = [1, 2]
"""
