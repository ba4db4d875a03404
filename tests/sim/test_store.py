import json
import os

import pytest

from sim import store
from sim.config import RunConfig, TrainingConfig
from sim.training import train

CONFIG = RunConfig(training=TrainingConfig(batch=8, steps=5, eval_contexts=8, snapshots=2))


@pytest.fixture
def folder(tmp_path):
    train(CONFIG, device="cpu", out=tmp_path / "run")
    return tmp_path / "run"


def test_a_run_folder_holds_what_it_says_and_reads_back(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "done",
        "metrics.parquet",
        "snapshots.safetensors",
        "summary.json",
        "weights.safetensors",
    ]
    run = store.read_run(folder)
    assert run.config == CONFIG
    assert run.to_frame()["step"].tolist() == [0, 1, 2, 3, 4, 5]
    assert json.loads(run.to_json())["final_loss"] == run.final_loss
    assert list(run.snapshots) == [0, 5]
    assert (run.snapshots[5]["gamma"] == run.weights["gamma"]).all()
    assert CONFIG.digest in str(run)
    assert run.plot().get_xlabel() == "step"
    assert run.machine["device"] == "cpu"


@pytest.mark.parametrize("name", ["config.json", "metrics.parquet", "weights.safetensors", "summary.json", "done"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_truncated_folder_is_one_clear_line(folder, name, share):
    path = folder / name
    os.truncate(path, int(share * path.stat().st_size))
    with pytest.raises(ValueError, match=name.replace(".", r"\.")) as complaint:
        store.read_run(folder)
    assert str(folder) in str(complaint.value)


@pytest.mark.parametrize("name", ["config.json", "metrics.parquet", "weights.safetensors", "summary.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        store.read_run(folder)


def test_unfinished_and_foreign_folders_are_refused(folder, tmp_path):
    (folder / "done").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="format 99"):
        store.read_run(folder)
    (folder / "done").unlink()
    with pytest.raises(ValueError, match="unfinished"):
        store.read_run(folder)
    with pytest.raises(ValueError, match="not a run folder"):
        store.read_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="another run"):
        train(CONFIG.override({"model.depth": 2}), device="cpu", out=folder)


def test_a_folder_that_cannot_be_written_is_an_error_before_training(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        train(CONFIG, device="cpu", out=tmp_path / "file" / "run")


def test_a_checkpoint_of_another_format_is_refused(tmp_path, monkeypatch):
    import torch

    store.write_checkpoint(tmp_path, 3, {"history": torch.zeros(2)}, {"digest": "x"})
    monkeypatch.setattr(store, "FORMAT", 2)
    with pytest.raises(ValueError, match="format 1"):
        store.read_checkpoint(store.checkpoints(tmp_path)[0])
