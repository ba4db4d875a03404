"""Arguments out of range are refused by one line that names argument, value and what is allowed; files likewise."""

from __future__ import annotations

import math
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from theory import Spectrum, Task, predict
from theory.checks import LARGEST_INTEGER, LARGEST_REAL, integer, real, stopped
from theory.files import atomic_path, write_text
from theory.prediction import MOST_STEPS


@pytest.mark.parametrize(
    "value", [0, -3, 1.5, math.nan, math.inf, -math.inf, True, "3", None, 10**400, LARGEST_INTEGER + 1]
)
def test_a_count_that_is_none_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^n=.*: must be a whole number >= 1") as found:
        integer("n", value)
    assert repr(value) in str(found.value)


@pytest.mark.parametrize("value", [1, 7.0, np.int32(4), np.float32(4), LARGEST_INTEGER])
def test_counts_of_every_type_are_taken(value: Any) -> None:
    assert integer("n", value) == int(value)
    assert type(integer("n", value)) is int


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "3", None, 10**400, 1e101, -1e300])
def test_a_number_that_is_none_or_too_large_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^x=.*: must be a finite number"):
        real("x", value)


def test_the_bounds_of_a_number_are_said_as_they_are_held() -> None:
    assert real("x", LARGEST_REAL) == LARGEST_REAL
    for bounds, inside, outside in (
        ({"above": 0}, 1e-300, 0.0),
        ({"below": 1}, 1 - 1e-15, 1.0),
        ({"minimum": 0}, 0.0, -1e-300),
        ({"maximum": 1}, 1.0, 1 + 1e-15),
    ):
        assert real("x", inside, **bounds) == inside
        sign = {"above": "> ", "below": "< ", "minimum": ">= ", "maximum": "<= "}[next(iter(bounds))]
        with pytest.raises(ValueError, match=f"a finite number and {sign}"):
            real("x", outside, **bounds)


def test_a_solver_that_never_started_is_reported_too() -> None:
    nowhere = types.SimpleNamespace(t=np.array([]), message="no step")
    halfway = types.SimpleNamespace(t=np.array([0.0, 2.5]), message="stiff")
    assert str(stopped(nowhere)) == "the flow stopped at t=0: no step"
    assert str(stopped(halfway)) == "the flow stopped at t=2.5: stiff"


def test_more_steps_than_a_recursion_can_run_are_refused() -> None:
    task = Task(Spectrum.power_law(3, 1.0, 1.0))
    with pytest.raises(ValueError, match=f"<= {MOST_STEPS}"):
        predict(task, 1, method="sgd", steps=[0, MOST_STEPS + 1])


def test_spectra_that_leave_float64_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"capacity=1000000\.0: must be at most"):
        Spectrum.power_law(3, 1e6, 1.0)
    with pytest.raises(ValueError, match="eigenvalues reach 1e\\+300: must be at most"):
        Spectrum(np.array([1e300, 1.0]))
    assert Spectrum.power_law(10, 299.0, 1.0).eigenvalues[-1] > 0


def test_a_spectrum_over_300_decades_has_a_finite_prediction() -> None:
    task = Task(Spectrum(np.logspace(0, -300, 6)), "rrs", 4)
    found = predict(task, 2, times=[0.0, 1.0, 1e4])
    assert np.isfinite(found.loss).all()
    assert np.all(np.diff(found.loss) < 0)


def test_a_folder_in_place_of_a_file_is_named_and_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "out.png"
    target.mkdir()
    with pytest.raises(IsADirectoryError) as found, atomic_path(target):
        pass
    assert found.value.filename == str(target)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc, which takes no files")
def test_a_folder_that_takes_no_files_is_named_by_the_file_asked_for() -> None:
    with pytest.raises(OSError, match=r"/proc/out\.txt") as found:
        write_text("/proc/out.txt", "text")
    assert found.value.filename == "/proc/out.txt"
