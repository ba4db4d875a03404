import numpy as np
import pytest
import torch

from sim.config import SpectrumConfig, TaskConfig
from sim.randomness import Source
from sim.tasks import ContextSampler, haar
from tests.tolerances import ROUNDOFF, ROUNDOFF_FLOAT32, ROUNDOFF_LONG, sampling

CPU = torch.device("cpu")
SPECTRUM = SpectrumConfig("power_law", dim=6, capacity=1.0, source=0.8)


def make(stream="data", seeds=(0,), **fields):
    config = TaskConfig(**{"spectrum": SPECTRUM, "context": 10, **fields})
    return ContextSampler(config, CPU, torch.float64), Source(seeds, stream, CPU, torch.float64)


def mean_and_error(values):
    return float(values.mean()), float(values.std(ddof=1) / values.size**0.5)


def assert_mean(values, expected):
    mean, error = mean_and_error(values)
    assert abs(mean - expected) < sampling(error)


def test_haar_matrices_are_orthogonal_with_the_traces_of_haar_measure():
    source = Source([3], "data", CPU, torch.float64)
    rotation = haar(source.normal(20_000, 5, 5))[0]
    assert (rotation @ rotation.mT - torch.eye(5)).abs().max() < ROUNDOFF
    trace = rotation.diagonal(dim1=1, dim2=2).sum(1).numpy()
    square = (rotation @ rotation).diagonal(dim1=1, dim2=2).sum(1).numpy()
    # Diaconis & Shahshahani 1994: E tr O = 0, E (tr O)^2 = E tr O^2 = 1 on the orthogonal group.
    assert_mean(trace, 0.0)
    assert_mean(trace**2, 1.0)
    assert_mean(square, 1.0)
    # Every entry has the law of one coordinate of a uniform unit vector: E x^4 = 3 / (D (D + 2)).
    for row, column in [(0, 0), (4, 4), (2, 3), (0, 4)]:
        assert_mean(rotation[:, row, column].numpy(), 0.0)
        assert_mean(rotation[:, row, column].numpy() ** 4, 3 / 35)


@pytest.mark.parametrize("context", [2, 4, 6, 10, 300])
@pytest.mark.parametrize("setting", ["rrs", "fs"])
def test_bartlett_moments_have_wishart_means_for_any_context(context, setting):
    sampler, source = make(context=context, setting=setting, label_noise=0.5)
    moments = sampler.moments(source, 4000)
    empirical = moments.empirical[0].numpy()
    eigenvalues = SPECTRUM.build().eigenvalues
    trace, trace2 = eigenvalues.sum(), (eigenvalues**2).sum()
    assert_mean(np.trace(empirical, axis1=1, axis2=2), trace)
    squared = (empirical**2).sum((1, 2))
    # E tr S^2 of a Wishart average: tr Sigma^2 (1 + 1/P) + (tr Sigma)^2 / P.
    assert_mean(squared, trace2 * (1 + 1 / context) + trace**2 / context)
    assert_mean((moments.noise[0].numpy() ** 2).sum(1), 0.5 * trace / context)
    rank = np.linalg.matrix_rank(empirical[0], tol=1e-9)
    assert rank == min(6, context)


@pytest.mark.parametrize("coefficients", ["normal", "signs"])
def test_tokens_and_moments_agree_on_the_task_and_the_covariance(coefficients):
    sampler, source = make(context=7, coefficients=coefficients, label_noise=0.3, queries=2)
    tokens = sampler.tokens(source, 6000)
    x, y, target = tokens.covariates[0].numpy(), tokens.labels[0].numpy(), tokens.targets[0].numpy()
    assert x.shape == (6000, 9, 6)
    assert y.shape == (6000, 7)
    assert_mean(target[:, 0] ** 2, 1.0)  # E (w·x)^2 = sum_k lambda_k omega_k = 1
    assert_mean(target[:, 1] ** 2, 1.0)
    assert_mean(y[:, 0] ** 2, 1.3)
    assert_mean((x[:, 0] ** 2).sum(1), SPECTRUM.build().eigenvalues.sum())
    # Noise-free labels are exactly linear in the tokens of their own context.
    sampler, source = make(context=7, coefficients=coefficients)
    tokens = sampler.tokens(source, 3)
    x, y, target = tokens.covariates[0].numpy(), tokens.labels[0].numpy(), tokens.targets[0].numpy()
    for i in range(3):
        w = np.linalg.lstsq(x[i, :7], y[i], rcond=None)[0]
        assert abs(x[i, 7:] @ w - target[i]).max() < ROUNDOFF_LONG


def test_rotated_moments_keep_task_and_covariance_in_one_frame():
    sampler, source = make(context=None)
    moments = sampler.moments(source, 4000)
    w, covariance = moments.task[0].numpy(), moments.empirical[0].numpy()
    assert_mean(np.einsum("bi,bij,bj->b", w, covariance, w), 1.0)
    spectrum = SPECTRUM.build()
    assert_mean(
        np.einsum("bi,bij,bjk,bk->b", w, covariance, covariance, w), (spectrum.signal * spectrum.eigenvalues).sum()
    )
    assert np.allclose(np.linalg.eigvalsh(covariance[0])[::-1], spectrum.eigenvalues, rtol=0, atol=ROUNDOFF)
    assert moments.noise is None


def test_no_rotation_is_drawn_where_none_can_be_seen():
    isotropic = SpectrumConfig("isotropic", dim=4)
    assert not make(spectrum=isotropic)[0].rotates
    assert make(spectrum=isotropic, coefficients="signs")[0].rotates
    assert not make(setting="fs")[0].rotates


def test_streams_seeds_and_positions_decide_the_numbers_and_nothing_else():
    together = Source([5, 6], "data", CPU, torch.float64)
    alone = Source([6], "data", CPU, torch.float64)
    first = together.normal(3, 4)
    assert torch.equal(first[1:], alone.normal(3, 4))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(Source([6], "eval", CPU, torch.float64).normal(3, 4), first[1:])
    state = together.state()
    later = together.normal(2), together.signs(3), together.chi(torch.tensor([1.0, 4.0]), 2)
    together.set_state(state)
    again = together.normal(2), together.signs(3), together.chi(torch.tensor([1.0, 4.0]), 2)
    assert all(torch.equal(a, b) for a, b in zip(later, again, strict=True))
    assert set(later[1].unique().tolist()) <= {-1.0, 1.0}


def test_a_batch_splits_without_losing_a_context():
    sampler, source = make()
    tokens = sampler.tokens(source, 7)
    pieces = tokens.split(3)
    assert torch.equal(torch.cat([piece.labels for piece in pieces], dim=1), tokens.labels)
    moments = sampler.moments(source, 5).split(2)
    assert [piece.noise for piece in moments] == [None, None]
    assert sum(piece.task.shape[1] for piece in moments) == 5


def test_haar_survives_gaussian_vectors_of_norm_zero():
    gaussian = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(3))
    gaussian[0, 3, 3] = 0.0
    gaussian[1, 3, 3] = 1e-30  # its square underflows
    gaussian[2, :, 0] = 0.0
    rotation = haar(gaussian)
    torch.testing.assert_close(
        rotation @ rotation.mT, torch.eye(4).expand(3, 4, 4), rtol=ROUNDOFF_FLOAT32, atol=ROUNDOFF_FLOAT32
    )
