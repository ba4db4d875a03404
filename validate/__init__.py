"""Theory held against simulation and published data: fits, comparisons, claims, the report, notebooks, the command.

Each name imports its module on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public name -> module that defines it; imported on first use, so that `import validate` stays fast.
_HOME: dict[str, str] = {
    "Comparison": "validate.comparison",
    "build_notebook": "validate.notebooks.build",
    "write_notebooks": "validate.notebooks.write",
    "FitError": "validate.fit_result",
    "FitPrediction": "validate.fit_result",
    "FitReport": "validate.fit_report",
    "FitResult": "validate.fit_result",
    "ParameterEstimate": "validate.fit_result",
    "RunTable": "validate.tables",
    "fit_depth_law": "validate.fit",
    "fit_joint_law": "validate.fit",
    "fit_table": "validate.fit_report",
    "rank_laws": "validate.fit",
    "read_number": "validate.tables",
    "read_table": "validate.tables",
    "compare_curve": "validate.comparison",
    "read_curve": "validate.comparison",
    "LayerFile": "validate.layer_files",
    "read_layer_file": "validate.layer_files",
    "LayerQuantity": "validate.layers",
    "LayerStatistics": "validate.layers",
    "layer_errors": "validate.layers",
    "layer_statistics": "validate.layers",
    "Advice": "validate.fit_advice",
    "Shape": "validate.fit_advice",
    "best_shape": "validate.fit_advice",
    "exhausted_depth": "validate.fit_advice",
    "matching_rows": "validate.filters",
    "ExclusionPath": "validate.fit_exclusion",
    "exclusion_path": "validate.fit_exclusion",
    "draw_fit": "validate.fit_pictures",
    "draw_gap": "validate.fit_pictures",
    "draw_profiles": "validate.fit_pictures",
    "profile_curve": "validate.fit_pictures",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'validate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
