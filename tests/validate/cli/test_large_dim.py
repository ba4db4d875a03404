"""Spectra too large to hold, from the command line."""

import json
import math

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF_LONG
from theory import SpectralMeasure, Spectrum, Task, predict
from theory.untied import RESOLVED
from validate.cli import main


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err


def test_a_million_and_one_modes_continue_a_million(capsys):
    flags = ["--depth", 8, "--times", "1e6,1e9,1e12", "--json"]
    held = json.loads(run(capsys, "predict", "--dim", 1_000_000, *flags)[1])
    compressed = json.loads(run(capsys, "predict", "--dim", "1000001", *flags)[1])
    # One mode more: the clock by 1e-6, the loss by the tail of one mode.
    one_mode = 2e-6
    np.testing.assert_allclose(compressed["loss"], held["loss"], rtol=one_mode)
    np.testing.assert_allclose(compressed["floor"]["untied"], held["floor"]["untied"], rtol=one_mode)
    assert "points" in compressed["spectrum"]


def test_infinite_spectrum_says_its_clock(capsys):
    code, out, err = run(capsys, "predict", "--dim", "inf", "--depth", 16, "--times", "1,1e4", "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert "t / D" in answer["spectrum"]
    assert "Depth 16 ends" in answer["power_law"]
    large = json.loads(run(capsys, "predict", "--dim", "1e12", "--depth", 16, "--times", "1e12,1e16", "--json")[1])
    assert answer["loss"] == pytest.approx(large["loss"], rel=ROUNDOFF_LONG)


def test_truncation_is_named(capsys):
    answer = json.loads(run(capsys, "predict", "--dim", 45, "--depth", 4, "--times", "10", "--json")[1])
    assert "Truncation at dim 45" in answer["power_law"]


def test_untied_layers_on_a_large_spectrum():
    measure = SpectralMeasure.power_law(math.inf, 1.0, 0.5, head=64)
    spectrum = Spectrum.power_law(200_000, 1.0, 0.5)
    times = np.array([1e2, 1e4])
    large = predict(Task(measure), 3, times=times, untied=True, break_size=0.3)
    held = predict(Task(spectrum), 3, times=times * spectrum.dim, untied=True, break_size=0.3)
    tail = 3 * (1 - SpectralMeasure.power_law(200_000, 1.0, 0.5, normalise=False).total * measure.amplitude)
    np.testing.assert_allclose(large.loss, held.loss, rtol=RESOLVED + tail / held.loss[-1])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dim", "1e9", "--setting", "iso"],
        ["--dim", "1e9", "--setting", "fs"],
        ["--dim", "1e9", "--context", "20"],
        ["--dim", "1.5"],
        ["--dim", "-inf"],
        ["--dim", "0"],
    ],
)
def test_what_no_large_spectrum_can_do_is_one_line(capsys, arguments):
    code, out, err = run(capsys, "predict", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
