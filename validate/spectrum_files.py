"""Spectra from files: eigenvalues, a covariance matrix, or samples, in .npy, .csv or .parquet."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from theory.checks import FloatArray, choice, integer, reject
from theory.estimate import SpectrumEstimate, estimate_from_eigenvalues, estimate_spectrum, well_determined
from theory.spectra import Spectrum
from validate.matrix_files import read_matrix

KINDS = ("auto", "eigenvalues", "covariance", "samples")
# A square matrix that equals its transpose within this share of its largest entry is a covariance.
SYMMETRIC = 1e-10


@dataclasses.dataclass(frozen=True, eq=False)
class SpectrumFile:
    """What a file holds.

    Attributes
    ----------
    path : str
    kind : {"eigenvalues", "covariance", "samples"}
    values : array of shape (n,), (dim, dim) or (n, dim)
    labels : array of shape (n,) or None
        Labels of samples, or the task power beside eigenvalues.
    rows : int or None
        Number of samples behind eigenvalues or a covariance, where it was told.
    """

    path: str
    kind: str
    values: FloatArray
    labels: FloatArray | None
    rows: int | None = None

    def spectrum(self) -> Spectrum:
        """Return the spectrum, with capacity and source where the data determine them."""
        name = Path(self.path).name
        if self.kind == "samples":
            return dataclasses.replace(Spectrum.from_samples(self.values, self.labels), name=name)
        if self.kind == "covariance":
            spectrum = Spectrum.from_covariance(self.values)
        else:
            spectrum = Spectrum(self.values) if self.labels is None else Spectrum(self.values, self.labels)
        return dataclasses.replace(spectrum, name=name, **well_determined(self.estimate()))

    def estimate(self, *, level: float = 0.95) -> SpectrumEstimate:
        """Return capacity and source with their intervals at ``level``.

        Raises
        ------
        ValueError
            If ``level`` is outside (0, 1).
        """
        if self.kind == "samples":
            return estimate_spectrum(self.values, self.labels, level=level)
        if self.kind == "covariance":
            spectrum = Spectrum.from_covariance(self.values)
            return estimate_from_eigenvalues(spectrum.eigenvalues, level=level, samples=self.rows)
        signal = None if self.labels is None else self.values * self.labels
        return estimate_from_eigenvalues(self.values, signal, level=level, samples=self.rows)


def read_spectrum_file(
    path: str | Path, *, labels: str | None = None, kind: str = "auto", rows: int | None = None
) -> SpectrumFile:
    """Return what ``path`` holds.

    Parameters
    ----------
    path : path
        ``.npy`` (an array of numbers), ``.csv`` (with or without a line of names) or ``.parquet``. A column
        ``eigenvalue`` (and ``task_power`` or ``signal``) is read as such, whatever stands beside it.
    labels : str, optional
        Column of the labels: a name, or a number counted from 0 (negative from the end).
    kind : {"auto", "eigenvalues", "covariance", "samples"}
        ``auto``: one row or column is eigenvalues, a symmetric matrix a covariance, anything else samples.
    rows : int, optional
        Number of samples behind eigenvalues or a covariance.

    Raises
    ------
    ValueError
        For another suffix, entries that are no finite numbers, an unknown column, or labels that do not fit the kind.
    OSError
        If the file cannot be read.
    """
    choice("kind", kind, KINDS)
    names, table = read_matrix(Path(path))
    rows = None if rows is None else integer("rows", rows, minimum=2)
    lower = [name.strip().lower() for name in names]
    if kind in {"auto", "eigenvalues"} and "eigenvalue" in lower and labels is None:
        values = table[:, lower.index("eigenvalue")]
        power = None
        if "task_power" in lower:
            power = table[:, lower.index("task_power")]
        elif "signal" in lower:
            signal = table[:, lower.index("signal")]
            power = np.divide(signal, values, out=np.zeros_like(signal), where=values > 0)
        return SpectrumFile(str(path), "eigenvalues", values, power, rows)
    targets = None
    if labels is not None:
        column = _column(names, table.shape[1], labels)
        targets, table = table[:, column], np.delete(table, column, axis=1)
        if table.shape[1] == 0:
            raise reject("labels", labels, "one column among others")
    if kind == "auto":
        kind = _kind(table, targets)
    if kind != "samples" and targets is not None:
        raise reject("labels", labels, f"left out for {kind}: only samples have labels")
    if kind == "eigenvalues":
        if 1 not in table.shape:
            raise ValueError(f"{path} has shape {table.shape}: must be one row or column of eigenvalues")
        table = table.ravel()
    if kind == "samples" and rows is not None:
        raise reject("rows", rows, "left out for samples, which say it themselves")
    return SpectrumFile(str(path), kind, table, targets, rows)


def _kind(table: FloatArray, labels: FloatArray | None) -> str:
    if labels is None and 1 in table.shape:
        return "eigenvalues"
    square = table.shape[0] == table.shape[1]
    if labels is None and square and np.abs(table - table.T).max() <= SYMMETRIC * np.abs(table).max():
        return "covariance"
    return "samples"


def _column(names: list[str], count: int, label: str) -> int:
    if label in names:
        return names.index(label)
    try:
        index = int(label)
    except ValueError:
        index = count
    if not -count <= index < count:
        known = ", ".join(name for name in names if name) or f"a number from 0 to {count - 1}"
        raise reject("labels", label, f"a column: {known}")
    return index % count
