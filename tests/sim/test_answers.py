"""Training that must end where theory or publication says it does. Minutes, not seconds."""

import numpy as np
import pytest

from sim.config import RunConfig
from sim.training import train
from theory import tied_optimum, untied_floor

# Promised nearness to a floor: noise of the last gradients keeps plain SGD a little above it.
NEAR_THE_FLOOR = 0.01


def published(depth, rate, steps):
    """Covariates and context of the published runs; larger rates, lowered at the end, to arrive sooner."""
    return RunConfig.from_dict(
        {
            "task": {
                "spectrum": {"kind": "power_law", "dim": 45, "capacity": 1.75, "source": 0.5},
                "context": 512,
                "coefficients": "signs",
            },
            "model": {"depth": depth},
            "training": {
                "optimizer": "sgd",
                "learning_rate": rate,
                "batch": 256,
                "steps": steps,
                "schedule": "tail",
                "eval_contexts": 32768,
            },
        }
    )


@pytest.mark.slow
def test_depth_one_lands_on_its_floor():
    config = published(1, rate=20.0, steps=600)
    run, floor = train(config), untied_floor(config.task.build(), 1)
    assert run.converged
    assert run.final_loss == pytest.approx(floor.loss, rel=NEAR_THE_FLOOR)


@pytest.mark.slow
def test_untied_depth_two_leaves_the_tied_optimum_and_lands_on_the_untied_floor():
    config = published(2, rate=100.0, steps=2500)
    run, task = train(config), config.task.build()
    floor, tied = untied_floor(task, 2), tied_optimum(task, 2)
    assert tied.loss > 1.3 * floor.loss
    assert run.converged
    assert run.final_loss == pytest.approx(floor.loss, rel=NEAR_THE_FLOOR)
    # The layers have parted as the floor's gains say.
    gains = np.sort([np.trace(gamma) / 45 for gamma in run.weights["gamma"]])[::-1]
    parted = 0.1
    assert gains == pytest.approx(floor.gains, rel=parted)


@pytest.mark.slow
@pytest.mark.parametrize(("correlation", "steepest", "flattest"), [(0.0, -1.5, -0.8), (1.0, -6.0, -2.0)])
def test_alike_teacher_layers_give_a_steeper_depth_law_than_independent_ones(correlation, steepest, flattest):
    depths = [1, 2, 4, 8]
    logs = []
    for seed in range(3):
        losses = [
            train(
                RunConfig.from_dict(
                    {
                        "model": {"name": "residual_mlp", "depth": depth},
                        "teacher": {"correlation": correlation, "seed": seed},
                        "training": {"optimizer": "lbfgs", "steps": 1000, "batch": 4096, "dtype": "float64"},
                    }
                )
            ).final_loss
            for depth in depths
        ]
        logs.append(np.log(losses))
    slope = np.polyfit(np.log(depths), np.mean(logs, axis=0), 1)[0]
    assert steepest < slope < flattest
