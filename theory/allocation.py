"""How to split a compute budget between depth and training time, and between these and width, on power-law spectra."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from theory.checks import choice, real, reject
from theory.measure import SpectralMeasure
from theory.power_law import PowerLaw, power_law_of
from theory.results import Result
from theory.spectra import Spectrum

LEARNING_RATES = ("depth", "fixed")
# The search for the best depth looks this far around the law's.
SEARCH_FACTOR = 8.0
SEARCH_POINTS = 60


@dataclasses.dataclass(frozen=True)
class Split(Result):
    """The best use of a compute budget.

    Attributes
    ----------
    compute : float
        C.
    depth, time, width : float
        Best L, training time and N by the law; width is inf where it was not part of the budget.
    loss : float
        The law's loss there, prefactor * C^-exponent.
    prefactor, exponent : float
    exact_depth : int or None
        Best whole depth on the exact curves of the infinite spectrum; ``None`` with a width.
    exact_loss : float
        Exact loss at the best depth (at the law's own depth, time and width with a width).
    relative_error : float
        Of the law against ``exact_loss``.
    """

    compute: float
    depth: float
    time: float
    width: float
    loss: float
    prefactor: float
    exponent: float
    exact_depth: int | None
    exact_loss: float
    relative_error: float

    def __str__(self) -> str:
        wide = "" if math.isinf(self.width) else f", width {self.width:.4g}"
        return (
            f"compute {self.compute:.4g}: depth {self.depth:.4g}, time {self.time:.4g}{wide} give loss "
            f"{self.loss:.4g} = {self.prefactor:.4g} C^-{self.exponent:.4g} (exact {self.exact_loss:.4g})"
        )


def depth_time_split(spectrum: Spectrum | SpectralMeasure, compute: float, *, learning_rate: str = "depth") -> Split:
    """Return the best split of C = L * time between depth and training time, tied model on the infinite spectrum.

    The loss c gamma^-beta falls with gamma(time)^(2+beta) = K time, K = (2+beta) beta c / D, until gamma reaches 2 L.
    More depth than that is idle, less cuts the descent short, so gamma = 2 L at the optimum:

    - ``learning_rate="depth"``, a rate that grows like L, time = t / L: L^(3+beta) = 2^-(2+beta) K C, and the loss
      falls like C^(-beta/(3+beta));
    - ``learning_rate="fixed"``, time = t, on which deep models move like 1/L: L^(4+beta) = 2^-(2+beta) K C, and the
      loss falls like C^(-beta/(4+beta)).

    Parameters
    ----------
    spectrum : Spectrum or SpectralMeasure
        A power law; its dim sets the clock only (1 if infinite).
    compute : float
        C > 0.
    learning_rate : {"depth", "fixed"}

    Raises
    ------
    ValueError
        If an argument is outside these ranges, or the spectrum is no power law.
    """
    law, budget, extra = power_law_of(spectrum), real("compute", compute, above=0), 3.0
    extra += choice("learning_rate", learning_rate, LEARNING_RATES) == "fixed"
    beta, c, speed = law.source, law.gain_prefactor(0), _speed(law)
    depth = (2 ** -(2 + beta) * speed * budget) ** (1 / (extra + beta))
    exponent = beta / (extra + beta)
    # (2 L)^-beta with (2 L)^(extra + beta) = 2^(extra - 2) K C.
    prefactor = c * (2 ** (extra - 2) * speed) ** -exponent
    loss = c * (2 * depth) ** -beta
    exact_depth, exact_loss = _search(law, budget, depth, learning_rate)
    return Split(
        budget,
        depth,
        budget / depth,
        math.inf,
        loss,
        prefactor,
        exponent,
        exact_depth,
        exact_loss,
        abs(loss / exact_loss - 1),
    )


def width_depth_time_split(
    spectrum: Spectrum | SpectralMeasure, compute: float, *, width_cost: float = 2.0, clock_follows_width: bool = True
) -> Split:
    """Return the best split of C = N^a L time between width, depth and time (t / L), the N strongest modes being seen.

    The modes beyond N are never learned. With v = 2 gamma N^-nu the loss is gamma^-beta phi(v),
    phi(v) = c + (A/nu) 2^-beta int_0^v u^(beta-1) (1 - e^-u) du, and with gamma = 2 L and the gain's clock, C grows
    like gamma^E v^(-a/nu) with E = 3 + beta + a/nu. So v solves v phi'(v) / phi(v) = beta a / (nu E), and the loss
    falls like C^(-beta/E).

    Parameters
    ----------
    spectrum : Spectrum or SpectralMeasure
        A power law.
    compute : float
        C > 0.
    width_cost : float
        a > 0: the cost of a layer grows like N^a; 2 counts its weights.
    clock_follows_width : bool
        The gain of a model of width N moves like 1/N (rotation-symmetric weights); then a grows by one. Otherwise the
        clock is that of ``spectrum.dim``.

    Raises
    ------
    ValueError
        If an argument is outside these ranges, the spectrum is no power law, or the budget is too small for N >= 1.
    """
    from scipy.integrate import quad
    from scipy.optimize import brentq

    law, budget = power_law_of(spectrum), real("compute", compute, above=0)
    a = real("width_cost", width_cost, above=0) + (1.0 if clock_follows_width else 0.0)
    nu, beta, c = law.capacity, law.source, law.gain_prefactor(0)
    unit = law.amplitude / nu * 2**-beta
    speed = _speed(law) * (law.dim if clock_follows_width and math.isfinite(law.dim) else 1.0)
    total = 3 + beta + a / nu

    def phi(v: float) -> float:
        # In w = u^beta the integrand has no singularity at 0.
        found = quad(lambda w: -math.expm1(-(w ** (1 / beta))) / beta, 0, v**beta, epsrel=1e-10, limit=200)
        return c + unit * float(found[0])

    def excess(log_v: float) -> float:
        v = math.exp(log_v)
        return unit * v**beta * -math.expm1(-v) / phi(v) - beta * a / (nu * total)

    v = math.exp(brentq(excess, -30.0, 30.0, xtol=1e-12))
    # C = N^a (gamma/2) gamma^(2+beta) / K with N = (2 gamma / v)^(1/nu).
    gamma = (2 * speed * budget * (v / 2) ** (a / nu)) ** (1 / total)
    width, depth, time = (2 * gamma / v) ** (1 / nu), gamma / 2, gamma ** (2 + beta) / speed
    if clock_follows_width:
        time *= width
    if width < 1:
        raise reject("compute", compute, "large enough for a width of 1 or more")
    exponent = beta / total
    loss = gamma**-beta * phi(v)
    seen = SpectralMeasure.power_law(math.ceil(width), nu, beta, normalise=False)
    beyond = SpectralMeasure.power_law(math.inf, nu, beta, normalise=False).total - seen.total
    exact = law.amplitude * (float(seen.losses([gamma], math.inf)[0]) + beyond)
    return Split(
        budget, depth, time, width, loss, loss * budget**exponent, exponent, None, exact, abs(loss / exact - 1)
    )


def _speed(law: PowerLaw) -> float:
    """Return K = (2 + beta) beta c / D, d gamma^(2+beta) / d(t/L)."""
    clock = law.dim if math.isfinite(law.dim) else 1.0
    return (2 + law.source) * law.source * law.gain_prefactor(0) / clock


def _search(law: PowerLaw, compute: float, depth: float, learning_rate: str) -> tuple[int, float]:
    """Return the best whole depth and its exact loss on the infinite spectrum."""
    from theory.tied import tied_curve

    measure = SpectralMeasure.power_law(math.inf, law.capacity, law.source)
    clock = law.dim if math.isfinite(law.dim) else 1.0
    scale = law.amplitude / (measure.amplitude or 1.0)

    def loss(layers: int) -> float:
        # t / L = C / L means that t = C.
        time = compute if learning_rate == "depth" else compute / layers
        return scale * float(tied_curve(measure, layers, [time * scale], clock_dim=clock).losses[0])

    grid = np.unique(np.rint(np.geomspace(max(1.0, depth / SEARCH_FACTOR), depth * SEARCH_FACTOR + 1, SEARCH_POINTS)))
    losses = [loss(int(layers)) for layers in grid]
    at = int(np.argmin(losses))
    low, high = int(grid[max(at - 1, 0)]), int(grid[min(at + 1, grid.size - 1)])
    # The loss has one minimum in depth; a ternary search ends on it.
    while high - low > 2:
        third = (high - low) // 3
        left, right = low + third, high - third
        low, high = (low, right) if loss(left) <= loss(right) else (left, high)
    best = min(range(low, high + 1), key=loss)
    return best, loss(best)
