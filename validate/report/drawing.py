"""What the figures share: a canvas, colours, axes that can be read, and the description of a figure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Okabe and Ito's colours: told apart by colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Ends of the exponent axis: what lies beyond is drawn as an arrow at the end.
LEAST_EXPONENT, MOST_EXPONENT = -0.5, 4.0
# Most panels side by side: more would shrink the text on a page.
MOST_COLUMNS = 3
# Inches: legends need this much.
NARROWEST = 4.6


class NothingToDraw(ValueError):
    """A table without the rows that a figure draws; the message says which."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Parameters
    ----------
    name, title, caption : str
        As the report shows them; ``name`` is its file's.
    tables : tuple of str
        The tables it draws.
    experiments : tuple of str
        Beginnings of the names of the experiments that fill them.
    draw : callable
        From the tables to a matplotlib figure; raises `NothingToDraw` where they hold nothing for it.
    read : callable
        From the tables to what they say, in sentences made from their numbers.
    """

    name: str
    title: str
    caption: str
    tables: tuple[str, ...]
    experiments: tuple[str, ...]
    draw: Callable[..., Canvas]
    read: Callable[..., list[str]]

    def frames(self, tables: Mapping[str, pd.DataFrame]) -> list[pd.DataFrame]:
        """Return the tables it draws, in its order.

        Raises
        ------
        NothingToDraw
            If one is not there.
        """
        absent = [name for name in self.tables if name not in tables]
        if absent:
            raise NothingToDraw(f"figure={self.name!r}: there is no table {absent[0]}")
        return [tables[name] for name in self.tables]


def new_canvas(width: float, height: float) -> Canvas:
    """Return an empty figure that needs no display."""
    from matplotlib.figure import Figure as MatplotlibFigure

    return MatplotlibFigure(figsize=(width, height), layout="constrained")


def panel_grid(count: int, *, width: float, height: float, columns: int = MOST_COLUMNS) -> tuple[Canvas, list[Axes]]:
    """Return a figure of ``count`` panels of this size (inches), wrapped, those left over hidden."""
    across = columns_for(count, columns)
    down = -(-count // across)
    figure = new_canvas(max(width * across, NARROWEST), height * down)
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid[:count]


def columns_for(count: int, most: int = MOST_COLUMNS) -> int:
    """Return how many panels stand side by side: as few as leave the number of rows as it is."""
    return -(-count // -(-count // most))


def side_by_side(points: pd.DataFrame, by: list[str], *, step: float = 1.03) -> np.ndarray:
    """Return factors that part the points which agree in ``by`` on a log axis: seeds at one depth."""
    turn = points.groupby(by).cumcount()
    most = points.groupby(by)[by[0]].transform("size") - 1
    return np.asarray(step ** (turn - most / 2), dtype=float)


def legend_below(
    figure: Canvas, colours: Mapping[str, str], *, hollow: str = "", styles: Mapping[str, str] | None = None
) -> None:
    """Name the colours below the panels, where no data is; then what a hollow point means, or each marker and line."""
    from matplotlib.lines import Line2D

    marker = "s" if styles else "o"
    handles = [Line2D([], [], marker=marker, ls="", color=colour, label=str(name)) for name, colour in colours.items()]
    if hollow:
        handles.append(Line2D([], [], marker="o", color="0.35", mfc="white", ls="", label=hollow))
    for name, style in (styles or {}).items():
        handles.append(Line2D([], [], marker=style[0], ls=style[1:], color="0.35", mfc="white", label=name))
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), int(figure.get_size_inches()[0] / (0.45 + 0.075 * longest))))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")


def plain_ticks(axes: Axes, *, depths: np.ndarray | None = None, x: bool = False, y: bool = True) -> None:
    """Label log axes with plain decimals, at least three of them: y unless told, x if asked, or with the depths used.

    Depths that would touch are left unlabelled, the last one never.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

    if depths is not None:
        axes.xaxis.set_major_locator(FixedLocator(apart([float(depth) for depth in np.unique(depths)])))
    elif x:
        axes.xaxis.set_major_locator(FixedLocator(readable_ticks(*sorted(axes.get_xlim()))))
    if depths is not None or x:
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
        axes.xaxis.set_minor_formatter(NullFormatter())
        if depths is not None:
            axes.xaxis.set_minor_locator(NullLocator())
    low, high = sorted(axes.get_ylim())
    if y and low > 0:  # an axis without data has limits that no log axis can have
        axes.yaxis.set_major_locator(FixedLocator(readable_ticks(low, high)))
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(low, high)


def apart(values: list[float], *, share: float = 0.07) -> list[float]:
    """Return the increasing ``values`` whose labels fit on a log axis: at least ``share`` of it from the next."""
    gap = share * np.log(values[-1] / values[0]) if values else 0.0
    kept: list[float] = []
    for value in reversed(values):
        if not kept or np.log(kept[-1] / value) >= gap:
            kept.append(value)
    return kept[::-1]


def few_whole(count: int, most: int = 5) -> list[int]:
    """Return at most ``most`` whole numbers from 1 to ``count``, in even steps."""
    return list(range(1, count + 1, -(-count // most)))


def signed_log(axes: Axes, which: str, values: np.ndarray) -> None:
    """Make axis ``which`` (x or y) log on both sides of zero, for errors that cancel, with plain decades as ticks."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    low, high = (int(np.floor(np.log10(size))) for size in (np.quantile(sizes, 0.1), sizes.max()))
    decades = 10.0 ** np.arange(low, high + 2)[:: 1 + (high - low) // 4]
    getattr(axes, f"set_{which}scale")("symlog", linthresh=decades[0])
    # Twice as far as the values reach: room for their points on log axes.
    getattr(axes, f"set_{which}lim")(2 * min(np.nanmin(values), -decades[0]), 2 * max(np.nanmax(values), decades[0]))
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(FixedLocator([*-decades[::-1], 0.0, *decades]))
    axis.set_major_formatter(FuncFormatter(_plain))
    axis.set_minor_locator(NullLocator())
    getattr(axes, f"ax{'v' if which == 'x' else 'h'}line")(0.0, color="0.6", lw=0.8)


def readable_ticks(low: float, high: float) -> list[float]:
    """Return at least three ticks for a log axis from ``low`` to ``high``: 1, 10, 100, or 1, 2, 5, or even steps."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    decades = np.log10(high / low)
    locators = [LogLocator(subs=(1.0, 2.0, 5.0)), MaxNLocator(5)]
    if decades >= 3:
        locators.insert(0, LogLocator(numticks=8))
    for locator in locators:
        shown = [float(tick) for tick in locator.tick_values(low, high) if low <= tick <= high]
        if len(shown) >= 3:
            break
    return shown


def _plain(value: float, _: float) -> str:
    return f"{value:.6g}"
