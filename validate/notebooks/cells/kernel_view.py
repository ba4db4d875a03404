"""The kernel view: where softmax attention must be linear, and where it need not."""

# %% parameters
strength = 0.8  # |u|: how sharp the scores are
largest_context = 4096  # P of the longest context
contexts = 2000  # contexts drawn at each length
kernel_dim = 400  # D of the kernel matrix
kernel_tokens = 800  # P of the kernel matrix
kernel_strength = 1.0  # g: scores exp(g x.y / D)
seed = 0

# %% derivation

# %% [markdown]
# ## Against softmax attention itself
# One query, labels $w x$ in one dimension: the readout over $P$ tokens against its limit, bias and variance; then with
# data that are not Gaussian.

# %%
import matplotlib.pyplot as plt
import numpy as np

from theory.symbolic import derive

formulas = derive("kernel_view").formulas
rng = np.random.default_rng(seed)
lengths = np.unique(np.geomspace(32, largest_context, 6).astype(int))


def softmax_readout(tokens: np.ndarray, u: float) -> np.ndarray:
    """Softmax-weighted mean of the labels, which are the tokens themselves (w = 1)."""
    weight = np.exp(u * tokens)
    return (weight * tokens).sum(axis=-1) / weight.sum(axis=-1)


readouts = [softmax_readout(rng.standard_normal((contexts, length)), strength) for length in lengths]
bias = np.array([np.mean(readout) - strength for readout in readouts])
variance = np.array([np.var(readout) for readout in readouts])

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), dpi=110, layout="constrained")
left.loglog(lengths, variance, "o", ms=4, label="variance, drawn")
left.loglog(
    lengths, formulas["finite_variance"].function(1.0, strength, 1.0) / lengths, color="C0", label="variance, theory"
)
left.errorbar(lengths, -bias, 2 * np.sqrt(variance / contexts), fmt="s", ms=4, color="C1", label="− bias, drawn")
left.loglog(
    lengths, -formulas["finite_bias"].function(1.0, strength, 1.0) / lengths, color="C1", label="− bias, theory"
)
left.set(
    xlabel="context length P", title="Gaussian tokens: softmax tends to linear attention", ylim=(variance.min() / 30, 1)
)
left.legend(frameon=False)
grid = np.linspace(-1, 1, 9)
skewed = rng.exponential(size=(40, largest_context)) - 1
right.plot(grid, [softmax_readout(skewed, 0.5 * u).mean() for u in grid], "o", ms=4, label="exponential tokens, drawn")
right.plot(grid, formulas["not_gaussian"].function(1.0, 2.0, 6.0, 0.5 * grid), label="cumulants, to third order")
right.plot(grid, 0.5 * grid, "--", color="0.6", label="linear attention")
right.set(xlabel="query (score 0.5 × query × token)", ylabel="readout", title="Tokens that are not Gaussian")
right.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Against a kernel matrix
# Exponential scores between all tokens: once constant and linear part are taken away, a multiple of the identity is
# left, the implicit ridge.

# %%
tokens = rng.standard_normal((kernel_tokens, kernel_dim))
gram = tokens @ tokens.T / kernel_dim
kernel = np.exp(kernel_strength * gram)
centre = np.eye(kernel_tokens) - 1 / kernel_tokens
rest = np.linalg.eigvalsh(centre @ (kernel - kernel_strength * gram) @ centre)[1:]
ridge = formulas["implicit_ridge"].function(kernel_strength)
figure, axis = plt.subplots(figsize=(6, 3.6), dpi=110, layout="constrained")
axis.hist(rest, bins=60, color="0.8", label="eigenvalues of kernel − linear part")
axis.axvline(ridge, color="C1", label=f"implicit ridge {ridge:.3f}")
axis.set(xlabel="eigenvalue", ylabel="count")
axis.legend(frameon=False)
plt.show()
print(f"mean of the rest: {rest.mean():.3f}, implicit ridge: {ridge:.3f}, spread: {rest.std():.3f}")

# %% [markdown]
# ## Exercises
# 1. Double `kernel_dim` and `kernel_tokens` together. How fast does the spread around the ridge fall?
# 2. At which `strength` does a context of `largest_context` tokens have fewer than ten effective ones?
# 3. Which data would make softmax attention read out a purely quadratic function of the query?
