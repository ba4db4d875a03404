"""How loss falls with depth in attention: the whole story."""

# %% parameters
dim = 64  # D
context = 128  # P, labelled tokens
capacity = 1.25  # nu: eigenvalues k^-nu
source = 0.75  # beta: signal k^-(nu beta + 1)
deepest = 32  # largest depth L
layers_seen = 400  # simulated models for the averaging law
seed = 0

# %% [markdown]
# ## The question
# A deep attention model reads a prompt of labelled examples and predicts the label of a query. How does its loss fall
# with its depth, and why? Two answers meet:
#
# - **Linear attention** weighs tokens by fixed inner products. It learns strong directions of the data first and weak
#   ones later, so its law is tied to the data's spectrum.
# - **Nonlinear attention** can choose tokens. The claim under test is that its loss then falls like
#   $L_\infty + c/L$ whatever the spectrum: errors that all layers share set the plateau, errors of their own average out.
#
# This notebook walks through what the package derives. Each part has its own notebook with every step verified.
#
# ## 1. What a layer does
# In the reduced model labels travel and covariates stay. A layer multiplies the *residual weight* (what of the task is
# not yet learned) by $I - \Gamma_l \hat\Sigma / L$. See `residual_recursion`.

# %%
import matplotlib.pyplot as plt
import numpy as np

from theory import Spectrum, Task, predict, tied_optimum, untied_floor
from theory.symbolic import derive

print(derive("residual_recursion"))

# %% [markdown]
# ## 2. One gain a layer
# Random rotations of the data leave one number a layer, its gain (`population_loss`). Trained from zero, equal gains
# stay equal but for noise (`gradient_flow`), and the loss follows a curve that needs no fitting:

# %%
spectrum = Spectrum.power_law(dim, capacity, source)
times = np.geomspace(1, 1e7, 60)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.9), dpi=110, layout="constrained")
for depth in (1, 2, 4, 8, 16):
    left.loglog(times, predict(Task(spectrum), depth, times=times).loss, label=f"L = {depth}")
left.set(xlabel="time", ylabel="loss", title="Infinite context, tied gains")
left.legend(frameon=False)
depths = np.unique(np.geomspace(1, deepest, 9).astype(int))
population, sampled = Task(spectrum), Task(spectrum, context=context)
for name, floor, style in (("tied", tied_optimum, "o-"), ("untied", untied_floor, "s-")):
    right.loglog(
        depths, [floor(population, int(L)).loss for L in depths], style, ms=4, label=f"{name}, infinite context"
    )
    right.loglog(
        depths,
        [floor(sampled, int(L), samples=200, seed=seed).loss for L in depths],
        style,
        ms=4,
        alpha=0.5,
        label=f"{name}, P = {context}",
    )
right.set(xlabel="depth L", ylabel="lowest loss", ylim=(1e-4, 1))
right.set_xticks(depths, [f"{depth}" for depth in depths])
right.minorticks_off()
right.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# ## 3. The laws of linear attention
# On a power-law spectrum the best tied loss falls like $L^{-\beta}$ (`asymptotics`), the best untied one faster
# (`untied_optimum`), and on isotropic data with few tokens like a geometric sum in $P/D$ (`marchenko_pastur`). All of
# them depend on the spectrum.

# %%
formulas = derive("asymptotics").formulas
long = Task(Spectrum.power_law(4000, capacity, source))
law = formulas["tied_optimum"].function(long.spectrum.signal[0], capacity, source, depths)
print("depth      ", *(f"{depth:9d}" for depth in depths))
print("tied       ", *(f"{tied_optimum(long, int(depth)).loss:9.4f}" for depth in depths))
print("its law    ", *(f"{value:9.4f}" for value in law))
print("untied     ", *(f"{untied_floor(long, int(depth)).loss:9.1e}" for depth in depths))

# %% [markdown]
# ## 4. What nonlinearity can change
# On an infinite Gaussian context softmax attention reads out exactly what linear attention does (`kernel_view`). It can
# act only through a finite context, through data that are not Gaussian, or by moving the covariates too.

# %%
rng = np.random.default_rng(seed)
lengths = np.unique(np.geomspace(16, 4096, 9).astype(int))
figure, axis = plt.subplots(figsize=(6, 3.6), dpi=110, layout="constrained")
for strength in (0.5, 1.0, 1.5):
    mean = []
    for length in lengths:
        tokens = rng.standard_normal((500, length))
        weight = np.exp(strength * tokens)
        mean.append(((weight * tokens).sum(axis=1) / weight.sum(axis=1)).mean())
    (line,) = axis.semilogx(lengths, mean, "o-", ms=4, label=f"softmax, score strength {strength:g}")
    axis.axhline(strength, color=line.get_color(), lw=0.8, ls="--")
axis.set(xlabel="context length P", ylabel="readout", title="Dashed: linear attention")
axis.legend(frameon=False, fontsize=8, loc="center right")
plt.show()

# %% [markdown]
# ## 5. Averaging over layers
# If layers err independently, apart from what they share, the loss is a plateau plus $c/L$ (`depth_laws`). Simulated
# layers with a shared error of variance 0.2:

# %%
share = 0.2
errors = np.sqrt(share) * rng.standard_normal((layers_seen, 1)) + np.sqrt(1 - share) * rng.standard_normal(
    (layers_seen, deepest)
)
squares = np.array([errors[:, :depth].mean(axis=1) ** 2 for depth in depths])
figure, axis = plt.subplots(figsize=(6, 3.6), dpi=110, layout="constrained")
axis.errorbar(depths, squares.mean(axis=1), 2 * squares.std(axis=1) / np.sqrt(layers_seen), fmt="o", label="simulated")
fine = np.linspace(1, deepest, 200)
axis.plot(fine, derive("depth_laws").formulas["exchangeable"].function(1.0, share, fine), label="plateau + c/L")
axis.axhline(share, color="0.6", ls="--", lw=0.8)
axis.set(xlabel="depth L", ylabel="loss", xscale="log")
axis.set_xticks(depths, [f"{depth}" for depth in depths])
axis.minorticks_off()
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# ## What would decide
# The two answers differ in what the exponent depends on. For linear attention it moves with the spectrum; for averaging
# it is 1 at any spectrum, and the errors of single layers, measured by probes, must be as weakly correlated as the fitted
# plateau says. Trained models decide; `inverse-depth reproduce` trains them and reports each claim with its numbers.
#
# ## Exercises
# 1. Change `source`. Which curves of the second picture change their slope?
# 2. Set `context=16`, below `dim`. Why do deep models stop improving?
# 3. Find a `capacity` and `source` for which the untied floor looks like $1/L$ over this range of depths.
