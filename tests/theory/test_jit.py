import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PROGRAM = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    from theory.kernels import tied_sums
    value = tied_sums(np.ones(3), np.ones(3), 0.5, 1)[0]
ours = [w for w in caught if "compiled kernels" in str(w.message)]
print(value, len(ours), len(caught))
"""


def _run(package_root: Path, environment: dict[str, str], command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, sys.executable, "-c", PROGRAM],
        cwd=package_root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _copy(tmp_path: Path) -> Path:
    copy = tmp_path / "installed"
    shutil.copytree(ROOT / "theory", copy / "theory", ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_read_only_package_without_home_compiles_into_a_temporary_folder_with_one_warning(tmp_path):
    copy = _copy(tmp_path)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    folders = [copy, *(p for p in copy.rglob("*") if p.is_dir())]
    command: list[str] = []
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(temporary), "HOME": str(tmp_path / "missing" / "home")}
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere, and setpriv is not here to give that up")
        # Root ignores permissions unless it drops the capability to.
        command = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-dac_override"]
    (tmp_path / "missing").mkdir()
    for folder in [*folders, tmp_path / "missing"]:
        folder.chmod(0o555)
    try:
        done = _run(copy, environment, command)
    finally:
        for folder in [*folders, tmp_path / "missing"]:
            folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    value, ours, every = done.stdout.split()
    assert float(value) == 0.75
    assert (int(ours), int(every)) == (1, 1)
    assert list(temporary.rglob("*.nbi"))
    assert not list(copy.rglob("*.nbi"))


def test_writable_package_caches_beside_itself_in_silence(tmp_path):
    copy = _copy(tmp_path)
    done = _run(copy, {"PATH": os.environ["PATH"]}, [])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1:] == ["0", "0"]
    assert list((copy / "theory" / "__pycache__").glob("*.nbi"))


def test_temporary_cache_of_someone_else_is_not_used(tmp_path, monkeypatch):
    import tempfile

    from theory import jit

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = jit._temporary_cache()
    assert own == jit._temporary_cache()
    own.chmod(0o777)
    other = jit._temporary_cache()
    assert other != own
    assert other.stat().st_mode & 0o777 == 0o700
