"""Presets of one's own: what no analysis can read is refused before training, whatever else ends in a report."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from validate.claims import UNDECIDED, Evidence
from validate.cli import main
from validate.decisions import crossover
from validate.report.depth_figures import draw_depth_laws, draw_linear_optimum
from validate.report.drawing import NothingToDraw
from validate.report.region_figures import draw_crossover
from validate.reproduction import report, reproduce

POWER_LAW = 'spectrum = { kind = "power_law", dim = 3, capacity = 1.0, source = 1.0 }'
REPEATED = 'spectrum = { kind = "explicit", eigenvalues = [1.0, 1.0, 0.5, 0.5], task_power = [1.0, 1.0, 0.0, 2.0] }'
SGD = 'optimizer = "sgd"\nsnapshots = 4'
SOFTMAX = 'attention = "softmax"\ngain_start = 2.0'
DEPTHS = '"model.depth" = [1, 2, 4]'


def experiment(name: str, task: str = "", model: str = "", training: str = "", grid: str = "") -> str:
    sections = [f'[[experiment]]\nname = "{name}"', f"[experiment.base.model]\n{model}"]
    if task:
        sections.append(f"[experiment.base.task]\n{task}")
    sections.append(f"[experiment.base.training]\nbatch = 4\nsteps = 12\neval_contexts = 64\n{training}")
    return "\n".join([*sections, f"[experiment.grid]\n{grid}\n"])


DIVERGING = '"training.learning_rate" = [1e12]\n"model.depth" = [2, 4]'
ODD = {
    "one depth": experiment("depth-softmax", f"context = 6\n{POWER_LAW}", SOFTMAX),
    "one context": experiment("map-context", f"context = 6\n{POWER_LAW}", SOFTMAX, grid=DEPTHS),
    "no finite context": experiment("map-context", f'context = "inf"\n{POWER_LAW}', grid=DEPTHS),
    "some contexts finite": experiment("map-context", POWER_LAW, grid='"task.context" = [4, "inf"]\n' + DEPTHS),
    "one model": experiment(
        "map-architecture",
        f"context = 6\n{POWER_LAW}",
        'name = "transformer"\nattention = "softmax"\nwidth = 8',
        grid=DEPTHS,
    ),
    "repeated eigenvalues": experiment("dynamics-linear", f"context = 6\n{REPEATED}", training=SGD)
    + experiment("dynamics-softmax", f"context = 6\n{REPEATED}", SOFTMAX, SGD),
    "dynamics by adam": experiment(
        "dynamics-linear", f"context = 6\n{POWER_LAW}", training='optimizer = "adam"\nsnapshots = 4'
    ),
    "untied in a fixed basis": experiment("linear-untied", f'setting = "fs"\ncontext = "inf"\n{POWER_LAW}'),
    "diverged curves": experiment(
        "linear-curves", f"context = 6\n{POWER_LAW}", training='optimizer = "sgd"', grid=DIVERGING
    ),
    "diverged depths": experiment(
        "depth-softmax",
        f"context = 6\n{POWER_LAW}",
        'attention = "relu"\ngamma_start = "random"',
        'optimizer = "sgd"',
        DIVERGING,
    ),
    "diverged untied": experiment(
        "linear-untied", f'context = "inf"\n{REPEATED}', training='optimizer = "sgd"', grid=DIVERGING
    ),
    "diverged residual": experiment(
        "residual", model='name = "residual_mlp"', training='optimizer = "sgd"', grid=DIVERGING
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_study_ends_in_a_report_that_decides_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text(ODD[name], encoding="utf-8")
    found = reproduce(tmp_path / "odd.toml", tmp_path / "out", device="cpu")
    assert found.failures == {}
    assert {verdict.verdict for verdict in found.verdicts} == {UNDECIDED}
    assert all(verdict.reason for verdict in found.verdicts)
    assert found.report.exists()


RESIDUAL = 'name = "residual_mlp"'
TASK = f"context = 6\n{POWER_LAW}"
REFUSED = {
    "curves without theory": (experiment("linear-curves", TASK, SOFTMAX, 'optimizer = "sgd"'), "plain SGD from zero"),
    "curves by adam": (experiment("linear-curves", TASK), "base='reduced, linear, adam'"),
    "half-times without snapshots": (experiment("dynamics-softmax", TASK, SOFTMAX), "training.snapshots=0: must be at"),
    "dynamics without attention": (experiment("dynamics-linear", "", RESIDUAL, SGD), "model.name='residual_mlp'"),
    "focus without attention": (experiment("depth-softmax", "", RESIDUAL), "must be an attention model"),
    "contexts without attention": (experiment("map-context", "", RESIDUAL), "must be an attention model"),
    "residual with attention": (experiment("residual", TASK), "must be residual_mlp"),
    "gains that are learned": (experiment("map-gain", TASK, SOFTMAX), "model.gain='learned': must be fixed"),
    "laws of data without data": (
        experiment("map-data", model='name = "residual_mlp"') + "\n[experiment.base.teacher]\ndim = 3",
        "model.name='residual_mlp': must be an attention model",
    ),
    "one name twice": (2 * experiment("map-context", TASK), "'map-context' must be there once"),
    "no name": (experiment(" ", TASK), "must not be blank"),
    "no such shape": (experiment("map-context", TASK, 'gamma_shape = "diagonal"'), "must be one of full, identity"),
    "no rate": (experiment("map-context", TASK, "gain_rate = 0.0"), "model.gain_rate=0.0"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_cannot_be_analysed_is_refused_before_training(
    name: str, more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, complaint = REFUSED[name]
    (tmp_path / "odd.toml").write_text(text, encoding="utf-8")
    line = refused(capsys, "reproduce", "--preset", str(tmp_path / "odd.toml"), "--out", str(tmp_path / "out"), *more)
    assert "odd.toml" in line
    assert complaint in line
    assert not (tmp_path / "out").exists()


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    captured = capsys.readouterr()
    assert (stop.value.code, captured.out) == (2, "")
    (line,) = captured.err.splitlines()
    return line


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six softmax runs on a map over two contexts, with their report."""
    folder = tmp_path_factory.mktemp("map")
    text = experiment("map-context", POWER_LAW, SOFTMAX, grid=f'"task.context" = [4, 8]\n{DEPTHS}')
    (folder / "map.toml").write_text(text, encoding="utf-8")
    reproduce(folder / "map.toml", folder / "out", device="cpu")
    return folder / "out"


@pytest.mark.parametrize("name", ["weights.safetensors", "metrics.parquet", "summary.json"])
@pytest.mark.parametrize("content", [b"", b"{}"])
def test_a_run_with_a_broken_file_is_named_and_the_others_are_reported(
    made: Path, name: str, content: bytes, tmp_path: Path
) -> None:
    shutil.copytree(made, tmp_path / "out")
    broken = next((tmp_path / "out" / "store").glob(f"*/{name}"))
    broken.write_bytes(content)
    found = report(tmp_path / "out")
    assert list(found.failures) == [broken.parent.name]
    assert str(broken.parent) in found.failures[broken.parent.name]
    assert len(pd.read_parquet(tmp_path / "out" / "runs.parquet")) == 5


def test_files_in_the_way_are_named_and_nothing_is_half_written(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder.md"
    file.touch()
    folder.mkdir()
    for words in (("--dry-run",), ()):
        for out in (file, file / "below"):
            line = refused(capsys, "reproduce", "--out", str(out), *words)
            assert f"out={str(out)!r}: must be a folder" in line
    line = refused(capsys, "reproduce", "--dry-run", "--out", str(tmp_path / "out"), "--data", str(file))
    assert f"data={str(file)!r}: must be a folder" in line
    line = refused(capsys, "report", "--out", str(made), "--results", str(folder))
    assert f"results={str(folder)!r}: must be a file name ending in .md" in line
    line = refused(capsys, "report", "--out", str(made), "--results", str(file / "R.md"))
    assert "a file is in the way" in line
    for out in (tmp_path / "curve.jpg", folder):
        line = refused(capsys, "plot", "crossover", "--report", str(made), "--out", str(out))
        assert f"out={str(out)!r}: must be a file name ending in .png, .pdf or .svg" in line
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder.md"]


def test_a_table_that_cannot_be_drawn_is_named(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(made / "data", tmp_path / "data")
    table = tmp_path / "data" / "regions.parquet"
    words = ("plot", "crossover", "--report", str(tmp_path), "--out", str(tmp_path / "drawn.png"))
    pd.read_parquet(table).assign(loss="text").to_parquet(table)
    assert "must hold what it shows (could not convert" in refused(capsys, *words)
    table.write_bytes(b"")
    assert "data/regions.parquet must be a table" in refused(capsys, *words)
    assert not (tmp_path / "drawn.png").exists()


def test_a_single_context_shows_no_crossover() -> None:
    """Softmax with exponent 1 that agrees with linear attention: at one context, that says nothing of a crossover."""
    place = {"map": "context", "spectrum": "s", "context": 8.0, "depth": 1, "standard_error": 0.01, "converged": True}
    regions = pd.DataFrame([{**place, "attention": name, "exponent": 1.0} for name in ("linear", "softmax")])
    empty = {field.name: pd.DataFrame() for field in dataclasses.fields(Evidence)}
    verdict = crossover(Evidence(**{**empty, "regions": regions}))
    assert (verdict.verdict, verdict.number) == (UNDECIDED, None)
    assert "fewer than two finite contexts" in verdict.reason


def test_figures_without_a_finite_number_are_not_drawn() -> None:
    nothing = pd.DataFrame(
        {
            "attention": ["linear"],
            "spectrum": ["s"],
            "depth": [2],
            "converged": [False],
            "tied": [True],
            **{key: [np.nan] for key in ("loss", "standard_error", "fitted", "low", "high", "optimum", "floor")},
        }
    )
    with pytest.raises(NothingToDraw, match="no run ended with a finite loss"):
        draw_depth_laws(nothing)
    with pytest.raises(NothingToDraw, match="no optimum is known"):
        draw_linear_optimum(nothing)


def test_contexts_without_exponents_keep_their_axis() -> None:
    place = {"map": "context", "variant": "P = 8", "model": "reduced", "attention": "softmax", "spectrum": "s"}
    row = {**place, "dim": 4, "context": 8.0, "label_noise": 0.0, "depth": 1, "standard_error": 0.1, "converged": True}
    canvas = draw_crossover(pd.DataFrame([{**row, "exponent": np.nan}]), pd.DataFrame([{**row, "loss": 0.5}]))
    for axes in canvas.axes:
        low, high = axes.get_xlim()
        assert 0 < low < 2 < high


def test_runs_by_adam_have_no_predicted_half_times(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text(ODD["dynamics by adam"], encoding="utf-8")
    reproduce(tmp_path / "odd.toml", tmp_path / "out", device="cpu")
    table = pd.read_parquet(tmp_path / "out" / "data" / "half_times.parquet")
    assert len(table) == 3
    assert table["predicted"].isna().all()


def test_the_optimum_of_rotated_data_is_not_held_against_a_fixed_basis(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text(ODD["untied in a fixed basis"], encoding="utf-8")
    found = reproduce(tmp_path / "odd.toml", tmp_path / "out", device="cpu")
    assert pd.read_parquet(tmp_path / "out" / "runs.parquet")["untied_floor"].isna().all()
    assert json.loads(found.claims.read_text(encoding="utf-8"))["missing"] == {}
