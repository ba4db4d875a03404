"""A predicted curve held against a trained or published one, step by step."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, integer, real, reject
from theory.prediction import MOST_STEPS, Prediction, predict
from theory.results import Result, axes_or_new, plain
from theory.task import Task
from validate.tables import RunTable, read_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Batch losses fluctuate: both curves are averaged over this many steps, centred, before they are compared.
DEFAULT_WINDOW = 11
# Steps at the end of a curve whose mean is held against the floors.
TAIL_STEPS = 1000
# Columns of a curve's file, the last one optional, and what they may hold.
ALLOWED = {
    "step": f"a whole number from 0 to {MOST_STEPS}",
    "loss": "a finite number > 0",
    "standard_error": "a finite number >= 0",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison(Result):
    """How far a prediction lies from a curve.

    Parameters
    ----------
    prediction : Prediction
        At the curve's own steps.
    step : array of shape (n,)
        Steps compared.
    observed, predicted : array of shape (n,)
        Both after the same centred mean over ``window`` steps (fewer at the ends).
    relative_deviation : array of shape (n,)
        predicted / observed − 1.
    standard_errors : array of shape (n,), or None
        (predicted − observed) / standard error, where the curve or the prediction states one.
    window : int
        Steps averaged.
    tail_mean : float
        Mean of the observed curve's last 1,000 steps (all, if fewer).
    """

    prediction: Prediction
    step: FloatArray
    observed: FloatArray
    predicted: FloatArray
    relative_deviation: FloatArray
    standard_errors: FloatArray | None
    window: int
    tail_mean: float

    @property
    def worst(self) -> int:
        """Index of the largest relative deviation."""
        return int(np.argmax(np.abs(self.relative_deviation)))

    def __str__(self) -> str:
        floor = self.prediction.floor
        largest = abs(self.relative_deviation[self.worst])
        lines = [
            f"compared        {self.step.size} steps, {int(self.step[0])} to {int(self.step[-1])}, "
            f"centred mean over {self.window} on both",
            f"largest         {100 * largest:.3f} % at step {int(self.step[self.worst])}",
            f"mean, rms       {100 * self.relative_deviation.mean():+.3f} %, "
            f"{100 * np.sqrt(np.mean(self.relative_deviation**2)):.3f} %",
            f"end of curve    {self.tail_mean:.6g} (last steps' mean); floors: tied {floor['tied'].loss:.6g}, "
            f"untied {floor['untied'].loss:.6g}",
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of ``inverse-depth compare --json``."""
        deviation = self.relative_deviation
        scores = self.standard_errors
        return {
            "n": int(self.step.size),
            "first_step": int(self.step[0]),
            "last_step": int(self.step[-1]),
            "window": self.window,
            "max_relative_deviation": float(np.abs(deviation).max()),
            "step_of_max": int(self.step[self.worst]),
            "mean_relative_deviation": float(deviation.mean()),
            "rms_relative_deviation": float(np.sqrt(np.mean(deviation**2))),
            "max_standard_errors": None if scores is None else float(np.nanmax(np.abs(scores))),
            "tail_mean": self.tail_mean,
            "floor": {name: floor.loss for name, floor in self.prediction.floor.items()},
            "floor_relative_deviation": {
                name: floor.loss / self.tail_mean - 1 for name, floor in self.prediction.floor.items()
            },
            "step": plain(self.step.astype(int)),
            "observed": plain(self.observed),
            "predicted": plain(self.predicted),
            "relative_deviation": plain(deviation),
            "status": self.prediction.status,
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row a step: step, observed, predicted, relative_deviation."""
        import pandas as pd

        return pd.DataFrame(
            {
                "step": self.step.astype(int),
                "observed": self.observed,
                "predicted": self.predicted,
                "relative_deviation": self.relative_deviation,
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw both curves against the step, on log axes, with the floors."""
        axes = axes_or_new(ax)
        shown = self.step > 0
        axes.plot(self.step[shown], self.observed[shown], lw=2.5, alpha=0.5, label="observed")
        axes.plot(self.step[shown], self.predicted[shown], "k--", lw=1, label="predicted")
        for name, style in (("tied", "-."), ("untied", ":")):
            axes.axhline(self.prediction.floor[name].loss, color="grey", ls=style, lw=1, label=f"{name} floor")
        axes.set(xscale="log", yscale="log", xlabel="step", ylabel="loss")
        axes.set_title(
            f"L = {self.prediction.depth}: at most {100 * abs(self.relative_deviation[self.worst]):.2g} % apart",
            fontsize="medium",
        )
        axes.legend(frameon=False, fontsize="small")
        return axes


def read_curve(path: str | Path) -> pd.DataFrame:
    """Return a ``step,loss[,standard_error]`` table (CSV, or a run's metrics.parquet) as a frame, sorted by step.

    Raises
    ------
    ValueError
        If a column is missing, steps repeat or are not whole and >= 0, or a loss is not a finite number > 0.
    OSError
        If the file cannot be read.
    """
    import pandas as pd

    try:
        table = read_table(path)
        wanted = [name for name in ALLOWED if name != "standard_error" or _has(table, name)]
        columns = {name: table.numbers(name) for name in wanted}
    except ValueError as error:
        raise ValueError(f"curve={str(path)!r}: must have the columns step and loss ({error})") from None
    if not len(table):
        raise ValueError(f"curve={str(path)!r}: must have at least one row")
    for name, values in columns.items():
        bad = np.flatnonzero(~_acceptable(name, values))
        if bad.size:
            where = f"{name} in line {table.lines[bad[0]]}"
            raise ValueError(f"curve={str(path)!r}: {where} is {values[bad[0]]:g}: must be {ALLOWED[name]}")
    if np.unique(columns["step"]).size != len(table):
        raise ValueError(f"curve={str(path)!r}: must hold each step once")
    return pd.DataFrame(columns).sort_values("step", ignore_index=True)


def _acceptable(name: str, values: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which entries of a column are what ``ALLOWED`` says."""
    if name == "step":
        return (values >= 0) & (values <= MOST_STEPS) & (np.floor(values) == values)
    return np.isfinite(values) & ((values > 0) if name == "loss" else (values >= 0))


def _has(table: RunTable, name: str) -> bool:
    return name in {column.strip().lower() for column in table.columns}


def centred_mean(values: FloatArray, window: int) -> FloatArray:
    """Return the mean over ``window`` neighbours, centred; near the ends over those of them that exist.

    Raises
    ------
    ValueError
        If ``window`` is even or < 1.
    """
    width = integer("window", window)
    if width % 2 == 0:
        raise reject("window", window, "odd, so that the mean is centred")
    import pandas as pd

    return pd.Series(values).rolling(width, center=True, min_periods=1).mean().to_numpy(dtype=float)


def compare_curve(
    curve: pd.DataFrame,
    task: Task,
    depth: int,
    *,
    learning_rate: float,
    method: str = "sgd",
    window: int = DEFAULT_WINDOW,
    first_step: int = 0,
    last_step: int | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Hold a training curve against its prediction.

    Parameters
    ----------
    curve : frame with columns step, loss and perhaps standard_error
        The loss before each step, as `read_curve` returns it.
    task, depth, learning_rate, method, samples, seed
        As in `theory.predict`; the method ``flow`` is evaluated at time = learning_rate x step.
    window : int
        Odd; both curves are averaged over this many recorded steps.
    first_step, last_step : int
        Range that is judged; averages reach beyond it where the curve does.

    Raises
    ------
    ValueError
        For arguments out of range, or a range without steps.
    """
    steps = curve["step"].to_numpy(dtype=float)
    losses = curve["loss"].to_numpy(dtype=float)
    tail_mean = float(losses[-TAIL_STEPS:].mean())
    rate = real("learning_rate", learning_rate, above=0)
    first = integer("first_step", first_step, minimum=0)
    last = int(steps[-1]) if last_step is None else integer("last_step", last_step, minimum=first)
    chosen = (steps >= first) & (steps <= last)
    if not chosen.any():
        raise ValueError(f"first_step={first}, last_step={last}: must contain a step of the curve, 0 to {steps[-1]:g}")
    # Neighbours within half a window beyond the range still count; nothing later is predicted.
    reach = min(steps.size, int(np.flatnonzero(chosen)[-1]) + 1 + window // 2)
    steps, losses, chosen = steps[:reach], losses[:reach], chosen[:reach]
    prediction = predict(
        task,
        depth,
        method=method,
        times=rate * steps if method == "flow" else None,
        steps=steps.astype(int).tolist() if method == "sgd" else None,
        learning_rate=rate,
        samples=samples,
        seed=seed,
    )
    observed = centred_mean(losses, window)[chosen]
    predicted = centred_mean(np.asarray(prediction.loss), window)[chosen]
    error = np.asarray(prediction.standard_error)[chosen]
    if "standard_error" in curve.columns:
        stated = curve["standard_error"].to_numpy(dtype=float)[:reach][chosen]
        error = np.hypot(error, stated / np.sqrt(window))
    scores = (predicted - observed) / np.where(error > 0, error, np.nan) if np.any(error > 0) else None
    return Comparison(
        prediction=prediction,
        step=steps[chosen],
        observed=observed,
        predicted=predicted,
        relative_deviation=predicted / observed - 1,
        standard_errors=scores,
        window=window,
        tail_mean=tail_mean,
    )
