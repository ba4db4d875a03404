"""predict, compare and reproduce as a user types them: JSON shapes, bad input in one line, nothing half written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import ROOT
from tests.tolerances import ROUNDOFF
from theory import Spectrum, Task, predict
from validate.cli import app as app_module
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
        ("predict --dim 0", "dim='0'"),
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
        ("predict --depth abc", "'--depth'"),
        ("predict --depth abc", "got 'abc'; see inverse-depth predict --help"),
        ("predict --nope", "No such option: --nope"),
        ("predict --depth", "'--depth' requires an argument"),
        ("predict extra", "extra"),
        ("nosuch", "No such command 'nosuch'"),
        ("fit", "Missing argument"),
        ("fit runs.csv", "Missing option '--loss'"),
        ("predict --dim 99999999999999999999", "must be a whole number >= 1 and <= 2^53"),
        ("predict --dim 4 --context 99999999999999999999", "context=99999999999999999999"),
        ("predict --dim 4 --label-noise 1e300", "label_noise=1e+300: must be a finite number and >= 0, at most"),
        ("predict --dim 4 --samples 0", "samples=0"),
        ("predict --dim 4 --seed -1", "seed=-1"),
        ("predict --dim 3 --capacity 1e6", "capacity=1000000.0: must be at most"),
        ("predict --dim 4 --method sgd --steps-at 999999999999", "must be a whole number >= 0 and <= 100000000"),
        ("sweep --device nope grid.toml", "grid.toml: No such file or directory"),
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


BAD_FILES = {
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "half": b"PAR1\x15\x04\x15",
}


@pytest.mark.parametrize("content", [*BAD_FILES, "folder"])
@pytest.mark.parametrize(
    "command",
    [
        "compare --curve {}.csv",
        "compare --curve {}.parquet",
        "fit {}.csv --loss loss --depth depth",
        "fit {}.json --loss loss --depth depth",
        "fit {}.parquet --loss loss --depth depth",
        "spectrum {}.npy",
        "spectrum {}.csv",
        "spectrum {}.parquet",
        "predict --spectrum {}.npy",
        "sweep {}.toml --store store",
        "sweep {}.toml --dry-run",
        "reproduce --out out --preset {}.toml",
    ],
)
def test_files_that_hold_nothing_of_use_are_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    content: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = command.format("bad").split()
    (name,) = [word for word in arguments if word.startswith("bad.")]
    if content == "folder":
        Path(name).mkdir()
    else:
        Path(name).write_bytes(BAD_FILES[content])
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert name in err
    assert [item.name for item in tmp_path.iterdir()] == [name]


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert code == 2
    assert "predict" in out + err


def test_warnings_are_one_line_and_give_way_to_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn_and(result: object) -> object:
        warnings.simplefilter("always")
        warnings.warn("mind\nthis", RuntimeWarning, stacklevel=1)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(app_module, "app", lambda **_: warn_and(None))
    assert run(capsys, "x") == (0, "", "inverse-depth: warning: mind this\n")
    monkeypatch.setattr(app_module, "app", lambda **_: warn_and(MemoryError()))
    assert run(capsys, "x") == (2, "", "inverse-depth: error: out of memory: ask for less at once\n")
    monkeypatch.setattr(app_module, "app", lambda **_: warn_and(OverflowError("range")))
    code, _, err = run(capsys, "x")
    assert code == 2
    assert err.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="needs pipes that close")
@pytest.mark.parametrize("sink", ["| head -c 1 >/dev/null", ">/dev/full"])
def test_output_that_nobody_takes_is_no_traceback(sink: str) -> None:
    command = f"{sys.executable} -m validate.cli predict --dim 3 --depth 2 --json {sink}"
    found = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in found.stderr
    assert found.stderr.count("\n") <= 1


CURVES = {
    "step,loss\n0,1\n1,nan\n": "loss in line 3 is nan: must be a finite number > 0",
    "step,loss\n0,0\n": "loss in line 2 is 0: must be a finite number > 0",
    "step,loss\n0,1\n1e20,1\n": "step in line 3 is 1e+20: must be a whole number from 0 to",
    "step,loss\n0.5,1\n": "step in line 2 is 0.5",
    "step,loss\n1,1\n1,1\n": "must hold each step once",
    "step,loss,standard_error\n0,1,-1\n": "standard_error in line 2 is -1: must be a finite number >= 0",
    "step,other\n0,1\n": "must be one of step, other",
    "step,loss\n": "must hold a header line and at least one row",
    "step,loss\n0,one\n": "'one'",
}


@pytest.mark.parametrize("text", list(CURVES))
def test_curves_that_cannot_be_compared_are_refused_by_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    (tmp_path / "curve.csv").write_text(text)
    code, out, err = run(capsys, "compare", "--curve", str(tmp_path / "curve.csv"))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert CURVES[text] in err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--depth loss", "depth='loss': must be another column than loss's"),
        ("--depth depth --width depth", "width='depth': must be another column than depth's"),
        ("--depth depth --fix nope=1", "fix='nope=1': must be one of plateau"),
        ("--depth depth --fix plateau=1 --fix plateau=2", "fix='plateau=2': must be one of"),
        ("--depth depth --fix plateau", "fix='plateau': must be NAME=VALUE"),
        ("--depth depth --law nope", "law='nope'"),
        ("--depth depth --max-loss 1", "no row of runs.csv"),
        ("--depth depth --plot nowhere.bmp", "plot='nowhere.bmp'"),
    ],
)
def test_fits_that_make_no_sense_are_refused_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: str, words: str
) -> None:
    (tmp_path / "runs.csv").write_text("depth,loss\n1,2.31\n2,1.66\n4,1.34\n8,1.17\n16,1.09\n")
    code, out, err = run(capsys, "fit", str(tmp_path / "runs.csv"), "--loss", "loss", *flags.split())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


def test_diverged_rows_alone_are_no_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("depth,loss\n1,nan\n2,inf\n")
    flags = ["--loss", "loss", "--depth", "depth", "--drop-diverged"]
    code, _, err = run(capsys, "fit", str(tmp_path / "runs.csv"), *flags)
    assert code == 2
    assert "no row is left" in err


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


@pytest.mark.parametrize("kind", ["npy", "csv"])
def test_compare_takes_the_spectrum_of_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, rng: np.random.Generator
) -> None:
    rows = rng.standard_normal((60, 4)) * [2.0, 1.0, 0.5, 0.3]
    task = Task(Spectrum(np.linalg.eigvalsh(rows.T @ rows / 60)))
    exact = predict(task, 2, method="sgd", learning_rate=0.5, steps=range(40)).loss
    pd.DataFrame({"step": range(40), "loss": exact}).to_csv(tmp_path / "curve.csv", index=False)
    if kind == "npy":
        np.save(tmp_path / "rows.npy", rows)
    else:
        pd.DataFrame(rows, columns=list("abcd")).to_csv(tmp_path / "rows.csv", index=False)
    flags = f"--spectrum {tmp_path}/rows.{kind} --depth 2 --learning-rate 0.5 --tolerance 1e-9 --json"
    code, out, _ = run(capsys, "compare", "--curve", str(tmp_path / "curve.csv"), *flags.split())
    answer = json.loads(out)
    assert code == 0
    assert answer["agrees"] is True
    # Another spectrum does not agree.
    code, out, _ = run(capsys, "compare", "--curve", str(tmp_path / "curve.csv"), *flags.split()[2:])
    assert code == 1
    assert json.loads(out)["agrees"] is False
