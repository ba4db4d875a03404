"""A fit to a table of runs: the rows chosen, the law, its rivals, and what must be said about the rows left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from theory.checks import FloatArray, choice, real, reject
from theory.depth_laws import DEPTH_LAWS, additive_law
from theory.results import Result, plain
from validate.filters import matching_rows
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
    rule
        The rules, in words; empty where no row was left out.
    all_rows
        The same law fitted to all rows, where some were left out and it could be.
    """

    ranking: tuple[FitResult, ...]
    notes: tuple[str, ...]
    left_out: tuple[int, ...]
    rule: str = ""
    all_rows: FitResult | None = None

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
                "probability": fit.probability,
                "bic": fit.bic,
                "left_out_error": fit.left_out_error,
                "status": fit.status,
                "parameters": {name: estimate.to_dict() for name, estimate in fit.parameters.items()},
            }
            for fit in self.ranking
        ]
        everything = None
        if self.all_rows is not None:
            everything = {key: self.all_rows.to_dict()[key] for key in ("n", "objective", "parameters", "status")}
        exclusion = {"rule": self.rule, "lines": list(self.left_out), "fit_to_all_rows": everything}
        return plain({**self.best.to_dict(), "ranking": ranking, "notes": list(self.notes), "exclusion": exclusion})

    def __str__(self) -> str:
        """Return the best law and one line a rival."""
        lines = [str(self.best)]
        if len(self.ranking) > 1:
            lines.append(f"ranking by {'AICc' if np.isnan(self.best.probability) else 'probability'}:")
            lines += [
                f"  {fit.law:>24}  probability {fit.probability:.3f}  AICc {fit.aicc:9.2f}  weight {fit.weight:.3f}"
                f"  left-out {fit.left_out_error:.2%}"
                if fit.answered
                else f"  {fit.law:>24}  {fit.status}"
                for fit in self.ranking
            ]
        if self.all_rows is not None:
            values = ", ".join(f"{name} {item.value:.4g}" for name, item in self.all_rows.parameters.items())
            lines.append(f"{len(self.left_out)} rows left out ({self.rule}); with all {self.all_rows.n}: {values}")
        return "\n".join(lines)


def fit_table(
    table: RunTable,
    columns: Mapping[str, str],
    loss: str,
    *,
    standard_error: str | None = None,
    group: str | None = None,
    max_loss: float | None = None,
    where: str | None = None,
    law: str = ALL,
    fix: Sequence[str] = (),
    spectral_exponent: float | None = None,
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
    where
        Rows that satisfy this condition are used (see `matching_rows`); the others are named.
    law
        A depth law or ``all``; with a variable besides depth it must be ``all``.
    fix
        ``NAME=VALUE`` of parameters that are not fitted.
    spectral_exponent
        Exponent of the ``spectral`` law from a given spectrum (beta with tied gains, 2 beta untied); free if ``None``.
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
    _refuse_shared_columns(table, {"loss": loss, **columns})
    rows = _chosen(table, loss, max_loss, where, drop=options.get("diverged") == "drop")
    table = rows.table
    notes = [*rows.notes, *_doubled(table, [*columns.values(), loss])]
    losses = table.numbers(loss)
    arrays = {name: _positive(table, column) for name, column in columns.items()}
    given: dict[str, Any] = {"robust_scale": robust_scale, **options}
    if robust is not None:
        given["robust"] = robust
    if standard_error is not None:
        given["standard_error"] = _positive(table, standard_error)
    if group is not None:
        given["groups"] = [str(entry) for entry in table.columns[table.name_of(group)]]
    fixed = _fixed(fix, set(columns), law)
    if set(columns) == {"depth"}:
        choice("law", law, (ALL, *DEPTH_LAWS))
        if law == ALL:
            per_law = {
                name: {key: value for key, value in fixed.items() if key in rival.parameter_names}
                for name, rival in DEPTH_LAWS.items()
            }
            if spectral_exponent is not None:
                per_law["spectral"]["exponent"] = real("spectral-exponent", spectral_exponent, above=0)
            ranking = rank_laws(arrays["depth"], losses, fixed=per_law, **given)
        else:
            if law == "spectral" and spectral_exponent is not None:
                fixed["exponent"] = real("spectral-exponent", spectral_exponent, above=0)
            ranking = [fit_depth_law(arrays["depth"], losses, law=law, fixed=fixed, **given)]
    else:
        choice("law", law, (ALL,))
        ranking = [fit_joint_law(arrays, losses, fixed=fixed, **given)]
    everything = None
    if rows.left_out:
        try:
            everything = fit_table(
                rows.whole,
                columns,
                loss,
                standard_error=standard_error,
                group=group,
                law=ranking[0].law if set(columns) == {"depth"} else ALL,
                fix=[f"{name}={value!r}" for name, value in fixed.items() if name in ranking[0].parameters],
                robust=robust,
                robust_scale=robust_scale,
                **{**options, "intervals": "asymptotic", "diverged": "drop"},
            ).best
        except ValueError as error:
            notes.append(f"all rows together could not be fitted: {error}")
    return FitReport(tuple(ranking), tuple(notes), rows.left_out, rows.rule, everything)


@dataclass(frozen=True)
class _Rows:
    table: RunTable
    whole: RunTable
    notes: list[str]
    left_out: tuple[int, ...]
    rule: str


def _chosen(table: RunTable, loss: str, max_loss: float | None, where: str | None, *, drop: bool) -> _Rows:
    """Return the rows that the rules keep; every row left out is named by its line."""
    notes, rules = list(table.notes), []
    losses = table.numbers(loss)
    kept = np.ones(len(table), dtype=bool)
    if where is not None:
        kept &= matching_rows(table, where)
        rules.append(where)
    if max_loss is not None:
        real("max-loss", max_loss, above=0)
        kept &= ~(np.isfinite(losses) & (losses >= max_loss))
        rules.append(f"{loss} < {max_loss:g}")
    left_out = tuple(table.lines[row] for row in np.flatnonzero(~kept))
    rule = " and ".join(rules)
    if left_out:
        notes.append(f"{len(left_out)} rows outside {rule} left out: lines {lines_text(left_out)}")
    if not kept.any():
        raise ValueError(f"no row of {table.source} satisfies {rule}")
    bad = kept & ~(np.isfinite(losses) & (losses > 0))
    if bad.any():
        lines = lines_text([table.lines[row] for row in np.flatnonzero(bad)])
        text = f"{loss} is not a finite positive number on line {lines} of {table.source}"
        if not drop:
            raise ValueError(f"{text}: diverged runs must be left out (--drop-diverged does so and names them)")
        notes.append(f"{text}: left out as diverged")
        kept &= ~bad
        if not kept.any():
            raise ValueError(f"{text}: no row is left")
    return _Rows(table.keep(kept), table, notes, left_out, rule if left_out else "")


def _positive(table: RunTable, column: str) -> FloatArray:
    values = table.numbers(column)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if wrong.size:
        entry = table.columns[table.name_of(column)][wrong[0]]
        raise ValueError(f"{column}={entry!r} on line {table.lines[wrong[0]]}: must be a positive number")
    return values


def _doubled(table: RunTable, columns: Sequence[str]) -> list[str]:
    """Return a sentence on rows that repeat an earlier one in every column used: copies narrow every interval."""
    seen: dict[tuple[float, ...], int] = {}
    pairs = []
    numbers = np.stack([table.numbers(column) for column in columns], axis=1)
    for line, row in zip(table.lines, numbers.tolist(), strict=True):
        first = seen.setdefault(tuple(row), line)
        if first != line:
            pairs.append(line)
    if not pairs:
        return []
    return [f"{len(pairs)} rows repeat an earlier row exactly and count as further runs: lines {lines_text(pairs)}"]


def predictions(fit: FitResult, depths: str) -> list[dict[str, Any]]:
    """Return predicted losses with intervals at depths written ``16,32``; a joint law at the medians of the rest.

    Raises
    ------
    ValueError
        If a depth cannot be read, or the fit has no answer.
    """
    at = np.array([read_number(part) for part in depths.split(",")])
    others = {
        name: np.full(at.size, np.median(column)) for name, column in fit.problem.columns.items() if name != "depth"
    }
    return plain(fit.predict(at, **others).to_frame().to_dict("records"))


def _refuse_shared_columns(table: RunTable, columns: Mapping[str, str]) -> None:
    """Raise if a column stands for two quantities."""
    taken: dict[str, str] = {}
    for quantity, column in columns.items():
        other = taken.setdefault(table.name_of(column), quantity)
        if other != quantity:
            raise reject(quantity, column, f"another column than {other}'s")


def _fixed(entries: Sequence[str], variables: set[str], law: str) -> dict[str, float]:
    """Return NAME=VALUE entries as numbers; each name must be a parameter of a law that will be fitted."""
    if variables == {"depth"}:
        laws = [DEPTH_LAWS[law]] if law in DEPTH_LAWS else list(DEPTH_LAWS.values())
    else:
        laws = [additive_law(tuple(name for name in ("width", "depth", "tokens", "parameters") if name in variables))]
    known = list(dict.fromkeys(name for candidate in laws for name in candidate.parameter_names))
    fixed: dict[str, float] = {}
    for entry in entries:
        name, _, value = (part.strip() for part in entry.partition("="))
        try:
            number = read_number(value)
        except ValueError:
            number = float("nan")
        if not np.isfinite(number):
            raise reject("fix", entry, "NAME=VALUE with a number")
        if name not in known or name in fixed:
            raise reject("fix", entry, f"one of {', '.join(known)}, each once")
        fixed[name] = number
    return fixed
