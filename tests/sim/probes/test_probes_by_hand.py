"""Each probe on a case that is solved by hand."""

import math

import numpy as np
import pytest
import torch

from sim.config import RunConfig
from sim.models import build_model
from sim.probes import focus
from sim.probes.layers import ablations, contributions, layer_errors, swaps
from sim.probes.modes import half_learning_times, mode_errors
from sim.probes.rotation import rotations, update_correlations
from sim.probes.trace import Trace, trace
from sim.randomness import Source
from sim.tasks import Tokens
from tests.tolerances import ROUNDOFF, ROUNDOFF_FLOAT32, ROUNDOFF_LONG, sampling

CPU = torch.device("cpu")


def close(found, expected, tolerance=ROUNDOFF):
    assert np.asarray(found) == pytest.approx(np.asarray(expected), rel=tolerance, abs=tolerance)


def linear(gammas, spectrum, contexts, setting="rrs"):
    """Return a reduced linear model at infinite context with the given Gamma of each layer, and a batch."""
    task = {"context": None, "setting": setting, "spectrum": spectrum}
    config = RunConfig.from_dict({"task": task, "model": {"depth": len(gammas)}, "training": {"dtype": "float64"}})
    model = build_model(config, CPU, torch.float64)
    weights = {"gamma": torch.tensor(np.array(gammas))[None]}
    return model, weights, model.draw(Source([0], "hand", CPU, torch.float64), contexts)


def test_modes_of_the_population_model_are_its_products():
    gains, contexts = [0.5, 1.5, 0.9], 4000
    spectrum = {"kind": "power_law", "dim": 3, "capacity": 1.0, "source": 1.0}
    model, weights, batch = linear([gain * np.eye(3) for gain in gains], spectrum, contexts)
    found = mode_errors(model, batch, trace(model, weights, batch))[0].numpy()
    eigenvalues = np.array([1, 1 / 2, 1 / 3])
    shrunk = np.prod([(1 - gain * eigenvalues / 3) ** 2 for gain in gains], axis=0)
    coordinates = (batch.rotation.mT @ batch.task[..., None]).squeeze(-1)[0].numpy()
    close(found, eigenvalues * shrunk * (coordinates**2).mean(0))
    signal = np.array([1, 1 / 4, 1 / 9]) / (1 + 1 / 4 + 1 / 9)
    # Squares of Gaussian coordinates: relative standard error sqrt(2 / contexts).
    assert np.all(np.abs(found - signal * shrunk) < sampling(signal * shrunk * math.sqrt(2 / contexts)))


@pytest.mark.parametrize("queries", [2, 5])
def test_modes_of_an_error_linear_in_the_query_and_of_one_that_is_even(queries):
    spectrum = {"kind": "explicit", "eigenvalues": [4.0, 1.0, 0.0], "task_power": [1.0, 1.0, 0.0]}
    task = {"context": 3, "queries": queries, "spectrum": spectrum}
    config = RunConfig.from_dict({"task": task, "model": {"attention": "softmax"}})
    model = build_model(config, CPU, torch.float64)
    drawn = model.draw(Source([0], "hand", CPU, torch.float64), 20_000)
    # Every context as a run of its own, so that their scatter is seen.
    parts = (drawn.covariates, drawn.labels, drawn.targets, drawn.rotation)
    batch = Tokens(*[part.transpose(0, 1) for part in parts])
    query = batch.covariates[:, :, 3:] @ batch.rotation  # coordinates in the context's own eigenbasis

    def projected(error):
        own = Trace(error * 0, error[:, :, None] / queries**0.5, error * 0, torch.zeros(1))
        each = mode_errors(model, batch, own)
        return each.mean(0).numpy(), each.std(0).numpy() / math.sqrt(len(each))

    weight = torch.tensor([0.5, -1.5, 7.0], dtype=torch.float64)
    found, error = projected(query @ weight)
    assert np.all(np.abs(found - [4 * 0.25, 1 * 2.25, 0.0]) <= sampling(error))
    found, error = projected(query[..., 0] ** 2 - 4)
    assert np.all(np.abs(found) <= sampling(error))
    assert found[2] == 0


def test_one_query_a_context_cannot_be_projected():
    config = RunConfig.from_dict({"task": {"context": 3}, "model": {"attention": "softmax"}})
    model = build_model(config, CPU, torch.float64)
    batch = model.draw(Source([0], "hand", CPU, torch.float64), 2)
    traced = trace(model, model.start(Source([0], "start", CPU, torch.float64)), batch)
    with pytest.raises(ValueError, match=r"task.queries=1"):
        mode_errors(model, batch, traced)


def test_half_learning_times_of_exponentials_lines_and_what_never_halves():
    time = np.array([0.0, 1.0, 3.0, 7.0, 20.0])
    rates = np.array([2.0, 0.3, 0.05, 0.001])
    close(half_learning_times(time, np.exp(-time[:, None] * rates))[:3], math.log(2) / rates[:3])
    assert np.isnan(half_learning_times(time, np.exp(-time[:, None] * rates))[3])
    close(half_learning_times(time[:2], np.array([[1.0], [-1.0]])), [0.25])
    close(half_learning_times(time[:2], np.array([[1.0], [0.5]])), [1.0])
    assert np.isnan(half_learning_times(time[:2], np.array([[0.0], [0.0]]))[0])


def ensemble(errors, target):
    """Return the trace of layers that alone make these errors: errors (L, B, O), target (B, O)."""
    depth = len(errors)
    contributions = (np.asarray(errors) + target) / depth
    added = torch.tensor(contributions).transpose(0, 1)[None]
    return Trace(torch.zeros(1, *target.shape), added, torch.tensor(target)[None], torch.zeros(1))


def test_layers_that_err_alike_share_all_and_layers_that_err_apart_share_nothing():
    rng = np.random.default_rng(0)
    target = rng.normal(size=(8, 1))
    alike = layer_errors(ensemble([target * 0 + 0.5] * 4, target))
    close(alike.shared, [0.25])
    close(alike.specific, [0.0])
    close(alike.matrix, np.full((1, 4, 4), 0.25))
    signs = np.array([[1, 1], [1, -1]])
    apart = np.kron(np.kron(signs, signs), signs)[:4, :, None] * 0.5  # four rows of +-1/2, orthogonal
    errors = layer_errors(ensemble(apart, target))
    close(errors.shared, [0.0])
    close(errors.specific, [0.25])
    close(errors.ensemble, [0.25 / 4])
    both = layer_errors(ensemble(apart + 0.5, target))
    # Row 0 of the signs is constant, so that layer 1 also errs with the shared part.
    expected = np.diag([0.25] * 4) + 0.25
    expected[0, :] += 0.25
    expected[:, 0] += 0.25
    close(both.matrix, expected[None])
    single = layer_errors(ensemble(apart[:1], target))
    assert math.isnan(single.shared)
    assert math.isnan(single.specific)


def test_contributions_are_shares_of_the_target():
    target = np.array([[1.0], [-2.0], [3.0]])
    added = np.stack([0.5 * target, 0.25 * target, np.array([[2.0], [1.0], [0.0]])])  # the last is orthogonal
    depth = len(added)
    close(contributions(ensemble(depth * added - target, target)), [[0.5, 0.25, 0.0]])


def test_ablation_and_swap_of_commuting_layers():
    gains = [0.5, 1.5, 0.9]
    model, weights, batch = linear([gain * np.eye(2) for gain in gains], {"kind": "isotropic", "dim": 2}, 50, "iso")
    start = float((batch.task**2).sum(-1).mean())
    loss = start * math.prod((1 - gain / 3) ** 2 for gain in gains)
    close(trace(model, weights, batch).losses.mean(), loss)
    close(ablations(model, weights, batch), [[loss * ((1 - gain / 3) ** -2 - 1) for gain in gains]])
    close(swaps(model, weights, batch), [[0.0, 0.0]])


def test_ablation_and_swap_of_layers_that_do_not_commute():
    # I - Gamma/2 of the layers: first diag(0, 1), then [[1, -c], [0, 1]]; w = (a, b).
    c = 0.7
    gammas = [[[2.0, 0.0], [0.0, 0.0]], [[0.0, 2 * c], [0.0, 0.0]]]
    model, weights, batch = linear(gammas, {"kind": "isotropic", "dim": 2}, 50, "iso")
    a, b = batch.task[0].T.numpy()
    loss = np.mean((c * b) ** 2 + b**2)
    close(trace(model, weights, batch).losses.mean(), loss)
    close(ablations(model, weights, batch), [[np.mean((a - c * b) ** 2 + b**2) - loss, np.mean(b**2) - loss]])
    close(swaps(model, weights, batch), [[np.mean(b**2) - loss]])
    assert swaps(*linear(gammas[:1], {"kind": "isotropic", "dim": 2}, 5, "iso")).shape == (1, 0)


def test_focus_of_even_sharp_and_signed_attention():
    tokens = 8
    even, sharp = torch.full((tokens,), 1 / tokens), torch.eye(tokens)[3]
    relevant = torch.arange(tokens).float()
    close(focus.entropy(even), math.log(tokens), ROUNDOFF_FLOAT32)
    close(focus.participation(even), tokens, ROUNDOFF_FLOAT32)
    close(focus.relevant_mass(even, relevant, 3), 3 / tokens, ROUNDOFF_FLOAT32)
    close(focus.entropy(sharp), 0)
    close(focus.participation(sharp), 1)
    close(focus.relevant_mass(sharp, relevant, 4), 0)
    close(focus.relevant_mass(sharp, relevant, 5), 1)
    close(focus.by_relevance(sharp, relevant), torch.eye(tokens)[tokens - 1 - 3])
    signed = torch.tensor([[3.0, -1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    close(focus.focus(signed)[0], [0.75, 0.25, 0])
    assert focus.focus(signed)[1].isnan().all()
    close(focus.participation(focus.focus(signed))[0], 1 / (0.75**2 + 0.25**2))
    for count in (0, 9):
        with pytest.raises(ValueError, match=f"count={count}"):
            focus.relevant_mass(even, relevant, count)


def test_softmax_of_two_tokens_is_a_logistic():
    gap = torch.tensor([[0.0, 1.5]], dtype=torch.float64)
    share = 1 / (1 + math.exp(-1.5))
    shares = focus.focus(gap.softmax(-1))
    close(shares[0], [1 - share, share])
    close(focus.entropy(shares), [-share * math.log(share) - (1 - share) * math.log(1 - share)])


def test_relevance_by_angle_and_by_product():
    x = torch.tensor([[2.0, 0.0], [0.0, -3.0], [-1.0, -1.0], [5.0, 0.0]], dtype=torch.float64)
    close(focus.relevance(x, 3), [[1.0, 0.0, math.sqrt(0.5)]])
    close(focus.relevance(x, 3, "product"), [[10.0, 0.0, -5.0]])
    with pytest.raises(ValueError, match="relevance='angle'"):
        focus.relevance(x, 3, "angle")


def test_overlap_of_layers_that_look_at_the_same_at_half_and_at_other_tokens():
    shares = torch.tensor([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1.0], [0.5, 0.5, 0, 0]], dtype=torch.float64)
    expected = [[1, 0.5, 0, 1], [0.5, 1, 0, 0.5], [0, 0, 1, 0], [1, 0.5, 0, 1]]
    close(focus.overlap(shares), expected)


@pytest.mark.parametrize("angle", [1e-9, 0.3, 3.0])
def test_a_stream_that_turns_evenly_turns_by_its_angle(angle):
    steps = torch.arange(5, dtype=torch.float64) * angle
    states = torch.stack([steps.cos(), steps.sin(), 0 * steps], dim=-1)[:, None]  # (L + 1, T = 1, S)
    assert rotations(states).numpy() == pytest.approx(angle, rel=ROUNDOFF_LONG * 100)
    if angle > 1e-8:
        assert update_correlations(states).numpy() == pytest.approx(math.cos(angle), rel=ROUNDOFF)


def test_straight_growth_does_not_turn_and_a_zero_state_has_no_direction():
    states = torch.tensor([[[0.0, 0.0]], [[1.0, 2.0]], [[3.0, 6.0]], [[1.0, 2.0]]], dtype=torch.float64)
    turned = rotations(states)
    assert torch.isnan(turned[0, 0])
    close(turned[1:], [[0.0], [0.0]])
    close(update_correlations(states), [[1.0], [-1.0]])
