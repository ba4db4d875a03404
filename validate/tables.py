"""Read tables that people have: CSV, TSV, JSON, JSON lines, Parquet, frames; nothing is dropped in silence."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.checks import FloatArray, reject

if TYPE_CHECKING:
    import pandas as pd

MULTIPLES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
_NUMBER = re.compile(
    r"(?P<number>[+-]?(\d+(,\d{3})+|\d+)?(\.\d*)?(e[+-]?\d+)?)\s*(?P<unit>[kmgbt]?)(?P<percent>%?)", re.I
)
MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "--"}
NAMED_LINES = 10


@dataclass(frozen=True)
class RunTable:
    """A table as read: text or numbers, each row with its place in the file.

    Attributes
    ----------
    columns
        Name as written -> values, one a row, as read (text, numbers, ``None``).
    lines
        Line of each row in the file (from 1), or its number in the frame (from 0).
    source
        File name, or ``frame``.
    notes
        What was skipped or repaired while reading, each naming its lines.
    """

    columns: dict[str, list[Any]]
    lines: list[int]
    source: str
    notes: tuple[str, ...] = ()

    def name_of(self, name: str) -> str:
        """Return the column called ``name``, by exact name or else ignoring case and outer spaces.

        Raises
        ------
        ValueError
            If there is none, or more than one; the message lists the columns.
        """
        if name in self.columns:
            return name
        matches = [column for column in self.columns if column.strip().lower() == name.strip().lower()]
        if len(matches) != 1:
            raise reject("column", name, f"one of {', '.join(self.columns)} ({self.source})")
        return matches[0]

    def numbers(self, name: str) -> FloatArray:
        """Return a column as numbers, (n,); missing and ``inf`` entries are NaN and infinite.

        Raises
        ------
        ValueError
            If an entry cannot be read as a number; the message names its line.
        """
        column = self.name_of(name)
        values, bad = np.full(len(self.lines), np.nan), []
        for place, entry in enumerate(self.columns[column]):
            try:
                values[place] = read_number(entry)
            except ValueError:
                bad.append((self.lines[place], entry))
        if bad:
            shown = "; ".join(f"line {line}: {entry!r}" for line, entry in bad[:NAMED_LINES])
            more = "" if len(bad) <= NAMED_LINES else f" and {len(bad) - NAMED_LINES} more"
            raise ValueError(f"column {column} of {self.source} has entries that are no numbers: {shown}{more}")
        return values

    def keep(self, chosen: np.ndarray) -> RunTable:
        """Return the rows where ``chosen``, (n,) of bool, holds."""
        rows = np.flatnonzero(chosen)
        return RunTable(
            {name: [values[row] for row in rows] for name, values in self.columns.items()},
            [self.lines[row] for row in rows],
            self.source,
            self.notes,
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.lines)


def read_number(entry: Any) -> float:
    """Return an entry as a number: ``1,234``, ``1.3B``, ``6.7e9``, ``45%`` (0.45), ``1_000``; NaN where it is missing.

    Raises
    ------
    ValueError
        If it is no number.
    """
    if entry is None:
        return math.nan
    if isinstance(entry, (int, float, np.number)) and not isinstance(entry, (bool, np.bool_)):
        return float(entry)
    text = str(entry).strip().strip("\u00a0'\"").replace("\u2212", "-")
    if text.lower() in MISSING:
        return math.nan
    if re.fullmatch(r"[+-]?inf(inity)?", text, re.I):
        return -math.inf if text.startswith("-") else math.inf
    match = _NUMBER.fullmatch(re.sub(r"(?<=\d)[_ \u2009\u00a0](?=\d{3})", "", text))
    if match is None or not re.match(r"[+-]?\.?\d", match["number"]):
        raise ValueError(f"{entry!r} is no number")
    number = float(match["number"].replace(",", ""))
    return number * MULTIPLES[match["unit"].lower()] / (100.0 if match["percent"] else 1.0)


def read_table(source: str | os.PathLike[str] | pd.DataFrame) -> RunTable:
    """Read a table of runs.

    Parameters
    ----------
    source
        A CSV, TSV, JSON, JSON-lines or Parquet file, by its suffix, or a pandas frame.

    Returns
    -------
    RunTable

    Raises
    ------
    ValueError
        If the file is empty, has two columns of one name, or a row with more entries than columns.
    OSError
        If it cannot be read.
    """
    if not isinstance(source, (str, os.PathLike)):
        frame = source
        columns = {str(name): frame[name].tolist() for name in frame.columns}
        return RunTable(columns, list(range(len(frame))), "frame")
    path = Path(source)
    if path.suffix.lower() == ".parquet":
        import pandas as pd

        with path.open("rb") as stream:
            try:
                frame = pd.read_parquet(stream)
            except ValueError as error:
                raise ValueError(f"{path.name}: must be a Parquet file ({error})") from None
        columns = {str(name): frame[name].tolist() for name in frame.columns}
        return RunTable(columns, list(range(len(frame))), path.name)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: must be text in UTF-8 ({error.reason} at byte {error.start})") from None
    if path.suffix.lower() in {".json", ".jsonl", ".ndjson"}:
        return _from_json(text, path)
    return _from_text(text, path)


def _from_json(text: str, path: Path) -> RunTable:
    numbered = [(line, part) for line, part in enumerate(text.splitlines(), 1) if part.strip()]
    try:
        if path.suffix.lower() == ".json":
            loaded = json.loads(text)
            if isinstance(loaded, dict):
                sizes = {len(values) for values in loaded.values() if isinstance(values, list)}
                if len(sizes) != 1 or not all(isinstance(values, list) for values in loaded.values()):
                    raise ValueError(f"{path.name}: must be a list of rows, or an object of columns of one length")
                return RunTable(dict(loaded), list(range(1, sizes.pop() + 1)), path.name)
            rows = loaded if isinstance(loaded, list) else []
            lines = list(range(1, len(rows) + 1))
        else:
            rows, lines = [], []
            for line, part in numbered:
                try:
                    rows.append(json.loads(part))
                except json.JSONDecodeError as error:
                    raise ValueError(f"{path.name}: line {line} is not JSON: {error.msg}") from None
                lines.append(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name}: line {error.lineno} is not JSON: {error.msg}") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path.name}: must hold rows, each an object of column names and values")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return RunTable({name: [row.get(name) for row in rows] for name in names}, lines, path.name)


def _from_text(text: str, path: Path) -> RunTable:
    kept = [(line, part) for line, part in enumerate(text.splitlines(), 1) if part.strip()]
    comments = [line for line, part in kept if part.lstrip().startswith("#")]
    kept = [(line, part) for line, part in kept if not part.lstrip().startswith("#")]
    if len(kept) < 2:
        raise ValueError(f"{path.name}: must hold a header line and at least one row")
    header = kept[0][1]
    separator = max(("\t", ";", ","), key=header.count) if path.suffix.lower() != ".tsv" else "\t"
    rows = [(line, _split(part, separator)) for line, part in kept]
    names = [name.strip() for name in rows[0][1]]
    trailing = len(names) - len([name for name in names if name])
    while names and not names[-1]:
        names.pop()
    if "" in names or len({name.lower() for name in names}) < len(names):
        raise ValueError(f"{path.name}: line {rows[0][0]} must name each column once: {', '.join(names)}")
    body = []
    for line, entries in rows[1:]:
        while len(entries) > len(names) and not entries[-1].strip():
            entries.pop()
        if len(entries) != len(names):
            raise ValueError(
                f"{path.name}: line {line} has {len(entries)} entries for {len(names)} columns"
                + (' (numbers with separators need quotes, "1,234")' if len(entries) > len(names) else "")
            )
        body.append((line, entries))
    notes = [f"{len(comments)} comment lines"] if comments else []
    notes += [f"{trailing} empty column names at the end of the header"] if trailing else []
    return RunTable(
        {name: [entries[place].strip() for _, entries in body] for place, name in enumerate(names)},
        [line for line, _ in body],
        path.name,
        tuple(notes),
    )


def _split(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(line), delimiter=separator, skipinitialspace=True))
    except csv.Error as error:
        raise ValueError(f"a line cannot be split into columns: {error}") from None


def lines_text(lines: Sequence[int]) -> str:
    """Return line numbers as text, the first ten."""
    shown = ", ".join(str(line) for line in lines[:NAMED_LINES])
    return shown if len(lines) <= NAMED_LINES else f"{shown} and {len(lines) - NAMED_LINES} more"
