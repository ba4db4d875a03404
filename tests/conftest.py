"""Fixtures that every test shares: one seeded generator, the folder of published data, small spectra."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
# Tests run side by side: threads of one would spin on the cores of another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded by the test's own name: each test draws its own numbers, the same on every run."""
    return np.random.default_rng(list(request.node.nodeid.encode()))


@pytest.fixture
def shared_data() -> Path:
    """The folder of published data beside the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"published data not found at {SHARED_DATA}")
    return SHARED_DATA
