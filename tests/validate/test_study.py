"""Presets are read strictly, spelt out completely, and run once each."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim import RunConfig, store, train
from sim.store import read_run
from validate.requirements import check_runs
from validate.study import (
    PRESETS,
    compare_with_theory,
    has_prediction,
    load_preset,
    predicted_rate,
    run_preset,
    run_row,
    stored_study,
)

TINY = """
description = "tiny"
[[experiment]]
name = "linear-curves"
purpose = "p"
[experiment.base.task]
context = 8
spectrum = { kind = "power_law", dim = 3, capacity = 1.0, source = 1.0 }
[experiment.base.training]
optimizer = "sgd"
learning_rate = 0.5
batch = 16
steps = 80
eval_contexts = 64
[experiment.grid]
"model.depth" = [1, 2]
"""


@pytest.mark.parametrize("name", list(PRESETS))
def test_shipped_presets_are_valid(name: str) -> None:
    preset = load_preset(name)
    assert preset.description
    assert len(preset.plans) == sum(len(experiment.plans) for experiment in preset.experiments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not toml [", "must be a TOML file"),
        ("description = 'x'", r"at least one \[\[experiment\]\]"),
        (TINY.replace('purpose = "p"', 'porpoise = "p"'), "must be a table of name, purpose, base and grid only"),
        ("experiment = [1, 2]", "must be a table of name"),
        ("[[experiment]]\nname = 'a'\nbase = 3", "experiment 'a': base=3: must be a table"),
        ("[[experiment]]\nname = ['a']\nbase = {}", "must be texts"),
        (TINY.replace("model.depth", "model.deep"), "deep"),
        (TINY.replace("[1, 2]", "[0]"), "model.depth=0: must be a whole number >= 1"),
    ],
)
def test_a_bad_preset_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_preset(path)


def test_theory_has_no_curve_for_runs_that_leave_its_assumptions() -> None:
    plain = {
        "task": {"context": 8, "spectrum": {"kind": "isotropic", "dim": 3}},
        "training": {"optimizer": "sgd", "steps": 80},
    }
    assert has_prediction(RunConfig.from_dict(plain))
    for section, change in (
        ("training", {"clip": 1.0}),
        ("training", {"warmup": 10}),
        ("training", {"schedule": "cosine"}),
        ("training", {"optimizer": "adam"}),
        ("task", {"setting": "fs"}),
        ("task", {"covariates": "signs"}),
        ("task", {"covariates": "clusters"}),
        ("model", {"attention": "softmax"}),
    ):
        config = RunConfig.from_dict({**plain, section: {**plain.get(section, {}), **change}})
        assert not has_prediction(config), change
    # An infinite context shows the covariance alone, which is that of every law.
    assert has_prediction(RunConfig.from_dict({**plain, "task": {"context": None, "covariates": "sphere"}}))
    tied = RunConfig.from_dict({**plain, "model": {"depth": 3, "tied": True}})
    assert predicted_rate(tied) == 3 * tied.training.learning_rate


def test_a_run_that_is_not_gaussian_is_a_row_of_its_law_and_has_no_curve() -> None:
    training = {"optimizer": "sgd", "steps": 2, "batch": 4, "eval_contexts": 8}
    task = {"context": 8, "spectrum": {"kind": "isotropic", "dim": 3}}
    config = RunConfig.from_dict({"task": {**task, "covariates": "clusters", "clusters": 3}, "training": training})
    run = train(config, device="cpu")
    row = run_row(run)
    assert (row["covariates"], row["clusters"], row["spread"]) == ("clusters", 3, 0.25)
    with pytest.raises(ValueError, match=r"task.covariates='clusters': must be gaussian at finite context"):
        compare_with_theory(run)
    with pytest.raises(ValueError, match=r"task.covariates='clusters': must be gaussian at finite context"):
        check_runs("linear-curves", [config])
    row = run_row(train(RunConfig.from_dict({"task": task, "training": training}), device="cpu"))
    assert (row["covariates"], row["clusters"], row["spread"]) == ("gaussian", None, None)


def test_unknown_preset_is_named() -> None:
    with pytest.raises(ValueError, match="preset='huge': must be one of smoke, laptop, paper"):
        load_preset("huge")


def test_finished_runs_are_not_trained_again(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    preset = load_preset(tmp_path / "tiny.toml")
    first = run_preset(preset, tmp_path / "store", device="cpu")
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("weights.safetensors")}
    again = run_preset(preset, tmp_path / "store", device="cpu")
    assert len(stamps) == 2
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert first.to_frame().equals(again.to_frame())


def test_the_frame_reads_no_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that two experiments share is read once for both; one that cannot be read is damaged and has no row."""
    twice = TINY + TINY.partition('description = "tiny"')[2].replace("linear-curves", "again")
    (tmp_path / "tiny.toml").write_text(twice)
    preset = load_preset(tmp_path / "tiny.toml")
    trained = run_preset(preset, tmp_path / "store", device="cpu").to_frame()
    read: list[Path] = []
    monkeypatch.setattr(store, "read_run", lambda folder: read.append(folder) or read_run(folder))
    study = stored_study(preset, tmp_path / "store")
    assert study.to_frame().equals(trained)
    assert trained["experiment"].tolist() == ["linear-curves"] * 2 + ["again"] * 2
    assert len(read) == len(set(read)) == 2
    (read[1] / "metrics.parquet").write_bytes(b"")
    damaged = stored_study(preset, tmp_path / "store")
    assert list(damaged.failures) == [read[1].name]
    left = trained.loc[trained["digest"] == read_run(read[0]).config.digest]
    assert damaged.to_frame()["digest"].tolist() == left["digest"].tolist()
    assert len(left) == 2
