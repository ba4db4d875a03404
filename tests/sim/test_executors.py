import asyncio
import json
import sys
import threading

import pytest

from sim import executors, runs
from sim.executors import Dask, InProcess, LocalProcesses
from sim.grid import plan_runs
from sim.jobs import Job, Outcome
from sim.sweep import run_sweep
from tests.sim.sweeping import document, numbers

# A worker that answers each job with its CUDA_VISIBLE_DEVICES as the error text, or dies if the run is named so.
FAKE = """
import json, os, sys
for line in sys.stdin:
    job = json.loads(line)
    digests = list(job["runs"])
    if "dies" in digests:
        os.abort()
    print(json.dumps({"layer_steps": 2}))
    seen = f"{os.environ.get('CUDA_VISIBLE_DEVICES')} {os.getpid()}"
    each = {"status": "finished", "error": seen, "final_loss": None}
    print(json.dumps({"outcomes": [{"digest": digest, **each} for digest in digests]}))
    sys.stdout.flush()
"""


@pytest.fixture
def fake_worker(monkeypatch):
    real = executors.subprocess.Popen
    started = []

    def popen(command, **fields):
        started.append(command)
        return real([sys.executable, "-c", FAKE], **fields)

    monkeypatch.setattr(executors.subprocess, "Popen", popen)
    return started


def jobs(place, *digests):
    config = {"training": {"steps": 3}, "model": {"depth": 2}}
    return [Job(str(place), dict.fromkeys(names.split("+"), config)) for names in digests]


def test_gpus_are_shared_out_one_worker_each(fake_worker, tmp_path):
    told = []
    pool = LocalProcesses(3, ["0", "GPU-7", "2"])
    ended = list(pool.run(jobs(tmp_path, *"abcdefghi"), lambda job, done: told.append(done)))
    assert sorted(next(iter(job.runs)) for job, _ in ended) == list("abcdefghi")
    seen = {outcome.error for _, outcomes in ended for outcome in outcomes}
    assert {text.split()[0] for text in seen} <= {"0", "GPU-7", "2"}
    assert len(seen) == len(fake_worker) <= 3
    assert told == [2] * 9
    first = [pool._environment(i)["CUDA_VISIBLE_DEVICES"] for i in range(4)]
    assert first == ["0", "GPU-7", "2", "0"]


def test_visible_devices_are_those_of_the_environment(monkeypatch):
    for text, expected in {"": [], "-1": [], "0, 3": ["0", "3"], "MIG-a,MIG-b": ["MIG-a", "MIG-b"]}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
        assert executors.visible_devices() == expected
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert executors.visible_devices() == ["0", "1"]


def test_a_run_that_kills_its_worker_is_given_up_after_three_and_no_other(fake_worker, tmp_path):
    runs.open_store(tmp_path)
    ended = list(LocalProcesses(2).run(jobs(tmp_path, "a", "b+dies+c", "d"), lambda job, done: None))
    outcomes = {outcome.digest: outcome for _, found in ended for outcome in found}
    assert {digest: outcome.status for digest, outcome in outcomes.items()} == {
        "a": "finished",
        "b": "finished",
        "c": "finished",
        "d": "finished",
        "dies": "failed",
    }
    assert "died 3 times, last by signal 6" in outcomes["dies"].error
    assert json.loads((tmp_path / "dies" / runs.FAILURE).read_text())["error"] == outcomes["dies"].error


def test_closing_the_results_stops_the_workers(fake_worker, tmp_path):
    results = LocalProcesses(2).run(jobs(tmp_path, *"abcdefgh"), lambda job, done: None)
    next(results)
    results.close()
    assert threading.active_count() < 10


def test_an_error_in_a_workers_thread_is_the_sweeps(monkeypatch, tmp_path):
    def refuse(*arguments, **fields):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(executors.subprocess, "Popen", refuse)
    with pytest.raises(OSError, match="Cannot allocate"):
        list(LocalProcesses(2).run(jobs(tmp_path, "a", "b"), lambda job, done: None))


def test_workers_must_be_at_least_one():
    with pytest.raises(ValueError, match="workers=0"):
        LocalProcesses(0)


def test_outcomes_survive_json():
    sent = Outcome("a", "finished")
    assert repr(executors.outcome(json.loads('{"digest": "a", "status": "finished", "seconds": null}'))) == repr(sent)


def test_local_processes_give_the_numbers_of_one_process(tmp_path):
    text = document(depths=(2,), seeds=3)
    text["extra"] = [{"training": {"learning_rate": 1e90, "optimizer": "sgd", "dtype": "float64"}}]
    planned = plan_runs(text)
    run_sweep(planned, tmp_path / "one", device="cpu", executor=InProcess())
    found = run_sweep(planned, tmp_path / "two", device="cpu", executor=LocalProcesses(2))
    assert found.counts()["finished"] == 4
    one, two = numbers(tmp_path / "one"), numbers(tmp_path / "two")
    assert one.keys() == two.keys()
    assert {name: run for name, run in one.items() if run["final"][0] == run["final"][0]} == {
        name: run for name, run in two.items() if run["final"][0] == run["final"][0]
    }


def test_without_dask_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'inverse-depth\[cluster\]'"):
        Dask("tcp://127.0.0.1:1")


class Ended:
    """A Dask future that ended with an error."""

    def __init__(self, error):
        self.error = error

    def result(self):
        raise self.error


def test_a_task_that_loses_every_worker_is_a_failure_of_its_run(tmp_path):
    distributed = pytest.importorskip("distributed", reason="Dask distributed is not installed")
    runs.open_store(tmp_path)
    killed = Ended(distributed.KilledWorker("run-a", None, 3))
    (job,) = jobs(tmp_path, "a")
    dask = Dask("tcp://127.0.0.1:1")
    (outcome,) = dask._outcomes(job, killed)
    assert outcome.status == "failed"
    assert (
        "4 workers of the cluster were lost over it" in json.loads((tmp_path / "a" / runs.FAILURE).read_text())["error"]
    )
    with runs.lock(tmp_path, "a"):
        assert dask._outcomes(job, killed)[0].status == "busy"


@pytest.mark.parametrize("error", [asyncio.CancelledError("scheduler-connection-lost"), ModuleNotFoundError("sim")])
def test_a_cluster_that_is_lost_is_no_failure_of_a_run(error, tmp_path):
    pytest.importorskip("distributed", reason="Dask distributed is not installed")
    runs.open_store(tmp_path)
    (job,) = jobs(tmp_path, "a")
    with pytest.raises(
        ValueError, match=r"the cluster was lost, or cannot run the package .*; the same command resumes"
    ):
        Dask("tcp://127.0.0.1:1")._outcomes(job, Ended(error))
    assert not (tmp_path / "a").exists()
