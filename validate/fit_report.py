"""A fit to a table of runs: the rows chosen, the law, its rivals, and what must be said about the rows left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from theory.checks import choice, real
from theory.depth_laws import DEPTH_LAWS
from theory.results import Result, plain
from validate.fit import fit_depth_law, fit_joint_law, rank_laws
from validate.fit_result import FitResult
from validate.tables import RunTable, lines_text, read_number

ALL = "all"


@dataclass(frozen=True)
class FitReport(Result):
    """What `fit_table` found.

    Attributes
    ----------
    ranking
        The laws fitted, best first.
    notes
        Sentences on the rows and the reading of the file.
    left_out
        Lines of rows that the rules of exclusion left out.
    """

    ranking: tuple[FitResult, ...]
    notes: tuple[str, ...]
    left_out: tuple[int, ...]

    @property
    def best(self) -> FitResult:
        """The law ranked first."""
        return self.ranking[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the best law's JSON form with the ranking and the rows left out."""
        ranking = [
            {
                "law": fit.law,
                "aicc": fit.aicc,
                "weight": fit.weight,
                "bic": fit.bic,
                "left_out_error": fit.left_out_error,
                "status": fit.status,
                "parameters": {name: estimate.to_dict() for name, estimate in fit.parameters.items()},
            }
            for fit in self.ranking
        ]
        return plain(
            {**self.best.to_dict(), "ranking": ranking, "notes": list(self.notes), "left_out_lines": self.left_out}
        )

    def __str__(self) -> str:
        """Return the best law and one line a rival."""
        lines = [str(self.best)]
        if len(self.ranking) > 1:
            lines.append("ranking by AICc:")
            lines += [
                f"  {fit.law:>24}  AICc {fit.aicc:9.2f}  weight {fit.weight:.3f}  left-out {fit.left_out_error:.2%}"
                if fit.answered
                else f"  {fit.law:>24}  {fit.status}"
                for fit in self.ranking
            ]
        return "\n".join(lines)


def fit_table(
    table: RunTable,
    columns: Mapping[str, str],
    loss: str,
    *,
    standard_error: str | None = None,
    group: str | None = None,
    max_loss: float | None = None,
    law: str = ALL,
    fix: Sequence[str] = (),
    robust: str | None = None,
    robust_scale: float = 0.01,
    **options: Any,
) -> FitReport:
    """Fit depth laws, or the joint law, to columns of a table.

    Parameters
    ----------
    table
        As `read_table` returns it.
    columns
        Variable (``depth``, ``width``, ``tokens``, ``parameters``) -> column name.
    loss, standard_error, group
        Column names.
    max_loss
        Rows with a loss below this are used; the others are named.
    law
        A depth law or ``all``; with a variable besides depth it must be ``all``.
    fix
        ``NAME=VALUE`` of parameters that are not fitted.
    robust, robust_scale
        As for `fit_depth_law`.
    options
        Further keywords of `fit_depth_law`.

    Returns
    -------
    FitReport

    Raises
    ------
    ValueError
        If a column is unknown, an entry cannot be read, or the rows cannot be fitted.
    """
    if not columns:
        raise ValueError("depth: name a column of depths (or width, tokens, parameters)")
    losses = table.numbers(loss)
    notes, left_out = list(table.notes), []
    if max_loss is not None:
        real("max-loss", max_loss, above=0)
        out = np.isfinite(losses) & (losses >= max_loss)
        left_out = [table.lines[row] for row in np.flatnonzero(out)]
        if left_out:
            notes.append(f"{len(left_out)} rows with loss >= {max_loss:g} left out: lines {lines_text(left_out)}")
        table, losses = table.keep(~out), losses[~out]
    if not len(table):
        raise ValueError(f"max-loss={max_loss}: no row of {table.source} is left")
    bad = np.flatnonzero(~(np.isfinite(losses) & (losses > 0)))
    if bad.size:
        lines = lines_text([table.lines[row] for row in bad])
        text = f"loss is not a finite positive number on line {lines} of {table.source}"
        if options.get("diverged") != "drop":
            raise ValueError(f"{text}: diverged runs must be left out (--drop-diverged does so and names them)")
        notes.append(f"{text}: left out as diverged")
        table = table.keep(np.isfinite(losses) & (losses > 0))
        losses = losses[np.isfinite(losses) & (losses > 0)]
    arrays = {}
    for name, column in columns.items():
        arrays[name] = table.numbers(column)
        wrong = np.flatnonzero(~(np.isfinite(arrays[name]) & (arrays[name] > 0)))
        if wrong.size:
            entry = table.columns[table.name_of(column)][wrong[0]]
            raise ValueError(f"{column}={entry!r} on line {table.lines[wrong[0]]}: must be a positive number")
    given: dict[str, Any] = {"robust_scale": robust_scale, **options}
    if robust is not None:
        given["robust"] = robust
    if standard_error is not None:
        given["standard_error"] = table.numbers(standard_error)
    if group is not None:
        given["groups"] = [str(entry) for entry in table.columns[table.name_of(group)]]
    fixed = dict(_fixed(entry) for entry in fix)
    if set(columns) == {"depth"}:
        choice("law", law, (ALL, *DEPTH_LAWS))
        if law == ALL:
            per_law = {
                name: {key: value for key, value in fixed.items() if key in rival.parameter_names}
                for name, rival in DEPTH_LAWS.items()
            }
            ranking = rank_laws(arrays["depth"], losses, fixed=per_law, **given)
        else:
            ranking = [fit_depth_law(arrays["depth"], losses, law=law, fixed=fixed, **given)]
    else:
        choice("law", law, (ALL,))
        ranking = [fit_joint_law(arrays, losses, fixed=fixed, **given)]
    return FitReport(tuple(ranking), tuple(notes), tuple(left_out))


def _fixed(entry: str) -> tuple[str, float]:
    name, sign, value = entry.partition("=")
    try:
        number = read_number(value)
    except ValueError:
        number = float("nan")
    if not sign or not np.isfinite(number):
        raise ValueError(f"fix={entry!r}: must be NAME=VALUE with a number")
    return name.strip(), number
