"""Speed of training: against plain JAX, many seeds together against one by one, and what a step costs."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from sim.config import RunConfig
from sim.loop import TrainingLoop

DIM, CONTEXT, BATCH, DEPTH, RATE = 45, 512, 512, 8, 3.0
SEEDS = 16
ROUNDS = 7


def linear_config(**changes: object) -> RunConfig:
    """The published linear setting, untied, SGD, float32."""
    return RunConfig.from_dict(
        {
            "task": {
                "setting": "rrs",
                "spectrum": {"kind": "power_law", "dim": DIM, "capacity": 1.75, "source": 0.5},
                "context": CONTEXT,
            },
            "model": {"attention": "linear", "depth": DEPTH},
            "training": {"optimizer": "sgd", "learning_rate": RATE, "batch": BATCH},
        }
    ).override(changes)


def softmax_config(seed: int) -> RunConfig:
    """A model so small that the overhead of each operation rules."""
    return RunConfig.from_dict(
        {
            "task": {"setting": "iso", "spectrum": {"kind": "isotropic", "dim": 8}, "context": 16},
            "model": {"attention": "softmax", "depth": 4},
            "training": {"optimizer": "adam", "batch": 32, "seed": seed},
        }
    )


def best_seconds(contenders: list[Callable[[int], None]], steps: list[int]) -> list[float]:
    """Return the least seconds a step of each contender, measured in turns so that a busy machine slows all alike."""
    for contender in contenders:
        contender(2)
    least = [float("inf")] * len(contenders)
    for _ in range(ROUNDS):
        for i, (contender, count) in enumerate(zip(contenders, steps, strict=True)):
            began = time.perf_counter()
            contender(count)
            least[i] = min(least[i], (time.perf_counter() - began) / count)
    return least


def jax_loop() -> Callable[[int], None]:
    """Return a plain JAX training step, jit-compiled: tokens drawn, Sigma_hat formed, the loss differentiated."""
    import jax
    import jax.numpy as jnp

    k = jnp.arange(1, DIM + 1, dtype=jnp.float32)
    eigenvalues = k**-1.75
    signal = k ** -(1.75 * 0.5 + 1)
    power = signal / signal.sum() / eigenvalues

    def loss(gammas: jax.Array, task: jax.Array, sigma_hat: jax.Array, sigma: jax.Array) -> jax.Array:
        residual = task
        for layer in range(DEPTH):
            seen = jnp.einsum("bij,bj->bi", sigma_hat, residual)
            residual = residual - seen @ gammas[layer].T / DEPTH
        return jnp.einsum("bi,bij,bj->b", residual, sigma, residual).mean()

    @jax.jit
    def step(gammas: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        key, of_rotation, of_tokens, of_task = jax.random.split(key, 4)
        q, r = jnp.linalg.qr(jax.random.normal(of_rotation, (BATCH, DIM, DIM)))
        rotation = q * jnp.sign(jnp.diagonal(r, axis1=1, axis2=2))[:, None, :]
        root = rotation * jnp.sqrt(eigenvalues)
        tokens = jnp.einsum("bpk,bik->bpi", jax.random.normal(of_tokens, (BATCH, CONTEXT, DIM)), root)
        sigma_hat = jnp.einsum("bpi,bpj->bij", tokens, tokens) / CONTEXT
        sigma = jnp.einsum("bik,bjk->bij", root, root)
        task = jnp.einsum("bik,bk->bi", rotation, jax.random.normal(of_task, (BATCH, DIM)) * jnp.sqrt(power))
        value, gradient = jax.value_and_grad(loss)(gammas, task, sigma_hat, sigma)
        return gammas - RATE * gradient, key, value

    state = [jnp.zeros((DEPTH, DIM, DIM)), jax.random.PRNGKey(0)]

    def run(count: int) -> None:
        for _ in range(count):
            state[0], state[1], value = step(*state)
        value.block_until_ready()

    return run


def against_jax() -> float:
    """Print steps per second of both and return the ratio."""
    ours = TrainingLoop([linear_config()])
    seconds = best_seconds([ours.advance, jax_loop()], [10, 4])
    ratio = seconds[1] / seconds[0]
    print(f"linear, depth {DEPTH}, dim {DIM}, P={CONTEXT}, B={BATCH}, untied, SGD, float32")
    print(f"  {'this package':16s} {1 / seconds[0]:8.2f} steps/s")
    print(f"  {'plain JAX':16s} {1 / seconds[1]:8.2f} steps/s")
    print(f"  ratio            {ratio:8.2f}   (goal >= 4)")
    return ratio


def many_seeds(device: str = "cpu") -> float:
    """Print the throughput of sixteen seeds together and one by one, and return the ratio."""
    configs = [softmax_config(seed) for seed in range(SEEDS)]
    together = TrainingLoop(configs, device=device)
    alone = [TrainingLoop([config], device=device) for config in configs]

    def one_by_one(count: int) -> None:
        for loop in alone:
            loop.advance(count)

    seconds = best_seconds([together.advance, one_by_one], [50, 20])
    ratio = seconds[1] / seconds[0]
    print(f"softmax, depth 4, dim 8, context 16, batch 32, Adam, {SEEDS} seeds, {device}")
    print(f"  {'together':16s} {SEEDS / seconds[0]:8.0f} run-steps/s")
    print(f"  {'one by one':16s} {SEEDS / seconds[1]:8.0f} run-steps/s")
    print(f"  ratio            {ratio:8.2f}   (goal >= {10 if device == 'cuda' else 3})")
    return ratio


def cost_table() -> None:
    """Print milliseconds a step against depth, context, dim and batch, with the exponent of each by least squares."""
    fields = {
        "model.depth": [4, 8, 16, 32],
        "task.context": [16, 32, 64, 128],
        "task.spectrum.dim": [8, 16, 32, 64],
        "training.batch": [64, 128, 256, 512],
    }
    print("cost of a step, ms (exponent: slope of log cost on log size)")
    for attention in ("linear", "softmax"):
        base = linear_config(**{"model.attention": attention, "task.context": 64, "training.batch": 128})
        base = base.override({"task.spectrum.dim": 16, "model.depth": 4})
        for field, sizes in fields.items():
            loops = [TrainingLoop([base.override({field: size})]).advance for size in sizes]
            cost = best_seconds(loops, [5] * len(sizes))
            slope = np.polyfit(np.log(sizes), np.log(cost), 1)[0]
            cells = "  ".join(f"{size}: {1e3 * each:.2f}" for size, each in zip(sizes, cost, strict=True))
            print(f"  {attention:8s} {field.split('.')[-1]:8s} {slope:+.2f}   {cells}")


def main() -> None:
    """Print the three tables."""
    against_jax()
    many_seeds()
    if torch.cuda.is_available():
        many_seeds("cuda")
    cost_table()


if __name__ == "__main__":
    main()
