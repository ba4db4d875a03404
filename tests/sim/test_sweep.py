import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
import torch

from sim import runs, store
from sim.grid import plan_runs
from sim.jobs import Job, is_full
from sim.sweep import StoreFull, run_sweep, survey, to_do
from tests.conftest import ROOT
from tests.sim.sweeping import document, numbers, plans, stamps, toml


def sweep(planned, place, **fields):
    return run_sweep(planned, place, device="cpu", **fields)


class Notes:
    """A progress that keeps what it is told."""

    def __init__(self):
        self.notes, self.outcomes, self.work = [], [], []

    def start(self, runs, steps):
        self.total = (runs, steps)

    def advance(self, runs, steps):
        self.work.append((runs, steps))

    def ended(self, outcome, label):
        self.outcomes.append((outcome.status, label))

    def note(self, text):
        self.notes.append(text)

    def stop(self):
        pass


def test_a_sweep_trains_every_run_and_reads_back_as_one_tidy_frame(tmp_path):
    told = Notes()
    found = sweep(plans(), tmp_path / "s", progress=told)
    assert found.counts()["finished"] == len(found) == 6
    assert told.total == (6, 3 * 20 * (1 + 2))
    assert told.work[-1] == told.total
    assert [label for _, label in told.outcomes][:2] == ["depth=1 seed=0", "depth=1 seed=1"]
    loaded = runs.load(tmp_path / "s")
    frame = loaded.to_frame()
    assert len(frame) == 6
    assert set(frame["status"]) == {"finished"}
    assert sorted(zip(frame["depth"], frame["seed"], strict=True)) == [(d, s) for d in (1, 2) for s in range(3)]
    assert (frame["model.depth"] == frame["depth"]).all()
    assert (frame["task.spectrum.kind"] == "isotropic").all()
    assert (frame["device"] == "cpu").all()
    assert (frame["torch"] == torch.__version__).all()
    assert frame["final_loss"].gt(0).all()
    assert frame["standard_error"].gt(0).all()
    assert frame["seconds"].ge(0).all()
    assert str(frame["converged"].dtype) == "boolean"
    first = frame.iloc[0]
    run = loaded.read(first["run"])
    assert (run.final_loss, run.standard_error) == (first["final_loss"], first["standard_error"])
    assert json.loads(loaded.to_json())["counts"]["finished"] == 6
    assert loaded.plot().get_ylabel() == "loss"
    frame.to_parquet(tmp_path / "frame.parquet")
    with pytest.raises(ValueError, match="digest='x'"):
        loaded.read("x")


def test_finished_runs_are_never_touched_again(tmp_path):
    sweep(plans(), tmp_path / "s")
    before = stamps(tmp_path / "s")
    told = Notes()
    sweep(plans(seeds=4), tmp_path / "s", progress=told)
    assert told.total[0] == 2
    after = stamps(tmp_path / "s")
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)


def failing(at=("training.batch", -1)):
    text = document()
    text["extra"] = [{at[0].split(".")[0]: {at[0].split(".")[1]: at[1]}}]
    return plan_runs(text)


def test_a_run_that_raises_is_recorded_and_the_rest_goes_on(tmp_path, monkeypatch):
    real = torch.nn.functional.normalize
    text = document(depths=(1,), seeds=2)
    text["extra"] = [{"model": {"attention": "cosine", "gamma_start": "identity"}}]
    text["extra"] += [{"training": {"seed": 9}}]
    planned = plan_runs(text)

    def fail(*arguments, **fields):
        raise RuntimeError("no angle\nhere")

    monkeypatch.setattr(torch.nn.functional, "normalize", fail)
    found = sweep(planned, tmp_path / "s")
    assert [record.status for record in found.records] == ["finished", "finished", "failed", "finished"]
    bad = found.records[2]
    assert bad.error == "RuntimeError: no angle here"
    recorded = json.loads((bad.folder / runs.FAILURE).read_text())
    assert "attention_kernel" in recorded["traceback"]
    frame = runs.load(tmp_path / "s").to_frame().set_index("run")
    assert frame.loc[bad.digest, "status"] == "failed"
    assert frame.loc[bad.digest, "error"] == bad.error
    assert frame.loc[bad.digest, "model.attention"] == "cosine"
    monkeypatch.setattr(torch.nn.functional, "normalize", real)
    told = Notes()
    assert sweep(planned, tmp_path / "s", progress=told).counts()["failed"] == 1
    assert not hasattr(told, "total")
    before = stamps(tmp_path / "s")
    found = sweep(planned, tmp_path / "s", retry_failed=True)
    assert found.counts()["finished"] == 4
    after = stamps(tmp_path / "s")
    assert {name: after[name] for name in before} == before


def test_a_combination_that_makes_no_config_counts_as_failed(tmp_path):
    found = sweep(failing(), tmp_path / "s")
    assert found.counts()["finished"] == 6
    assert found.counts()["failed"] == 1
    assert "batch=-1" in str(found)
    assert runs.load(tmp_path / "s").counts() == found.counts()
    assert sweep(failing(), tmp_path / "s", retry_failed=True).counts() == found.counts()


def test_a_diverged_run_is_finished_without_a_loss(tmp_path):
    text = document(depths=(1,), seeds=1, learning_rate=1e90, optimizer="sgd", dtype="float64")
    told = Notes()
    frame = sweep(plan_runs(text), tmp_path / "s", progress=told).to_frame()
    assert frame["status"].tolist() == ["finished"]
    assert frame["final_loss"].isna().all()
    assert "diverged" in frame["convergence"][0]


def test_runs_trained_together_are_the_runs_alone(tmp_path):
    planned = plans(dtype="float64")
    alone, together = tmp_path / "alone", tmp_path / "together"
    sweep(planned, alone)
    sweep(planned, together, together=2)
    assert numbers(alone) == numbers(together)
    assert store.read_run(together / planned[0].digest).machine["together"] == 2


def test_of_runs_trained_together_only_those_that_raise_fail(tmp_path, monkeypatch):
    from sim import training

    real = training.train_many

    def fragile(configs, **fields):
        if any(config.training.seed == 1 for config in configs):
            raise MemoryError("seed 1 is too much")
        return real(configs, **fields)

    monkeypatch.setattr(training, "train_many", fragile)
    found = sweep(plans(), tmp_path / "s", together=3)
    assert [record.status for record in found.records] == ["finished", "failed", "finished"] * 2


def test_two_sweeps_at_once_train_each_run_once(tmp_path, monkeypatch):
    from sim import training

    real, trained = training.train_many, []

    def counted(configs, **fields):
        trained.extend(config.digest for config in configs)
        return real(configs, **fields)

    monkeypatch.setattr(training, "train_many", counted)
    monkeypatch.setattr("sim.sweep.SECONDS_BETWEEN_LOOKS", 0.02)
    planned = plans(seeds=5)
    found = {}

    def work(name):
        found[name] = sweep(planned, tmp_path / "s")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(trained) == len(set(trained)) == 10
    assert all(found[name].counts()["finished"] == 10 for name in range(3))


def test_a_run_held_elsewhere_is_waited_for_and_a_lock_left_behind_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr("sim.sweep.SECONDS_BETWEEN_LOOKS", 0.05)
    planned = plans(depths=(1,), seeds=2)
    place = tmp_path / "s"
    runs.open_store(place)
    for plan in planned:
        (place / runs.LOCKS / f"{plan.digest}.lock").write_text("999999\nnowhere\n")
    assert survey(planned, place).counts()["waiting"] == 2
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom sim import runs\n"
        "with runs.lock(Path(sys.argv[1]), sys.argv[2]):\n    print('held', flush=True)\n    time.sleep(600)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(place), planned[0].digest], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    assert survey(planned, place).counts()["running"] == 1
    told = Notes()

    def let_go():
        while not told.notes:
            time.sleep(0.02)
        holder.kill()

    thread = threading.Thread(target=let_go)
    thread.start()
    found = sweep(planned, place, progress=told)
    thread.join()
    holder.wait()
    holder.stdout.close()
    assert found.counts()["finished"] == 2
    assert told.notes == ["1 runs are held by another process: waiting for it"]
    assert told.outcomes[-1] == ("finished", "seed=0")


def test_survey_and_status_write_nothing(tmp_path):
    assert survey(plans(), tmp_path / "nowhere").counts()["waiting"] == 6
    assert not (tmp_path / "nowhere").exists()
    assert to_do(survey(plans(), tmp_path / "nowhere")) == [plan.digest for plan in plans()]


def test_a_store_of_another_version_is_refused_untouched(tmp_path):
    place = tmp_path / "s"
    sweep(plans(seeds=1), place)
    (place / runs.MARKER).write_text('{"format": 99}')
    before = stamps(place)
    for attempt in (lambda: sweep(plans(), place), lambda: runs.load(place), lambda: survey(plans(), place)):
        with pytest.raises(ValueError, match=r"s is a store of format 99: this version reads format 1"):
            attempt()
    assert stamps(place) == before
    assert (place / runs.MARKER).read_text() == '{"format": 99}'
    (place / runs.MARKER).write_text("{")
    with pytest.raises(ValueError, match=r"store\.json cannot be read"):
        runs.load(place)


def test_runs_of_other_code_are_kept_and_run_anew(tmp_path, monkeypatch):
    place = tmp_path / "s"
    sweep(plans(seeds=1), place)
    before = stamps(place)
    for module in ("sim.grid", "sim.jobs", "sim.sweep"):
        monkeypatch.setattr(f"{module}.code_version", lambda: "0123456789ab")
    told = Notes()
    planned = plans(seeds=1)
    with pytest.raises(ValueError, match="has code version 0123456789ab, the sweep"):
        sweep(planned, place)
    monkeypatch.setattr("sim.sweep.Job", lambda *fields: Job(*fields, code_version="0123456789ab"))
    found = sweep(planned, place, progress=told)
    assert found.counts()["finished"] == 2
    assert "2 runs of this sweep in the store were made by code version" in told.notes[0]
    after = stamps(place)
    assert {name: after[name] for name in before} == before
    assert runs.load(place).to_frame()["code_version"].nunique() == 2


def test_folders_that_are_no_store_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="must be a store"):
        sweep(plans(), tmp_path)
    with pytest.raises(ValueError, match="must be a folder"):
        sweep(plans(), tmp_path / "notes.txt")
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "notes.txt"):
        with pytest.raises(ValueError, match="is not a store of runs"):
            runs.load(place)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_load_reads_run_folders_that_no_sweep_made(tmp_path):
    from sim.training import train

    config = plans()[0].config
    run = train(config, device="cpu", out=tmp_path / "all" / "mine")
    for place in (tmp_path / "all", tmp_path / "all" / "mine"):
        (row,) = runs.load(place).to_frame().to_dict("records")
        assert (row["run"], row["final_loss"], row["code_version"]) == ("mine", run.final_loss, "")


@pytest.mark.parametrize("name", [store.SUMMARY, store.CONFIG, store.DONE])
def test_a_damaged_run_is_named_kept_and_run_anew_on_demand(name, tmp_path):
    place = tmp_path / "s"
    planned = plans(seeds=1)
    sweep(planned, place)
    right = numbers(place)
    hurt = place / planned[0].digest / name
    os.truncate(hurt, 3)
    found = sweep(planned, place)
    assert found.counts()["damaged"] == 1
    assert name in found.records[0].error
    assert hurt.stat().st_size == 3
    assert sweep(planned, place, retry_failed=True).counts()["finished"] == 2
    assert numbers(place) == right
    (kept,) = (place / ".damaged").iterdir()
    assert (kept / name).stat().st_size == 3


def test_a_full_disk_is_no_failure_of_the_run(tmp_path, monkeypatch):
    place = tmp_path / "s"
    right = tmp_path / "right"
    sweep(plans(), right)
    real, left = store.write_checkpoint, [30]

    def filling(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments)

    monkeypatch.setattr(store, "write_checkpoint", filling)
    with pytest.raises(StoreFull, match="No space left on device; all that is written there is whole"):
        sweep(plans(), place, checkpoint_seconds=0.0)
    assert runs.load(place).counts()["failed"] == 0
    assert runs.load(place).counts()["finished"] == 1
    monkeypatch.setattr(store, "write_checkpoint", real)
    assert sweep(plans(), place).counts()["finished"] == 6
    assert numbers(place) == numbers(right)


def test_a_store_whose_locks_cannot_be_written_stops_the_sweep(tmp_path, monkeypatch):
    place = tmp_path / "s"
    sweep(plans(depths=(1,)), place)

    def refuse(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(runs, "held", refuse)
    with pytest.raises(StoreFull, match="Permission denied"):
        sweep(plans(), place)
    assert runs.load(place).counts()["failed"] == 0


def test_a_device_that_is_not_there_is_no_failure_of_a_run(tmp_path):
    with pytest.raises(ValueError, match="device='cuda:99'"):
        run_sweep(plans(), tmp_path / "s", device="cuda:99")
    assert runs.load(tmp_path / "s").counts()["failed"] == 0


def test_what_a_run_noted_is_in_the_frame(tmp_path):
    planned = plans(depths=(1,), seeds=1)
    own = tmp_path / "s" / planned[0].digest
    sweep(planned, tmp_path / "s")
    (own / store.DONE).unlink()
    store.write_checkpoint(own, 5, {"history": torch.zeros(5)}, {"digest": "x"})
    os.truncate(store.checkpoints(own)[0], 40)
    (note,) = sweep(planned, tmp_path / "s").to_frame()["notes"]
    assert "checkpoint-000000000005.safetensors cannot be read" in note


def test_full_disks_are_recognised_in_every_library():
    from safetensors import SafetensorError

    assert is_full(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert is_full(SafetensorError("I/O error: No space left on device (os error 28)"))
    assert not is_full(SafetensorError("header too small"))
    assert not is_full(OSError(errno.ENOENT, "No such file or directory"))


# A tmpfs of 120 kB in a mount namespace of its own, in which a sweep runs until it is full, and then with more room.
SMALL_DISK = """
mount -t tmpfs -o size=120k tmpfs "$1/disk" || exit 77
python -m validate.cli sweep "$2" --store "$1/disk/s" --workers "$3" --checkpoint-seconds 0 >/dev/null; echo "first $?"
mount -o remount,size=50m "$1/disk"
python -m validate.cli sweep "$2" --store "$1/disk/s" --workers 1 >/dev/null; echo "second $?"
cp -r "$1/disk/s" "$1/copy"
"""


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_disk_that_really_fills_up_loses_nothing(workers, tmp_path):
    (tmp_path / "disk").mkdir()
    planned = document(steps=60, depths=(2,), seeds=8)
    planned["base"]["task"]["spectrum"]["dim"] = 12
    path = toml(tmp_path, planned)
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed: no small disk can be mounted")
    done = subprocess.run(
        ["unshare", "-rm", "bash", "-c", SMALL_DISK, "-", str(tmp_path), str(path), str(workers)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"},
        check=False,
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.splitlines()[-1]}")
    assert done.stdout.split() == ["first", "2", "second", "0"], done.stderr
    (complaint,) = [line for line in done.stderr.splitlines() if line.startswith("inverse-depth: error:")]
    assert "No space left on device" in complaint
    assert "Traceback" not in done.stderr
    sweep(plan_runs(planned), tmp_path / "right")
    assert numbers(tmp_path / "copy") == numbers(tmp_path / "right")
