"""One-line complaints about bad input: every message names the argument, the value and what is allowed."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def reject(name: str, value: object, allowed: str) -> ValueError:
    """Return the ``ValueError`` for a bad argument: ``name=value: must be allowed``."""
    return ValueError(f"{name}={value!r}: must be {allowed}")


def integer(name: str, value: Any, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Return ``value`` as an int in ``[minimum, maximum]``; a bool, NaN or fraction is refused.

    Raises
    ------
    ValueError
        If ``value`` is not a whole number in the range.
    """
    allowed = f"a whole number >= {minimum}" + ("" if maximum is None else f" and <= {maximum}")
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise reject(name, value, allowed)
    number = float(value)
    if not math.isfinite(number) or not number.is_integer():
        raise reject(name, value, allowed)
    if number < minimum or (maximum is not None and number > maximum):
        raise reject(name, value, allowed)
    return int(number)


def real(
    name: str, value: Any, *, above: float | None = None, minimum: float | None = None, maximum: float | None = None
) -> float:
    """Return ``value`` as a finite float, above ``above`` and within ``[minimum, maximum]`` where given.

    Raises
    ------
    ValueError
        If ``value`` is not a finite number in the range.
    """
    bounds = [f"> {above:g}"] if above is not None else []
    bounds += [f">= {minimum:g}"] if minimum is not None else []
    bounds += [f"<= {maximum:g}"] if maximum is not None else []
    allowed = " and ".join(["a finite number", *bounds]) if bounds else "a finite number"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise reject(name, value, allowed)
    number = float(value)
    if (
        (above is not None and number <= above)
        or (minimum is not None and number < minimum)
        or (maximum is not None and number > maximum)
    ):
        raise reject(name, value, allowed)
    return number


def choice(name: str, value: Any, options: Collection[str]) -> str:
    """Return ``value`` if it is one of ``options``.

    Raises
    ------
    ValueError
        If it is not.
    """
    if value not in options:
        raise reject(name, value, "one of " + ", ".join(options))
    return str(value)


def vector(
    name: str,
    value: Iterable[float] | npt.ArrayLike,
    *,
    minimum: float | None = None,
    increasing: bool = False,
    empty: bool = False,
) -> FloatArray:
    """Return ``value`` as a new float64 array of shape (n,), finite, in range, and strictly increasing if asked.

    Raises
    ------
    ValueError
        If it is not one-dimensional and finite, is empty (unless ``empty``), or leaves the range.
    """
    try:
        array = np.array(value if isinstance(value, np.ndarray) else list(value), dtype=np.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise reject(name, value, "a list of numbers") from None
    if array.ndim != 1 or (array.size == 0 and not empty):
        raise ValueError(f"{name} has shape {array.shape}: must be a non-empty list of numbers")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ValueError(f"{name}[{bad[0]}]={array[bad[0]]}: must be finite")
    if minimum is not None and array.size and array.min() < minimum:
        index = int(np.argmin(array))
        raise ValueError(f"{name}[{index}]={array[index]:g}: must be >= {minimum:g}")
    if increasing and array.size > 1 and not np.all(np.diff(array) > 0):
        index = int(np.flatnonzero(np.diff(array) <= 0)[0]) + 1
        raise ValueError(f"{name}[{index}]={array[index]:g}: must be larger than the entry before it")
    return array
