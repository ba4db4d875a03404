"""Whether a run has reached its answer: the slope of its loss at the end, against the noise of that slope."""

from __future__ import annotations

import dataclasses

import numpy as np

from theory.checks import FloatArray
from theory.results import Result

# Converged: doubling the steps would lower the loss by less than this share, two standard errors included.
LARGEST_FALL = 0.02
BINS = 6
FEWEST_STEPS = 60
STANDARD_ERRORS = 2.0


@dataclasses.dataclass(frozen=True)
class Convergence(Result):
    """The verdict on one run.

    Parameters
    ----------
    converged : bool
        Whether the loss has stopped falling, as far as its noise lets one see.
    slope, standard_error : float
        d log(loss) / d log(step) over the last half decade of steps, NaN where there is no estimate.
    fall : float
        Share of the loss that doubling the steps would take off at that slope.
    reason : str
        The verdict as a sentence.
    """

    converged: bool
    slope: float
    standard_error: float
    fall: float
    reason: str

    def __str__(self) -> str:
        return self.reason


def judge_convergence(step: FloatArray, loss: FloatArray) -> Convergence:
    """Judge the loss of a run by its slope over the last decade of steps.

    The decade is cut into bins of equal width in log(step); log of the bin means is fitted by a line over the later
    half decade, weighted by the scatter within bins, so that an early fall does not count against a late plateau.
    A flat loss is all it sees: a run held at a saddle, such as untied layers that have not yet left the tied optimum,
    looks converged too, and falls on later. More noise, a larger rate or a random start break such a tie sooner.

    Parameters
    ----------
    step : array (n,)
        Increasing steps, at a constant learning rate.
    loss : array (n,)
        Batch loss at each.
    """
    nan = float("nan")
    if loss.size and not np.isfinite(loss).all():
        return Convergence(False, nan, nan, nan, "diverged: the loss is not finite")
    if step.size < FEWEST_STEPS:
        return Convergence(False, nan, nan, nan, f"undecided: {step.size} losses are fewer than {FEWEST_STEPS}")
    late = step >= step[-1] / np.sqrt(10)
    position, value = np.log(step[late]), loss[late]
    edges = np.linspace(position[0], position[-1], BINS + 1)
    which = np.clip(np.searchsorted(edges, position, side="right") - 1, 0, BINS - 1)
    count = np.bincount(which, minlength=BINS)
    mean = np.bincount(which, value, BINS) / count
    if (mean <= 0).any():
        return Convergence(False, nan, nan, nan, "undecided: the loss is not positive")
    scatter = np.bincount(which, (value - mean[which]) ** 2, BINS) / (count - 1)
    error = np.sqrt(scatter / count) / mean
    error = np.maximum(error, np.finfo(np.float32).eps)
    centre = np.bincount(which, position, BINS) / count
    weight = error**-2
    offset = centre - np.average(centre, weights=weight)
    spread = float(np.sum(weight * offset**2))
    slope = float(np.sum(weight * offset * np.log(mean)) / spread)
    uncertainty = spread**-0.5
    fall = 1 - 2.0**slope
    bound = 1 - 2.0 ** (slope - STANDARD_ERRORS * uncertainty)
    if bound < LARGEST_FALL:
        return Convergence(True, slope, uncertainty, fall, f"converged: doubling the steps would take off {fall:.2%}")
    if slope + STANDARD_ERRORS * uncertainty < 0 or uncertainty == 0:
        reason = f"still falling: doubling the steps would take off {fall:.1%}"
    else:
        reason = f"undecided: noise hides a fall of up to {bound:.1%} on doubling the steps"
    return Convergence(False, slope, uncertainty, fall, reason)
