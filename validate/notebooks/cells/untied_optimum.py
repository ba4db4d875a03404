"""The untied optimum: extremal polynomials, and zeros spent on strong modes."""

# %% parameters
dim = 4000  # D, modes kept of the infinite spectrum
capacity = 1.5  # nu
source = 1.0  # beta
deepest = 16  # largest depth L
starts = 3  # random starts of the direct minimisation
seed = 0

# %% derivation

# %% [markdown]
# ## Against direct minimisation, and the discrete spectrum
# The floor from orthogonal polynomials, and the same minimum found by descending in the gains themselves.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from theory import Spectrum, Task, tied_optimum, untied_floor
from theory.asymptotics import untied_floor_law
from theory.losses import population
from theory.symbolic import derive

formulas = derive("untied_optimum").formulas
spectrum = Spectrum.power_law(dim, capacity, source)
task = Task(spectrum)
loss = population(spectrum)
rng = np.random.default_rng(seed)
depths = np.arange(1, deepest + 1)
floors = np.array([untied_floor(task, int(depth)).loss for depth in depths])
found = []
for depth in (1, 2, 3, 4):
    tries = [
        minimize(loss.value, rng.uniform(0.5, 2, depth), jac=loss.gradient, method="BFGS", options={"gtol": 1e-9}).fun
        for _ in range(starts)
    ]
    found.append(min(tries))
    print(f"L = {depth}: floor {floors[depth - 1]:.8f}, descent in the gains {found[-1]:.8f}")

# %% [markdown]
# On the discrete spectrum $k^{-\nu}$ the floor falls faster than the dense law $L^{-2\beta}$: strong modes are removed
# one by one. The bound from spending zeros has the exponent $-(2+\nu)\beta$; `untied_floor_law` knows the prefactor. With
# `dim` modes kept, the floor ends at zero once the depth reaches them, and falls faster before.

# %%
amplitude = spectrum.signal[0]
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), dpi=110, layout="constrained")
left.loglog(depths, [tied_optimum(task, int(depth)).loss for depth in depths], "s", ms=3, label="tied optimum")
left.loglog(depths, floors, "o", ms=3, label="untied floor")
left.loglog([1, 2, 3, 4], found, "x", color="k", label="descent in the gains")
left.loglog(
    depths, formulas["dense_floor"].function(amplitude, capacity, source, depths), label=r"dense modes, $L^{-2\beta}$"
)
bound = formulas["discrete_bound"].function(amplitude, capacity, source, depths)
left.loglog(depths, bound, "--", label=r"zeros spent, $L^{-(2+\nu)\beta}$")
left.loglog(depths, untied_floor_law(spectrum)(depths), ":", color="k", label="exact large-depth law")
left.set(xlabel="depth L", ylabel="loss", ylim=(floors.min() / 2, 3))
left.set_xticks([1, 2, 4, 8, 16], ["1", "2", "4", "8", "16"])
left.minorticks_off()
left.legend(frameon=False, fontsize=8)
middle = np.sqrt(depths[1:] * depths[:-1])
right.plot(middle, -np.diff(np.log(floors)) / np.diff(np.log(depths)), "o-", ms=3, label="local exponent of the floor")
right.axhline(2 * source, color="0.6", label=r"$2\beta$")
right.axhline((2 + capacity) * source, color="0.6", ls="--", label=r"$(2+\nu)\beta$")
right.set(xlabel="depth L", ylabel="exponent")
right.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Exercises
# 1. Lower `dim` until the local exponent runs away. What happens when the depth reaches the number of modes?
# 2. Raise `capacity`. Which share of the zeros sits on single modes?
# 3. A gap in the spectrum makes the floor exponential in depth. Build such a spectrum with `Spectrum.spiked`.
