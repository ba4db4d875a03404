import numpy as np
import pytest
import torch

from sim.config import ATTENTIONS, ModelConfig, RunConfig, SpectrumConfig, TaskConfig, TrainingConfig
from sim.models import build_model
from sim.models.base import Model
from sim.models.label_pass import LabelPass
from sim.models.reduced import ReducedKernel
from sim.randomness import Source
from sim.tasks import Moments
from sim.training import train
from tests.tolerances import CENTRAL_DIFFERENCE, FIRST_ADAM_STEP, ROUNDOFF, sampling
from theory import tied_optimum

CPU = torch.device("cpu")
SPECTRUM = SpectrumConfig("power_law", dim=4, capacity=1.0, source=0.8)


def setup(attention="linear", batch=3, seeds=(0, 1), training=None, task=None, **model):
    config = RunConfig(
        task=TaskConfig(**{"spectrum": SPECTRUM, "context": 5, "queries": 2, "label_noise": 0.2, **(task or {})}),
        model=ModelConfig(**{"attention": attention, "gamma_start": "random", "depth": 3, **model}),
        training=TrainingConfig(batch=batch, dtype="float64", **(training or {})),
    )
    built = build_model(config, CPU, torch.float64)
    weights = built.start(Source(seeds, "start", CPU, torch.float64))
    return built, weights, Source(seeds, "data", CPU, torch.float64)


def brute_force(x, labels, gammas, gains, kind, degree=3):
    """The definition, token by token: returns the prediction of every query."""
    depth, context = len(gammas), len(labels)
    h = np.concatenate([labels, np.zeros(len(x) - context)])
    for gamma, gain in zip(gammas, gains, strict=True):
        after = h.copy()
        for mu in range(len(x)):
            s = np.array([x[mu] @ gamma @ x[nu] for nu in range(context)])
            if kind == "softmax":
                a = np.exp(s) / np.exp(s).sum()
            elif kind == "cosine":
                a = s / np.linalg.norm(x[mu] @ gamma) / np.linalg.norm(x[:context], axis=1) / context
            else:
                a = {"linear": s, "relu": np.maximum(s, 0), "exp": np.exp(s), "polynomial": (1 + s) ** degree}[kind]
                a = a / context
            after[mu] = h[mu] - gain * (a @ h[:context]) / depth
        h = after
    return -h[context:]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("attention", ATTENTIONS[1:])
def test_kernel_model_equals_its_definition_token_by_token(attention, tied):
    built, weights, source = setup(attention, tied=tied, gain_start=0.7)
    tokens = built.draw(source, 3)
    losses = built.losses(weights, tokens).numpy()
    for run in range(2):
        for i in range(3):
            layers = [0, 0, 0] if tied else [0, 1, 2]
            gammas = weights["gamma"][run].numpy()[layers]
            gains = weights["gain"][run].numpy()[layers]
            x, y = tokens.covariates[run, i].numpy(), tokens.labels[run, i].numpy()
            prediction = brute_force(x, y, gammas, gains, attention)
            expected = np.mean((tokens.targets[run, i].numpy() - prediction) ** 2)
            assert losses[run, i] == pytest.approx(expected, rel=ROUNDOFF)


def test_linear_model_equals_its_definition_token_by_token():
    built, weights, source = setup("linear")
    kernel, _, _ = setup("softmax")
    tokens = kernel.draw(source, 3)
    spectrum = SPECTRUM.build()
    # The sampler's tokens, turned into moments; the exact query loss by quadrature over the eigen-directions of Sigma.
    for i in range(3):
        x, y = tokens.covariates[0, i].numpy(), tokens.labels[0, i].numpy()
        context = x[:5]
        w = np.array([0.3, -1.0, 0.5, 0.2])
        noise = y - context @ w
        moments = Moments(
            torch.tensor(w)[None, None],
            None,
            torch.tensor(context.T @ context / 5)[None, None],
            torch.tensor(context.T @ noise / 5)[None, None],
        )
        own = {"gamma": weights["gamma"][:1]}
        loss = float(built.losses(own, moments))
        basis = np.sqrt(spectrum.eigenvalues)[:, None] * np.eye(4)
        prediction = brute_force(np.concatenate([context, basis]), y, own["gamma"][0].numpy(), [1, 1, 1], "linear")
        assert loss == pytest.approx(((basis @ w - prediction) ** 2).sum(), rel=ROUNDOFF)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("task", [{}, {"setting": "fs"}, {"label_noise": 0.0}, {"context": None, "queries": 1}])
def test_hand_written_gradient_equals_autograd(tied, task):
    built, weights, source = setup("linear", tied=tied, task=task)
    moments = built.draw(source, 6)
    losses, gradient = built.loss_and_gradient(weights, moments)
    by_autograd, expected = Model.loss_and_gradient(built, weights, moments)
    assert torch.equal(losses, by_autograd)
    scale = expected["gamma"].abs().max()
    assert (gradient["gamma"] - expected["gamma"]).abs().max() < ROUNDOFF * scale


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 0, 0], [2, 0, 0]])
def test_label_pass_has_the_gradient_of_finite_differences(order):
    generator = torch.Generator().manual_seed(4)
    shapes = [(2, 3, 6, 3, 4), (2, 3), (2, 3, 6)]
    inputs = [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]
    assert torch.autograd.gradcheck(lambda *values: LabelPass.apply(*values, order, 5), inputs)


def test_layers_at_once_equal_layers_one_by_one(monkeypatch):
    built, weights, source = setup("softmax")
    tokens = built.draw(source, 3)
    at_once = built.losses(weights, tokens)
    monkeypatch.setattr(ReducedKernel, "ENTRIES_AT_ONCE", 0)
    assert (built.losses(weights, tokens) - at_once).abs().max() < ROUNDOFF


def test_starts_and_gains_are_what_the_config_says():
    built, weights, _ = setup("softmax", gamma_start="identity", gamma_scale=0.5, gain_start=2.0)
    assert torch.equal(weights["gamma"], 0.5 * torch.eye(4, dtype=torch.float64).expand(2, 3, 4, 4))
    assert torch.equal(weights["gain"], torch.full((2, 3), 2.0, dtype=torch.float64))
    fixed, weights, source = setup("softmax", gain="fixed", gain_start=2.0, gamma_start="zero")
    assert set(weights) == {"gamma"}
    assert not weights["gamma"].any()
    tokens = fixed.draw(source, 2)
    with_gain = built.losses({**weights, "gain": torch.full((2, 3), 2.0, dtype=torch.float64)}, tokens)
    assert torch.equal(fixed.losses(weights, tokens), with_gain)
    _, weights, _ = setup("linear", depth=200, gamma_scale=3.0)
    spread = weights["gamma"].std() * 4**0.5
    assert spread.item() == pytest.approx(3.0, abs=sampling(3.0 / (2 * weights["gamma"].numel()) ** 0.5))


@pytest.mark.parametrize(("attention", "start"), [("linear", "random"), ("softmax", "zero"), ("relu", "random")])
def test_a_multiple_of_the_identity_stays_one_and_moves_by_the_derivative_in_it(attention, start):
    """d loss / d gamma is the trace of the gradient: against a central difference of the loss in gamma_1."""
    built, weights, source = setup(attention, seeds=(3,), gamma_shape="identity", gamma_start=start)
    eye = torch.eye(4, dtype=torch.float64)
    assert torch.equal(weights["gamma"][0, 1], weights["gamma"][0, 1, 0, 0] * eye)
    batch = built.draw(source, 50)
    _, gradient = built.loss_and_gradient(weights, batch)
    along = built.constrain(gradient)
    assert torch.equal(along["gamma"][0], along["gamma"][0, :, :1, :1] * eye)
    step = 1e-5
    ends = []
    for sign in (1, -1):
        moved = {**weights, "gamma": weights["gamma"].clone()}
        moved["gamma"][0, 0] += sign * step * eye
        ends.append(float(built.losses(moved, batch).mean()))
    assert 4 * float(along["gamma"][0, 0, 0, 0]) == pytest.approx(
        (ends[0] - ends[1]) / (2 * step), rel=CENTRAL_DIFFERENCE
    )
    if attention != "linear":
        assert torch.equal(along["gain"], gradient["gain"])


def test_training_keeps_the_identity_shape_and_the_gains_go_their_own_pace():
    config = RunConfig(
        task=TaskConfig(spectrum=SPECTRUM, context=5),
        model=ModelConfig(attention="softmax", depth=2, gamma_shape="identity", gain_rate=20.0),
        training=TrainingConfig(optimizer="adam", learning_rate=1e-3, batch=8, steps=1, dtype="float64"),
    )
    run = train(config)
    gamma = run.weights["gamma"]
    np.testing.assert_array_equal(gamma, gamma[:, :1, :1] * np.eye(4))
    # Adam's first step is the learning rate, whatever the gradient's size.
    np.testing.assert_allclose(np.abs(gamma[:, 0, 0]), 1e-3, rtol=FIRST_ADAM_STEP)
    np.testing.assert_allclose(np.abs(run.weights["gain"] - 1), 0.02, rtol=FIRST_ADAM_STEP)


def test_full_matrices_find_no_better_tied_optimum_than_multiples_of_the_identity():
    """On rotated data the optimum is a multiple of I: against the exact tied optimum at infinite context."""
    spectrum = SpectrumConfig("power_law", dim=4, capacity=1.0, source=0.8)
    losses = {}
    for shape in ("full", "identity"):
        config = RunConfig(
            task=TaskConfig(spectrum=spectrum, context=None),
            model=ModelConfig(depth=2, tied=True, gamma_shape=shape),
            training=TrainingConfig(learning_rate=0.05, batch=64, steps=400, schedule="tail", eval_contexts=20_000),
        )
        losses[shape] = train(config)
    best = tied_optimum(TaskConfig(spectrum=spectrum, context=None).build(), 2).loss
    for run in losses.values():
        assert abs(run.final_loss - best) < sampling(run.standard_error)
