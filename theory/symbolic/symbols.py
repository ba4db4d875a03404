"""The symbols that all derivations share, named as in the code."""

from __future__ import annotations

import sympy as sp

D = sp.Symbol("D", positive=True, integer=True)
P = sp.Symbol("P", positive=True, integer=True)
L = sp.Symbol("L", positive=True, integer=True)
k = sp.Symbol("k", positive=True, integer=True)
l, m, n, j = (sp.Symbol(name, positive=True, integer=True) for name in "lmnj")  # noqa: E741  (the paper's index)
lam = sp.IndexedBase("lambda", positive=True)
omega = sp.IndexedBase("omega", positive=True)
gains = sp.IndexedBase("gamma", real=True)
gamma = sp.Symbol("gamma", positive=True)
time = sp.Symbol("t", positive=True)
sigma2 = sp.Symbol("sigma^2", positive=True)
nu = sp.Symbol("nu", positive=True)
beta = sp.Symbol("beta", positive=True)
alpha = sp.Symbol("alpha", positive=True)
A = sp.Symbol("A", positive=True)
x = sp.Symbol("x", positive=True)
