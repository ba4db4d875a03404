"""Gradient flow: layers that start equal, and how noise tells them apart."""

# %% parameters
dim = 32  # D
depth = 3  # L
capacity = 1.0  # nu
source = 1.0  # beta
breaking = 1e-4  # size of the random differences between layers at the start
horizon = 1e7  # last time
seed = 0

# %% derivation

# %% [markdown]
# ## Against a simulation
# All gains are trained by the equations of motion, from a start that is equal but for tiny random differences. The
# theory for tied gains knows of no differences; its conserved quantity says how fast they grow.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

from theory import Spectrum, Task, population_loss, predict, tied_optimum, untied_floor
from theory.symbolic import derive

spectrum = Spectrum.power_law(dim, capacity, source)
task = Task(spectrum)
formulas = derive("gradient_flow").formulas
force = formulas["force"].compiled
eigenvalues, power = spectrum.eigenvalues, spectrum.task_power
rng = np.random.default_rng(seed)
start = breaking * rng.standard_normal(depth)


def motion(_: float, gains: np.ndarray) -> list[float]:
    """All layers' forces."""
    return [force(eigenvalues, power, gains, layer, dim, depth) for layer in range(1, depth + 1)]


times = np.geomspace(1, horizon, 200)
path = solve_ivp(motion, (0, horizon), start, t_eval=times, method="LSODA", rtol=1e-10, atol=1e-12)
untied = np.array([population_loss(spectrum, gains) for gains in path.y.T])
tied = predict(task, depth, times=times)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), dpi=110, layout="constrained")
left.loglog(times, tied.loss, label="tied theory")
left.loglog(times, untied, "--", label="untied, from a nearly equal start")
left.axhline(tied_optimum(task, depth).loss, color="0.6", lw=0.8)
left.axhline(untied_floor(task, depth).loss, color="0.3", lw=0.8)
left.text(1, tied_optimum(task, depth).loss * 1.06, "tied optimum", fontsize=8, color="0.4")
left.text(1, untied_floor(task, depth).loss * 1.06, "untied floor", fontsize=8, color="0.2")
left.set(xlabel="time t", ylabel="loss")
left.legend(frameon=False)
for layer in range(depth):
    right.semilogx(times, path.y[layer], label=f"γ{layer + 1}")
right.set(xlabel="time t", ylabel="gains")
right.legend(frameon=False)
plt.show()

# %% [markdown]
# The difference between the first two layers against the law $\delta^{2L-1} F = \mathrm{const}$, while it is small:

# %%
difference = np.abs(path.y[0] - path.y[1])
mean = path.y.mean(axis=0)
signed = np.array([np.sum(eigenvalues**2 * power * (1 - g * eigenvalues / depth) ** (2 * depth - 1)) for g in mean])
law = abs(start[0] - start[1]) * (np.sum(eigenvalues**2 * power) / signed.clip(1e-300)) ** (1 / (2 * depth - 1))
limit = max(0.02, 2 * difference[0])
small = (difference < limit) & (signed > 0)
print(
    f"largest deviation from the law while the difference is below {limit:.2g}: "
    f"{np.abs(difference[small] / law[small] - 1).max():.2%}"
)

# %% [markdown]
# ## Exercises
# 1. How does the time of separation depend on `breaking`? Try 1e-2, 1e-4, 1e-6.
# 2. Set `depth=2`: by how much does the power of $F$ in the law of the difference change the time of separation?
# 3. The Hessian has $L - 1$ equal negative eigenvalues. What symmetry makes them equal?
