"""The project's habits, checked: imports, public lists, docstrings, file lengths, tolerances, docs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT

PACKAGES = ("theory", "sim", "validate")
MAY_IMPORT = {"theory": {"theory"}, "sim": {"theory", "sim"}, "validate": {"theory", "sim", "validate"}}
LONGEST_FILE = 450
TOLERANCE_WORDS = {"rtol", "atol", "rel", "abs"}
# Solvers used as independent references take their own accuracy settings.
SOLVERS = {"solve_ivp", "quad", "minimize", "least_squares", "fsolve", "root", "brentq"}


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def module_of(package: str) -> ModuleType:
    return importlib.import_module(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str) -> None:
    for path in sources(package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            roots = {name.split(".")[0] for name in names} & set(PACKAGES)
            assert roots <= MAY_IMPORT[package], f"{path}: imports {roots - MAY_IMPORT[package]}"


def test_importing_is_light_and_silent() -> None:
    code = (
        "import sys, theory, sim, validate\n"
        "theory.Spectrum, theory.Task\n"
        "print(sorted({'torch', 'sympy', 'matplotlib', 'pandas', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys\n"
        "from validate.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as stop:\n    assert stop.code == 0\n"
        "heavy = {'torch', 'sympy', 'matplotlib', 'pandas', 'numba', 'scipy', 'lmfit'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_resolve_and_are_documented(package: str) -> None:
    module = module_of(package)
    assert len(module.__all__) == len(set(module.__all__))
    for name in module.__all__:
        home = module._HOME[name]
        assert importlib.util.find_spec(f"{package}.{name}") is None, f"{package}.{name} is a module too"
        item = getattr(module, name)
        assert inspect.getdoc(item), f"{package}.{name} has no docstring"
        if inspect.isfunction(item):
            assert item.__module__.split(".")[0] == package
            assert "return" in item.__annotations__, f"{package}.{name} has no return annotation"
        assert home.startswith(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_functions_say_what_they_raise(package: str) -> None:
    """A public function that raises in its own body says so in its docstring."""
    module = module_of(package)
    for name in module.__all__:
        item = getattr(module, name)
        if not inspect.isfunction(item):
            continue
        raises = any(isinstance(node, ast.Raise) for node in ast.walk(ast.parse(_source(item))))
        if raises:
            assert re.search(r"^\s*Raises$", item.__doc__ or "", re.MULTILINE), f"{package}.{name}: no Raises section"


def _source(item: object) -> str:
    return inspect.cleandoc("\n" + inspect.getsource(item))  # type: ignore[arg-type]


def test_files_hold_one_idea() -> None:
    for path in sources(*PACKAGES, "tests", "benchmarks"):
        length = len(path.read_text(encoding="utf-8").splitlines())
        assert length <= LONGEST_FILE, f"{path}: {length} lines"


def test_no_unfinished_business() -> None:
    words = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
    for path in [
        *sources(*PACKAGES, "tests", "benchmarks"),
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]:
        assert not words.search(path.read_text(encoding="utf-8")), path


def test_tolerances_have_names() -> None:
    """In a test, rtol=, atol=, rel= and abs= take a name from tests/tolerances.py or the test, never a bare number."""
    for path in sources("tests"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if function in SOLVERS:
                continue
            for keyword in call.keywords:
                if keyword.arg in TOLERANCE_WORDS:
                    named = any(isinstance(part, ast.Name) for part in ast.walk(keyword.value))
                    zero = isinstance(keyword.value, ast.Constant) and keyword.value.value == 0
                    assert named or zero, f"{path}:{call.lineno}: {keyword.arg} is a bare number"


def test_the_list_of_files_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_files", ROOT / "docs" / "make_files.py")
    assert spec is not None
    assert spec.loader is not None
    make_files = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_files)
    assert (ROOT / "docs" / "files.md").read_text(encoding="utf-8") == make_files.render(), (
        "docs/files.md is stale: run python docs/make_files.py"
    )


@pytest.mark.parametrize("name", importlib.import_module("validate.cli.app").SUBCOMMANDS)
def test_every_subcommand_shows_an_example(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "validate.cli", name, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Example" in done.stdout
