"""What every result object can do: print itself, become a frame, become JSON, draw itself."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def plain(value: Any) -> Any:
    """Return ``value`` as JSON can hold it: arrays as lists, NaN and infinities as ``None``, dataclasses as dicts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, Result):
            return value.to_dict()
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """Return ``value`` as strict JSON text (no NaN tokens), keys in the order given."""
    return json.dumps(plain(value), allow_nan=False, indent=indent)


class Result:
    """Base of the frozen dataclasses that functions return.

    A subclass is a frozen dataclass; it overrides ``to_frame`` and ``plot`` where they mean something, and
    ``to_dict`` where its JSON differs from its fields.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values, NaN as ``None``."""
        assert dataclasses.is_dataclass(self)
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the result as one JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False, indent=indent)

    def to_frame(self) -> pd.DataFrame:
        """Return the result as a tidy pandas frame."""
        raise NotImplementedError(f"{type(self).__name__} has no table form")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the result on ``ax`` (a new figure if ``None``) and return the axes."""
        raise NotImplementedError(f"{type(self).__name__} has no picture")


def axes_or_new(ax: Axes | None, *, figsize: tuple[float, float] = (5.0, 3.6)) -> Axes:
    """Return ``ax``, or the axes of a new figure drawn without a display."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=figsize, layout="constrained").add_subplot()


def save_figure(ax: Axes, path: str | Path) -> Path:
    """Write the figure of ``ax`` to ``path`` (.png, .pdf or .svg), atomically.

    Raises
    ------
    ValueError
        If the suffix is another.
    OSError
        If the file cannot be written.
    """
    from theory.checks import reject
    from theory.files import atomic_path

    final = Path(path)
    if final.suffix.lower() not in {".png", ".pdf", ".svg"}:
        raise reject("plot", str(path), "a file name ending in .png, .pdf or .svg")
    figure = ax.get_figure()
    assert figure is not None
    # No creation date: the same data gives the same bytes.
    undated: dict[str, dict[str, Any]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with atomic_path(final) as temporary:
        figure.savefig(temporary, dpi=160, metadata=undated[final.suffix.lower()])  # type: ignore[union-attr]
    return final
