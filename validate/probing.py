"""From trained runs to the tables of half-learning times, focus and layer errors that claims and figures read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from validate.study import Study, has_prediction, predicted_rate, spectrum_label

if TYPE_CHECKING:
    import pandas as pd

    from sim import Run
    from sim.probes import ProbeHistory, Probes

PROBE_CONTEXTS = 128
# The error of a weak direction is the mean of a heavy-tailed square: half-learning times need more contexts.
HALF_TIME_CONTEXTS = 1024
DYNAMICS = ("dynamics-linear", "dynamics-softmax")
FOCUSED = "depth-softmax"


def probe_tables(study: Study) -> dict[str, pd.DataFrame]:
    """Return the tables half_times, mode_maps, focus, focus_maps, layer_split and layers.

    Half-learning times and mode errors over training come from the runs by plain gradient descent; focus and layer
    errors from the converged softmax runs. The layer-error matrix C of a run of depth L >= 2 predicts the loss of the
    next deeper run on the same spectrum, shared + specific / L': a prediction for a model trained at another depth.
    """
    import pandas as pd

    from sim import ProbeSettings, probe_run, probe_training

    settings = ProbeSettings(contexts=PROBE_CONTEXTS)
    modes = ProbeSettings(contexts=HALF_TIME_CONTEXTS, modes_only=True)
    half_times: list[dict[str, Any]] = []
    maps: dict[tuple[str, str], pd.DataFrame] = {}
    for run in (run for experiment in DYNAMICS for run in _by_depth(study, experiment)):
        history = probe_training(run, modes)
        label = _label(run)
        half_times += _half_times(run, history)
        # Depths come in order: the deepest model's map is kept.
        key = (str(label["attention"]), str(label["spectrum"]))
        maps[key] = _mode_map(history).assign(attention=key[0], spectrum=key[1])
    focus: list[dict[str, Any]] = []
    layers: list[dict[str, Any]] = []
    splits: list[dict[str, Any]] = []
    focus_maps: dict[tuple[str, int], list[dict[str, Any]]] = {}
    # (spectrum, seed) -> the last shallower run's depth, shared and specific error
    shallower: dict[tuple[str, int], tuple[int, float, float]] = {}
    for run in _by_depth(study, FOCUSED):
        if not run.converged:
            continue
        label, depth = _label(run), run.config.model.depth
        final = probe_run(run, settings)
        focus += _focus(run, final)
        student = (str(label["spectrum"]), run.config.training.seed)
        focus_maps[(student[0], depth)] = _focus_map(run, final)
        if student in shallower:
            trained_at, shared, specific = shallower[student]
            predicted = shared + specific / depth
            layers.append({**label, "from_depth": trained_at, "predicted": predicted, "observed": run.final_loss})
        if depth >= 2:
            shallower[student] = (depth, final.shared, final.specific)
            split = {"shared": final.shared, "specific": final.specific, "loss": run.final_loss}
            splits.append({**label, **split})
    return {
        "half_times": pd.DataFrame(half_times),
        "mode_maps": pd.concat(list(maps.values()), ignore_index=True) if maps else pd.DataFrame(),
        "focus": pd.DataFrame(focus),
        "focus_maps": pd.DataFrame([row for rows in focus_maps.values() for row in rows]),
        "layer_split": pd.DataFrame(splits),
        "layers": pd.DataFrame(layers),
    }


def _by_depth(study: Study, experiment: str) -> list[Run]:
    return sorted(study.runs(experiment), key=lambda run: run.config.model.depth)


def _label(run: Run) -> dict[str, Any]:
    config = run.config
    return {
        "attention": config.model.attention,
        "spectrum": spectrum_label(config),
        "depth": config.model.depth,
        "seed": config.training.seed,
    }


def _half_times(run: Run, history: ProbeHistory) -> list[dict[str, Any]]:
    """Return one row a mode, with the tied gradient flow's prediction for linear attention."""
    from theory import mode_half_times

    config, rate = run.config, run.config.training.learning_rate
    predicted = np.full(history.half_time.size, np.nan)
    if config.task is not None and has_prediction(config):
        predicted = mode_half_times(config.task.build(), config.model.depth).time / predicted_rate(config)
        predicted = np.where(np.isfinite(predicted), predicted, np.nan)
    return [
        {
            **_label(run),
            "mode": mode,
            "eigenvalue": eigenvalue,
            "half_time": time / rate,
            "predicted": expected,
            "steps": config.training.steps,
        }
        for mode, (eigenvalue, time, expected) in enumerate(
            zip(history.probes[0].eigenvalues, history.half_time, predicted, strict=True), start=1
        )
    ]


def _mode_map(history: ProbeHistory) -> pd.DataFrame:
    errors = history.to_frame()
    errors["share"] = errors["error"] / errors.groupby("mode")["error"].transform("first")
    return errors[["step", "mode", "share"]]


def _focus(run: Run, final: Probes) -> list[dict[str, Any]]:
    others = _mean_overlap(final.overlap)
    context = run.config.task.context if run.config.task else None
    return [
        {**_label(run), "layer": layer, "context": context, "overlap": others, "participation": float(participation)}
        for layer, participation in enumerate(final.participation.mean(axis=1), start=1)
    ]


def _focus_map(run: Run, final: Probes) -> list[dict[str, Any]]:
    return [
        {**_label(run), "layer": layer, "token": token, "mass": float(mass)}
        for layer, row in enumerate(final.ranked_focus, start=1)
        for token, mass in enumerate(row, start=1)
    ]


def _mean_overlap(overlap: np.ndarray) -> float:
    """Return the mean overlap of different layers, NaN with a single one."""
    depth = len(overlap)
    pairs = overlap[~np.eye(depth, dtype=bool)]
    return float(pairs.mean()) if pairs.size else float("nan")
