"""Layer statistics: covariance of per-layer errors, plateau, gain, correlation length, and the loss at other depths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from theory.checks import FloatArray, choice, integer, real, reject
from theory.depth_laws import LARGEST_CORRELATION, ar1
from theory.results import Result, axes_or_new, plain
from validate.tables import RunTable, lines_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

ORDERS = ("random", "consecutive")
# Products of errors, and sums of them, stay within float64.
SMALLEST_ERROR = 1e-120
# Correlations that the fit of the decay with distance tries.
TRIED_CORRELATIONS = np.linspace(0.0, LARGEST_CORRELATION, 397)


@dataclass(frozen=True)
class LayerQuantity:
    """An estimate with its standard error and interval; NaN where there is none."""

    value: float
    stderr: float
    interval: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return ``value``, ``stderr`` and ``ci95``."""
        return plain({"value": self.value, "stderr": self.stderr, "ci95": list(self.interval)})


@dataclass(frozen=True)
class LayerStatistics(Result):
    """What the errors of L layers on M examples say.

    Attributes
    ----------
    layers, examples
        L, and the number of independent examples (or groups) M.
    covariance
        ``C = E[e e^T]``, (L, L), unbiased.
    plateau
        Mean off-diagonal entry of C: the error that layers share.
    gain
        Mean diagonal entry less the plateau: what averaging removes.
    loss
        ``1^T C 1 / L^2``, equal to ``plateau + gain / L``.
    effective_layers
        Mean diagonal entry over ``loss``: independent layers whose average is as good.
    neighbour_correlation, correlation_length
        r and ``-1/log r`` in layers, of the law ``shared + own r^|l-m|`` fitted to C by distance.
    shared
        The part of that law that does not fade with distance.
    by_distance
        Mean entry of C at each distance 0..L-1, (L,), with standard errors ``by_distance_error``.
    level
        Content of the intervals.
    """

    layers: int
    examples: int
    covariance: FloatArray
    plateau: LayerQuantity
    gain: LayerQuantity
    loss: LayerQuantity
    effective_layers: LayerQuantity
    neighbour_correlation: LayerQuantity
    correlation_length: LayerQuantity
    shared: LayerQuantity
    by_distance: FloatArray
    by_distance_error: FloatArray
    level: float
    products: FloatArray = field(repr=False)
    resampled: FloatArray = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the estimates as JSON-ready values, without the per-example products."""
        names = ["layers", "examples", "plateau", "gain", "loss", "effective_layers", "neighbour_correlation"]
        names += ["correlation_length", "shared", "by_distance", "by_distance_error", "covariance", "level"]
        return {
            name: item.to_dict() if isinstance(item := getattr(self, name), LayerQuantity) else plain(item)
            for name in names
        }

    def to_frame(self) -> pd.DataFrame:
        """Return the covariance by distance."""
        import pandas as pd

        distance = np.arange(self.layers)
        return pd.DataFrame(
            {"distance": distance, "covariance": self.by_distance, "standard_error": self.by_distance_error}
        )

    def __str__(self) -> str:
        """Return one line a quantity."""
        lines = [f"{self.layers} layers, {self.examples} independent examples"]
        for name in ("plateau", "gain", "loss", "effective_layers", "neighbour_correlation", "correlation_length"):
            item: LayerQuantity = getattr(self, name)
            lines.append(f"  {name:>22} = {item.value:.5g}  [{item.interval[0]:.4g}, {item.interval[1]:.4g}]")
        return "\n".join(lines)

    def predict(self, depth: int, *, order: str = "random") -> LayerQuantity:
        """Return the loss of an average of ``depth`` such layers.

        Parameters
        ----------
        depth
            Layers averaged; more than measured is an extrapolation.
        order
            ``random``: any ``depth`` layers, ``plateau + gain/depth`` (for fewer layers than measured exactly the mean
            over all subsets). ``consecutive``: neighbours; for fewer layers from the covariance by distance, for more
            from the fitted ``shared + own r^distance``.

        Raises
        ------
        ValueError
            If an argument is out of range.
        """
        count = integer("depth", depth)
        choice("order", order, ORDERS)
        lag = np.arange(self.layers)
        if order == "random":
            pairs = np.where(lag > 0, 2.0 * (self.layers - lag) / (self.layers * (self.layers - 1)), 0.0)
            shares = (1.0 - 1.0 / count) * pairs
            shares[0] += 1.0 / count
        elif count <= self.layers:
            shares = np.where(lag < count, np.where(lag > 0, 2.0, 1.0) * (count - lag) / count**2, 0.0)
        else:
            value = _fitted_loss(self.by_distance[None], count)[0]
            draws = _fitted_loss(self.resampled, count)
            return _from_draws(float(value), draws, self.level)
        return _from_examples(self.products @ shares, self.level)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the covariance against distance with the fitted law and the plateau."""
        ax = axes_or_new(ax, figsize=(3.4, 2.6))
        distance = np.arange(self.layers)
        ax.errorbar(distance, self.by_distance, yerr=self.by_distance_error, fmt="o", ms=3.5, color="#000000", lw=0.8)
        fitted = _fit_decay(self.by_distance[None])
        grid = np.linspace(0, self.layers - 1, 120)
        ax.plot(grid, fitted[0, 0] + fitted[0, 1] * fitted[0, 2] ** grid, color="#0072B2", label="shared + own r^d")
        ax.axhline(self.plateau.value, color="#D55E00", ls="--", lw=1.0, label="plateau")
        ax.set(xlabel="distance between layers", ylabel="mean of e_l e_m")
        ax.legend(frameon=False, fontsize=8)
        return ax


def layer_statistics(
    errors: npt.ArrayLike,
    *,
    groups: Sequence[Any] | npt.ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = 400,
    seed: int = 0,
) -> LayerStatistics:
    """Estimate how layers share their errors.

    Parameters
    ----------
    errors
        Each layer's own error on each example, (L, M), L >= 2 and M >= 2; or (L, M, m) for m outputs, whose products
        are summed.
    groups
        Labels of examples that are not independent, (M,); groups then count as the independent units.
    level
        Content of the intervals: Student's t over examples for means, bootstrap over examples for ratios.
    resamples, seed
        Of the bootstrap.

    Returns
    -------
    LayerStatistics

    Raises
    ------
    ValueError
        If the array has another shape, an entry is not finite, or the squares of the entries leave float64.
    """
    array = np.array(errors, dtype=np.float64)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[0] < 2 or array.shape[1] < 2:
        raise ValueError(f"errors has shape {array.shape}: must be layers x examples, at least 2 x 2")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise ValueError(f"errors[{bad[0][0]}, {bad[0][1]}] is not finite: leave that example out of every layer")
    largest = float(np.abs(array).max())
    if not SMALLEST_ERROR < largest < 1 / SMALLEST_ERROR:
        allowed = f"between {SMALLEST_ERROR:g} and {1 / SMALLEST_ERROR:g}: errors are squared"
        raise reject("largest error", largest, allowed)
    integer("seed", seed, minimum=0)
    if real("level", level, above=0) >= 1:
        raise ValueError(f"level={level}: must be below 1")
    integer("resamples", resamples, minimum=20)
    layers = array.shape[0]
    products = np.stack(
        [np.einsum("lmo,lmo->m", array[: layers - k], array[k:]) / (layers - k) for k in range(layers)], axis=1
    )
    units = _by_group(products, groups)
    examples = len(units)
    lag = np.arange(layers)
    pairs = np.where(lag > 0, 2.0 * (layers - lag) / (layers * (layers - 1)), 0.0)
    off, diagonal = units @ pairs, units[:, 0]
    loss = off + (diagonal - off) / layers
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(examples, np.full(examples, 1.0 / examples), size=resamples) / examples
    resampled = drawn @ units
    centre = units.mean(axis=0)
    decay, decays = _fit_decay(centre[None])[0], _fit_decay(resampled)
    ratio = float(diagonal.mean() / loss.mean())
    return LayerStatistics(
        layers=layers,
        examples=examples,
        covariance=np.einsum("lmo,kmo->lk", array, array) / array.shape[1],
        plateau=_from_examples(off, level),
        gain=_from_examples(diagonal - off, level),
        loss=_from_examples(loss, level),
        effective_layers=_from_draws(ratio, (drawn @ diagonal) / (drawn @ loss), level),
        neighbour_correlation=_from_draws(float(decay[2]), decays[:, 2], level),
        correlation_length=_from_draws(float(_length(decay[2])), _length(decays[:, 2]), level),
        shared=_from_draws(float(decay[0]), decays[:, 0], level),
        by_distance=centre,
        by_distance_error=units.std(axis=0, ddof=1) / np.sqrt(examples),
        level=level,
        products=units,
        resampled=resampled,
    )


def layer_errors(table: RunTable, layer: str, example: str, error: str) -> FloatArray:
    """Return errors (L, M) from a long table with a row for each layer and example.

    Parameters
    ----------
    table
        As `read_table` returns it.
    layer, example, error
        Column names; layers are ordered by number, examples by first appearance.

    Raises
    ------
    ValueError
        If a layer and example occur twice or not at all; the message names lines.
    """
    depth, values = table.numbers(layer), table.numbers(error)
    labels = [str(entry) for entry in table.columns[table.name_of(example)]]
    levels = np.unique(depth)
    names = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    out = np.full((levels.size, len(names)), np.nan)
    seen = np.zeros(out.shape, dtype=bool)
    for row, (at, label) in enumerate(zip(np.searchsorted(levels, depth), labels, strict=True)):
        if seen[at, names[label]]:
            raise ValueError(
                f"{layer}={depth[row]:g}, {example}={label} occurs twice: line {lines_text([table.lines[row]])}"
            )
        seen[at, names[label]] = True
        out[at, names[label]] = values[row]
    if not seen.all():
        at, place = np.argwhere(~seen)[0]
        raise ValueError(f"{layer}={levels[at]:g}, {example}={list(names)[place]} is missing from {table.source}")
    return out


def _by_group(products: FloatArray, groups: Sequence[Any] | npt.ArrayLike | None) -> FloatArray:
    if groups is None:
        return products
    labels = np.asarray(groups)
    if labels.shape != (len(products),):
        raise ValueError(f"groups has shape {labels.shape}: must be one label an example, ({len(products)},)")
    place = np.unique(labels, return_inverse=True)[1]
    count = np.bincount(place)
    if count.size < 2:
        raise ValueError("groups: at least 2 are needed")
    # Scaled so that the mean over groups is the mean over examples.
    sums = np.stack([np.bincount(place, weights=column) for column in products.T], axis=1)
    return np.asarray(sums * (count.size / len(products)), dtype=np.float64)


def _fit_decay(by_distance: FloatArray) -> FloatArray:
    """Return shared >= 0, own >= 0 and r, (B, 3), nearest in squares to ``by_distance`` (B, L), pairs counted."""
    layers = by_distance.shape[1]
    lag = np.arange(layers)
    weight = (layers - lag) / layers
    r = TRIED_CORRELATIONS
    fading = np.where(lag == 0, 1.0, r[:, None] ** lag)
    ww, wf, ff = weight.sum(), fading @ weight, fading**2 @ weight
    wy, fy = (by_distance @ weight)[:, None], by_distance @ (weight * fading).T
    determinant = ww * ff - wf**2
    free = (ff * wy - wf * fy) / np.where(determinant > 1e-12, determinant, np.inf)
    shared = np.maximum(free, 0.0)
    own = np.maximum((fy - wf * shared) / ff, 0.0)
    error = shared**2 * ww + own**2 * ff + 2.0 * (shared * own * wf - shared * wy - own * fy)
    best = np.argmin(error, axis=1)
    rows = np.arange(len(by_distance))
    return np.stack([shared[rows, best], own[rows, best], r[best]], axis=1)


def _fitted_loss(by_distance: FloatArray, depth: int) -> FloatArray:
    fitted = _fit_decay(by_distance)
    return np.asarray(ar1(float(depth), fitted[:, 0], fitted[:, 1], fitted[:, 2]))


def _length(r: FloatArray | float) -> FloatArray:
    """Return ``-1/log r`` in layers, 0 at r = 0."""
    values = np.atleast_1d(np.asarray(r, dtype=float))
    out = np.zeros(values.shape)
    some = values > 0
    out[some] = -1.0 / np.log(values[some])
    return out if np.ndim(r) else out[0]


def _from_examples(values: FloatArray, level: float) -> LayerQuantity:
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size))
    reach = float(stats.t.ppf(0.5 * (1.0 + level), values.size - 1)) * error
    return LayerQuantity(mean, error, (mean - reach, mean + reach))


def _from_draws(value: float, draws: FloatArray, level: float) -> LayerQuantity:
    low, high = np.quantile(draws, [0.5 * (1.0 - level), 0.5 * (1.0 + level)])
    return LayerQuantity(value, float(np.std(draws, ddof=1)), (float(low), float(high)))
