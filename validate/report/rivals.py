"""The rival laws of every fitted depth law: how far each is behind the best, as a table, a picture and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from validate.report.drawing import new_canvas
from validate.report.readings import listed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

# Behind in AICc: as good as the best up to here, and hopeless from there.
TIE, HOPELESS = 2.0, 10.0


def rival_table(fits: Sequence[Mapping[str, Any]], fewest_depths: int) -> pd.DataFrame:
    """Return one row a fitted group and law: attention, spectrum, settled, law, behind.

    Parameters
    ----------
    fits : sequence of mapping
        As `validate.depth_fits.depth_law_fits` returns them.
    fewest_depths : int
        Converged depths that make a fit settled.

    Returns
    -------
    frame
        ``behind`` is the law's AICc less that of the best law on these losses, NaN where the law has no answer.
    """
    import pandas as pd

    rows = []
    for row in fits:
        group = {name: row[name] for name in ("attention", "spectrum")} | {"settled": row["depths"] >= fewest_depths}
        rows += [{**group, "law": law, "behind": behind} for law, behind in row["behind"].items()]
    return pd.DataFrame(rows)


def draw_rivals(table: pd.DataFrame) -> Canvas:
    """Draw how far each law is behind the best on each group of losses: columns as `rival_table` returns them."""
    laws = list(dict.fromkeys(table["law"]))
    groups = list(table.groupby(["attention", "spectrum"], sort=False))
    behind = np.array([group.set_index("law")["behind"].reindex(laws).to_numpy(dtype=float) for _, group in groups])
    figure = new_canvas(2.6 + 0.8 * len(laws), 1.3 + 0.29 * len(groups))
    axes = figure.add_subplot()
    image = axes.imshow(np.ma.masked_invalid(behind), cmap="YlGnBu_r", vmin=0, vmax=HOPELESS, aspect="auto")
    axes.set_facecolor("0.88")
    for (row, column), value in np.ndenumerate(behind):
        text = "none" if np.isnan(value) else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
        colour = "white" if value < 0.5 * HOPELESS else "black"
        weight = "bold" if value == 0 else "normal"
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour, weight=weight)
    axes.set_xticks(range(len(laws)), [law.replace("-", "\n") for law in laws], fontsize="x-small")
    names = [
        f"{attention}, {spectrum}{'' if group['settled'].all() else ' (provisional)'}"
        for (attention, spectrum), group in groups
    ]
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label="AICc behind the best", extend="max", shrink=min(1.0, 4 / len(groups) + 0.4))
    return figure


def read_rivals(table: pd.DataFrame) -> list[str]:
    """Say which law is best where, and how far inverse depth is behind."""
    sentences = []
    for attention, part in table.groupby("attention", sort=False):
        best: dict[str, list[str]] = {}
        for spectrum, group in part.groupby("spectrum", sort=False):
            law = str(group.set_index("law")["behind"].idxmin())
            best.setdefault(law, []).append(f"{spectrum}{'' if group['settled'].all() else ', provisional'}")
        won = ", ".join(f"{law} ({listed(spectra)})" for law, spectra in best.items())
        lag = part.loc[part["law"] == "inverse-depth", "behind"]
        near, far = int((lag <= TIE).sum()), int((lag > HOPELESS).sum())
        sentences.append(
            f"{attention} attention, best law: {won}. Inverse depth is within {TIE:g} of it on {near} of {len(lag)} "
            f"spectra and more than {HOPELESS:g} behind on {far}."
        )
    return sentences
