import json
import sys

import pytest

from sim import runs
from tests.sim.sweeping import document, stamps, toml
from validate.cli import main


def command(capsys, *arguments):
    """Return exit status, stdout and stderr of ``inverse-depth sweep``."""
    with pytest.raises(SystemExit) as stop:
        main(["sweep", *map(str, arguments)])
    output, errors = capsys.readouterr()
    return stop.value.code or 0, output, errors


def failing(folder):
    text = document(depths=(1,), seeds=2)
    text["extra"] = [{"training": {"batch": -1}}]
    return toml(folder, text)


def test_dry_run_and_status_change_nothing_and_say_what_is_to_do(capsys, tmp_path):
    path, place = toml(tmp_path, document(seeds=2)), tmp_path / "s"
    status, output, _ = command(capsys, path, "--store", place, "--dry-run")
    assert status == 0
    assert "4 waiting" in output
    assert "would run 4:" in output
    assert "depth=2 seed=1" in output
    status, output, _ = command(capsys, path, "--store", place, "--dry-run", "--json")
    assert len(json.loads(output)["to_run"]) == 4
    status, output, _ = command(capsys, path, "--store", place, "--status")
    assert (status, "4 waiting" in output) == (0, True)
    assert not place.exists()
    status, output, errors = command(capsys, "status", "--store", place)
    assert (status, output) == (2, "")
    assert "is not a store of runs" in errors


def test_a_sweep_that_fails_in_part_ends_with_1_and_again_with_1(capsys, tmp_path):
    path, place = failing(tmp_path), tmp_path / "s"
    flags = ["--store", place, "--workers", 1, "--device", "cpu"]
    status, output, errors = command(capsys, path, *flags)
    assert status == 1
    assert "2 finished, 1 failed" in output
    assert "batch=-1" in output
    assert "[2/2]" in errors
    before = stamps(place)
    status, output, errors = command(capsys, path, *flags, "--json")
    told = json.loads(output)
    assert status == 1
    assert told["counts"]["failed"] == 1
    assert "--retry-failed" in errors
    assert stamps(place) == before
    assert len(runs.load(place).to_frame()) == 3
    status, output, _ = command(capsys, "status", "--store", place, "--json")
    assert json.loads(output)["counts"] == told["counts"]


def test_a_sweep_without_failures_ends_with_0(capsys, tmp_path):
    path = toml(tmp_path, document(depths=(1,), seeds=1))
    status, output, _ = command(capsys, path, "--store", tmp_path / "s", "--device", "cpu", "--together", 4)
    assert (status, "1 finished" in output) == (0, True)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ([], "FILE is missing"),
        (["nowhere.toml"], "nowhere.toml: No such file"),
        (["{path}", "--workers", "-1"], "workers=-1"),
        (["{path}", "--threads", "0"], "threads=0"),
        (["{path}", "--together", "0"], "together=0"),
        (["{path}", "--checkpoint-seconds", "-1"], "checkpoint_seconds=-1"),
        (["{path}", "--scheduler", "tcp://127.0.0.1:1", "--workers", "2"], "workers=2"),
        (["{path}", "--store", "{path}"], "must be a folder"),
    ],
)
def test_bad_input_is_one_line_and_status_2(flags, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = toml(tmp_path, document())
    status, output, errors = command(capsys, *[str(flag).format(path=path) for flag in flags])
    assert (status, output) == (2, "")
    assert errors.startswith("inverse-depth: error: ")
    assert len(errors.splitlines()) == 1
    assert complaint in errors


def test_without_dask_the_scheduler_is_one_line_and_status_2(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    path = toml(tmp_path, document())
    status, output, errors = command(capsys, path, "--store", tmp_path / "s", "--scheduler", "tcp://127.0.0.1:1")
    assert (status, output) == (2, "")
    assert "pip install 'inverse-depth[cluster]'" in errors
    assert len(errors.splitlines()) == 1
