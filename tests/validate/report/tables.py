"""Small tables of every kind that the figures draw, with numbers that can be checked by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

DEPTHS = [1, 2, 4, 8]
STEPS = [0, 1, 10, 100]
SPECTRA = ("isotropic", "ν = 1, β = 1")


def report_tables() -> dict[str, pd.DataFrame]:
    """Return one table of each name."""
    losses, exponents = regions()
    return {
        "curves": pd.DataFrame(
            {"depth": 1, "step": STEPS, "trained": [1, 0.8, 0.5, 0.3], "predicted": [1, 0.8, 0.4, 0.3]}
        ),
        "depth_laws": depth_laws(),
        "linear_optimum": linear_optimum(),
        "exponents": pd.DataFrame(
            {
                "attention": ["linear", "softmax", "softmax", "softmax"],
                "spectrum": ["a", "a", "b", "c"],
                "exponent": [2.0, 1.0, 1.4, 5.0],
                "low": [1.5, 0.9, 1.1, 4.0],
                "high": [np.inf, 1.1, 1.9, np.nan],
                "settled": [False, True, True, False],
            }
        ),
        "mode_maps": mode_maps(),
        "half_times": half_times(),
        "rivals": rivals(),
        "focus": pd.DataFrame(
            {
                "spectrum": "s",
                "depth": 2,
                "layer": [1, 2],
                "participation": [6.0, 2.0],
                "context": 8,
                "overlap": [0.9, 0.9],
            }
        ),
        "focus_maps": focus_maps(),
        "layers": pd.DataFrame({"spectrum": "s", "predicted": [0.22, 0.1, -0.3], "observed": [0.2, 0.2, 0.1]}),
        "layer_split": layer_split(),
        "regions": losses,
        "region_exponents": exponents,
    }


def depth_laws() -> pd.DataFrame:
    """Losses 0.1 + scale / L of two attentions, two seeds each, and a fitted law for one."""
    parts = [
        pd.DataFrame(
            {
                "attention": attention,
                "spectrum": "s",
                "depth": DEPTHS,
                "loss": 0.1 + scale / np.array(DEPTHS),
                "standard_error": 0.01,
                "converged": [True, True, True, False],
            }
        )
        for attention, scale in (("linear", 0.5), ("linear", 0.5), ("softmax", 0.7), ("softmax", 0.7))
    ]
    law = 0.1 + 0.7 / np.array(DEPTHS)
    fitted = pd.DataFrame({"depth": DEPTHS, "fitted": law, "low": 0.9 * law, "high": 1.1 * law})
    parts.append(fitted.assign(attention="softmax", spectrum="s", converged=True))
    return pd.concat(parts, ignore_index=True)


def rivals() -> pd.DataFrame:
    """Inverse depth is best for softmax on a, 12 behind on b; linear attention has one provisional fit."""
    rows = [
        *(("softmax", "a", True, law, behind) for law, behind in (("inverse-depth", 0.0), ("power", 1.5))),
        *(("softmax", "b", True, law, behind) for law, behind in (("inverse-depth", 12.0), ("power", 0.0))),
        *(("linear", "a", False, law, behind) for law, behind in (("inverse-depth", np.nan), ("power", 0.0))),
    ]
    return pd.DataFrame(rows, columns=["attention", "spectrum", "settled", "law", "behind"])


def linear_optimum() -> pd.DataFrame:
    """Tied losses 1 % above an optimum 1 / L, the deepest unconverged at twice it; untied ones 3 % above half of it."""
    optimum = 1 / np.array(DEPTHS)
    parts = [
        pd.DataFrame(
            {
                "spectrum": "s",
                "tied": tied,
                "depth": DEPTHS,
                "loss": loss,
                "standard_error": 0.01 * loss,
                "converged": [True, True, True, not tied],
                "optimum": optimum,
                "floor": 0.5 * optimum,
            }
        )
        for tied, loss in ((True, optimum * np.array([1.01, 1.01, 1.01, 2])), (False, 0.5 * 1.03 * optimum))
    ]
    return pd.concat(parts, ignore_index=True)


def half_times() -> pd.DataFrame:
    """Half-times 100 / eigenvalue for linear attention, twice the predicted; 100 / sqrt(eigenvalue) for softmax."""
    eigenvalue = np.array([1.0, 0.5, 0.25, 0.1])
    base = {"spectrum": "s", "depth": 2, "seed": 0, "mode": [1, 2, 3, 4], "eigenvalue": eigenvalue, "steps": 5000}
    linear = pd.DataFrame({"attention": "linear", **base, "half_time": 100 / eigenvalue, "predicted": 50 / eigenvalue})
    softmax = pd.DataFrame({"attention": "softmax", **base, "half_time": 100 / eigenvalue**0.5, "predicted": np.nan})
    return pd.concat([linear, softmax], ignore_index=True)


def mode_maps() -> pd.DataFrame:
    """Mode k's error is k / (k + step) of its first."""
    rows = itertools.product(("linear", "softmax"), STEPS, (1, 2, 30))
    return pd.DataFrame(
        [{"attention": a, "spectrum": "s", "step": s, "mode": k, "share": k / (k + s)} for a, s, k in rows]
    )


def focus_maps() -> pd.DataFrame:
    """Half of the mass lies on the first of five tokens, the rest is even; a shallow model's is even throughout."""
    rows = []
    for spectrum, depth in itertools.product(SPECTRA, (2, 4)):
        for layer, token in itertools.product(range(1, depth + 1), range(1, 6)):
            mass = 0.2 if depth == 2 else 0.5 if token == 1 else 0.125
            rows.append({"spectrum": spectrum, "depth": depth, "layer": layer, "token": token, "mass": mass})
    return pd.DataFrame(rows)


def layer_split() -> pd.DataFrame:
    """Shared error 0.1, specific error 0.8: the loss is their 0.1 + 0.8 / L; softmax's shared error is negative."""
    rows = [
        {
            "attention": attention,
            "spectrum": spectrum,
            "depth": depth,
            "shared": shared,
            "specific": 0.8,
            "loss": 0.1 + 0.8 / depth,
        }
        for (attention, shared), spectrum, depth in itertools.product(
            (("linear", 0.1), ("softmax", -0.05)), SPECTRA, DEPTHS
        )
    ]
    return pd.DataFrame(rows)


def regions() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Losses 0.05 + 0.6 / L^alpha, alpha 1 for softmax, up to 5 for linear; and the exponents of their three depths."""
    places = [
        {
            "map": "context",
            "variant": f"P = {context}",
            "attention": attention,
            "spectrum": spectrum,
            "context": context,
        }
        for attention, spectrum, context in itertools.product(("linear", "softmax"), SPECTRA, (4, 8, 16, 32, 128))
    ]
    places += [
        {"map": "noise", "variant": f"σ² = {noise:g}", "attention": attention, "spectrum": "s", "label_noise": noise}
        for attention, noise in itertools.product(("linear", "softmax"), (0.1, 0.5))
    ]
    places += [
        {"map": "gain", "variant": f"b = {gain}", "attention": "softmax", "spectrum": spectrum}
        for spectrum, gain in itertools.product(SPECTRA, (1, 4, 16))
    ]
    places += [
        {"map": "kernel", "variant": attention, "attention": attention, "spectrum": spectrum}
        for attention, spectrum in itertools.product(("softmax", "exp", "relu", "cosine"), SPECTRA)
    ]
    places += [
        {"map": "data", "variant": law, "attention": attention, "spectrum": spectrum}
        for attention, law, spectrum in itertools.product(
            ("linear", "softmax"), ("signs", "clusters (4, s = 0.25)"), SPECTRA
        )
    ]
    places += [
        {"map": "architecture", "variant": f"{model} softmax", "attention": "softmax", "model": model, "spectrum": "s"}
        for model in ("decoupled", "transformer", "transformer + MLP")
    ]
    losses, exponents = [], []
    for place in places:
        full = {"model": "reduced", "dim": 8, "context": 16, "label_noise": 0.0, **place}
        alpha = 1.0 if full["attention"] != "linear" else 0.5 + full["context"] / 28
        for depth in DEPTHS:
            numbers = {"loss": 0.05 + 0.6 / depth**alpha, "standard_error": 0.01, "converged": depth < 8, "seeds": 2}
            losses.append({**full, "depth": depth, **numbers})
        for depth in (1, 2):
            # The transformer's losses fall faster and faster: no power law with plateau runs through them.
            exponent = np.nan if full["model"].startswith("transformer") else alpha
            converged = depth == 1 and full["attention"] != "relu"
            exponents.append(
                {**full, "depth": depth, "exponent": exponent, "standard_error": 0.1, "converged": converged}
            )
    return pd.DataFrame(losses), pd.DataFrame(exponents)
