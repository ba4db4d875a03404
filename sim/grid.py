"""A sweep as a TOML file: a base config, lists of values for any of its fields, and extra runs. Knows no torch."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.code_version import code_version
from sim.config import RunConfig
from theory.checks import reject
from theory.results import plain

# More runs than this in one file is a slip, not a wish.
MOST_RUNS = 1_000_000
_TABLES = ("base", "grid", "extra")
Fields = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """One run of a sweep.

    Parameters
    ----------
    digest : str
        Sixteen hex digits of the hash of config and code version: the run's name in a store.
    fields : dict
        What the file asks for, by dotted name.
    config : RunConfig or None
        ``None`` if the fields make no config.
    error : str
        Why they do not.
    """

    digest: str
    fields: Fields
    config: RunConfig | None
    error: str = ""


def run_digest(config: RunConfig) -> str:
    """Return the name of a run of ``config`` by the code at hand."""
    return _hash(config.digest)


def read_grid(path: str | os.PathLike[str]) -> list[Plan]:
    """Return the runs that a TOML file asks for, in its order, each once.

    ``[base]`` holds the sections of a :class:`sim.RunConfig`; ``[grid]`` a list of values for each field to vary, all
    combinations being run; each ``[[extra]]`` holds fields that replace the base's, with a ``grid`` of its own if it
    likes. ``"none"``, and ``inf`` for the context, stand for None, which TOML lacks.

    Raises
    ------
    ValueError
        If the file is not TOML, has another table, a field is unknown, a grid entry is not a list, or no combination
        makes a config. Combinations that are refused while others stand come back with their error.
    OSError
        If it cannot be read.
    """
    text = Path(path).read_bytes()
    try:
        document = tomllib.loads(text.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    if not document:
        raise ValueError(f"{path}: must have a table [base], [grid] or [[extra]]")
    try:
        return plan_runs(document)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def plan_runs(document: Mapping[str, Any]) -> list[Plan]:
    """Return the runs of a sweep given as nested tables; see :func:`read_grid`.

    Raises
    ------
    ValueError
        As there.
    """
    for name in document:
        if name not in _TABLES:
            raise ValueError(f"[{name}] is not a table of a sweep: must be one of base, grid, [[extra]]")
    base = _table("base", document.get("base", {}))
    blocks = []
    if "grid" in document or "extra" not in document:
        blocks.append((base, _table("grid", document.get("grid", {}))))
    extras = document.get("extra", [])
    if not isinstance(extras, list):
        raise reject("extra", extras, "written [[extra]]")
    for number, extra in enumerate(extras, start=1):
        own = dict(_table(f"extra {number}", extra))
        grid = _table(f"grid of extra {number}", own.pop("grid", {}))
        blocks.append((_merged(base, own), grid))
    plans: dict[str, Plan] = {}
    for fields in itertools.chain.from_iterable(_combinations(base, grid) for base, grid in blocks):
        plan = _plan(fields)
        plans.setdefault(plan.digest, plan)
    if all(plan.config is None for plan in plans.values()):
        raise ValueError(next(iter(plans.values())).error)
    return list(plans.values())


def flatten(fields: Mapping[str, Any], prefix: str = "") -> Fields:
    """Return nested tables as one, by dotted name."""
    flat: Fields = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _combinations(base: Fields, grid: Mapping[str, Any]) -> Iterator[Fields]:
    lists = flatten(grid)
    for name, values in lists.items():
        if not isinstance(values, list) or not values:
            raise reject(f"grid.{name}", values, "a list of values, not empty")
    count = math.prod(len(values) for values in lists.values())
    if count > MOST_RUNS:
        raise ValueError(f"the grid has {count} runs: must be at most {MOST_RUNS}")
    for values in itertools.product(*lists.values()):
        fields = copy.deepcopy(base)
        for name, value in zip(lists, values, strict=True):
            _put(fields, name, value)
        yield fields


def _plan(fields: Fields) -> Plan:
    cleaned = _without_stand_ins(fields)
    flat = flatten(cleaned)
    try:
        config = RunConfig.from_dict(cleaned)
    except ValueError as error:
        if "is not a field of" in str(error):
            raise
        text = json.dumps(plain(flat), sort_keys=True)
        return Plan(_hash("refused:" + text), flat, None, str(error))
    return Plan(run_digest(config), flat, config)


def _without_stand_ins(fields: Fields, section: str = "") -> Fields:
    cleaned: Fields = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            cleaned[name] = _without_stand_ins(value, name)
        elif value == "none" or ((section, name) == ("task", "context") and value in ("inf", math.inf)):
            cleaned[name] = None
        else:
            cleaned[name] = value
    return cleaned


def _merged(base: Fields, own: Fields) -> Fields:
    merged = copy.deepcopy(base)
    spectrum = own.get("task", {}).get("spectrum", {})
    if "kind" in spectrum:  # parameters of one kind mean nothing to another
        merged.get("task", {}).pop("spectrum", None)
    if "covariates" in own.get("task", {}):  # nor do those of one law of the covariates
        for name in ("clusters", "spread"):
            merged.get("task", {}).pop(name, None)
    for name, value in flatten(own).items():
        _put(merged, name, value)
    return merged


def _put(fields: Fields, path: str, value: Any) -> None:
    """Set a field by dotted name."""
    *parents, leaf = path.split(".")
    table = fields
    for name in parents:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise reject("field", path, "section.name, such as model.depth")
    table[leaf] = copy.deepcopy(value)


def _table(name: str, value: Any) -> Fields:
    if not isinstance(value, dict):
        raise reject(name, value, "a table")
    return value


def _hash(text: str) -> str:
    return hashlib.sha256(f"{code_version()}:{text}".encode()).hexdigest()[:16]
