import numpy as np
import pytest

from sim import store
from sim.config import RunConfig
from sim.loop import TrainingLoop
from sim.second_order import ROWS_AT_ONCE, FixedBatch
from sim.training import train, train_many
from tests.sim.test_training import Stop, press
from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, sampling


def config(optimizer, **changes):
    base = RunConfig.from_dict(
        {
            "task": {"setting": "iso", "spectrum": {"kind": "isotropic", "dim": 3}, "context": 6, "queries": 2},
            "model": {"attention": "softmax", "depth": 2},
            "training": {"optimizer": optimizer, "batch": 300, "steps": 200, "dtype": "float64", "eval_contexts": 4000},
        }
    )
    return base.override(changes)


def finite_differences(function, flat, step=1e-6):
    columns = [(function(flat + step * e) - function(flat - step * e)) / (2 * step) for e in np.eye(flat.size)]
    return np.stack(columns, axis=-1)


def test_value_gradient_residuals_and_jacobian_belong_together(rng):
    problem = FixedBatch(TrainingLoop([config("lbfgs")], "cpu"))
    flat = problem.start + 0.3 * rng.standard_normal(problem.start.size)
    value, gradient = problem.value_and_gradient(flat)
    residuals, jacobian = problem.residuals(flat), problem.jacobian(flat)
    assert ROWS_AT_ONCE < 300  # more than one piece
    assert jacobian.shape == (600, flat.size)
    assert value == pytest.approx(0.5 * np.sum(residuals**2), rel=ROUNDOFF)
    assert gradient == pytest.approx(jacobian.T @ residuals, rel=ROUNDOFF_LONG, abs=ROUNDOFF)
    # Central differences of step 1e-6 in float64 are good to about 1e-9.
    noise = 1e-7
    # Pieces give contexts in order, residuals too: rows must match one by one.
    assert finite_differences(problem.residuals, flat) == pytest.approx(jacobian, abs=noise)


def test_both_methods_reach_the_same_minimum_that_adam_approaches():
    first, second = train(config("lbfgs"), device="cpu"), train(config("levenberg_marquardt"), device="cpu")
    for run in (first, second):
        # A minimum, and of seven weights fitted to 600 errors.
        assert "converged after" in run.convergence.reason
        assert "overfitted" in run.convergence.reason
        assert run.loss.size == run.step.size < 201
        assert (np.diff(run.loss) <= 0).all()
    assert first.loss[0] == second.loss[0]
    assert first.loss[-1] == pytest.approx(second.loss[-1], rel=ROUNDOFF_LONG)
    adam = {"training.learning_rate": 0.05, "training.schedule": "tail", "training.steps": 600}
    fresh = train(config("adam", **adam), device="cpu")
    # Seven weights fitted to 600 errors: the fixed batch's minimum is a few percent off on fresh contexts.
    overfit = 2 * 20 / 600
    allowed = sampling(np.hypot(first.standard_error, fresh.standard_error)) + overfit * fresh.final_loss
    assert abs(first.final_loss - fresh.final_loss) < allowed


def test_linear_models_are_minimised_by_lbfgs_to_a_stationary_point():
    linear = config("lbfgs", **{"model.attention": "linear"})
    run = train(linear, device="cpu")
    assert run.converged
    problem = FixedBatch(TrainingLoop([linear], "cpu"))
    _, gradient = problem.value_and_gradient(run.weights["gamma"].ravel())
    _, at_start = problem.value_and_gradient(problem.start)
    # A relative fall of the loss of 1e-12 leaves a gradient of about its square root.
    small = 1e-4
    assert np.linalg.norm(gradient) < small * np.linalg.norm(at_start)


def test_too_few_iterations_are_not_an_answer():
    run = train(config("lbfgs", **{"training.steps": 3}), device="cpu")
    assert not run.converged
    assert "stopped early after 3 iterations" in run.convergence.reason
    assert run.step.tolist() == [0, 1, 2, 3]


def test_an_interrupted_run_starts_again_and_ends_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("sim.training.SECONDS_BETWEEN_UPDATES", -1.0)
    straight = train(config("lbfgs"), device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(config("lbfgs"), device="cpu", out=tmp_path, progress=Stop(4, press))
    assert not store.is_done(tmp_path)
    again = train(config("lbfgs"), device="cpu", out=tmp_path)
    assert np.array_equal(again.loss, straight.loss)
    assert np.array_equal(store.read_run(tmp_path).weights["gamma"], straight.weights["gamma"])


def test_several_seeds_are_minimised_one_by_one():
    configs = [config("lbfgs", **{"training.seed": seed, "training.steps": 5}) for seed in range(2)]
    for one, own in zip(train_many(configs, device="cpu"), configs, strict=True):
        assert np.array_equal(one.loss, train(own, device="cpu").loss)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training.dtype": "float32"}, "float64"),
        ({"training.clip": 1.0}, "clip"),
        ({"training.snapshots": 3}, "snapshots"),
        ({"model.attention": "linear"}, "levenberg_marquardt"),
    ],
)
def test_what_second_order_cannot_do_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        config("levenberg_marquardt", **changes)
