"""Marchenko–Pastur: isotropic data, finite context, every depth."""

# %% parameters
dim = 100  # D of the simulation
draws = 40  # sample covariances drawn
ratio = 1.5  # alpha = P / D of the histogram
deepest = 12  # largest depth L
seed = 0

# %% derivation

# %% [markdown]
# ## Against drawn covariances
# Eigenvalues of sample covariances against the density; the untied optimum at finite size against its limit.

# %%
import matplotlib.pyplot as plt
import numpy as np

from theory import Spectrum, Task, untied_floor
from theory.symbolic import derive

formulas = derive("marchenko_pastur").formulas
rng = np.random.default_rng(seed)
context = round(ratio * dim)
tokens = rng.standard_normal((draws, dim, context))
values = np.linalg.eigvalsh(tokens @ tokens.transpose(0, 2, 1) / context).ravel()
print(f"tr S^2 / D: drawn {np.mean(values**2):.4f}, exact {formulas['second_moment'].function(dim, context):.4f}")
print(f"tr S^3 / D: drawn {np.mean(values**3):.4f}, exact {formulas['third_moment'].function(dim, context):.4f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), dpi=110, layout="constrained")
alpha = context / dim
low, high = (1 - alpha**-0.5) ** 2, (1 + alpha**-0.5) ** 2
grid = np.linspace(low, high, 400)[1:-1]
left.hist(
    values[values > 1e-9],
    bins=50,
    weights=np.full((values > 1e-9).sum(), 50 / values.size / (high - low)),
    range=(low, high),
    color="0.8",
    label="drawn",
)
left.plot(grid, alpha * np.sqrt((grid - low) * (high - grid)) / (2 * np.pi * grid), label="law")
left.set(xlabel="eigenvalue", ylabel="density")
left.legend(frameon=False)
depths = np.arange(1, deepest + 1)
for share in (0.5, 1.0, 2.0):
    (line,) = right.plot(depths, [formulas["floor"].function(share, depth) for depth in depths], label=f"α = {share:g}")
    for depth in (1, 2, 4, 8):
        if depth <= deepest:
            drawn = untied_floor(
                Task(Spectrum.isotropic(dim), "iso", round(share * dim)), depth, samples=draws, seed=seed
            )
            right.errorbar(depth, drawn.loss, 2 * drawn.standard_error, fmt="o", ms=4, color=line.get_color())
right.set(xlabel="depth L", ylabel="untied optimum", xscale="log", yscale="log", title="Lines: limit. Points: drawn")
right.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
right.minorticks_off()
right.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Exercises
# 1. At $P = D$ the optimum is $1/(L+1)$. How far from it is `dim=20`? Is the difference of order $1/D$?
# 2. With label noise, depth 1 gives $(1+\sigma^2)/(1+\alpha+\sigma^2)$. Find the best gain.
# 3. Why can no depth learn more than a share $\alpha$ of the task when $\alpha < 1$?
