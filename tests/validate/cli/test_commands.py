"""predict, compare and reproduce as a user types them: JSON shapes, bad input in one line, nothing half written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.tolerances import ROUNDOFF
from theory import Spectrum, Task, predict
from validate.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return exit status, stdout and stderr of the command."""
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    code = stop.value.code
    out, err = capsys.readouterr()
    return (code if isinstance(code, int) else 0), out, err


def test_predict_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    flags = (
        "--setting rrs --dim 12 --capacity 1.75 --source 0.5 --context 64 --depth 3 --method sgd --learning-rate 3.0"
    )
    code, out, err = run(capsys, "predict", *flags.split(), "--steps-at", "0,1:4,10", "--seed", "0", "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert answer["depth"] == 3
    assert answer["step"] == [0, 1, 2, 3, 10]
    assert answer["time"] == [3.0 * step for step in answer["step"]]
    assert len(answer["loss"]) == len(answer["standard_error"]) == 5
    assert np.shape(answer["gains"]) == (5, 3)
    assert set(answer["floor"]) == {"tied", "untied"}
    assert answer["exponents"] == {
        "depth_tied": 0.5,
        "depth_untied": 1.0,
        "time": pytest.approx(0.5 / 2.5, rel=ROUNDOFF),
        "compute": pytest.approx(0.5 / 3.5, rel=ROUNDOFF),
        "depth_untied_separate": pytest.approx((2 + 1.75) * 0.5, rel=ROUNDOFF),
    }
    expected = predict(
        Task(Spectrum.power_law(12, 1.75, 0.5), "rrs", 64),
        3,
        method="sgd",
        learning_rate=3.0,
        steps=[0, 1, 2, 3, 10],
    )
    np.testing.assert_allclose(answer["loss"], expected.loss, rtol=ROUNDOFF)


def test_flow_has_times_and_no_steps(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "predict", "--dim", "6", "--depth", "2", "--times", "10,1e3,1e5", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["time"] == [10.0, 1e3, 1e5]
    assert "step" not in answer
    assert answer["standard_error"] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_predict_draws_what_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"curve{suffix}"
    code, _, _ = run(capsys, "predict", "--dim", "6", "--plot", str(path))
    assert code == 0
    assert path.stat().st_size > 1000
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("predict --depth -1", "depth=-1: must be a whole number >= 1"),
        ("predict --context 0", "context='0': must be a whole number >= 1, or inf"),
        ("predict --context nan", "context='nan'"),
        ("predict --dim 0", "dim=0"),
        ("predict --capacity inf", "capacity=inf"),
        ("predict --source -1", "source=-1.0"),
        ("predict --label-noise -1", "label_noise=-1.0"),
        ("predict --setting xyz", "setting='xyz': must be one of rrs, fs, iso"),
        ("predict --method euler", "method='euler'"),
        ("predict --method sgd --steps-at 3,1", "steps-at='3,1': must be strictly increasing"),
        ("predict --method sgd --steps-at -4", "steps-at='-4'"),
        ("predict --method sgd --steps-at 0:10:0", "stride >= 1"),
        ("predict --times 1,nan", "times='1,nan'"),
        ("predict --times 1 --method sgd", "times='1': must be left out"),
        ("predict --plot curve.bmp", "plot='curve.bmp': must be a file name ending in .png, .pdf or .svg"),
        ("compare --curve nowhere.csv", "nowhere.csv: No such file or directory"),
        ("reproduce --preset huge --out x", "preset='huge': must be one of smoke, laptop, paper"),
        ("reproduce --device cuda:99 --out x", "cuda:99"),
        ("reproduce --data nowhere --out x", "data='nowhere': must be a folder"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments.split())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("inverse-depth: error: ")
    assert words in err
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="needs /proc, which takes no files")
@pytest.mark.parametrize("command", ["predict --dim 4 --plot /proc/x/curve.png", "reproduce --out /proc/x"])
def test_a_folder_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, _, err = run(capsys, *command.split())
    assert code == 2
    assert err.count("\n") == 1
    assert "/proc/x" in err


def test_compare_judges_by_the_tolerance(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    task = Task(Spectrum.power_law(5, 1.0, 0.5))
    exact = predict(task, 2, method="sgd", learning_rate=0.5, steps=range(40)).loss
    for scale, expected in ((1.0, 0), (1.05, 1)):
        pd.DataFrame({"step": range(40), "loss": scale * exact}).to_csv(tmp_path / "curve.csv", index=False)
        flags = "--dim 5 --capacity 1 --source 0.5 --depth 2 --learning-rate 0.5 --tolerance 0.01 --json"
        code, out, _ = run(capsys, "compare", "--curve", str(tmp_path / "curve.csv"), *flags.split())
        answer = json.loads(out)
        assert code == expected
        assert answer["agrees"] is (expected == 0)
        assert answer["max_relative_deviation"] == pytest.approx(1 - 1 / scale, rel=ROUNDOFF, abs=ROUNDOFF)
