import numpy as np

from sim.config import RunConfig
from sim.probes import ProbeSettings, probe_training
from sim.training import train_many
from tests.tolerances import sampling
from theory.half_times import mode_half_times


def test_modes_of_trained_models_are_half_learned_when_the_flow_says():
    rate, depth, seeds = 0.05, 2, 5
    spectrum = {"kind": "power_law", "dim": 4, "capacity": 1.0, "source": 1.0}
    training = {
        "optimizer": "sgd",
        "learning_rate": rate,
        "batch": 128,
        "steps": 300,
        "snapshots": 40,
        "dtype": "float64",
    }
    config = RunConfig.from_dict(
        {"task": {"context": None, "spectrum": spectrum}, "model": {"depth": depth}, "training": training}
    )
    runs = train_many([config.override({"training.seed": seed}) for seed in range(seeds)], device="cpu")
    seen = np.array([probe_training(run, ProbeSettings(contexts=400, seed=7)).half_time for run in runs])
    expected = mode_half_times(config.task.build(), depth).time
    assert np.isfinite(expected[:3]).all()
    error = seen.std(0, ddof=1) / seeds**0.5
    # One step of the discrete recursion is the most by which it can run before or behind the flow.
    assert np.all(np.abs(seen.mean(0) - expected)[:3] < (sampling(error) + rate)[:3]), (seen.mean(0), expected, error)
