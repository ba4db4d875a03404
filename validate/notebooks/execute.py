"""Running a notebook from a clean kernel, in a folder of its own, with nothing but the project on its path."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Seconds one cell may take.
CELL_TIMEOUT = 300


def execute(name: str, notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with its outputs, run top to bottom.

    Raises
    ------
    ValueError
        If a cell fails; the message names it.
    """
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    node = nbformat.reads(json.dumps(notebook), as_version=4)
    with tempfile.TemporaryDirectory(prefix="inverse-depth-") as folder:
        options: dict[str, Any] = {"connection_file": os.path.join(folder, "kernel.json")}
        if os.name == "posix":
            # Sockets in our own folder: nothing listens on the network.
            options |= {"transport": "ipc", "ip": os.path.join(folder, "ipc")}
        client = NotebookClient(
            node,
            km=AsyncKernelManager(kernel_name="python3", **options),
            timeout=CELL_TIMEOUT,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        try:
            client.execute(cleanup_kc=True, env=environment(folder))
        except CellExecutionError as error:
            raise ValueError(f"notebook {name}: a cell failed: {error.ename}: {error.evalue}") from None
        except (CellTimeoutError, DeadKernelError) as error:
            raise ValueError(f"notebook {name}: {str(error).splitlines()[0]}") from None
    result: dict[str, Any] = json.loads(nbformat.writes(node))
    result["metadata"] = notebook["metadata"]
    return result


def environment(folder: str) -> dict[str, str]:
    """Return the kernel's environment: the project importable, figures inline, no profile or history touched."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": folder,
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
