"""One picture of linear attention: spectra against depth laws, tied, untied and infinitely deep."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from theory.checks import FloatArray, integer
from theory.floors import tied_optimum, untied_floor
from theory.marchenko_pastur import marchenko_pastur_rule
from theory.results import Result
from theory.spectra import Spectrum
from theory.task import Task
from theory.tied import tied_curve

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

DEPTHS = (1, 2, 4, 8, 16, 32)
# Nodes that stand for the Marchenko-Pastur law: exact for the depths drawn.
NODES = 70
# Guides start at this depth of the list.
GUIDE = 2
# Losses below this are not drawn: they are rounding, or look like zero on any scale that shows the rest.
LOWEST = 1e-7


@dataclasses.dataclass(frozen=True)
class SpectrumLaws(Result):
    """Floors and training curves of one spectrum at several depths.

    Attributes
    ----------
    spectrum : Spectrum
    depths : tuple of int
    tied, untied : arrays of shape (len(depths),)
        Floors.
    time : array of shape (n,)
        Flow time over depth.
    curves : array of shape (len(depths), n)
        Tied loss at each depth.
    deep : array of shape (n,)
        Loss for depth → inf.
    """

    spectrum: Spectrum
    depths: tuple[int, ...]
    tied: FloatArray
    untied: FloatArray
    time: FloatArray
    curves: FloatArray
    deep: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """Return one row a depth: depth, tied, untied."""
        import pandas as pd

        return pd.DataFrame({"depth": self.depths, "tied": self.tied, "untied": self.untied})


def spectrum_laws(spectrum: Spectrum, depths: Sequence[int] = DEPTHS, *, points: int = 120) -> SpectrumLaws:
    """Return tied optimum, untied floor and tied training curves of ``spectrum``, setting RRS, population.

    Raises
    ------
    ValueError
        For a bad depth or number of points.
    """
    levels = tuple(integer("depths", depth) for depth in depths)
    task = Task(spectrum)
    # From the first mode's clock to the largest floor's arrival.
    pace = spectrum.dim / float(np.sum(spectrum.signal * spectrum.eigenvalues))
    time = np.geomspace(1e-2 * pace, 1e9 * pace, integer("points", points, minimum=2))
    curves = np.stack([tied_curve(spectrum, depth, time * depth).losses for depth in levels])
    return SpectrumLaws(
        spectrum,
        levels,
        np.array([tied_optimum(task, depth).loss for depth in levels]),
        np.array([untied_floor(task, depth).loss for depth in levels]),
        time,
        curves,
        tied_curve(spectrum, math.inf, time).losses,
    )


def shown_spectra() -> list[Spectrum]:
    """Return the spectra of the picture: two power laws, an exponential one, and isotropic data at P = 2 D."""
    nodes, weights = marchenko_pastur_rule(2.0, NODES)
    live = nodes > 0
    return [
        Spectrum.power_law(100_000, 1.5, 0.5),
        Spectrum.power_law(100_000, 1.5, 1.0),
        Spectrum.exponential(60, 0.25),
        Spectrum(nodes[live], weights[live] / nodes[live], name="isotropic, P = 2 D (Marchenko–Pastur)"),
    ]


def depth_laws_figure(spectra: Sequence[Spectrum] | None = None) -> Figure:
    """Return the picture: floors against depth above, training curves on the clock t/L below, one column a spectrum.

    Raises
    ------
    ValueError
        If there is no spectrum.
    """
    from matplotlib.figure import Figure

    laws = [spectrum_laws(spectrum) for spectrum in (shown_spectra() if spectra is None else spectra)]
    if not laws:
        raise ValueError("spectra=[]: must hold at least one spectrum")
    figure = Figure(figsize=(3.1 * len(laws), 5.6), layout="constrained")
    axes = figure.subplots(2, len(laws), squeeze=False)
    for column, law in enumerate(laws):
        _draw_floors(axes[0, column], law)
        _draw_curves(axes[1, column], law)
        axes[0, column].set_title(law.spectrum.name, fontsize="small")
    axes[0, 0].set_ylabel("lowest loss at depth L")
    axes[1, 0].set_ylabel("loss while training")
    axes[0, 0].legend(frameon=False, fontsize="x-small")
    axes[1, 0].legend(frameon=False, fontsize="x-small")
    return figure


def _draw_floors(axes, law: SpectrumLaws) -> None:  # type: ignore[no-untyped-def]
    depth = np.array(law.depths, dtype=float)
    source, capacity = law.spectrum.source, law.spectrum.capacity
    for values, style, name in ((law.tied, "o-", "tied"), (law.untied, "s-", "untied")):
        drawn = np.where(values >= LOWEST, values, np.nan)
        (line,) = axes.plot(depth, drawn, style, ms=4, label=name)
        if source is not None and capacity is not None:
            # Untied layers put their first zeros on separate eigenvalues, which shrinks the rest by another L^-nu.
            exponent = source if name == "tied" else (2 + capacity) * source
            label = r"$L^{-\beta}$" if name == "tied" else r"$L^{-(2+\nu)\beta}$"
            guide = values[GUIDE] * (depth / depth[GUIDE]) ** -exponent
            axes.plot(depth[GUIDE:], guide[GUIDE:], ":", color=line.get_color(), lw=2, label=label)
    axes.set(xscale="log", yscale="log", xlabel="depth L")
    axes.set_xticks(law.depths, [str(value) for value in law.depths])
    axes.minorticks_off()


def _draw_curves(axes, law: SpectrumLaws) -> None:  # type: ignore[no-untyped-def]
    shades = np.linspace(0.75, 0.15, len(law.depths))
    for depth, curve, shade in zip(law.depths, law.curves, shades, strict=True):
        axes.plot(law.time, np.where(curve >= LOWEST, curve, np.nan), color=str(shade), lw=1.2, label=f"L = {depth}")
    axes.plot(law.time, np.where(law.deep >= LOWEST, law.deep, np.nan), "--", color="C3", label=r"L $\to\infty$")
    axes.set(xscale="log", yscale="log", xlabel="time / L")
