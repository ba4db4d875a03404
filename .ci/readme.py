"""Run the commands of a Markdown file's ```sh blocks in a scratch folder, as a user would paste them.

A block whose info string is `sh no-run` is shown to readers only; make targets have been run already and are left out:
what `make reproduce` left in out/smoke is there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SMOKE = Path("out/smoke")


def commands(text: str) -> list[str]:
    """Return the commands of the runnable blocks, continuation lines joined."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "make "))]


def main(path: str) -> int:
    """Run every command; return 0 if all succeed."""
    listed = commands(Path(path).read_text(encoding="utf-8"))
    if not listed:
        print(f"{path}: no commands to run", file=sys.stderr)
        return 1
    folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as scratch:
        if SMOKE.is_dir():
            shutil.copytree(SMOKE, scratch / SMOKE)
        for command in listed:
            print(f"$ {command}", flush=True)
            status = subprocess.run(["bash", "-c", command], cwd=scratch, env=environment, check=False).returncode
            if status != 0:
                print(f"exit status {status}: {command}", file=sys.stderr)
                return 1
    print(f"{len(listed)} commands of {path} ran")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
