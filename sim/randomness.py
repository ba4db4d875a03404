"""Random draws of a group of runs: one explicit generator a run, results stacked along a leading run axis."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


class Source:
    """The generators of one stream (``start``, ``data``, ``eval`` …) of R runs.

    Each run's numbers depend on its own seed and the stream's name alone, never on the runs beside it.

    Parameters
    ----------
    seeds : sequence of int
        One a run.
    stream : str
        Streams of other names are independent.
    device : torch.device
        Where the numbers are wanted.
    dtype : torch.dtype
        Their type.
    on_cpu : bool
        Make them on the CPU all the same, so that every device sees the same numbers.
    """

    def __init__(
        self, seeds: Sequence[int], stream: str, device: torch.device, dtype: torch.dtype, *, on_cpu: bool = False
    ) -> None:
        self.device = device
        self.dtype = dtype
        self._made_on = torch.device("cpu") if on_cpu else device
        self._generators = [torch.Generator(self._made_on).manual_seed(_mix(seed, stream)) for seed in seeds]

    @property
    def runs(self) -> int:
        """R."""
        return len(self._generators)

    def normal(self, *shape: int) -> Tensor:
        """Return independent N(0, 1) entries, shape (R, *shape)."""
        out = torch.empty((self.runs, *shape), device=self._made_on, dtype=self.dtype)
        for own, generator in zip(out, self._generators, strict=True):
            own.normal_(generator=generator)
        return out.to(self.device)

    def signs(self, *shape: int) -> Tensor:
        """Return independent entries +1 or -1, shape (R, *shape)."""
        out = torch.empty((self.runs, *shape), device=self._made_on, dtype=self.dtype)
        for own, generator in zip(out, self._generators, strict=True):
            own.random_(0, 2, generator=generator)
        return out.to(self.device).mul_(2).sub_(1)

    def index(self, count: int, *shape: int) -> Tensor:
        """Return independent whole numbers, uniform on 0 … count - 1, shape (R, *shape)."""
        out = torch.empty((self.runs, *shape), device=self._made_on, dtype=torch.long)
        for own, generator in zip(out, self._generators, strict=True):
            own.random_(0, count, generator=generator)
        return out.to(self.device)

    def chi(self, freedom: Tensor, *shape: int) -> Tensor:
        """Return chi variables with ``freedom`` (k,) degrees of freedom, shape (R, *shape, k)."""
        half = (freedom.to(self._made_on, self.dtype) / 2).expand(*shape, -1).contiguous()
        drawn = [torch._standard_gamma(half, generator=generator) for generator in self._generators]
        return torch.stack(drawn).mul_(2).sqrt_().to(self.device)

    def state(self) -> list[Tensor]:
        """Return each generator's state: where its stream stands."""
        return [generator.get_state() for generator in self._generators]

    def set_state(self, states: Sequence[Tensor]) -> None:
        """Go on from where ``state`` stood."""
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)


def _mix(seed: int, stream: str) -> int:
    """Return a 63-bit seed in which neighbouring seeds and streams share nothing."""
    return int.from_bytes(hashlib.sha256(f"{stream}:{seed}".encode()).digest()[:8], "big") >> 1
