"""One call from a task to its predicted training curve, with floors, gains and exponents."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.asymptotics import Exponents, crossovers, exponents
from theory.checks import FloatArray, choice, integer, real, vector
from theory.floors import Floor
from theory.losses import jackknife_error
from theory.measure import SpectralMeasure
from theory.paths import METHODS as METHODS
from theory.paths import Training, predicted_path
from theory.power_law import is_power_law
from theory.results import Result, axes_or_new, plain
from theory.spectra import Spectrum
from theory.task import Task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


# Steps that a recursion can run; the flow at time = learning rate x step reaches any later time.
MOST_STEPS = 10**8


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction(Result):
    """A predicted training curve of the reduced linear model.

    Parameters
    ----------
    task : Task
        What is learned.
    depth : int
        L.
    method : {"flow", "sgd"}
        Gradient flow, or the SGD recursion without batch noise.
    step : tuple of int, or None
        Steps of the recursion; ``None`` for the flow.
    time : array of shape (n,)
        learning_rate x step, or the time of the flow.
    loss : array of shape (n,)
        Predicted loss; at step s the loss before update s.
    standard_error : array of shape (n,)
        Of the Wishart average behind ``loss`` (jackknife over draws, the path included); 0 in the population.
    gains : array of shape (n, depth), or (n, depth, dim) where each mode has its own
        gamma_l at each time.
    floor : dict with ``tied`` and ``untied``
        Lowest losses that gains of this depth can reach.
    exponents : Exponents
        Of the power law behind the spectrum, if there is one.
    status : str
        What the solver says.
    notes : dict
        What else was found: ``tie_break``, ``half_times``, ``drop_times``, ``plateaus``, ``batch_noise``,
        ``largest_stable_learning_rate``; ``power_law`` says when truncation or depth ends it, ``spectrum`` how a large
        one is held; ``validity``, ``missing`` and ``rare_contexts`` say what a large-size limit leaves out.
    """

    task: Task
    depth: int
    method: str
    step: tuple[int, ...] | None
    time: FloatArray
    loss: FloatArray
    standard_error: FloatArray
    gains: FloatArray
    floor: dict[str, Floor]
    exponents: Exponents
    status: str
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.method} prediction at depth {self.depth} on {self.task.spectrum.name}: loss "
            f"{self.loss[0]:.6g} at t={self.time[0]:g} to {self.loss[-1]:.6g} at t={self.time[-1]:g}; floors "
            f"tied {self.floor['tied'].loss:.6g}, untied {self.floor['untied'].loss:.6g}. {self.status}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of ``inverse-depth predict --json``."""
        return {
            "depth": self.depth,
            "method": self.method,
            **({} if self.step is None else {"step": plain(self.step)}),
            "time": plain(self.time),
            "loss": plain(self.loss),
            "standard_error": plain(self.standard_error),
            "gains": plain(self.gains),
            "floor": plain({name: floor.loss for name, floor in self.floor.items()}),
            "floor_standard_error": plain({name: floor.standard_error for name, floor in self.floor.items()}),
            "floor_gains": {name: plain(floor.gains) for name, floor in self.floor.items()},
            "exponents": self.exponents.to_dict(),
            "status": self.status,
            **plain(self.notes),
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row a time: step (if any), time, loss, standard_error, gain_1 … gain_L (of the first mode)."""
        import pandas as pd

        columns: dict[str, Any] = {} if self.step is None else {"step": self.step}
        columns |= {"time": self.time, "loss": self.loss, "standard_error": self.standard_error}
        gains = self.gains if self.gains.ndim == 2 else self.gains[:, :, 0]
        columns |= {f"gain_{layer + 1}": gains[:, layer] for layer in range(self.depth)}
        return pd.DataFrame(columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw loss against time on log axes, with the band of two standard errors and the floors.

        Losses that ``notes["below_rounding"]`` marks are not drawn.
        """
        axes = axes_or_new(ax)
        shown = (self.time > 0) & ~np.asarray(self.notes.get("below_rounding", np.zeros(self.time.size, dtype=bool)))
        (line,) = axes.plot(self.time[shown], self.loss[shown], label=f"predicted, L = {self.depth}")
        band = 2 * self.standard_error[shown]
        low = np.maximum(self.loss[shown] - band, np.finfo(float).tiny)
        axes.fill_between(self.time[shown], low, self.loss[shown] + band, alpha=0.25, color=line.get_color(), lw=0)
        for name, style in (("tied", "--"), ("untied", ":")):
            if self.floor[name].loss > 0:
                axes.axhline(self.floor[name].loss, ls=style, color=line.get_color(), lw=1, label=f"{name} floor")
        axes.set(xscale="log", yscale="log", xlabel="time (learning rate × steps)", ylabel="loss")
        axes.set_title(f"{self.task.setting}, {self.task.spectrum.name}", fontsize="medium")
        axes.legend(frameon=False, fontsize="small")
        return axes


def predict(
    task: Task,
    depth: int,
    *,
    method: str = "flow",
    times: Sequence[float] | FloatArray | None = None,
    steps: Sequence[int] | None = None,
    learning_rate: float = 1.0,
    samples: int | None = None,
    seed: int = 0,
    width: int | None = None,
    deterministic: bool = False,
    untied: bool = False,
    break_size: float = 0.0,
    start: str = "zero",
    start_size: float = 1e-3,
    half_times: bool = False,
    batch: int | None = None,
) -> Prediction:
    """Return the predicted loss of the reduced linear model along training.

    Parameters
    ----------
    task : Task
        Any setting and context.
    depth : int
        L.
    method : {"flow", "sgd"}
        ``flow`` needs ``times``; ``sgd`` needs ``steps`` and ``learning_rate``.
    times : sequence of float
        Strictly increasing, >= 0; time is learning rate x steps.
    steps : sequence of int
        Strictly increasing, >= 0.
    learning_rate : float
        On every entry of Gamma_l.
    samples : int, optional
        Wishart draws at finite context.
    seed : int
        Seed of the draws.
    width : int, optional
        N <= dim, directions of the covariates that the residual stream holds (``theory.bottleneck``).
    deterministic : bool
        The large-size limit instead of draws (``theory.equivalents``); ``notes`` say its validity.
    untied : bool
        Let the layers differ, from a start that breaks the tie by ``break_size``.
    break_size : float
        Largest difference of a layer's gain from the mean at the start, evenly spaced over layers.
    start : {"zero", "merged", "heads"}
        Gamma from zero, or as a product of small factors of size ``start_size`` (``theory.small_init``).
    start_size : float
    half_times : bool
        Add when each mode is half learned (tied flow from zero) to ``notes``.
    batch : int, optional
        With ``sgd`` from zero at full width, settings rrs and iso: add what batches of this many contexts add to the
        mean loss, to first order, to ``notes`` (``theory.batch_noise``).

    Raises
    ------
    ValueError
        For arguments out of range, ``times`` / ``steps`` missing for the method, or a combination no theory covers.
    """
    depth = integer("depth", depth)
    choice("method", method, METHODS)
    rate = real("learning_rate", learning_rate, above=0)
    integer("seed", seed, minimum=0)
    if samples is not None:
        integer("samples", samples)
    step: tuple[int, ...] | None = None
    if method == "flow":
        if times is None:
            raise ValueError("times=None: must be given for the method 'flow'")
        at = time = vector("times", times, minimum=0.0, increasing=True)
    else:
        if steps is None:
            raise ValueError("steps=None: must be given for the method 'sgd'")
        at = vector("steps", steps, minimum=0.0, increasing=True)
        integer("steps", float(at[-1]), minimum=0, maximum=MOST_STEPS)
        step, time = tuple(int(number) for number in at), rate * at
    training = Training(method, tuple(at), rate, untied, break_size, start, start_size)
    path = predicted_path(task, depth, training, width=width, deterministic=deterministic, samples=samples, seed=seed)
    notes = dict(path.notes)
    if task.setting == "rrs" and task.context is None and width is None and method == "flow":
        notes |= _scales(task.spectrum, depth)
    if half_times:
        from theory.half_times import mode_half_times

        found = mode_half_times(task, depth, samples=samples, seed=seed)
        notes["half_times"] = {"time": found.time, "order": found.order + 1, "source": found.source}
    if batch is not None:
        from theory.batch_noise import batch_noise

        if method != "sgd" or untied or width is not None:
            raise ValueError(f"batch={batch}: must go with the method 'sgd', tied gains from zero and full width")
        notes["batch_noise"] = batch_noise(task, depth, rate, batch, at, seed=seed).correction
    return Prediction(
        task=task,
        depth=depth,
        method=method,
        step=step,
        time=time,
        loss=path.losses[0],
        standard_error=jackknife_error(path.losses),
        gains=path.gains,
        floor=path.floor,
        exponents=exponents(task.spectrum),
        status=path.status,
        notes=notes,
    )


def _scales(spectrum: Spectrum | SpectralMeasure, depth: int) -> dict[str, Any]:
    """Return where a cut spectrum, or depth, ends the power law, and how a large spectrum is held."""
    notes: dict[str, Any] = {}
    if is_power_law(spectrum):
        notes["power_law"] = crossovers(spectrum, depth).first
    if isinstance(spectrum, SpectralMeasure):
        clock = "; times are t / D" if math.isinf(spectrum.dim) else ""
        notes["spectrum"] = f"dim {spectrum.dim:g} as {spectrum.points} points{clock}"
    return notes
