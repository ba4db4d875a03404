import numpy as np
import pytest
import torch

from sim.config import RunConfig
from sim.models import build_model
from sim.models.block import attend
from sim.models.products import PerRun
from sim.models.residual_mlp import TeacherBatch
from sim.optim import Optimizer
from sim.randomness import Source
from sim.training import train, train_many
from tests.tolerances import ROUNDOFF, sampling

CPU = torch.device("cpu")
TASK = {"spectrum": {"kind": "power_law", "dim": 4, "capacity": 1.0, "source": 0.8}, "context": 5, "queries": 2}
TRANSFORMER = {"name": "transformer", "attention": "softmax", "width": 8, "heads": 2, "depth": 3, "mlp": True}
# Slope of a log-log fit over depths of tens may miss the limit of large depth by this much.
SLOPE = 0.2


def setup(model, task=TASK, teacher=None, seeds=(0, 1), **training):
    sections = {"model": model, "training": {"dtype": "float64", **training}}
    sections |= {"task": task} if teacher is None else {"teacher": teacher}
    built = build_model(RunConfig.from_dict(sections), CPU, torch.float64)
    return (
        built,
        built.start(Source(seeds, "start", CPU, torch.float64)),
        Source(seeds, "data", CPU, torch.float64),
    )


def randomised(weights, generator):
    """Weights with every entry drawn: some start at zero, where errors would hide."""
    return {
        name: torch.randn(value.shape, dtype=value.dtype, generator=generator) * 0.5 for name, value in weights.items()
    }


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(11)


def normed(x):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + np.finfo(float).eps)


def softmax(s):
    e = np.exp(s - s.max())
    return e / e.sum()


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("norm", [True, False])
def test_transformer_equals_its_definition_token_by_token(attention, norm, generator):
    built, weights, source = setup({**TRANSFORMER, "attention": attention, "norm": norm, "branch_exponent": 0.5})
    weights = randomised(weights, generator)
    tokens = built.draw(source, 2)
    losses = built.losses(weights, tokens).numpy()
    norm_of = normed if norm else (lambda x: x)
    for run in range(2):
        w = {name: value[run].numpy() for name, value in weights.items()}
        for i in range(2):
            x, y = tokens.covariates[run, i].numpy(), tokens.labels[run, i].numpy()
            z = np.column_stack([x, np.append(y, [0.0, 0.0])]) @ w["embed"]
            for layer in range(3):
                seen, mixed = norm_of(z), np.zeros_like(z)
                q, k, v = (seen @ w[name][layer] for name in ("query", "key", "value"))
                for mu in range(7):
                    for head in range(2):
                        own = slice(4 * head, 4 * head + 4)
                        s = k[:5, own] @ q[mu, own] / 2.0
                        mixed[mu, own] = (softmax(s) if attention == "softmax" else s / 5) @ v[:5, own]
                z = z + mixed @ w["output"][layer] / 3**0.5
                u = torch.tensor(norm_of(z) @ w["up"][layer])
                z = z + torch.nn.functional.gelu(u).numpy() @ w["down"][layer] / 3**0.5
            prediction = (norm_of(z)[5:] @ w["readout"]).squeeze(-1)
            expected = np.mean((tokens.targets[run, i].numpy() - prediction) ** 2)
            assert losses[run, i] == pytest.approx(expected, rel=ROUNDOFF)


def test_decoupled_model_with_plain_weights_is_the_reduced_model(generator):
    width = 4
    built, weights, source = setup({"name": "decoupled", "attention": "softmax", "width": width, "depth": 3})
    reduced, _, _ = setup({"attention": "softmax", "depth": 3, "gain": "fixed"})
    tokens = built.draw(source, 3)
    gamma = torch.randn((2, 3, width, width), dtype=torch.float64, generator=generator)
    eye = torch.eye(width, dtype=torch.float64)
    first = eye[:1].expand(2, 1, width)
    plain = {
        "embed_x": eye.expand(2, width, width),
        "embed_y": first,
        "readout": first.mT,
        "value": eye.expand(2, 3, width, width),
        "key": eye.expand(2, 3, width, width),
        "query": gamma * width**0.5,  # attention divides scores by sqrt(N)
    }
    assert plain.keys() == weights.keys()
    expected = reduced.losses({"gamma": gamma}, tokens)
    assert (built.losses(plain, tokens) - expected).abs().max() < ROUNDOFF


def test_linear_attention_of_the_block_is_linear_in_every_factor(generator):
    q, k, v = (torch.randn((1, 2, n, 4), dtype=torch.float64, generator=generator) for n in (3, 5, 5))
    once = attend(q, k, v, "linear", heads=2)
    assert (attend(2 * q, 3 * k, 5 * v, "linear", heads=2) - 30 * once).abs().max() < ROUNDOFF
    flat = attend(0 * q, k, v, "softmax", heads=2)
    assert (flat - v.mean(2, keepdim=True)).abs().max() < ROUNDOFF


@pytest.mark.parametrize("model", [TRANSFORMER, {"name": "decoupled", "attention": "softmax", "width": 8, "depth": 2}])
def test_the_order_of_the_context_does_not_matter_and_queries_do_not_meet(model, generator):
    built, weights, source = setup(model)
    weights = randomised(weights, generator)
    tokens = built.draw(source, 2)
    order = [3, 1, 0, 4, 2]
    moved = type(tokens)(tokens.covariates[:, :, [*order, 6, 5]], tokens.labels[:, :, order], tokens.targets.flip(2))
    losses = built.losses(weights, tokens)
    assert (built.losses(weights, moved) - losses).abs().max() < ROUNDOFF * losses.max()
    alone = [
        built.losses(
            weights,
            type(tokens)(tokens.covariates[:, :, [*range(5), q]], tokens.labels, tokens.targets[:, :, q - 5 : q - 4]),
        )
        for q in (5, 6)
    ]
    assert ((alone[0] + alone[1]) / 2 - losses).abs().max() < ROUNDOFF * losses.max()


@pytest.mark.parametrize(
    "model",
    [
        TRANSFORMER,
        {"name": "decoupled", "attention": "linear", "width": 8, "depth": 2},
        {"name": "decoupled", "attention": "softmax", "width": 8, "depth": 2, "tied": True},
    ],
)
def test_attention_models_predict_zero_at_first_and_then_learn(model):
    sections = {"model": model, "task": {**TASK, "context": 16}, "training": {"steps": 120, "batch": 64}}
    run = train(RunConfig.from_dict(sections), device="cpu")
    assert not run.snapshots
    assert abs(run.loss[0] - 1.0) < 0.5
    assert run.final_loss < 0.5


@pytest.mark.parametrize(
    "sections",
    [
        {"model": TRANSFORMER, "task": TASK},
        {"model": {"name": "decoupled", "width": 24, "depth": 2}, "task": TASK},
        {"model": {"name": "residual_mlp", "depth": 2}, "teacher": {"depth": 4}},
        {"model": {"attention": "relu", "depth": 2}, "task": {**TASK, "context": 40}},
        {"model": {"depth": 3}, "task": TASK},
    ],
)
def test_every_model_trains_bit_equal_together_and_alone(sections):
    training = {"dtype": "float64", "batch": 96, "steps": 4, "eval_contexts": 100, "clip": 0.2}
    base = RunConfig.from_dict({**sections, "training": training})
    configs = [base.override({"training.seed": seed, "training.learning_rate": 0.01 * (seed + 1)}) for seed in range(3)]
    for config, together in zip(configs, train_many(configs, device="cpu"), strict=True):
        alone = train(config, device="cpu")
        assert np.array_equal(alone.loss, together.loss)
        assert alone.final_loss == together.final_loss
        assert all(np.array_equal(alone.weights[name], together.weights[name]) for name in alone.weights)


@pytest.mark.parametrize(
    "sections",
    [
        {"model": TRANSFORMER, "task": TASK},
        {"model": {"name": "decoupled", "width": 24, "depth": 2}, "task": TASK},
        {"model": {"name": "residual_mlp", "depth": 2}, "teacher": {"depth": 4}},
        {"model": {"attention": "softmax", "depth": 2}, "task": TASK},
        {"model": {"depth": 3}, "task": TASK},
    ],
)
@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_lower_precision_trains_every_model_near_the_full_one(sections, precision):
    full = RunConfig.from_dict({**sections, "training": {"batch": 64, "steps": 10, "eval_contexts": 64}})
    first, second = train(full, device="cpu"), train(full.override({"training.precision": precision}), device="cpu")
    # bfloat16 keeps 8 bits; a few products in a row lose a few of them. TF32 changes nothing on a CPU.
    allowed = 8 * 2**-8 if precision == "bf16" else 0.0
    assert second.loss == pytest.approx(first.loss, rel=allowed, abs=allowed)
    assert (first.final_loss == second.final_loss) == (precision == "tf32")


def test_products_run_by_run_have_the_gradient_of_finite_differences(generator):
    factors = [
        torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_() for s in [(2, 3, 4), (2, 4, 5)]
    ]
    assert torch.autograd.gradcheck(PerRun.apply, factors)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_depth_transfer_makes_one_update_move_the_output_alike_at_every_depth(optimizer, exponent, generator):
    depths, moves = np.array([8, 32]), {True: [], False: []}
    runs = 16
    readout = torch.randn((runs, 16, 1), dtype=torch.float64, generator=generator) / 4
    for transfer, found in moves.items():
        for depth in depths:
            model = {"name": "transformer", "attention": "softmax", "width": 16, "depth": int(depth)}
            model |= {"branch_exponent": exponent, "depth_transfer": transfer}
            built, weights, source = setup(model, seeds=range(runs), optimizer=optimizer)
            weights["readout"] = readout.clone()
            tokens = built.draw(source, 24)
            before = built.losses(weights, tokens)
            _, gradient = built.loss_and_gradient(weights, tokens)
            layers = {name: weights[name] for name in built.ATTENTION}
            rates = torch.full((runs,), 1e-6, dtype=torch.float64)
            Optimizer(built.config.training, rates, built.rate_scales()).step(layers, gradient, 0)
            found.append((before - built.losses(weights, tokens)).mean(1).log().mean().exp().item())
    slopes = {transfer: np.polyfit(np.log(depths), np.log(found), 1)[0] for transfer, found in moves.items()}
    expected = 1 - exponent if optimizer == "adam" else 1 - 2 * exponent
    assert abs(slopes[True]) < SLOPE
    assert slopes[False] == pytest.approx(expected, abs=SLOPE)


TEACHER = {"depth": 5, "dim": 3, "hidden": 4}


def test_residual_mlp_equals_its_definition(generator):
    model = {"name": "residual_mlp", "depth": 2, "branch_exponent": 0.5}
    built, weights, source = setup(model, teacher={**TEACHER, "correlation": 0.3, "strength": 1.5})
    weights = randomised(weights, generator)
    batch = built.draw(source, 3)
    teacher = {name: value[0].numpy() for name, value in built._teacher.items()}
    teacher_scale = 1.5 / np.sqrt(25 * 0.3 + 5 * 0.7)

    def through(x, w, scale):
        for inner, bias, outer in zip(w["inner"], w["bias"], w["outer"], strict=True):
            x = x + scale * np.tanh(x @ inner + bias) @ outer
        return x

    for run in range(2):
        own = {name: value[run].numpy() for name, value in weights.items()}
        x = batch.inputs[run].numpy()
        target = through(x, teacher, teacher_scale)
        assert batch.targets[run].numpy() == pytest.approx(target, rel=ROUNDOFF)
        loss = ((through(x, own, 2**-0.5) - target) ** 2).mean(-1)
        assert built.losses(weights, batch)[run].numpy() == pytest.approx(loss, rel=ROUNDOFF)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_a_student_with_the_teachers_layers_has_no_loss(loss):
    teacher = {**TEACHER, "correlation": 1.0, "loss": loss, "temperature": 0.5}
    built, weights, source = setup({"name": "residual_mlp", "depth": 5}, teacher=teacher, seeds=(0,))
    batch = built.draw(source, 50)
    copied = {name: value.clone() for name, value in built._teacher.items()}
    assert (copied["inner"] == copied["inner"][:, :1]).all()
    if loss == "cross_entropy":
        copied["readout"] = built._teacher_readout
        assert (built.losses(weights, batch) > 0).all()
        assert (batch.targets.exp().sum(-1) - 1).abs().max() < ROUNDOFF
    assert built.losses(copied, batch).abs().max() < ROUNDOFF


@pytest.mark.parametrize("correlation", [0.0, 0.4, 1.0])
def test_teacher_layers_correlate_as_asked_and_move_the_stream_alike(correlation):
    teacher = {"depth": 60, "dim": 12, "hidden": 20, "correlation": correlation}
    built, _, source = setup({"name": "residual_mlp"}, teacher=teacher)
    inner = built._teacher["inner"][0].flatten(1).numpy()
    pairs = (inner[::2] * inner[1::2]).mean(1) * 12
    assert abs(pairs.mean() - correlation) < sampling(pairs.std(ddof=1) / pairs.size**0.5) + (
        sampling((2 / inner.shape[1]) ** 0.5) * correlation
    )
    batch = built.draw(source, 500)
    moved = (batch.targets - batch.inputs).square().mean().item()
    assert 0.1 < moved < 2.0
    assert isinstance(batch, TeacherBatch)
