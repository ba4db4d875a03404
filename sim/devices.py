"""Where a run computes: the device asked for, checked before any work, and what it was, for the record."""

from __future__ import annotations

import platform
from typing import Any

import torch

from theory.checks import reject


def choose_device(device: str) -> torch.device:
    """Return the device for ``auto`` (CUDA where there is one), ``cpu``, ``cuda`` or ``cuda:N``.

    Raises
    ------
    ValueError
        If the name is another, or there is no such CUDA device.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not (kind == "cuda" and index.isdigit())):
        raise reject("device", device, "one of auto, cpu, cuda, cuda:N")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= count:
            found = f"{count} CUDA devices are" if count else "no CUDA device is"
            raise ValueError(f"device={device!r}: {found} here; must be a device that is, or auto")
    return torch.device(device)


def describe_device(device: torch.device) -> dict[str, Any]:
    """Return what a report says of the hardware: device, its name, torch version, threads."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "device": str(device),
        "device_name": name,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
    }
