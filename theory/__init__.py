"""Predictions for the depth scaling of attention: spectra, losses, flows, floors, asymptotics, depth laws, derivations.

Imports neither torch nor matplotlib nor sympy until a function that needs one is called.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public name -> module that defines it; imported on first use, so that `import theory` stays fast.
_HOME = {
    "BatchNoise": "theory.batch_noise",
    "Crossovers": "theory.asymptotics",
    "DEPTH_LAWS": "theory.depth_laws",
    "DepthLaw": "theory.depth_laws",
    "Derivation": "theory.symbolic.derivation",
    "DerivationError": "theory.symbolic.derivation",
    "DeterministicLimit": "theory.equivalents",
    "EdgeOfStability": "theory.stability",
    "Exponents": "theory.asymptotics",
    "Floor": "theory.floors",
    "Law": "theory.asymptotics",
    "LawParameter": "theory.depth_laws",
    "ModeGains": "theory.fixed_basis",
    "ModeHalfTimes": "theory.half_times",
    "Plateaus": "theory.small_init",
    "Prediction": "theory.prediction",
    "QuadraticLoss": "theory.losses",
    "SampledModes": "theory.fixed_basis",
    "SmallStartCurve": "theory.small_init",
    "SpectralMeasure": "theory.measure",
    "Spectrum": "theory.spectra",
    "SpectrumEstimate": "theory.estimate",
    "Split": "theory.allocation",
    "Task": "theory.task",
    "TieBreak": "theory.tie_breaking",
    "TiedCurve": "theory.tied",
    "UntiedPath": "theory.tie_breaking",
    "additive_law": "theory.depth_laws",
    "bottleneck_limit": "theory.bottleneck",
    "bottleneck_loss": "theory.bottleneck",
    "crossovers": "theory.asymptotics",
    "depth_law": "theory.depth_laws",
    "depth_laws_figure": "theory.pictures",
    "depth_time_split": "theory.allocation",
    "derive": "theory.symbolic.registry",
    "deterministic_limit": "theory.equivalents",
    "edge_of_stability": "theory.stability",
    "estimate_from_eigenvalues": "theory.estimate",
    "estimate_spectrum": "theory.estimate",
    "exponents": "theory.asymptotics",
    "gain_law": "theory.asymptotics",
    "head_times": "theory.small_init_heads",
    "heads_flow": "theory.small_init_heads",
    "isotropic_loss": "theory.marchenko_pastur",
    "isotropic_tied_optimum": "theory.marchenko_pastur",
    "isotropic_untied_floor": "theory.marchenko_pastur",
    "merged_drop_time": "theory.small_init_flows",
    "merged_flow": "theory.small_init_flows",
    "merged_gain_flow": "theory.small_init_flows",
    "mode_half_times": "theory.half_times",
    "mode_sgd": "theory.fixed_basis",
    "one_layer_modes": "theory.fixed_floors",
    "plateaus": "theory.small_init",
    "population_loss": "theory.losses",
    "predict": "theory.prediction",
    "quadratic_loss": "theory.losses",
    "sampled_mode_flow": "theory.fixed_basis",
    "sampled_mode_sgd": "theory.fixed_basis",
    "separation_time": "theory.tie_breaking",
    "spectrum_laws": "theory.pictures",
    "tie_break": "theory.tie_breaking",
    "tied_curve": "theory.tied",
    "tied_floor_law": "theory.asymptotics",
    "tied_floor_refined": "theory.asymptotics",
    "tied_mode_flow": "theory.fixed_basis",
    "tied_optimum": "theory.floors",
    "time_law": "theory.asymptotics",
    "transversal_rate": "theory.tie_breaking",
    "untied_floor": "theory.floors",
    "untied_floor_law": "theory.asymptotics",
    "untied_flow": "theory.tie_breaking",
    "untied_mode_flow": "theory.fixed_basis",
    "width_depth_time_split": "theory.allocation",
    "width_law": "theory.asymptotics",
    "ar1_loss": "theory.ensembles",
    "best_weights": "theory.ensembles",
    "effective_layers": "theory.ensembles",
    "ensemble_loss": "theory.ensembles",
    "exchangeable_loss": "theory.ensembles",
    "readout_expansion": "theory.ensembles",
    "readout_law": "theory.ensembles",
    "softmax_curvature": "theory.ensembles",
    "stationary_loss": "theory.ensembles",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'theory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
