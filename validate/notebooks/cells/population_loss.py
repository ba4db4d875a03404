"""The population loss, and why rotations leave one gain a layer."""

# %% parameters
dim = 8  # D
capacity = 1.2  # nu
source = 0.8  # beta
first_gain = 1.5  # gamma_1
second_gain = 0.7  # gamma_2
rotations = 4000  # random rotations in the simulation
seed = 0

# %% derivation

# %% [markdown]
# ## Against a simulation
# The gradient of the loss with respect to every entry of $\Gamma_1$ is averaged over random rotations. Theory says:
# $1/D$ of the derivative with respect to the gain on the diagonal, nothing off it.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import ortho_group

from theory import Spectrum, population_loss
from theory.symbolic import derive

spectrum = Spectrum.power_law(dim, capacity, source)
gains = np.array([first_gain, second_gain])
rotation = ortho_group.rvs(dim, size=rotations, random_state=seed)
eigenvalues, power = spectrum.eigenvalues, spectrum.task_power
covariance = (rotation * eigenvalues) @ rotation.transpose(0, 2, 1)
task = (rotation * power) @ rotation.transpose(0, 2, 1)
first, second = (np.eye(dim) - gain * covariance / 2 for gain in gains)
# d/d Gamma_1 of tr(Omega v^T Sigma v), v = second first: the chain rule on matrices.
gradient = -(second @ covariance @ second @ first @ task @ covariance).mean(axis=0)
gradient = (gradient + gradient.T) / 2
step = np.array([1e-5, 0])
slope = (population_loss(spectrum, gains + step) - population_loss(spectrum, gains - step)) / (2 * step[0])
print(f"mean diagonal entry x D: {gradient.trace():.6f}   d loss / d gamma_1: {slope:.6f}")
print(f"spread of the diagonal / mean: {np.std(np.diag(gradient)) / abs(np.diag(gradient).mean()):.3f}")
print(
    f"largest entry off the diagonal / mean diagonal: "
    f"{np.abs(gradient - np.diag(np.diag(gradient))).max() / abs(np.diag(gradient).mean()):.3f}"
)

# %%
loss = derive("population_loss").formulas["tied"].function
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), dpi=110, layout="constrained")
shown = left.imshow(gradient / slope * dim, cmap="RdBu", vmin=-1, vmax=1)
left.set(title="gradient × D / (d loss / dγ₁)", xlabel="column", ylabel="row")
figure.colorbar(shown, ax=left, shrink=0.8)
for depth in (1, 2, 4, 16):
    grid = np.linspace(0, 2.2 * depth, 200)
    right.plot(grid, [loss(eigenvalues, power, gain, dim, depth) for gain in grid], label=f"L = {depth}")
right.set(xlabel="gain γ", ylabel="population loss", xscale="symlog", ylim=(0, 1.1), title="One gain for all layers")
right.legend(frameon=False, loc="center left")
plt.show()

# %% [markdown]
# ## Exercises
# 1. Raise `rotations` tenfold. How fast do the entries off the diagonal fall?
# 2. Replace the Haar rotations by permutations without signs. Which entries survive, and what would $\Gamma$ learn?
# 3. In a fixed eigenbasis (no rotations) each mode has its own gain. What is the lowest loss at depth 1?
