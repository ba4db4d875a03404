"""A report from the runs that are there: nothing is trained, what is missing is named, no verdict rests on a part."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from sim.runs import open_store
from tests.validate.small_presets import CURVES
from validate.claims import SUPPORTED, UNDECIDED, Verdict, register
from validate.cli import main
from validate.reproduction import Reproduction, preview, report, reproduce
from validate.standing import Standing, hold_back
from validate.study import load_preset


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    folder = tmp_path_factory.mktemp("again")
    (folder / "curves.toml").write_text(CURVES)
    return reproduce(folder / "curves.toml", folder / "out", device="cpu")


def copied(made: Reproduction, tmp_path: Path) -> Path:
    shutil.copytree(made.report.parent / "store", tmp_path / "out" / "store")
    return tmp_path / "out"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def verdict(found: Reproduction, claim: str) -> Verdict:
    (one,) = [verdict for verdict in found.verdicts if verdict.claim == claim]
    return one


def test_the_report_again_is_the_report(made: Reproduction) -> None:
    out = made.report.parent
    before = contents(out)
    again = report(out)
    assert again == made
    assert contents(out) == before


def test_a_missing_run_is_named_and_its_claims_wait(made: Reproduction, tmp_path: Path) -> None:
    assert verdict(made, "C0").verdict == SUPPORTED
    out = copied(made, tmp_path)
    configs = {path: json.loads(path.read_text()) for path in (out / "store").glob("*/config.json")}
    (deep,) = [path.parent for path, config in configs.items() if config["model"]["depth"] == 2]
    shutil.rmtree(deep)
    store = contents(out / "store")
    found = report(out, preset=made.report.parent.parent / "curves.toml")
    assert contents(out / "store") == store
    assert [(s.planned, s.finished, s.failed, s.waiting) for s in found.standings] == [(2, 1, 0, 1)]
    waiting = verdict(found, "C0")
    assert waiting.verdict == UNDECIDED
    assert waiting.reason.startswith("linear-curves: 1 of 2 runs are missing. So far: rms deviation at most")
    missing = "linear on ν = 1, β = 1, P = 16: L = 2 (seed 0)"
    assert all(missing in (out / name).read_text() for name in ("report.html", "report.md"))
    assert json.loads((out / "report.json").read_text())["standings"][0]["missing"] == [missing]
    assert json.loads((out / "claims.json").read_text())["missing"] == {"linear-curves": 1}


def test_an_empty_store_is_a_report_of_nothing(tmp_path: Path) -> None:
    open_store(tmp_path / "store")
    found = report(tmp_path, preset="smoke")
    assert {one.verdict for one in found.verdicts} == {UNDECIDED}
    assert all(standing.finished == 0 for standing in found.standings)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["report", *words])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_folders_that_hold_no_study_are_one_line(
    made: Reproduction, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "it holds no store" in refused(capsys, "--out", str(tmp_path))
    out = copied(made, tmp_path)
    assert "request.json does not name it" in refused(capsys, "--out", str(out))
    assert "it holds 2 others" in refused(capsys, "--out", str(out), "--preset", "smoke")
    (out / "request.json").write_text("[1]")
    assert "must be an object with the texts preset and data" in refused(capsys, "--out", str(out))


def test_the_command_prints_one_json_object(made: Reproduction, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["report", "--out", str(made.report.parent), "--json"])
    assert stop.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(made.to_json())


@pytest.mark.parametrize("failed", [0, 2])
def test_a_claim_waits_for_its_own_experiments_only(failed: int) -> None:
    """Failed runs will not come: the rule decides on what there is."""
    one, both = (
        dataclasses.replace(register()[0], experiment=names)
        for names in ("depth-softmax", "depth-linear, depth-softmax")
    )
    supported = Verdict("", SUPPORTED, 0.1, "fine")
    done = Standing("depth-softmax", 4, 4 - failed, failed)
    open_ = Standing("depth-linear", 4, 3, 0, ("linear on isotropic, P = 8: L = 8 (seed 0)",))
    assert hold_back(one, supported, [open_, done]) == supported
    waiting = hold_back(both, supported, [open_, done])
    assert (waiting.verdict, waiting.number) == (UNDECIDED, 0.1)
    assert waiting.reason == "depth-linear: 1 of 4 runs are missing. So far: fine"


@pytest.mark.parametrize("preset", ["smoke", "laptop", "paper"])
def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(
    preset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "--preset", preset, "--out", str(tmp_path / "out"), "--dry-run", "--json"])
    assert stop.value.code == 0
    outlook = json.loads(capsys.readouterr().out)
    digests = {plan.digest for experiment in load_preset(preset).experiments for plan in experiment.plans}
    assert outlook["to_run"] == len(digests)
    assert sum(standing["planned"] for standing in outlook["standings"]) >= len(digests)
    assert not any(tmp_path.iterdir())


def test_a_dry_run_counts_what_is_done(made: Reproduction) -> None:
    outlook = preview(made.report.parent.parent / "curves.toml", made.report.parent)
    assert str(outlook) == "linear-curves: 2 planned, 2 finished, 0 failed, 0 to run\nwould train 0 runs"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--device", "tpu"], "device='tpu': must be one of auto, cpu, cuda, cuda:N"),
        (["--device", "cuda:99"], "device='cuda:99': "),
        (["--data", "empty"], "a folder with published_rrs_linear_L<depth>.csv"),
        (["--data", "named"], "must be named published_rrs_linear_L<depth>.csv"),
        (["--data", "absent"], "data="),
        (["--out", "empty/file/out"], "a folder, there or to be made"),
    ],
)
def test_a_dry_run_refuses_what_the_real_run_refuses(
    words: list[str],
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "file").touch()
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "published_rrs_linear_Lx.csv").write_text("step,loss\n0,1\n")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    said = []
    for more in (["--dry-run"], []):
        with pytest.raises(SystemExit) as stop:
            main(["reproduce", "--preset", "smoke", "--out", "out", *words, *more])
        captured = capsys.readouterr()
        assert (stop.value.code, captured.out) == (2, "")
        said.append(captured.err)
    assert said[0] == said[1]
    assert said[0].count("\n") == 1
    assert complaint in said[0]
    assert sorted(tmp_path.rglob("*")) == before
