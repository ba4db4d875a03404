"""One-line complaints about bad input: every message names the argument, the value and what is allowed."""

from __future__ import annotations

import numbers
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# Whole numbers up to here are exact in float64, and fit the 64-bit integers of generators and kernels.
LARGEST_INTEGER = 2**53
# Settings are refused beyond this size: their squares and products would overflow far from the line that gave them.
LARGEST_REAL = 1e100
# Gains go like one over an eigenvalue, which may be tiny.
LARGEST_GAIN = 1e308


def reject(name: str, value: object, allowed: str) -> ValueError:
    """Return the ``ValueError`` for a bad argument: ``name=value: must be allowed``."""
    return ValueError(f"{name}={value!r}: must be {allowed}")


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


def stopped(found: Any) -> RuntimeError:
    """Return the error for a `scipy.integrate.solve_ivp` result that did not reach its end: where, and why."""
    reached = found.t[-1] if len(found.t) else 0.0
    return RuntimeError(f"the flow stopped at t={reached:g}: {found.message}")


def integer(name: str, value: Any, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Return ``value`` as an int in ``[minimum, maximum]``; a bool, NaN or fraction is refused, and so is > 2^53.

    Raises
    ------
    ValueError
        If ``value`` is not a whole number in the range.
    """
    allowed = f"a whole number >= {minimum}" + ("" if maximum is None else f" and <= {maximum}")
    if not _is_number(value):
        raise reject(name, value, allowed)
    if value > LARGEST_INTEGER and maximum is None:
        raise reject(name, value, f"{allowed} and <= 2^53")
    if not minimum <= value <= (LARGEST_INTEGER if maximum is None else maximum) or int(value) != value:
        raise reject(name, value, allowed)
    return int(value)


def real(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    largest: float = LARGEST_REAL,
) -> float:
    """Return ``value`` as a float strictly between ``above`` and ``below``, in ``[minimum, maximum]``.

    Its size is at most ``largest``, 1e100 unless said otherwise.

    Raises
    ------
    ValueError
        If ``value`` is not a finite number in the range.
    """
    bounds = [f"> {above:g}"] if above is not None else []
    bounds += [f">= {minimum:g}"] if minimum is not None else []
    bounds += [f"<= {maximum:g}"] if maximum is not None else []
    bounds += [f"< {below:g}"] if below is not None else []
    allowed = " and ".join(["a finite number", *bounds])
    if not _is_number(value):
        raise reject(name, value, allowed)
    if abs(value) > largest:
        raise reject(name, value, f"{allowed}, at most {largest:g} in size")
    if not (
        value == value
        and (above is None or value > above)
        and (minimum is None or value >= minimum)
        and (maximum is None or value <= maximum)
        and (below is None or value < below)
    ):
        raise reject(name, value, allowed)
    return float(value)


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
