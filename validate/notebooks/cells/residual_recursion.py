"""The residual recursion: what a layer of linear attention does."""

# %% parameters
dim = 16  # D, covariates
context = 32  # P, labelled tokens
capacity = 1.0  # nu: eigenvalues k^-nu
source = 1.0  # beta: signal k^-(nu beta + 1)
label_noise = 0.1  # sigma^2
contexts = 2000  # contexts in the simulation
seed = 0

# %% derivation

# %% [markdown]
# ## Against a simulation
# Labels are moved through real attention layers, token by token. The line is the theory's Wishart average, which draws
# no tokens: only the residual polynomial and the spectrum enter.

# %%
import matplotlib.pyplot as plt
import numpy as np

from theory import Spectrum, Task, quadratic_loss

task = Task(Spectrum.power_law(dim, capacity, source), context=context, label_noise=label_noise)
rng = np.random.default_rng(seed)
scale, power = np.sqrt(task.spectrum.eigenvalues), np.sqrt(task.spectrum.task_power)
tokens = rng.standard_normal((contexts, context, dim)) * scale
query = rng.standard_normal((contexts, dim)) * scale
weight = rng.standard_normal((contexts, dim)) * power
noise = np.sqrt(label_noise) * rng.standard_normal((contexts, context))
labels = np.einsum("cpd,cd->cp", tokens, weight) + noise
scores = np.einsum("cpd,cqd->cpq", tokens, tokens) / context
query_scores = np.einsum("cpd,cd->cp", tokens, query) / context
truth = np.einsum("cd,cd->c", query, weight)


def attention_losses(gain: float, depth: int) -> np.ndarray:
    """Losses of all contexts after ``depth`` layers with equal gains: the layers themselves, no theory."""
    label, query_label = labels, np.zeros(contexts)
    for _ in range(depth):
        moved = np.einsum("cpq,cq->cp", scores, label)
        query_label = query_label - gain / depth * np.einsum("cp,cp->c", query_scores, label)
        label = label - gain / depth * moved
    return (truth + query_label) ** 2


figure, axis = plt.subplots(figsize=(6.5, 4), dpi=110, layout="constrained")
for depth in (1, 2, 4, 8):
    theory = quadratic_loss(task, depth, seed=seed)
    gains = np.linspace(0, 1.8 * depth**0.7, 60)
    (line,) = axis.plot(gains, [theory.value([gain] * depth) for gain in gains], label=f"L = {depth}")
    some = gains[5::9]
    losses = np.array([attention_losses(gain, depth) for gain in some])
    error = losses.std(axis=1) / np.sqrt(contexts)
    axis.errorbar(some, losses.mean(axis=1), 2 * error, fmt="o", ms=4, color=line.get_color())
axis.set(xlabel="gain γ", ylabel="loss", ylim=(0, 1.2), title="Lines: theory. Points: attention layers, ± 2 s.e.")
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Exercises
# 1. Set `label_noise=0`. Which depth gains most, and why does the minimum move to larger gains?
# 2. Give the layers different gains that keep their sum. For which spectra does the loss fall?
# 3. The noise response is $(1 - q(x))/x$. Show that at $L \to \infty$ it becomes $(1 - e^{-\gamma x})/x$, and compare
#    it with ridge regression of ridge $1/\gamma$.
