"""Arrays of numbers from files: .npy, .csv with or without a line of names, .parquet; every entry finite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, reject

SUFFIXES = (".npy", ".csv", ".parquet")


def read_matrix(path: Path, *, deepest: int = 2) -> tuple[list[str], FloatArray]:
    """Return the column names ("" where there are none) and the numbers, a vector as one column.

    Parameters
    ----------
    path
        ``.npy``, ``.csv`` or ``.parquet``.
    deepest
        Most dimensions that an ``.npy`` array may have.

    Raises
    ------
    ValueError
        For another suffix, another shape, or entries that are no finite numbers.
    OSError
        If the file cannot be read.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise reject("file", str(path), "a file name ending in " + ", ".join(SUFFIXES))
    if suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (ValueError, EOFError):
            raise ValueError(f"{path} is no array of numbers: must be written by numpy.save, without objects") from None
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{path} is an archive of arrays: must hold one array")
        values = _numbers(path, array)
        if not 1 <= values.ndim <= deepest or values.size == 0:
            allowed = "a vector or a matrix" if deepest == 2 else f"an array of at most {deepest} dimensions"
            raise ValueError(f"{path} has shape {values.shape}: must be {allowed}, not empty")
        values = values[:, None] if values.ndim == 1 else values
        return [""] * values.shape[1], values
    import pandas as pd

    try:
        if suffix == ".parquet":
            frame = pd.read_parquet(path)
        else:
            frame = pd.read_csv(path, header=None if _starts_with_numbers(path) else 0)
    except (ValueError, pd.errors.ParserError) as error:
        raise ValueError(f"{path} cannot be read as a table: {error}") from None
    if frame.size == 0:
        raise ValueError(f"{path} has no rows: must hold numbers")
    return [str(name) for name in frame.columns], _numbers(path, frame.to_numpy())


def _starts_with_numbers(path: Path) -> bool:
    with path.open(encoding="utf-8-sig") as stream:
        cells = stream.readline().strip().split(",")
    try:
        [float(cell) for cell in cells]
    except ValueError:
        return False
    return True


def _numbers(path: Path, array: npt.NDArray[np.generic]) -> FloatArray:
    try:
        if np.iscomplexobj(array):
            raise TypeError
        values = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{path} has entries that are no numbers: must hold numbers only") from None
    if not np.all(np.isfinite(values)):
        where = [int(index) for index in np.argwhere(~np.isfinite(values))[0]]
        raise ValueError(f"{path}: the entry at {where} is missing or not finite: must be finite")
    return values
