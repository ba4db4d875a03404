"""``inverse-depth predict``: every setting from the command line, one JSON object, one line for bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SOLVER
from theory import Spectrum, Task, isotropic_tied_optimum, mode_half_times, plateaus, predict
from validate.cli import main

SMALL = ["--dim", "6", "--depth", "3", "--times", "0,10,1e3", "--samples", "60"]
FIELDS = {"depth", "time", "loss", "standard_error", "gains", "floor", "exponents"}
# Losses at the end of training against floors found by another method.
ARRIVED = 1e-6


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:  # type: ignore[type-arg]
    with pytest.raises(SystemExit) as stop:
        main(["predict", *arguments, "--json"])
    assert stop.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)  # type: ignore[no-any-return]


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["predict", *arguments])
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("setting", ["rrs", "fs", "iso"])
@pytest.mark.parametrize("context", ["inf", "20"])
@pytest.mark.parametrize("extra", [(), ("--untied",), ("--width", "4"), ("--label-noise", "0.2", "--half-times")])
def test_every_setting_answers(
    capsys: pytest.CaptureFixture[str], setting: str, context: str, extra: tuple[str, ...]
) -> None:
    found = answer(capsys, "--setting", setting, "--context", context, *SMALL, *extra)
    assert set(found) >= FIELDS
    loss = np.array(found["loss"])
    assert loss[0] == pytest.approx(1.0, rel=ARRIVED)
    assert np.all(np.diff(loss) < 0)
    assert found["floor"]["untied"] <= found["floor"]["tied"] * (1 + ROUNDOFF_LONG)
    if "--untied" not in extra:
        assert loss[-1] >= found["floor"]["tied"] * (1 - ARRIVED)
    assert np.shape(found["gains"])[:2] == (3, 3)
    errors = np.array(found["standard_error"])
    assert np.all(errors[1:] > 0) if context == "20" else np.all(errors == 0) or "--width" in extra


@pytest.mark.parametrize("setting", ["rrs", "fs"])
@pytest.mark.parametrize("untied", [False, True])
def test_small_learning_rates_follow_the_flow(capsys: pytest.CaptureFixture[str], setting: str, untied: bool) -> None:
    extra = ["--untied"] if untied else []
    common = ["--setting", setting, "--dim", "5", "--depth", "2", *extra]
    flow = answer(capsys, *common, "--times", "20")
    rate = 0.01
    steps = answer(capsys, *common, "--method", "sgd", "--learning-rate", str(rate), "--steps-at", "2000")
    assert steps["time"] == [20.0]
    assert steps["loss"][0] == pytest.approx(flow["loss"][0], rel=rate)
    assert steps["largest_stable_learning_rate"] > 10 * rate


def test_the_large_size_limit_is_the_integral(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--setting", "iso", "--dim", "50", "--context", "100", "--depth", "4", "--deterministic"]
    found = answer(capsys, *arguments, "--times", "1e7")
    _, best = isotropic_tied_optimum(2.0, 4)
    assert found["floor"]["tied"] == pytest.approx(best, rel=ROUNDOFF)
    assert found["loss"][0] == pytest.approx(best, rel=SOLVER)
    assert "1/P" in found["validity"]
    assert len(found["missing"]) == len(found["rare_contexts"]) == 1


def test_notes_say_when_layers_separate_and_modes_are_learned(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(
        capsys, "--dim", "8", "--depth", "3", "--untied", "--break-size", "1e-4", "--times", "1,1e6", "--half-times"
    )
    assert found["tie_break"]["size"] == 1e-4
    assert found["tie_break"]["time"] > 0
    expected = mode_half_times(Task(Spectrum.power_law(8, 1.75, 0.5)), 3)
    times = [np.inf if time is None else time for time in found["half_times"]["time"]]
    np.testing.assert_allclose(times, expected.time, rtol=ROUNDOFF)
    assert found["half_times"]["order"] == list(range(1, 9))


def test_batch_noise_is_added_to_the_mean_curve(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--dim", "5", "--depth", "2", "--context", "20", "--method", "sgd", "--steps-at", "0,5,20"]
    small = answer(capsys, *arguments, "--batch", "10")["batch_noise"]
    large = answer(capsys, *arguments, "--batch", "100")["batch_noise"]
    np.testing.assert_allclose(small, 10 * np.array(large), rtol=ROUNDOFF_LONG)
    assert small[0] == 0


def test_small_starts_pass_their_plateaus(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--setting", "fs", "--dim", "3", "--capacity", "1", "--depth", "1", "--context", "40"]
    heads = answer(capsys, *arguments, "--start", "heads", "--start-size", "1e-3", "--times", "1e-3,1e15")
    levels = plateaus(Task(Spectrum.power_law(3, 1.0, 0.5), "fs", 40)).loss
    np.testing.assert_allclose(heads["plateaus"], levels, rtol=ROUNDOFF)
    np.testing.assert_allclose([heads["loss"][0], heads["loss"][-1]], [levels[0], levels[-1]], rtol=ARRIVED)
    merged = answer(capsys, *arguments, "--start", "merged", "--times", "1e-3,1e6")
    assert merged["loss"][-1] == pytest.approx(levels[-1], rel=ARRIVED)
    assert len(merged["drop_times"]) == 1
    turning = answer(capsys, "--dim", "6", "--depth", "3", "--start", "merged", "--times", "1,1e6")
    assert turning["loss"][-1] == pytest.approx(turning["floor"]["tied"], rel=ARRIVED)


def test_fixed_basis_at_finite_context_is_exact_for_one_layer_and_bracketed_beyond(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--setting", "fs", "--dim", "6", "--context", "4", "--times", "1,1e6"]
    one = answer(capsys, *arguments, "--depth", "1", "--deterministic")
    assert one["standard_error"] == [0, 0]
    assert one["loss"][-1] == pytest.approx(one["floor"]["tied"], rel=ARRIVED)
    two = answer(capsys, *arguments, "--depth", "2", "--samples", "100")
    assert two["floor_lower_bound"] <= two["floor"]["untied"] <= two["floor"]["tied"] * (1 + ROUNDOFF)
    assert len(two["floor_starts"]["tied"]) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--depth", "-1"], "depth"),
        (["--context", "0"], "context"),
        (["--width", "100", "--dim", "5"], "width"),
        (["--start", "heads"], "setting"),
        (["--start", "merged", "--untied", "--setting", "fs"], "start"),
        (["--deterministic", "--setting", "fs", "--context", "5", "--depth", "2"], "deterministic"),
        (["--deterministic", "--width", "3", "--context", "5"], "context"),
        (["--untied", "--break-size", "-1"], "break_size"),
        (["--method", "sgd", "--times", "1"], "times"),
        (["--batch", "8"], "batch"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert words in complaint(capsys, *arguments)


def test_the_table_names_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["predict", "--dim", "5", "--depth", "2", "--untied", "--times", "1,10", "--half-times"])
    out = capsys.readouterr().out
    assert "gain_2" in out
    assert "tie break: size 0.001" in out
    assert "half times: time" in out


def test_predictions_draw_and_tabulate_in_every_setting() -> None:
    for setting in ("rrs", "fs"):
        found = predict(Task(Spectrum.power_law(4, 1.0, 1.0), setting), 2, times=[1.0, 10.0])
        assert list(found.to_frame().columns) == ["time", "loss", "standard_error", "gain_1", "gain_2"]
        assert found.plot().get_xlabel().startswith("time")
