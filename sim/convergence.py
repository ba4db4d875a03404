"""Whether a run has reached its answer: the slope of its loss at the end, against the noise of that slope."""

from __future__ import annotations

import dataclasses

import numpy as np

from theory.checks import FloatArray
from theory.results import Result

# Converged: doubling the steps would lower the loss by less than this share, two standard errors included.
LARGEST_FALL = 0.02
# A loss that fresh contexts do not tell better than this, relatively, is no data point.
LARGEST_ERROR = 0.1
# The minimum of a fixed batch costs that much less there than fresh contexts do, the population's optimum being about
# half-way: the same 2 %.
LARGEST_EXCESS = 2 * LARGEST_FALL
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


def _error_of_median(ordered: FloatArray) -> float:
    """Return the standard error of a sorted sample's median: half the span of the ranks one deviation either side.

    The number of values below the true median is binomial, of standard deviation sqrt(n) / 2.
    """
    middle, reach = (ordered.size - 1) / 2, ordered.size**0.5 / 2
    low, high = max(0, round(middle - reach)), min(ordered.size - 1, round(middle + reach))
    return float(ordered[high] - ordered[low]) / 2


def judge_convergence(step: FloatArray, loss: FloatArray) -> Convergence:
    """Judge the loss of a run by its slope over the last decade of steps.

    The last half decade is cut into bins of equal width in log(step), and a line fitted to log of the bins' medians,
    weighted by the errors of these (order statistics), so that an early fall does not count against a late plateau.
    Medians, because batch losses have heavy tails: one context on which a deep model blows up can outweigh a bin.
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
    bins = [np.sort(value[which == i]) for i in range(BINS)]
    middle = np.array([np.median(one) for one in bins])
    if (middle <= 0).any():
        return Convergence(False, nan, nan, nan, "undecided: the loss is not positive")
    error = np.array([_error_of_median(one) for one in bins]) / middle
    error = np.maximum(error, np.finfo(np.float32).eps)
    centre = np.array([np.median(position[which == i]) for i in range(BINS)])
    weight = error**-2
    offset = centre - np.average(centre, weights=weight)
    spread = float(np.sum(weight * offset**2))
    slope = float(np.sum(weight * offset * np.log(middle)) / spread)
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


def judge_evaluation(
    verdict: Convergence, final_loss: float, standard_error: float, batch_loss: float | None = None
) -> Convergence:
    """Return ``verdict``, or why the loss on fresh contexts is no data point although training has converged.

    Parameters
    ----------
    verdict : Convergence
        On training.
    final_loss, standard_error : float
        On fresh contexts; where few contexts cost most of it, it is not known.
    batch_loss : float, optional
        Minimum on a fixed batch: far below the loss on fresh contexts, the batch was learned by heart.
    """
    if not verdict.converged or not np.isfinite(final_loss):
        return verdict
    reason = None
    excess = final_loss - (final_loss if batch_loss is None else batch_loss)
    if standard_error > LARGEST_ERROR * final_loss:
        reason = f"undecided: the loss on fresh contexts is known to {standard_error / final_loss:.0%} only"
    elif excess > max(LARGEST_EXCESS * final_loss, STANDARD_ERRORS * standard_error):
        reason = f"overfitted: fresh contexts cost {excess / final_loss:.0%} more than the batch"
    if reason is None:
        return verdict
    return dataclasses.replace(verdict, converged=False, reason=f"{reason} ({verdict.reason})")
