"""Power laws: loss against gain, time, depth and compute."""

# %% parameters
dim = 4000  # D, modes kept of the infinite spectrum
capacity = 1.5  # nu
source = 0.75  # beta
deepest = 256  # largest depth L shown
trained_dim = 24  # D of the model that is really trained
steps = 3000  # steps of its training
seed = 0

# %% derivation

# %% [markdown]
# ## Against finite spectra
# Each law with its prefactor, nothing fitted, against sums over `dim` modes.

# %%
import matplotlib.pyplot as plt
import numpy as np

from theory import Spectrum, Task, predict, tied_optimum
from theory.symbolic import derive

formulas = derive("asymptotics").formulas
spectrum = Spectrum.power_law(dim, capacity, source)
task = Task(spectrum)
amplitude = spectrum.signal[0]
gains = np.geomspace(1, dim**capacity / 20, 40)
exact = np.array([np.sum(spectrum.signal * np.exp(-2 * gain * spectrum.eigenvalues)) for gain in gains])
depths = np.unique(np.geomspace(1, deepest, 12).astype(int))
floors = np.array([tied_optimum(task, int(depth)).loss for depth in depths])
times = np.geomspace(10, 1e8, 30)
deep = predict(task, deepest, times=times * deepest).loss

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), dpi=110, layout="constrained")
axes[0].loglog(gains, exact, "o", ms=3, label="sum over modes")
axes[0].loglog(gains, formulas["loss_in_gain"].function(amplitude, capacity, source, gains), label="law")
axes[0].set(xlabel="gain γ", ylabel="loss", title="infinite depth")
axes[1].loglog(times, deep, "o", ms=3, label=f"flow at L = {deepest}")
axes[1].loglog(times, formulas["loss_in_time"].function(amplitude, capacity, source, dim, times), label="law")
axes[1].set(xlabel="time / L", title=f"exponent −β/(2+β) = {-source / (2 + source):.3f}", ylim=(deep.min() / 2, 2))
axes[2].loglog(depths, floors, "o", ms=3, label="tied optimum")
axes[2].loglog(depths, formulas["tied_optimum"].function(amplitude, capacity, source, depths), label="law")
axes[2].set(xlabel="depth L", title=f"exponent −β = {-source:.3f}")
for axis in axes:
    axis.legend(frameon=False)
plt.show()
print(
    "law / tied optimum at the largest depths:",
    np.round(formulas["tied_optimum"].function(amplitude, capacity, source, depths[-3:]) / floors[-3:], 3),
)

# %% [markdown]
# ## Against training
# A small model with a full matrix $\Gamma_l$ in every layer, trained by SGD on freshly rotated population contexts,
# against the flow of one gain.

# %%
depth, batch, rate = 4, 64, 1.0
small = Spectrum.power_law(trained_dim, capacity, source)
rng = np.random.default_rng(seed)
weights = np.zeros((depth, trained_dim, trained_dim))
trained = []
for _ in range(steps):
    rotation = np.linalg.qr(rng.standard_normal((batch, trained_dim, trained_dim)))[0]
    covariance = (rotation * small.eigenvalues) @ rotation.transpose(0, 2, 1)
    task_vector = np.einsum(
        "bij,bj->bi", rotation, np.sqrt(small.task_power) * rng.standard_normal((batch, trained_dim))
    )
    states = [task_vector]
    for matrix in weights:
        pulled = np.einsum("bij,bj->bi", covariance, states[-1])
        states.append(states[-1] - pulled @ matrix.T / depth)
    back = 2 * np.einsum("bij,bj->bi", covariance, states[-1])
    trained.append(np.einsum("bi,bi->b", states[-1], back).mean() / 2)
    for index in reversed(range(depth)):
        pulled = np.einsum("bij,bj->bi", covariance, states[index])
        slope = -np.einsum("bi,bj->ij", back, pulled) / (depth * batch)
        back = back - np.einsum("bij,bj->bi", covariance, back @ weights[index]) / depth
        weights[index] -= rate * slope
prediction = predict(Task(small), depth, method="sgd", learning_rate=rate, steps=range(steps))
window = max(1, steps // 100)
kernel = np.ones(window) / window
middle = np.arange(steps - window + 1) + (window + 1) / 2
figure, axis = plt.subplots(figsize=(6, 3.8), dpi=110, layout="constrained")
axis.loglog(middle, np.convolve(trained, kernel, "valid"), label=f"SGD on full matrices, mean of {window} steps")
axis.loglog(middle, np.convolve(prediction.loss, kernel, "valid"), "k--", lw=1, label="theory, one gain, same mean")
axis.set(xlabel="step", ylabel="loss")
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Exercises
# 1. Lower `dim` to 100. At which gain does the truncation show, and why at $D^\nu$?
# 2. Which split of compute between depth and time is best at `source=1`? Derive the exponent of depth in compute.
# 3. The tied optimum approaches its law like $\log L/L$. Check it with the depths you can afford.
