import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from sim.config import RunConfig
from sim.models import build_model
from sim.probes import ProbeSettings, probe_run
from sim.probes.modes import mode_errors
from sim.probes.queries import white_root
from sim.probes.trace import trace
from sim.randomness import Source
from sim.training import train
from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, sampling

CPU = torch.device("cpu")
CLUSTERS = {
    "spectrum": {"kind": "power_law", "dim": 4, "capacity": 1.0, "source": 0.5},
    "context": 6,
    "covariates": "clusters",
    "clusters": 2,
    "spread": 0.2,
}
WITH_ZERO = {"spectrum": {"kind": "explicit", "eigenvalues": [2.0, 1.0, 0.0]}}


def built(seeds=(0,), **task):
    config = RunConfig.from_dict({"task": CLUSTERS | task, "model": {"depth": 2, "gamma_start": "random"}})
    model = build_model(config, CPU, torch.float64)
    weights = {name: value[:1].expand_as(value) for name, value in model.start(source(seeds)).items()}
    return model, weights


def source(seeds=(0,)):
    return Source(seeds, "data", CPU, torch.float64)


@pytest.mark.parametrize("task", [{}, {"setting": "fs"}, WITH_ZERO])
def test_the_root_whitens_queries_given_their_context(task):
    model, _ = built(**task)
    moments = model.draw(source(), 3)
    eigenvalues = model.sampler.eigenvalues.numpy()
    for i, root in enumerate(white_root(model.sampler.eigenvalues, moments)[0].numpy()):
        scale = np.diag(np.sqrt(eigenvalues))
        turn = np.eye(len(scale)) if moments.rotation is None else moments.rotation[0, i].numpy()
        back = turn @ scale @ root @ root @ scale @ turn.T
        assert np.abs(back - moments.query[0, i].numpy()).max() < ROUNDOFF
        assert np.abs(root - sqrtm(root @ root).real).max() < ROUNDOFF_LONG  # of all roots, the symmetric positive one
        dead = eigenvalues == 0
        assert np.abs(root[dead] - np.eye(len(root))[dead]).max(initial=0.0) < ROUNDOFF
    assert (
        white_root(
            model.sampler.eigenvalues, built(covariates="signs", clusters=None, spread=None)[0].draw(source(), 3)
        )
        is None
    )


@pytest.mark.parametrize("task", [{}, {"setting": "fs"}, WITH_ZERO])
def test_traces_and_modes_add_up_to_the_loss_given_the_context(task):
    model, weights = built(**task)
    moments = model.draw(source(), 5)
    traced = trace(model, weights, moments)
    losses = model.losses(weights, moments)
    assert traced.losses.numpy() == pytest.approx(losses.numpy(), rel=ROUNDOFF)
    assert float(mode_errors(model, moments, traced).sum()) == pytest.approx(float(losses.mean()), rel=ROUNDOFF)


@pytest.mark.parametrize("setting", ["rrs", "fs"])
def test_modes_read_from_queries_are_those_of_the_exact_average(setting):
    seeds = range(60)
    model, weights = built(seeds, setting=setting, queries=12)
    tokens = model.sampler.tokens(source(seeds), 10)
    traced = trace(model, weights, tokens)
    seen = mode_errors(model, tokens, traced).numpy()
    exact = np.zeros_like(seen)
    root_eigenvalues = model.sampler.eigenvalues.sqrt().numpy()
    for run in seeds:
        for i in range(10):
            x, target = tokens.covariates[run, i, 6:].numpy(), tokens.targets[run, i].numpy()
            # The error is linear in the query: error = v·x, v from more queries than dimensions.
            error = (traced.prediction - traced.target)[run, i].numpy() * 12**0.5
            v = np.linalg.lstsq(x, error, rcond=None)[0]
            assert np.abs(x @ v - error).max() < ROUNDOFF_LONG * max(1, np.abs(target).max())
            turn = np.eye(4) if tokens.rotation is None else tokens.rotation[run, i].numpy()
            given = turn.T @ tokens.query[run, i].numpy() @ turn / np.outer(root_eigenvalues, root_eigenvalues)
            exact[run] += (sqrtm(given).real @ (root_eigenvalues * (turn.T @ v))) ** 2 / 10
    off = seen - exact
    assert np.all(np.abs(off.mean(0)) < sampling(off.std(0, ddof=1) / len(off) ** 0.5))


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_a_run_on_clusters_is_probed_with_its_own_loss(attention):
    config = RunConfig.from_dict(
        {
            "task": CLUSTERS,
            "model": {"attention": attention, "depth": 2},
            "training": {"steps": 3, "batch": 8, "eval_contexts": 4000, "dtype": "float64"},
        }
    )
    run = train(config, device="cpu")
    probes = probe_run(run, ProbeSettings(contexts=4000))
    # Both are means over 4000 contexts of their own.
    assert abs(probes.loss - run.final_loss) < sampling(2**0.5 * run.standard_error)
    if attention == "linear":
        assert abs(probes.nonlinear_error) < ROUNDOFF_LONG
    assert np.isfinite(probes.relevant_mass).all()
