"""Derivations, built and verified with sympy, from which formulas, functions and notebooks are generated."""
