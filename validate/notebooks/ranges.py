"""What each number of a notebook's first cell may be: outside, a cell would fail or draw nonsense."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from theory.checks import integer, real

Value = int | float


@dataclasses.dataclass(frozen=True)
class Whole:
    """A whole number of at least ``minimum``, and more than the parameter ``above`` of the same notebook."""

    minimum: int = 1
    above: str | None = None

    def check(self, name: str, value: Value, others: Mapping[str, Value]) -> int:
        """Return ``value`` as an int, or raise ``ValueError``."""
        low = self.minimum if self.above is None else max(self.minimum, int(others[self.above]) + 1)
        return integer(name, value, minimum=low)


@dataclasses.dataclass(frozen=True)
class Real:
    """A number from ``low`` to ``high``; ``open_end`` leaves out the high end."""

    low: float
    high: float
    open_end: bool = False

    def check(self, name: str, value: Value, _: Mapping[str, Value]) -> float:
        """Return ``value`` as a float, or raise ``ValueError``."""
        if self.open_end:
            return real(name, value, minimum=self.low, below=self.high)
        return real(name, value, minimum=self.low, maximum=self.high)


SEED = {"seed": Whole(0)}
# Beyond these, weak modes lie below the rounding of the strong ones.
POWER_LAW = {"capacity": Real(0.1, 4), "source": Real(0.1, 4)}

RANGES: dict[str, dict[str, Whole | Real]] = {
    "overview": {
        **POWER_LAW,
        **SEED,
        "dim": Whole(2),
        "context": Whole(),
        "deepest": Whole(2),
        "layers_seen": Whole(2),  # a standard error needs two
    },
    "residual_recursion": {
        **POWER_LAW,
        **SEED,
        "dim": Whole(),
        "context": Whole(),
        "label_noise": Real(0, 100),
        "contexts": Whole(2),
    },
    "population_loss": {
        **POWER_LAW,
        **SEED,
        "dim": Whole(2),  # entries off the diagonal
        "first_gain": Real(0, 10),
        "second_gain": Real(0, 10),
        "rotations": Whole(2),
    },
    "gradient_flow": {
        **POWER_LAW,
        **SEED,
        "dim": Whole(),
        "depth": Whole(2),  # layers that can part
        "breaking": Real(1e-10, 0.01),
        "horizon": Real(10, 1e12),
    },
    "asymptotics": {
        **POWER_LAW,
        **SEED,
        "dim": Whole(10),
        "deepest": Whole(2),
        "trained_dim": Whole(2),
        "steps": Whole(10),
    },
    "untied_optimum": {
        **POWER_LAW,
        **SEED,
        "dim": Whole(5, above="deepest"),  # as many layers as modes leave no loss
        "deepest": Whole(4),
        "starts": Whole(),
    },
    "marchenko_pastur": {
        **SEED,
        "dim": Whole(10),
        "draws": Whole(25),  # as many samples as a standard error of the theory needs
        "ratio": Real(0.1, 20),  # of 10 covariates, at least one token
        "deepest": Whole(),
    },
    "depth_laws": {
        **SEED,
        "deepest": Whole(8),  # the right picture begins at 4
        "correlation": Real(0, 1),
        "memory": Real(0, 1, open_end=True),
        "rate": Real(0.01, 3),
        "spread": Real(0.01, 3),
        "samples": Whole(2),
    },
    "kernel_view": {
        **SEED,
        "strength": Real(0.01, 5),
        "largest_context": Whole(64),  # the shortest is 32
        "contexts": Whole(2),
        "kernel_dim": Whole(2),
        "kernel_tokens": Whole(4),
        "kernel_strength": Real(0.01, 5),
    },
}
