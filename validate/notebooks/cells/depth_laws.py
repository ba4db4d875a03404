"""Depth laws: what averaging over layers leaves."""

# %% parameters
deepest = 64  # largest depth L
correlation = 0.3  # rho of exchangeable layers
memory = 0.7  # r of AR(1) layers
rate = 1.0  # a: h <- h + (a/L) h
spread = 1.0  # s: layers a + s z
samples = 4000  # draws of layer errors
seed = 0

# %% derivation

# %% [markdown]
# ## Against drawn errors
# Layer errors are drawn and averaged; a residual chain is run with identical and with independent layers.

# %%
import matplotlib.pyplot as plt
import numpy as np

from theory.symbolic import derive

formulas = derive("depth_laws").formulas
rng = np.random.default_rng(seed)
depths = np.unique(np.geomspace(1, deepest, 14).astype(int))
own = rng.standard_normal((samples, deepest))
common = rng.standard_normal((samples, 1))
exchangeable = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
chain = np.empty_like(own)
chain[:, 0] = own[:, 0]
for layer in range(1, deepest):
    chain[:, layer] = memory * chain[:, layer - 1] + np.sqrt(1 - memory**2) * own[:, layer]


def averaged(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Loss of the mean of the first L layers, and its standard error, for every depth."""
    squares = np.array([errors[:, :depth].mean(axis=1) ** 2 for depth in depths])
    return squares.mean(axis=1), squares.std(axis=1) / np.sqrt(samples)


figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.9), dpi=110, layout="constrained")
for name, errors, law in (
    (
        f"exchangeable, ρ = {correlation:g}",
        exchangeable,
        lambda L: formulas["exchangeable"].function(1.0, correlation, L),
    ),
    (f"AR(1), r = {memory:g}", chain, lambda L: formulas["autoregressive"].function(1.0, memory, L)),
    ("independent", own, lambda L: formulas["exchangeable"].function(1.0, 0.0, L)),
):
    mean, error = averaged(errors)
    (line,) = left.loglog(depths, [law(depth) for depth in depths], label=name)
    left.errorbar(depths, mean, 2 * error, fmt="o", ms=3, color=line.get_color())
left.set(xlabel="depth L", ylabel="loss", title="Lines: laws. Points: drawn, ± 2 s.e.")
left.set_xticks([1, 4, 16, 64], ["1", "4", "16", "64"])
left.minorticks_off()
left.legend(frameon=False)

deep = depths[depths >= 4]
euler = np.array([((1 + rate / depth) ** depth - np.exp(rate)) ** 2 for depth in deep])
layers = rng.standard_normal((samples, deepest))
random = np.array([np.var(np.prod(1 + (rate + spread * layers[:, :depth]) / depth, axis=1)) for depth in deep])
right.loglog(deep, euler, "o", ms=3, label="identical layers")
right.loglog(deep, formulas["discretisation"].function(rate, deep), color="C0", label=r"$a^4 e^{2a}/(4L^2)$")
right.loglog(deep, random, "s", ms=3, color="C1", label="independent layers")
right.loglog(deep, formulas["independent_layers"].function(rate, spread, deep), color="C1", label="variance, exact")
right.set(xlabel="depth L", ylabel="squared error", title="When 1/L turns into 1/L²")
right.set_xticks([4, 8, 16, 32, 64], ["4", "8", "16", "32", "64"])
right.minorticks_off()
right.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Exercises
# 1. With `memory=0.95`, over which depths would you mistake the law for a smaller exponent?
# 2. Mix the two chains: a shared part and an independent part in each layer. Where does $1/L$ take over from $1/L^2$?
# 3. Which plateau does a fit of $L_\infty + c/L$ report for AR(1) layers with no shared error at all?
