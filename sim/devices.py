"""Where a run computes: the device asked for, checked before any work, and what it was, for the record."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
import sys
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


# mallopt's parameter numbers (malloc.h): the heap keeps 512 MiB, grows by 64, and serves blocks up to 32 MiB.
_MALLOPT = {-1: 512 * 2**20, -2: 64 * 2**20, -3: 32 * 2**20}


@functools.cache
def keep_freed_memory() -> None:
    """Let glibc keep freed blocks for the next step instead of handing their pages back to the system.

    A training step frees and asks for the same few megabytes again and again; without this a fifth of its time goes
    to page faults. Elsewhere than on Linux with glibc nothing is done.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL("libc.so.6").mallopt
            for parameter, value in _MALLOPT.items():
                mallopt(parameter, value)
