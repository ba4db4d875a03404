"""The fit command: one JSON object, rows named, bad input in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.tolerances import REFERENCE_EXPONENT
from validate.cli import main

RUNS = """depth,loss,seed
1,3.72,0
1,3.68,1
2,2.71,0
2,2.69,1
4,2.21,0
4,2.2,1
8,1.955,0
8,1.95,1
16,1.83,0
16,1.825,1
"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(RUNS, encoding="utf-8")
    return path


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["fit", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_rivals_are_ranked(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, runs, "--depth", "depth", "--loss", "loss", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["law"] == "inverse-depth"
    assert answer["n"] == 10
    assert len(answer["ranking"]) == 7
    assert answer["ranking"][0]["law"] == answer["law"]
    for name in ("weight", "probability"):
        assert sum(entry[name] for entry in answer["ranking"]) == pytest.approx(1, abs=REFERENCE_EXPONENT)
    plateau = answer["parameters"]["plateau"]
    assert plateau["ci95"][0] < plateau["value"] < plateau["ci95"][1]


def test_one_law_with_filters_predictions_and_pictures(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, profiles, exclusions = (runs.parent / f"{name}.png" for name in "abc")
    code, out, err = call(
        capsys, runs, "--depth", "DEPTH", "--loss", "Loss", "--law", "power", "--where", "depth < 16", "--json",
        "--predict-at", "16,32", "--exhausted-within", 0.05, "--plot", picture, "--profile-plot", profiles,
        "--exclusion-plot", exclusions,
    )  # fmt: skip
    answer = json.loads(out)
    assert code == 0
    assert "2 rows outside depth < 16 left out: lines 10, 11" in err
    assert answer["n"] == 8
    assert answer["exclusion"]["lines"] == [10, 11]
    assert answer["exclusion"]["fit_to_all_rows"]["n"] == 10
    assert answer["predictions"][0]["low"] < 1.83 < answer["predictions"][0]["high"]
    assert answer["exhausted"]["value"] > 8
    assert all(path.stat().st_size > 5000 for path in (picture, profiles, exclusions))


@pytest.mark.shared
def test_the_published_table(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(
        capsys, shared_data / "chinchilla_depth_width.csv", "--depth", "n_layers", "--width", "d_model",
        "--tokens", "num_tokens", "--loss", "loss", "--max-loss", "2.998680336233436", "--json", "--budget", "1.3B",
    )  # fmt: skip
    answer = json.loads(out)
    assert code == 0
    assert answer["n"] == 203
    assert answer["objective"] <= 0.0024631
    values = {name: entry["value"] for name, entry in answer["parameters"].items()}
    for name, value in (("depth_exponent", 1.3455), ("width_exponent", 0.9233), ("tokens_exponent", 0.3027)):
        assert values[name] == pytest.approx(value, abs=REFERENCE_EXPONENT)
    assert values["plateau"] == pytest.approx(1.7539, abs=REFERENCE_EXPONENT)
    assert len(answer["exclusion"]["lines"]) == 42
    assert "42 rows" in err
    assert answer["shape"]["reason"] == "within the data"


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (("3.72", "nan"), [], "not a finite positive number on line 2"),
        (("3.72", "x"), [], "line 2: 'x'"),
        (("1,3.72", "-1,3.72"), [], "depth='-1' on line 2"),
        (("", ""), ["--max-loss", "0.1"], "no row"),
        (("", ""), ["--law", "cubic"], "law='cubic'"),
        (("", ""), ["--where", "depth >"], "expected a number"),
        (("", ""), ["--fix", "plateau"], "must be NAME=VALUE"),
        (("", ""), ["--width", "depth"], "another column than depth's"),
        (("", ""), ["--tokens", "wide"], "column='wide'"),
        (("", ""), ["--plot", "a.gif"], ".png, .pdf or .svg"),
        (("", ""), ["--budget", "1B"], "width and depth"),
    ],
)
def test_bad_input_is_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], arguments: list[str], message: str
) -> None:
    if change[0]:
        runs.write_text(RUNS.replace(change[0], change[1], 1), encoding="utf-8")
    code, out, err = call(capsys, runs, "--depth", "depth", "--loss", "loss", *arguments)
    assert code == 2
    assert out == ""
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err


def test_diverged_runs_are_dropped_on_request(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.write_text(RUNS.replace("3.72", "inf").replace("2.71", "nan"), encoding="utf-8")
    code, out, err = call(capsys, runs, "--depth", "depth", "--loss", "loss", "--drop-diverged", "--json")
    assert code == 0
    assert json.loads(out)["n"] == 8
    assert "line 2, 4 of runs.csv: left out as diverged" in err


def test_copies_of_a_row_are_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.write_text(RUNS + "16,1.825,1\n", encoding="utf-8")
    _, out, err = call(capsys, runs, "--depth", "depth", "--loss", "loss", "--law", "inverse-depth", "--json")
    assert "1 rows repeat an earlier row exactly" in err
    assert "lines 12" in err
    assert json.loads(out)["n"] == 11


def test_fixed_parameters(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(
        capsys, runs, "--depth", "depth", "--loss", "loss", "--law", "power", "--fix", "exponent=1", "--json"
    )
    entry = json.loads(out)["parameters"]["exponent"]
    assert entry["value"] == pytest.approx(1.0, abs=REFERENCE_EXPONENT)
    assert entry["status"] == "fixed"


def test_a_spectrum_fixes_the_spectral_exponent_alone(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, runs, "--depth", "depth", "--loss", "loss", "--spectral-exponent", 0.5, "--json")
    ranking = {entry["law"]: entry["parameters"] for entry in json.loads(out)["ranking"]}
    assert ranking["spectral"]["exponent"]["status"] == "fixed"
    assert ranking["power"]["exponent"]["status"] == "ok"


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "validate.cli", "fit", str(tmp_path / "no.csv"), "--depth", "a", "--loss", "b"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no.csv" in done.stderr


def test_text_output_names_the_rivals(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, runs, "--depth", "depth", "--loss", "loss")
    assert "ranking by probability" in out
    assert "plateau" in out
    assert np.all([name in out for name in ("power", "exponential", "spectral", "ar1")])
