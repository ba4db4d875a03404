"""What a report is written from, whatever its form: page, Markdown, JSON or a results page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from validate.claims import Claim, Verdict
    from validate.standing import Standing
    from validate.study import Study


@dataclasses.dataclass(frozen=True, eq=False)
class Material:
    """A judged study.

    Parameters
    ----------
    study : Study
        The runs and their preset.
    runs : frame
        One row a run, with theory's optima.
    judged : tuple of (Claim, Verdict)
        In the order shown.
    fits : tuple of mapping
        Fitted depth laws, as `validate.depth_fits.depth_law_fits` returns them.
    tables : mapping
        Tables of the figures by name; a figure without its table is left out.
    standings : tuple of Standing
        How far each experiment has come.
    command : str
        How to train it and make this report again.
    out : str
        The folder of the report, as the user named it.
    """

    study: Study
    runs: pd.DataFrame
    judged: tuple[tuple[Claim, Verdict], ...]
    fits: tuple[Mapping[str, Any], ...]
    tables: Mapping[str, pd.DataFrame]
    standings: tuple[Standing, ...]
    command: str
    out: str
