"""Errors of layers from files: an array or table of layers x examples, or a long table with a row for each of both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from theory.checks import FloatArray, reject
from validate.layers import layer_errors
from validate.matrix_files import read_matrix
from validate.tables import RunTable, read_table

# A column of this name in a table of layers x examples numbers the layers.
LAYER_COLUMN = "layer"
# pandas' name for the unnamed index that its own `to_csv` writes first.
INDEX_COLUMN = "Unnamed: 0"


@dataclass(frozen=True)
class LayerFile:
    """What a file holds.

    Attributes
    ----------
    errors
        (L, M), or (L, M, m) for m outputs.
    groups
        Labels of the examples, (M,), or ``None``.
    """

    errors: FloatArray
    groups: list[str] | None = None


def read_layer_file(
    path: str | Path,
    *,
    layer: str | None = None,
    example: str | None = None,
    error: str | None = None,
    group: str | None = None,
) -> LayerFile:
    """Read each layer's own error on each example.

    Parameters
    ----------
    path
        ``.npy`` with shape (layers, examples) or (layers, examples, outputs); ``.csv`` (with or without a line of
        names) or ``.parquet`` with a row for each layer and a column for each example, where a column ``layer`` gives
        the layers' order; or, with ``layer``, ``example`` and ``error``, any table that `read_table` reads with a row
        for each layer and example.
    layer, example, error
        Columns of a long table.
    group
        Column of a long table whose equal entries mark examples that are not independent.

    Raises
    ------
    ValueError
        If the columns are given in part, a group differs between the layers of an example, or the file holds no such
        errors.
    OSError
        If the file cannot be read.
    """
    columns = {"layer": layer, "example": example, "error": error}
    missing = [name for name, column in columns.items() if column is None]
    if layer is not None and example is not None and error is not None:
        table = read_table(path)
        labels = None if group is None else _groups(table, example, group)
        return LayerFile(layer_errors(table, layer, example, error), labels)
    if len(missing) < len(columns):
        raise ValueError(f"{', '.join(missing)}: a long table needs a column each of layer, example and error")
    if group is not None:
        raise reject("group", group, "left out without the columns layer, example and error")
    names, values = read_matrix(Path(path), deepest=3)
    numbering = [place for place, name in enumerate(names) if name.strip().lower() == LAYER_COLUMN]
    numbering += [place for place, name in enumerate(names) if place == 0 and name == INDEX_COLUMN]
    if numbering:
        order = values[:, numbering[0]]
        if np.unique(order).size < order.size:
            raise ValueError(f"{path}: column {names[numbering[0]]} must name each layer once")
        values = np.delete(values[np.argsort(order)], numbering, axis=1)
    return LayerFile(values)


def _groups(table: RunTable, example: str, group: str) -> list[str]:
    """Return the group of each example, in their order of first appearance."""
    found: dict[str, str] = {}
    rows = zip(table.columns[table.name_of(example)], table.columns[table.name_of(group)], table.lines, strict=True)
    for name, label, line in rows:
        if found.setdefault(str(name), str(label)) != str(label):
            raise ValueError(f"{group} of {example}={name} on line {line} differs from an earlier line's")
    return list(found.values())
