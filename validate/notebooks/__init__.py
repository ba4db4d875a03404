"""Notebooks and derivation pages, generated from the verified derivations and one short script each."""

from __future__ import annotations

# Names in reading order: the overview, then one for each derivation.
OVERVIEW = "overview"
