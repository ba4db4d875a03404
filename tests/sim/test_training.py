import os
import signal
import threading

import numpy as np
import pytest
import torch

from sim import store
from sim.config import ModelConfig, RunConfig, SpectrumConfig, TaskConfig, TrainingConfig
from sim.loop import TrainingLoop
from sim.models import build_model
from sim.optim import BETA1, Optimizer, schedule_factor
from sim.randomness import Source
from sim.training import train, train_many
from tests.tolerances import ROUNDOFF, ROUNDOFF_FLOAT32, ROUNDOFF_LONG, sampling

SPECTRUM = SpectrumConfig("power_law", dim=5, capacity=1.0, source=0.8)


def config(attention="linear", **changes):
    base = RunConfig(
        task=TaskConfig(spectrum=SPECTRUM, context=8, label_noise=0.1),
        model=ModelConfig(attention=attention, depth=2),
        training=TrainingConfig(batch=16, steps=10, dtype="float64", eval_contexts=50, learning_rate=0.05),
    )
    return base.override(changes)


def same(one, other):
    assert np.array_equal(one.loss, other.loss)
    assert (one.final_loss, one.standard_error) == (other.final_loss, other.standard_error)
    assert one.weights.keys() == other.weights.keys()
    assert all(np.array_equal(one.weights[name], other.weights[name]) for name in one.weights)
    assert one.snapshots.keys() == other.snapshots.keys()
    for step, kept in one.snapshots.items():
        assert all(np.array_equal(kept[name], other.snapshots[step][name]) for name in kept)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_optimisers_equal_torch_step_by_step(optimizer, clip):
    run = train(config("softmax", **{"training.optimizer": optimizer, "training.clip": clip}), device="cpu")
    own = config("softmax")
    cpu = torch.device("cpu")
    model = build_model(own, cpu, torch.float64)
    weights = {
        name: value.requires_grad_() for name, value in model.start(Source([0], "start", cpu, torch.float64)).items()
    }
    reference = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](weights.values(), lr=0.05)
    data = Source([0], "data", cpu, torch.float64)
    losses = []
    for _ in range(10):
        reference.zero_grad()
        loss = model.losses(weights, model.draw(data, 16)).mean()
        losses.append(loss.item())
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(weights.values(), clip)
        reference.step()
    losses.append(model.losses(weights, model.draw(data, 16)).mean().item())
    assert run.loss == pytest.approx(losses, rel=ROUNDOFF_LONG)
    for name, value in run.weights.items():
        assert np.abs(value - weights[name][0].detach().numpy()).max() < ROUNDOFF_LONG


def test_first_losses_are_those_of_the_start_and_the_last_of_the_end():
    run = train(config(), device="cpu")
    assert run.step.tolist() == list(range(11))
    zero = train(config(**{"training.learning_rate": 1e-300}), device="cpu")
    assert run.loss[0] == zero.loss[0]  # Gamma = 0 predicts zero
    assert abs(zero.loss.mean() - 1.0) < sampling(zero.loss.std(ddof=1) / zero.loss.size**0.5)
    longer = train(config(**{"training.steps": 11}), device="cpu")
    assert np.array_equal(longer.loss[:11], run.loss)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_runs_trained_together_are_bit_equal_to_runs_alone(attention):
    configs = [
        config(attention, **{"training.seed": seed, "training.learning_rate": rate, "training.clip": 0.3})
        for seed, rate in [(0, 0.05), (1, 0.05), (1, 0.2), (7, 0.01), (8, 0.4)]
    ]
    for one, many in zip(configs, train_many(configs, device="cpu"), strict=True):
        same(train(one, device="cpu"), many)


def test_runs_that_differ_elsewhere_are_not_trained_together():
    with pytest.raises(ValueError, match=r"configs\[1\]"):
        train_many([config(), config(**{"model.depth": 3})])
    with pytest.raises(ValueError, match="empty"):
        train_many([])


class Stop:
    """A progress that presses Ctrl-C, or fails, at a given step."""

    def __init__(self, at, act):
        self.at, self.act, self.notes = at, act, []

    def start(self, total, done):
        self.first = done

    def update(self, step, loss):
        if step == self.at:
            self.act()

    def note(self, text):
        self.notes.append(text)

    def stop(self):
        pass


def press():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def every_step(monkeypatch):
    monkeypatch.setattr("sim.training.SECONDS_BETWEEN_UPDATES", -1.0)


@pytest.mark.parametrize("draws", ["device", "cpu"])
@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(attention, draws, tmp_path, every_step):
    run = config(attention, **{"training.snapshots": 4, "training.draws": draws, "training.dtype": "float32"})
    straight = train(run, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(run, device="cpu", out=tmp_path / "run", progress=Stop(4, press))
    assert [path.name for path in store.checkpoints(tmp_path / "run")] == ["checkpoint-000000000005.safetensors"]
    again = Stop(0, press)
    same(train(run, device="cpu", out=tmp_path / "run", progress=again), straight)
    assert again.first == 5
    assert not store.checkpoints(tmp_path / "run")
    same(store.read_run(tmp_path / "run"), straight)


def test_a_finished_run_is_read_not_trained_again(tmp_path):
    first = train(config(), device="cpu", out=tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.name != store.CONFIG}
    second = train(config(), device="cpu", out=tmp_path)
    same(first, second)
    assert second.seconds == first.seconds
    assert stamps == {path: path.stat().st_mtime_ns for path in stamps}
    fresh = train(config(), device="cpu", out=tmp_path, resume=False)
    same(first, fresh)


@pytest.mark.parametrize("cut", ["empty", "kilobyte", "half"])
def test_a_cut_checkpoint_falls_back_on_the_one_before_and_says_so(cut, tmp_path, every_step):
    run = config("softmax", **{"training.dtype": "float32"})
    straight = train(run, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(run, device="cpu", out=tmp_path, progress=Stop(6, press), checkpoint_seconds=-1.0)
    newest, before = store.checkpoints(tmp_path)
    size = {"empty": 0, "kilobyte": 1024, "half": newest.stat().st_size // 2}[cut]
    os.truncate(newest, min(size, newest.stat().st_size - 1))
    (tmp_path / ".tmp-left-by-a-kill.safetensors").write_bytes(b"half a save")
    told = Stop(0, press)
    resumed = train(run, device="cpu", out=tmp_path, progress=told)
    assert told.first == int(before.stem.split("-")[1])
    assert newest.name in told.notes[0]
    assert "one before it" in resumed.notes[0]
    same(resumed, straight)
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_group_resumes_at_the_newest_step_common_to_all(tmp_path, every_step):
    configs = [config(**{"training.seed": seed}) for seed in range(3)]
    folders = [tmp_path / str(seed) for seed in range(3)]
    straight = train_many(configs, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train_many(configs, device="cpu", outs=folders, progress=Stop(6, press), checkpoint_seconds=-1.0)
    store.checkpoints(folders[1])[0].unlink()
    told = Stop(0, press)
    for one, other in zip(train_many(configs, device="cpu", outs=folders, progress=told), straight, strict=True):
        same(one, other)
    assert told.first == 6


def test_training_outside_the_main_thread_works():
    result = []
    thread = threading.Thread(target=lambda: result.append(train(config(), device="cpu")))
    thread.start()
    thread.join()
    same(result[0], train(config(), device="cpu"))


def test_out_of_memory_splits_the_batch_and_says_so(monkeypatch):
    whole = train(config("softmax"), device="cpu")
    real = TrainingLoop._piece

    def small(self, piece, gradient):
        if piece.labels.shape[1] > 4:
            raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes")
        return real(self, piece, gradient)

    monkeypatch.setattr(TrainingLoop, "_piece", small)
    with pytest.warns(RuntimeWarning, match="out of memory") as told:
        split = train(config("softmax"), device="cpu")
    assert len(told) == 2
    assert "4 parts" in split.notes[-1]
    assert split.loss == pytest.approx(whole.loss, rel=ROUNDOFF_LONG)
    assert split.final_loss == pytest.approx(whole.final_loss, rel=ROUNDOFF_LONG)

    def never(self, piece, gradient):
        raise RuntimeError("a fault that is not memory")

    monkeypatch.setattr(TrainingLoop, "_piece", never)
    with pytest.raises(RuntimeError, match="not memory"):
        train(config("softmax"), device="cpu")


def test_a_diverged_run_has_no_final_loss_and_leaves_its_neighbour_alone():
    wild, tame = config(**{"training.learning_rate": 1e90}), config()
    first, second = train_many([wild, tame], device="cpu")
    assert np.isnan(first.final_loss)
    assert "diverged" in first.convergence.reason
    assert first.to_dict()["final_loss"] is None
    same(second, train(tame, device="cpu"))


def test_population_isotropic_training_follows_its_exact_recursion():
    # With Sigma_hat = I, D = 4 and L = 1 the mean gradient is exact: gamma <- gamma + (2 eta / D) (1 - gamma).
    run = train(
        RunConfig(
            task=TaskConfig("iso", SpectrumConfig("isotropic", dim=4), None),
            training=TrainingConfig("sgd", 0.1, batch=4096, steps=20, eval_contexts=4096),
        ),
        device="cpu",
    )
    expected = (1 - 2 * 0.1 / 4) ** 40
    # Batch noise moves each of the 16 entries of Gamma by about eta sqrt(20 / batch) and enters the loss squared.
    noise = 16 * 0.1**2 * 20 / 4096
    assert run.final_loss == pytest.approx(expected, abs=sampling(run.standard_error) + noise)


def test_final_loss_is_a_mean_over_fresh_contexts_with_its_error():
    runs = train_many([config(**{"training.seed": seed, "training.eval_contexts": 200}) for seed in range(2)])
    more = train(config(**{"training.eval_contexts": 20_000}), device="cpu")
    assert more.standard_error < runs[0].standard_error
    assert abs(more.final_loss - runs[0].final_loss) < sampling(np.hypot(more.standard_error, runs[0].standard_error))


def test_schedules_start_warm_and_end_where_they_say():
    def factors(**fields):
        training = TrainingConfig(steps=100, **fields)
        return np.array([schedule_factor(training, step) for step in range(100)])

    assert (factors() == 1).all()
    assert factors(warmup=4)[:5].tolist() == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert factors(schedule="linear")[[0, 50]].tolist() == [1.0, 0.5]
    assert factors(schedule="cosine")[[0, 50]] == pytest.approx([1.0, 0.5], rel=ROUNDOFF)
    tail = factors(schedule="tail")
    assert (tail[:51] == 1).all()
    assert tail[75] == pytest.approx(0.5, rel=ROUNDOFF)


def test_depth_transfer_scales_only_what_it_names():
    rates = torch.tensor([0.5], dtype=torch.float64)
    optimizer = Optimizer(TrainingConfig("sgd"), rates, {"gamma": 3.0})
    weights = {"gamma": torch.zeros(1, 2), "gain": torch.zeros(1, 2)}
    optimizer.step(weights, {"gamma": torch.ones(1, 2), "gain": torch.ones(1, 2)}, 0)
    assert weights["gamma"].tolist() == [[-1.5, -1.5]]
    assert weights["gain"].tolist() == [[-0.5, -0.5]]
    assert BETA1 == 0.9


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "tpu", "cpu:0", "cuda:x"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_written(device, tmp_path):
    if device.startswith("cuda") and device != "cuda:x" and torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    with pytest.raises(ValueError, match=f"device='{device}'"):
        train(config(), device=device, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.gpu
def test_gpu_and_cpu_runs_of_one_config_agree():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    run = config("softmax", **{"training.draws": "cpu", "training.dtype": "float32", "training.steps": 50})
    on_cpu, on_gpu = train(run, device="cpu"), train(run, device="cuda")
    assert on_gpu.loss == pytest.approx(on_cpu.loss, rel=100 * ROUNDOFF_FLOAT32)
