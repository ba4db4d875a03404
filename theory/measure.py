"""Spectra of any size as a few hundred points: the measure sum_k lambda_k omega_k delta(lambda_k), compressed.

Losses and forces of linear attention are sums over modes of s_k F(lambda_k), with F smooth on the scale of lambda
itself. The modes are grouped into cells within which lambda changes by at most about a factor of e, and each cell of
many modes is replaced by the nodes of its own Gauss rule, with positive weights. For power laws the cells are runs of
consecutive k and the rule is that of a sum over integers, so a spectrum of 10^9 modes costs no more than one of 10^4,
and the infinite one is within reach too.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, integer, real, reject, vector
from theory.gauss import gauss_rule, summation_rule
from theory.results import Result
from theory.spectra import Spectrum

# Nodes of the rule in a cell; with cells of ratio <= e, 10 leave a relative error near rounding.
ORDER = 10
# Modes 1 .. HEAD - 1 of a power law stay as they are.
HEAD = 64
# From this mode on an infinite power law is an integral: the midpoint error, about 1 / (24 k^2), is below rounding.
CONTINUOUS_FROM = 2.0**23
# An infinite power law is followed down to this eigenvalue; what lies below is one point with the tail's mass and mean.
SMALLEST_EIGENVALUE = 1e-30
# A power law with at most this many modes is not compressed.
EXACT_UP_TO = 1024
# Points of a cell that are reduced at a time.
PIECE = 4096
# Bernstein ellipses tried in the error bound, and points on each.
ELLIPSES = (1.3, 1.7, 2.2, 3.0, 4.0, 5.2, 8.0, 16.0, 40.0)
ELLIPSE_POINTS = 64


@dataclasses.dataclass(frozen=True)
class _Cells:
    """Compressed cells: ``coordinate`` is what the rule is polynomial in; ``mass`` the weight without the integrand."""

    coordinate: str
    low: FloatArray
    high: FloatArray
    mass: FloatArray


@dataclasses.dataclass(frozen=True, eq=False)
class SpectralMeasure(Result):
    """Points ``eigenvalues`` with weights ``signal`` that stand for a spectrum of ``dim`` modes; immutable.

    Build one with :meth:`power_law` or :meth:`from_spectrum`.

    Attributes
    ----------
    eigenvalues, signal : arrays of shape (points,)
        Eigenvalues, descending, and the share of the loss of predicting zero at each.
    dim : float
        D, the number of modes that they stand for (the clock of the flow runs like 1/D); may be inf.
    capacity, source, amplitude : float or None
        nu, beta and A where lambda_k = k^-nu and lambda_k omega_k = A k^-(nu beta + 1).
    name : str
        Shown in output.
    """

    eigenvalues: FloatArray
    signal: FloatArray
    dim: float
    capacity: float | None = None
    source: float | None = None
    amplitude: float | None = None
    name: str = "measure"
    _cells: tuple[_Cells, ...] = dataclasses.field(default=(), repr=False)
    _order: int = dataclasses.field(default=ORDER, repr=False)

    def __post_init__(self) -> None:
        eigenvalues = vector("eigenvalues", self.eigenvalues, minimum=0.0)
        signal = vector("signal", self.signal, minimum=0.0)
        if eigenvalues.size != signal.size:
            raise ValueError(f"signal has {signal.size} entries: must be as many as eigenvalues, {eigenvalues.size}")
        order = np.argsort(-eigenvalues, kind="stable")
        for name, array in (("eigenvalues", eigenvalues[order]), ("signal", signal[order])):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def total(self) -> float:
        """sum_k lambda_k omega_k, the loss of predicting zero."""
        return float(self.signal.sum())

    @property
    def points(self) -> int:
        """Number of points kept."""
        return int(self.eigenvalues.size)

    def __str__(self) -> str:
        return f"{self.name}: dim {self.dim:g} as {self.points} points"

    @classmethod
    def power_law(
        cls,
        dim: float,
        capacity: float,
        source: float,
        *,
        normalise: bool = True,
        order: int = ORDER,
        head: int | None = None,
    ) -> SpectralMeasure:
        """Return the power law lambda_k = k^-capacity, lambda_k omega_k ∝ k^-(capacity source + 1), k = 1..dim.

        Parameters
        ----------
        dim : int or inf
            Number of modes; ``math.inf`` carries the whole tail.
        capacity, source : float
            nu > 0 and beta > 0.
        normalise : bool
            Scale so that sum_k lambda_k omega_k = 1; otherwise the first mode has signal 1.
        order : int
            Nodes a cell.
        head : int, optional
            Modes 1 .. head - 1 stay one by one (64 by default). Untied layers of depth L put a zero on each of the
            first eigenvalues, so their floor needs a head of 2 L or more; tied losses do not.

        Raises
        ------
        ValueError
            If ``dim`` is neither a whole number >= 1 nor inf, or an exponent is not positive.
        """
        infinite = isinstance(dim, float) and math.isinf(dim) and dim > 0
        size = math.inf if infinite else float(integer("dim", dim))
        nu, beta = real("capacity", capacity, above=0), real("source", source, above=0)
        order = integer("order", order, minimum=2)
        first = HEAD if head is None else integer("head", head, minimum=2)
        k, weight, cells = _power_law_nodes(size, nu, order, first)
        signal = weight * k ** -(nu * beta + 1)
        eigenvalues = k**-nu
        if infinite:
            far, far_eigenvalues, far_signal = _far_tail(nu, beta, cells[0].high[-1] if cells else first - 1, order)
            eigenvalues = np.concatenate([eigenvalues, far_eigenvalues])
            signal = np.concatenate([signal, far_signal])
            cells = (*cells, far)
        amplitude = 1 / math.fsum(signal) if normalise else 1.0
        name = f"power law (capacity {nu:g}, source {beta:g})"
        return cls(eigenvalues, signal * amplitude, size, nu, beta, amplitude, name, cells, order)

    @classmethod
    def from_spectrum(cls, spectrum: Spectrum, *, order: int = ORDER) -> SpectralMeasure:
        """Return the measure of ``spectrum``; cells of more than 2 ``order`` modes are compressed.

        Raises
        ------
        ValueError
            If ``order`` is not a whole number >= 2.
        """
        order = integer("order", order, minimum=2)
        signal = spectrum.signal
        amplitude = float(signal[0]) if spectrum.capacity is not None and spectrum.source is not None else None
        x, s, cells = _compress(spectrum.eigenvalues, signal, order)
        return cls(x, s, spectrum.dim, spectrum.capacity, spectrum.source, amplitude, spectrum.name, cells, order)

    def losses(self, gammas: npt.ArrayLike, depth: float) -> FloatArray:
        """Return the tied loss sum_k s_k (1 - gamma lambda_k / L)^(2L) at each gain; ``depth`` may be ``math.inf``.

        Raises
        ------
        ValueError
            If a gain is not finite, or ``depth`` is neither a whole number >= 1 nor inf.
        """
        from theory.kernels import tied_losses

        return tied_losses(self.eigenvalues, self.signal, vector("gammas", gammas), depth_code(depth))

    def error_bound(self, gamma: float, depth: float) -> float:
        """Return a bound on the error that compression makes in the tied loss at this gain, absolute.

        A rule with positive weights, exact to degree n = 2 order - 1, errs in a cell of mass W by at most twice W
        times the best polynomial approximation of the integrand, which is below 2 M rho^-n / (rho - 1) with M its
        largest modulus on the Bernstein ellipse rho (Trefethen, Approximation Theory and Practice, theorem 8.2). M is
        sampled on the ellipse, and the best of several rho is taken. Rounding of the sum is included.

        Raises
        ------
        ValueError
            As :meth:`losses`.
        """
        from theory.kernels import tied_sums

        gain, code = real("gamma", gamma), depth_code(depth)
        degree = 2 * self._order - 1
        circle = np.exp(2j * np.pi * np.arange(ELLIPSE_POINTS) / ELLIPSE_POINTS)
        loss, force, _ = tied_sums(self.eigenvalues, self.signal, gain, code)
        # A mode's rounding is relative: one unit for each factor of the power, or for each unit of the exponent.
        bound = 4 * np.finfo(float).eps * ((1 + code) * loss + abs(gain * force))
        for cells in self._cells:
            centre, half = (cells.low + cells.high)[:, None] / 2, (cells.high - cells.low)[:, None] / 2
            best = np.full(cells.low.size, np.inf)
            for rho in ELLIPSES:
                z = centre + half * (rho * circle + 1 / (rho * circle)) / 2
                with np.errstate(all="ignore"):
                    size = np.abs(self._integrand(cells.coordinate, z, gain, code)).max(axis=1)
                    value = 4 * cells.mass * size * rho**-degree / (rho - 1)
                inside = np.ones_like(best, bool) if cells.coordinate != "mode" else z.real.min(axis=1) > 0
                best = np.where(inside & np.isfinite(value), np.minimum(best, value), best)
            bound += float(best.sum())
        return bound

    def _integrand(self, coordinate: str, z: npt.NDArray[np.complex128], gain: float, depth: int) -> Any:
        """Return the part of the tied loss that a rule integrates, at complex positions ``z`` in its coordinate."""
        weight: Any = 1.0
        eigenvalue = z
        if coordinate != "eigenvalue":
            assert self.capacity is not None
            assert self.source is not None
            assert self.amplitude is not None
            log_k = np.log(z) if coordinate == "mode" else z
            # In the logarithmic coordinate dk = k du takes one power of k away.
            power = self.capacity * self.source + (1 if coordinate == "mode" else 0)
            eigenvalue = np.exp(-self.capacity * log_k)
            weight = self.amplitude * np.exp(-power * log_k)
        if depth == 0:
            return weight * np.exp(-2 * gain * eigenvalue)
        return weight * (1 - gain * eigenvalue / depth) ** (2 * depth)

    def to_dict(self) -> dict[str, Any]:
        """Return name, dim, exponents, amplitude and the points."""
        return {key: value for key, value in super().to_dict().items() if not key.startswith("_")}

    def to_frame(self) -> Any:
        """Return one row a point: eigenvalue, signal."""
        import pandas as pd

        return pd.DataFrame({"eigenvalue": self.eigenvalues, "signal": self.signal})


def depth_code(depth: float) -> int:
    """Return ``depth`` as the kernels take it: a whole number >= 1, or 0 for ``math.inf``.

    Raises
    ------
    ValueError
        If it is neither.
    """
    if isinstance(depth, float) and math.isinf(depth) and depth > 0:
        return 0
    return integer("depth", depth)


def as_measure(spectrum: Spectrum | SpectralMeasure) -> SpectralMeasure:
    """Return ``spectrum`` as a measure: itself, or its points uncompressed up to a few thousand and compressed beyond.

    Raises
    ------
    ValueError
        If it is neither a :class:`Spectrum` nor a :class:`SpectralMeasure`.
    """
    if isinstance(spectrum, SpectralMeasure):
        return spectrum
    if isinstance(spectrum, Spectrum):
        return SpectralMeasure.from_spectrum(spectrum)
    raise reject("spectrum", type(spectrum).__name__, "a Spectrum or a SpectralMeasure")


def _edges_towards(low: float, high: float, ratio: float, least: float) -> FloatArray:
    """Return whole-number edges from ``low`` to ``high``: geometric up to the middle, then finer and finer to the end.

    The last modes set the loss once every other has been learned, so the cells shrink towards them.
    """
    edges = [low]
    while edges[-1] * ratio < high / 2:
        edges.append(float(math.ceil(edges[-1] * ratio)))
    gap = high - edges[-1]
    while gap > 2 * least:
        gap = math.floor(gap / 2)
        edges.append(high - gap)
    return np.unique(np.array([*edges, high]))


def _power_law_nodes(
    dim: float, nu: float, order: int, first: int
) -> tuple[FloatArray, FloatArray, tuple[_Cells, ...]]:
    """Return positions k, weights, and compressed cells for modes 1 .. dim (.. CONTINUOUS_FROM if infinite)."""
    if dim <= EXACT_UP_TO:
        return np.arange(1.0, dim + 1), np.ones(int(dim)), ()
    ratio = min(2.0, math.exp(1 / nu))
    # A cell must hold more modes than twice the order, so steep spectra keep a longer head.
    head = max(float(first), math.ceil(2 * order / (ratio - 1)))
    if math.isinf(dim):
        edges = [head]
        while edges[-1] < CONTINUOUS_FROM and edges[-1] ** -nu > SMALLEST_EIGENVALUE:
            edges.append(float(math.ceil(edges[-1] * ratio)))
        bounds = np.array(edges)
    else:
        if head >= dim:
            return np.arange(1.0, dim + 1), np.ones(int(dim)), ()
        bounds = _edges_towards(head, dim + 1, ratio, 2 * order)
    low, high = bounds[:-1], bounds[1:]
    large = high - low > 2 * order
    exact = [np.arange(1.0, head), *(np.arange(a, b) for a, b in zip(low[~large], high[~large], strict=True))]
    nodes, weights = summation_rule(low[large], high[large], order)
    k = np.concatenate([*exact, nodes.ravel()])
    weight = np.concatenate([np.ones(k.size - nodes.size), weights.ravel()])
    # The rule's polynomials live on the first to the last integer of the cell.
    return k, weight, (_Cells("mode", low[large], high[large] - 1, high[large] - low[large]),)


def _far_tail(nu: float, beta: float, last: float, order: int) -> tuple[_Cells, FloatArray, FloatArray]:
    """Return cells, eigenvalues and signal (A = 1) of the modes after ``last``, as an integral over u = log k."""
    start = math.log(last + 0.5)
    end = max(-math.log(SMALLEST_EIGENVALUE) / nu, start)
    count = math.ceil((end - start) * nu * max(1.0, beta / 2))
    edges = np.linspace(start, end, count + 1)
    low, high = edges[:-1], edges[1:]
    nodes, weights = np.polynomial.legendre.leggauss(order)
    u = ((high + low)[:, None] + (high - low)[:, None] * nodes) / 2
    signal = (high - low)[:, None] / 2 * weights * np.exp(-nu * beta * u)
    # Below the smallest eigenvalue: one point with the mass and the mean of what is left.
    mass = math.exp(-nu * beta * end) / (nu * beta)
    mean = math.exp(-nu * end) * beta / (1 + beta)
    eigenvalues = np.append(np.exp(-nu * u).ravel(), mean)
    return _Cells("log", low, high, high - low), eigenvalues, np.append(signal.ravel(), mass)


def _compress(x: FloatArray, s: FloatArray, order: int) -> tuple[FloatArray, FloatArray, tuple[_Cells, ...]]:
    """Return points and weights for eigenvalues ``x`` (descending) with signal ``s``."""
    positive = int(np.searchsorted(-x, 0.0))
    if positive <= EXACT_UP_TO:
        return x, s, ()
    smallest, largest = float(x[positive - 1]), float(x[0])
    edges = [largest]
    while edges[-1] > 4 * smallest:
        edges.append(edges[-1] / 2)
    while edges[-1] - smallest > 1e-3 * smallest:
        edges.append(smallest + (edges[-1] - smallest) / 2)
    cuts = np.unique(np.searchsorted(-x[:positive], -np.array(edges[1:]), side="right"))
    bounds = np.unique(np.concatenate([[0], cuts, [positive]]))
    points, weights, cells = [x[positive:]], [s[positive:]], []
    for first, last in itertools.pairwise(bounds):
        part, signal = x[first:last], s[first:last]
        mass = float(signal.sum())
        if last - first > 2 * order and mass > 0 and part[0] > part[-1]:
            centre, half = (part[0] + part[-1]) / 2, (part[0] - part[-1]) / 2
            nodes, shares = _cell_rule((part - centre) / half, signal, order)
            cells.append((part[-1], part[0], mass))
            part, signal = centre + half * nodes, shares
        points.append(part)
        weights.append(signal)
    low, high, mass_of = np.array(cells).reshape(-1, 3).T
    return np.concatenate(points), np.concatenate(weights), (_Cells("eigenvalue", low, high, mass_of),)


def _cell_rule(x: FloatArray, s: FloatArray, order: int) -> tuple[FloatArray, FloatArray]:
    """Return the Gauss rule of a cell, by way of the rules of its pieces: exact to the same degree, and in cache."""
    while x.size > PIECE:
        pieces = [gauss_rule(x[i : i + PIECE], s[i : i + PIECE], order) for i in range(0, x.size, PIECE)]
        x = np.concatenate([nodes for nodes, _ in pieces])
        s = np.concatenate([shares for _, shares in pieces])
    return gauss_rule(x, s, order)
