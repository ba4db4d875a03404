import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config import RunConfig, SpectrumConfig, TaskConfig
from sim.covariates import white_tokens
from sim.models import build_model
from sim.randomness import Source
from sim.sections import COVARIATES
from sim.tasks import ContextSampler, Moments
from sim.training import train, train_many
from tests.sim.test_reduced import brute_force
from tests.sim.test_tasks import assert_mean
from tests.sim.test_training import Stop, press, same
from tests.tolerances import ROUNDOFF, ROUNDOFF_FLOAT32, ROUNDOFF_LONG, sampling

CPU = torch.device("cpu")
DIM = 4
SPECTRUM = SpectrumConfig("power_law", dim=DIM, capacity=1.0, source=0.8)
LAWS = {name: {"covariates": name} for name in COVARIATES} | {
    "clusters": {"covariates": "clusters", "clusters": 3, "spread": 0.3}
}


def task(law, **fields):
    return TaskConfig(**{"spectrum": SPECTRUM, "context": 8, **LAWS[law], **fields})


def source(seeds=(0,), dtype=torch.float64):
    return Source(seeds, "data", CPU, dtype)


def white(law, contexts, tokens, dim=DIM, **fields):
    z, covariance = white_tokens(task(law, **fields), dim, source(), contexts, tokens)
    return z[0].numpy(), covariance


@pytest.mark.parametrize("law", LAWS)
def test_every_law_has_mean_zero_covariance_one_and_its_fourth_moment(law):
    z = white(law, 40_000, 1)[0][:, 0]
    # Of one coordinate: 1 for signs, 3 D / (D + 2) on the sphere; a single token of a cluster is Gaussian, so 3.
    fourth = {"signs": 1.0, "sphere": 3 * DIM / (DIM + 2)}.get(law, 3.0)
    for i in range(DIM):
        assert abs(z[:, i].mean()) < sampling(1 / len(z) ** 0.5)
        for j in range(i):
            assert_mean(z[:, i] * z[:, j], 0.0)
        if law == "signs":
            assert np.array_equal(np.abs(z[:, i]), np.ones(len(z)))
        else:
            assert_mean(z[:, i] ** 2, 1.0)
            assert_mean(z[:, i] ** 4, fourth)


@pytest.mark.parametrize("law", LAWS)
def test_tokens_of_a_context_share_its_clusters_and_nothing_else(law):
    """E z·z' = D r / K and E (z·z')^2 = D + (2 D r^2 + D (D - 1) r^2) / K for two tokens, r = 1 - s, 0 without."""
    z = white(law, 40_000, 2)[0]
    product = (z[:, 0] * z[:, 1]).sum(1)
    within, clusters = (0.7, 3) if law == "clusters" else (0.0, 1)
    assert_mean(product, DIM * within / clusters)
    assert_mean(product**2, DIM + (2 * DIM + DIM * (DIM - 1)) * within**2 / clusters)


@given(dim=st.integers(1, 9), single=st.booleans(), seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_tokens_on_the_sphere_have_the_norm_of_its_radius(dim, single, seed):
    dtype, tolerance = (torch.float32, ROUNDOFF_FLOAT32) if single else (torch.float64, ROUNDOFF)
    z, _ = white_tokens(task("sphere"), dim, source([seed], dtype), 5, 6)
    assert z.norm(dim=-1).numpy() == pytest.approx(np.full((1, 5, 6), dim**0.5), rel=tolerance)


def test_a_gaussian_vector_of_norm_zero_still_lands_on_the_sphere(monkeypatch):
    monkeypatch.setattr(Source, "normal", lambda self, *shape: torch.zeros((1, *shape)))
    z, _ = white_tokens(task("sphere"), 3, source(), 2, 2)
    assert torch.equal(z.square().sum(-1), torch.full((1, 2, 2), 3.0))


@given(dim=st.integers(1, 6), clusters=st.integers(1, 5), spread=st.floats(0.01, 1.0), seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_the_covariance_given_the_centres_is_the_spread_plus_one_direction_a_centre(dim, clusters, spread, seed):
    law = task("clusters", clusters=clusters, spread=spread)
    covariance = white_tokens(law, dim, source([seed]), 1, 1)[1][0, 0].numpy()
    assert np.array_equal(covariance, covariance.T)
    excess = np.linalg.eigvalsh(covariance) - spread
    assert excess.min() > -ROUNDOFF
    assert (excess > ROUNDOFF).sum() <= min(clusters, dim)
    if spread == 1.0:
        assert np.abs(excess).max() < ROUNDOFF


def test_one_narrow_cluster_is_nearly_one_point():
    spread = 1e-8
    z = white("clusters", 20, 50, clusters=1, spread=spread)[0]
    off = z - z.mean(1, keepdims=True)
    # 50 tokens scatter by s: 49 D degrees of freedom a context.
    assert_mean((off**2).sum((1, 2)) / (49 * DIM) / spread, 1.0)
    assert_mean((z[:, 0] ** 2).sum(1), DIM)


@pytest.mark.parametrize("setting", ["rrs", "fs"])
def test_query_covariance_given_the_context_is_what_queries_show(setting):
    sampler = ContextSampler(task("clusters", setting=setting, queries=20_000), CPU, torch.float64)
    tokens = sampler.tokens(source(), 3)
    for i in range(3):
        queries = tokens.covariates[0, i, 8:].numpy()
        products = queries[:, :, None] * queries[:, None, :]
        error = products.std(0, ddof=1) / len(queries) ** 0.5
        assert np.all(np.abs(products.mean(0) - tokens.query[0, i].numpy()) < sampling(error))
        assert not np.all(np.abs(np.diag(SPECTRUM.build().eigenvalues) - tokens.query[0, i].numpy()) < sampling(error))


@pytest.mark.parametrize("setting", ["rrs", "fs"])
def test_context_and_query_of_one_context_have_one_covariance_given_its_centres(setting):
    sampler = ContextSampler(task("clusters", setting=setting, label_noise=0.5), CPU, torch.float64)
    moments = sampler.moments(source(), 20_000)
    empirical, query = moments.empirical[0].numpy(), moments.query[0].numpy()
    for i in range(DIM):
        for j in range(i + 1):
            assert_mean(empirical[:, i, j] - query[:, i, j], 0.0)
    assert_mean(((empirical - query) * query).sum((1, 2)), 0.0)
    eigenvalues = SPECTRUM.build().eigenvalues
    assert_mean(np.trace(query, axis1=1, axis2=2), eigenvalues.sum())
    # w and x turn with one rotation: E (w·x)^2 = sum_k lambda_k omega_k = 1.
    w = moments.task[0].numpy()
    assert_mean(np.einsum("bi,bij,bj->b", w, query, w), 1.0)
    assert_mean((moments.noise[0].numpy() ** 2).sum(1), 0.5 * eigenvalues.sum() / 8)


@pytest.mark.parametrize("setting", ["rrs", "fs"])
@pytest.mark.parametrize("law", ["signs", "sphere"])
def test_sample_covariances_have_the_second_moment_of_their_law(law, setting):
    """E tr S^2 = (1 - 1/P) tr Sigma^2 + E |x|^4 / P, with |x|^4 = (sum_k lambda_k z_k^2)^2."""
    sampler = ContextSampler(task(law, setting=setting, label_noise=0.5), CPU, torch.float64)
    moments = sampler.moments(source(), 20_000)
    assert moments.query is None
    empirical = moments.empirical[0].numpy()
    eigenvalues = SPECTRUM.build().eigenvalues
    trace, trace2 = eigenvalues.sum(), (eigenvalues**2).sum()
    fourth = trace**2 if law == "signs" else (trace**2 + 2 * trace2) * DIM / (DIM + 2)
    assert_mean((empirical**2).sum((1, 2)), (1 - 1 / 8) * trace2 + fourth / 8)
    if law == "signs":
        assert np.abs(np.trace(empirical, axis1=1, axis2=2) - trace).max() < ROUNDOFF
    else:
        assert_mean(np.trace(empirical, axis1=1, axis2=2), trace)
    assert_mean((moments.noise[0].numpy() ** 2).sum(1), 0.5 * trace / 8)
    assert_mean(np.einsum("bi,bij,bj->b", moments.task[0], empirical, moments.task[0]), 1.0)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("setting", ["rrs", "fs"])
def test_exact_loss_of_linear_attention_is_the_loss_of_its_queries(law, setting):
    config = RunConfig(
        task=task(law, setting=setting, label_noise=0.2, queries=400),
        model={"attention": "linear", "depth": 2, "gamma_start": "random"},
        training={"dtype": "float64"},
    )
    model = build_model(config, CPU, torch.float64)
    weights = model.start(Source([0], "start", CPU, torch.float64))
    tokens = model.sampler.tokens(source(), 4)
    for i in range(4):
        x, y, target = (part[0, i].numpy() for part in (tokens.covariates, tokens.labels, tokens.targets))
        w = np.linalg.lstsq(x[8:], target, rcond=None)[0]
        assert np.abs(x[8:] @ w - target).max() < ROUNDOFF_LONG
        moments = Moments(
            torch.tensor(w)[None, None],
            None if tokens.rotation is None else tokens.rotation[:, i : i + 1],
            torch.tensor(x[:8].T @ x[:8] / 8)[None, None],
            torch.tensor(x[:8].T @ (y - x[:8] @ w) / 8)[None, None],
            None if tokens.query is None else tokens.query[:, i : i + 1],
        )
        errors = target - brute_force(x, y, weights["gamma"][0].numpy(), [1, 1], "linear")
        assert_mean(errors**2, float(model.losses(weights, moments)))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_hand_written_gradient_equals_autograd_under_every_law(law, tied):
    config = RunConfig(task=task(law), model={"depth": 3, "tied": tied, "gamma_start": "random"})
    model = build_model(config, CPU, torch.float64)
    weights = model.start(Source([0, 1], "start", CPU, torch.float64))
    moments = model.draw(source([0, 1]), 6)
    losses, gradient = model.loss_and_gradient(weights, moments)
    leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
    by_autograd = model.losses(leaves, moments)
    assert torch.equal(losses, by_autograd.detach())
    (expected,) = torch.autograd.grad(by_autograd.mean(1).sum(), list(leaves.values()))
    assert (gradient["gamma"] - expected).abs().max() < ROUNDOFF * expected.abs().max()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("dim", "context", "batch"), [(3, 5, 2), (8, 16, 4), (16, 64, 3), (45, 128, 2)])
def test_contexts_drawn_together_are_bit_equal_to_those_drawn_alone(law, dim, context, batch):
    spectrum = SpectrumConfig("power_law", dim=dim, capacity=1.0, source=0.8)
    sampler = ContextSampler(task(law, spectrum=spectrum, context=context, label_noise=0.1), CPU, torch.float64)
    for draw in (sampler.moments, sampler.tokens):
        together = draw(source(range(16)), batch)
        for seed in (0, 7, 15):
            alone = draw(source([seed]), batch)
            for name, value in vars(alone).items():
                assert value is None or torch.equal(getattr(together, name)[seed : seed + 1], value), name


@pytest.mark.parametrize("law", LAWS)
def test_a_batch_splits_with_the_covariance_of_its_queries(law):
    sampler = ContextSampler(task(law), CPU, torch.float64)
    for batch in (sampler.moments(source(), 7), sampler.tokens(source(), 7)):
        pieces = batch.split(3)
        for name, value in vars(batch).items():
            parts = [getattr(piece, name) for piece in pieces]
            assert parts == [None] * 3 if value is None else torch.equal(torch.cat(parts, 1), value)


def run_config(law, attention, **changes):
    config = RunConfig.from_dict(
        {
            "task": task(law, label_noise=0.1).to_dict(),
            "model": {"attention": attention, "depth": 2},
            "training": {"batch": 8, "steps": 6, "dtype": "float64", "eval_contexts": 20, "learning_rate": 0.05},
        }
    )
    return config.override(changes)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
@pytest.mark.parametrize("law", LAWS)
def test_sixteen_runs_trained_together_are_bit_equal_to_runs_alone(law, attention):
    configs = [
        run_config(law, attention, **{"training.seed": seed, "training.learning_rate": 0.01 * (1 + seed % 3)})
        for seed in range(16)
    ]
    for one, many in zip(configs, train_many(configs, device="cpu"), strict=True):
        same(train(one, device="cpu"), many)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
@pytest.mark.parametrize("law", list(LAWS)[1:])
def test_interrupted_and_resumed_equals_uninterrupted(law, attention, tmp_path, monkeypatch):
    monkeypatch.setattr("sim.training.SECONDS_BETWEEN_UPDATES", -1.0)
    config = run_config(law, attention, **{"training.snapshots": 3})
    straight = train(config, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(config, device="cpu", out=tmp_path / "run", progress=Stop(3, press))
    again = Stop(0, press)
    same(train(config, device="cpu", out=tmp_path / "run", progress=again), straight)
    assert again.first == 4


def test_laws_give_different_runs_and_an_infinite_context_sees_none():
    losses = {law: train(run_config(law, "softmax"), device="cpu").final_loss for law in LAWS}
    assert len(set(losses.values())) == len(LAWS)
    seen = [
        train(run_config(law, "linear", **{"task.context": None, "task.label_noise": 0.0}), device="cpu")
        for law in ("gaussian", "signs", "sphere")
    ]
    for run in seen[1:]:
        same(run, seen[0])


def test_signs_are_turned_where_the_spectrum_is_flat_too():
    flat = SpectrumConfig("isotropic", dim=DIM)
    rotates = {law: ContextSampler(task(law, spectrum=flat), CPU, torch.float64).rotates for law in LAWS}
    assert rotates == {"gaussian": False, "signs": True, "sphere": False, "clusters": False}
    assert not ContextSampler(task("signs", spectrum=flat, setting="iso"), CPU, torch.float64).rotates
    assert not ContextSampler(task("signs", spectrum=flat, context=None), CPU, torch.float64).rotates


def test_index_is_uniform_and_each_run_has_its_own():
    together = source([3, 4]).index(5, 20_000)
    assert torch.equal(together[1:], source([4]).index(5, 20_000))
    assert not torch.equal(together[0], together[1])
    counts = np.bincount(together[0], minlength=5)
    assert counts.sum() == 20_000
    assert np.all(np.abs(counts / 20_000 - 0.2) < sampling((0.2 * 0.8 / 20_000) ** 0.5))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"covariates": "uniform"}, "task.covariates='uniform': must be"),
        ({"clusters": 3}, "task.clusters does not belong to the covariates 'gaussian': must be left out"),
        ({"covariates": "sphere", "spread": 0.5}, "task.spread does not belong to the covariates 'sphere'"),
        ({"covariates": "clusters", "clusters": 0}, "task.clusters=0"),
        ({"covariates": "clusters", "clusters": 2.5}, "task.clusters=2.5"),
        ({"covariates": "clusters", "spread": 0.0}, "task.spread=0.0"),
        ({"covariates": "clusters", "spread": 1.5}, "task.spread=1.5"),
        ({"covariates": "clusters", "context": None}, "task.context=None: must be a whole number"),
    ],
)
def test_a_law_takes_its_own_fields_and_no_others(fields, words):
    with pytest.raises(ValueError, match=words):
        TaskConfig.from_dict(fields)


def test_clusters_are_filled_in_and_survive_json():
    config = RunConfig(task=TaskConfig(covariates="clusters"))
    assert config.task.clusters is not None
    assert config.task.spread is not None
    assert RunConfig.from_json(config.to_json()) == config
    spelt = TaskConfig(covariates="clusters", clusters=config.task.clusters, spread=config.task.spread)
    assert RunConfig(task=spelt).digest == config.digest
    for law in COVARIATES[:-1]:
        assert not {"clusters", "spread"} & set(RunConfig(task=TaskConfig(covariates=law)).to_dict()["task"])
    assert len({RunConfig(task=TaskConfig(covariates=law)).digest for law in COVARIATES}) == len(COVARIATES)
    assert config.override({"task.spread": 1.0}).digest != config.digest
