"""Sweeps killed with signal 9, in every way that a machine knows, and what is found after the same command again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sim import runs, store
from sim.sweep import run_sweep
from tests.conftest import ROOT
from tests.sim.sweeping import document, numbers, plans, stamps, toml

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="forks and reads /proc: Linux only")


def helper(*arguments):
    command = [sys.executable, "-m", "tests.sim.sweeping", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=540)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def undisturbed(planned, place):
    run_sweep(planned, place, device="cpu")
    return numbers(place)


@pytest.mark.parametrize(("steps", "kills"), [(40, 4), pytest.param(100, 40, marks=pytest.mark.slow)])
def test_killed_at_random_moments_and_resumed_equals_undisturbed_bit_for_bit(steps, kills, tmp_path):
    told = helper("random", tmp_path, steps, kills, 1)
    assert told["kills"] == kills
    assert told["resumed"] > 0
    if kills >= 40:
        assert told["resumed"] > 10
        assert told["in_a_write"] > 0  # some moments fell inside the writing of a file
    right = undisturbed(plans(steps), tmp_path / "right")
    for name in range(told["stores"]):
        place = tmp_path / f"store{name}"
        assert numbers(place) == right
        assert not list(place.rglob(".tmp-*"))
        assert runs.load(place).counts()["finished"] == 6


def test_killed_at_every_sync_and_rename_equals_undisturbed_bit_for_bit(tmp_path):
    steps, points = 3, 13
    assert helper("syncs", tmp_path / "s", steps, points) >= 10
    planned = plans(steps, (2,), 1)
    run_sweep(planned, tmp_path / "s", device="cpu")
    assert numbers(tmp_path / "s") == undisturbed(planned, tmp_path / "right")
    assert not list((tmp_path / "s").rglob(".tmp-*"))


def start(path, place, *flags):
    command = [sys.executable, "-m", "validate.cli", "sweep", str(path), "--store", str(place), "--device", "cpu"]
    return subprocess.Popen(
        [*command, "--checkpoint-seconds", "0", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(condition, process, seconds=60.0):
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.01)
    return found


def children(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()] + [
        int(pid)
        for thread in Path(f"/proc/{process.pid}/task").iterdir()
        if thread.name != str(process.pid)
        for pid in (thread / "children").read_text().split()
    ]


def checkpointed(place):
    return {path.parent.name for path in place.glob(f"*/{store.CHECKPOINT}*")}


def test_workers_that_are_killed_are_replaced_and_their_runs_go_on(tmp_path):
    text = document(80, (2,), 4)
    planned = plans(80, (2,), 4)
    place = tmp_path / "s"
    process = start(toml(tmp_path, text), place, "--workers", "2")
    until(lambda: checkpointed(place), process)
    for worker in children(process):
        os.kill(worker, signal.SIGKILL)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "4 finished" in output
    assert numbers(place) == undisturbed(planned, tmp_path / "right")


def test_workers_end_with_a_parent_that_is_killed_and_the_sweep_resumes(tmp_path):
    text = document(60, (2,), 6)
    path, place = toml(tmp_path, text), tmp_path / "s"
    process = start(path, place, "--workers", "2")
    until(lambda: checkpointed(place) and any(place.glob("*/done")), process)
    workers = children(process)
    assert len(workers) == 2
    before = stamps(place)
    process.kill()
    process.communicate()
    limit = time.monotonic() + 30
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert runs.load(place).counts()["running"] == 0
    run_sweep(plans(60, (2,), 6), place, device="cpu")
    assert numbers(place) == undisturbed(plans(60, (2,), 6), tmp_path / "right")
    after = stamps(place)
    assert {name: after[name] for name in before} == before


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_study_told_to_end_leaves_its_checkpoint_and_status_130(tmp_path):
    command = [sys.executable, "-m", "validate.cli", "reproduce", "--preset", "smoke", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [*command, "--device", "cpu", "--workers", "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Checkpoints come a minute apart: the one that is there was written at the end.
    until(lambda: list((tmp_path / "out" / "store").glob("*/config.json")), process)
    time.sleep(0.5)
    process.terminate()
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, "")
    assert "Traceback" not in errors
    assert len(checkpointed(tmp_path / "out" / "store")) == 1
    assert not (tmp_path / "out" / "report.html").exists()


def test_twelve_runs_killed_in_the_sixth_keep_five_resume_one_and_train_six(tmp_path):
    text = document(60, (2,), 12)
    path, place = toml(tmp_path, text), tmp_path / "s"
    process = start(path, place, "--workers", "1")
    until(lambda: len(list(place.glob("*/done"))) == 5 and checkpointed(place), process)
    process.kill()
    process.communicate()
    finished, begun = {done.parent.name for done in place.glob("*/done")}, checkpointed(place)
    assert (len(finished), len(begun - finished)) == (5, 1)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for name in finished for path in files(place / name)}
    again = start(path, place, "--workers", "1")
    output, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors
    assert "12 finished" in output
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in before} == before
    trained = [line.split()[1] for line in errors.splitlines() if ": loss " in line]
    assert len(trained) == len(set(trained)) == 7
    assert begun <= set(trained)
    assert finished.isdisjoint(trained)


def files(folder):
    return [path for path in folder.iterdir() if path.is_file()]


@pytest.mark.slow
def test_two_commands_on_one_store_share_the_runs(tmp_path):
    text = document(100, (1, 2), 4)
    path, place = toml(tmp_path, text), tmp_path / "s"
    processes = [start(path, place, "--workers", "1"), start(path, place, "--workers", "2")]
    told = [process.communicate(timeout=180) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    assert all("8 finished" in output for output, _ in told)
    trained = [line.split()[1] for _, errors in told for line in errors.splitlines() if ": loss " in line]
    assert len(trained) == len(set(trained)) == 8
    assert numbers(place) == undisturbed(plans(100, (1, 2), 4), tmp_path / "right")


@pytest.mark.parametrize(("workers", "number"), [("1", signal.SIGINT), ("2", signal.SIGTERM)])
def test_interrupts_leave_checkpoints_and_status_130(workers, number, tmp_path):
    text = document(100_000, (2,), 3, batch=8)
    path, place = toml(tmp_path, text), tmp_path / "s"
    process = start(path, place, "--workers", workers)
    until(lambda: len(checkpointed(place)) == int(workers), process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert output == ""
    counts = runs.load(place).counts()
    assert counts["interrupted"] == int(workers)
    assert counts["running"] == counts["failed"] == 0
