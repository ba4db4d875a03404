"""Theory's solvers against scipy and diffrax at equal achieved error, spectra of 1e9 modes, and the memory bandwidth.

Peers get their cheapest tolerance that achieves the error asked, measured against a reference by another method, and
are warmed up (compiled) before timing. diffrax runs in float64 on one CPU; of its solvers the fastest counts.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measuring import best, cheapest, table
from theory.checks import FloatArray
from theory.gauss import gauss_rule
from theory.jit import streaming_kernel
from theory.kernels import tied_force, tied_sums, untied_stiffness, untied_sums
from theory.spectra import Spectrum
from theory.tied import tied_curve
from theory.untied import untied_path

TIED_ERROR, UNTIED_ERROR, MEASURE_ERROR = 1e-9, 1e-7, 1e-8
TOLERANCES = tuple(10.0**-power for power in (6, 7, 8, 9, 10, 11, 12, 13))
FEW_STEPS = 100
# Entries of each of the two arrays whose dot product measures the memory.
LARGER_THAN_CACHE = 60_000_000
ONE_BILLION = """
import json, time
import numpy as np
start = time.perf_counter()
from theory.measure import SpectralMeasure
from theory.tied import tied_curve
loaded = time.perf_counter()
measure = SpectralMeasure.power_law(10**9, 1.0, 0.5, normalise=False)
built = time.perf_counter()
curve = tied_curve(measure, 16, np.logspace(0, 12, 200))
done = time.perf_counter()
losses = [float(measure.losses([g], d)[0]) for g, d in ((0.0, 1), (10.0, 16), (1e3, float("inf")), (1e8, float("inf")))]
# ru_maxrss would count what the parent held before this program replaced it.
memory = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(json.dumps([loaded - start, built - loaded, done - built, memory, measure.points, losses]))
"""


@streaming_kernel
def _dot(x: FloatArray, s: FloatArray) -> float:
    total = 0.0
    for i in range(x.size):
        total += x[i] * s[i]
    return total


def _relative(found: FloatArray, reference: FloatArray) -> float:
    found = np.asarray(found)
    return float(np.abs(found / reference - 1).max()) if found.shape == reference.shape else math.inf


def tied() -> None:
    """One tied curve: 12 decades of time, 200 points, dim 4096, depth 16."""
    from scipy.integrate import solve_ivp

    dim, depth = 4096, 16
    spectrum = Spectrum.power_law(dim, 1.0, 0.5)
    x, s = spectrum.eigenvalues, spectrum.signal
    times = np.logspace(-3, 9, 200)
    weight, rate, power = s * x, 2 / (dim * depth), 2 * depth - 1

    def losses(gains: FloatArray) -> FloatArray:
        return np.array([tied_sums(x, s, float(gain), depth)[0] for gain in gains])

    def speed(_t: float, gain: FloatArray) -> list[float]:
        return [rate * float(weight @ (1 - gain[0] / depth * x) ** power)]

    def compiled_speed(_t: float, gain: FloatArray) -> list[float]:
        return [rate * tied_force(x, weight, gain[0], depth)]

    def scipy_solve(right: Callable[..., Any], method: str, tolerance: float) -> FloatArray:
        found = solve_ivp(
            right, (0, times[-1]), [0.0], method=method, t_eval=times, rtol=tolerance, atol=tolerance * 1e-3
        )
        return losses(found.y[0])

    reference = scipy_solve(compiled_speed, "DOP853", 3e-14)
    error_of = partial(_relative, reference=reference)
    tied_curve(spectrum, depth, times)
    ours = best(lambda: tied_curve(spectrum, depth, times), repeats=30)
    rows: list[list[object]] = [["this", ours, error_of(tied_curve(spectrum, depth, times).losses), "", 1.0, ""]]
    for name, right in (("scipy LSODA, numpy sum", speed), ("scipy LSODA, our compiled sum", compiled_speed)):
        taken, error, tolerance = cheapest(
            partial(scipy_solve, right, "LSODA"), error_of, wanted=TIED_ERROR, tolerances=TOLERANCES
        )
        rows.append([name, taken, error, tolerance, taken / ours, ">= 20" if right is speed else ""])
    solvers = _diffrax_solvers(
        lambda _t, gain, data: data[2] * (data[1] @ (1 - gain / depth * data[0]) ** power),
        np.float64(0.0),
        (x, weight, rate),
        times,
    )
    for name, solve in solvers.items():
        taken, error, tolerance = cheapest(
            lambda chosen, call=solve: losses(call(chosen)),  # type: ignore[misc]
            error_of,
            wanted=TIED_ERROR,
            tolerances=TOLERANCES,
        )
        rows.append([f"diffrax {name}", taken, error, tolerance, taken / ours, ">= 5"])
    title = (
        f"Tied curve: dim {dim}, depth {depth}, 200 times over 12 decades, relative error of the loss <= {TIED_ERROR:g}"
    )
    table(title, ("solver", "seconds", "error", "tolerance", "ratio", "wanted"), rows)


def _diffrax_solvers(
    field: Callable[..., Any],
    start: Any,
    data: Any,
    times: FloatArray,
    names: tuple[str, ...] = ("Tsit5", "Dopri8", "Kvaerno5"),
    most_steps: int = 2_000_000,
) -> dict[str, Callable[[float], FloatArray]]:
    """Return compiled diffrax solves by solver name, each a function of the tolerance; empty if it is not installed."""
    try:
        import diffrax
        import jax
    except ModuleNotFoundError:
        print("  diffrax is not installed (pip install 'inverse-depth[bench]'): left out")
        return {}
    jax.config.update("jax_enable_x64", True)
    arrays = jax.tree_util.tree_map(jax.numpy.asarray, data)

    def solver(name: str) -> Callable[[float], FloatArray]:
        @jax.jit
        def run(tolerance: Any) -> Any:
            return diffrax.diffeqsolve(
                diffrax.ODETerm(field),
                getattr(diffrax, name)(),
                0.0,
                float(times[-1]),
                None,
                jax.numpy.asarray(start),
                arrays,
                saveat=diffrax.SaveAt(ts=jax.numpy.asarray(times)),
                stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance * 1e-3),
                max_steps=most_steps,
                throw=False,
            ).ys

        return lambda tolerance: np.asarray(run(tolerance).block_until_ready())

    return {name: solver(name) for name in names}


def untied() -> None:
    """Untied flow, depth 32, dim 4096, from a slightly broken tie to the untied floor."""
    from scipy.integrate import solve_ivp

    dim, depth = 4096, 32
    # Dense eigenvalues: float64 gains can reach the floor (with k^-1 no float64 solver can).
    x = Spectrum.log_uniform(dim, 6).eigenvalues
    spectrum = Spectrum(x, x**-0.5)
    s = spectrum.signal
    start, times = 1e-3 * np.linspace(-1, 1, depth), np.logspace(0, 17, 60)
    rate, force = 2 / (dim * depth), np.empty(depth)

    def ours_path() -> FloatArray:
        nodes, weights = gauss_rule(x, s, depth + 1)
        return untied_path(nodes, weights, dim, start, times)[1]

    def losses(gains: FloatArray) -> FloatArray:
        rows = np.ascontiguousarray(gains)
        return np.array([untied_sums(x, s, row, np.empty(depth)) for row in rows])

    def speed(_t: float, gains: FloatArray) -> FloatArray:
        untied_sums(x, s, np.ascontiguousarray(gains), force)
        return rate * force

    def scipy_solve(tolerance: float) -> FloatArray:
        found = solve_ivp(
            speed, (0, times[-1]), start, method="LSODA", t_eval=times, rtol=tolerance, atol=tolerance * 1e-3
        )
        return losses(found.y.T)

    # Another method (Radau IIA) with the full sum over modes, at a far smaller tolerance.
    hessian = np.empty((depth, depth))

    def jacobian(_t: float, gains: FloatArray) -> FloatArray:
        untied_stiffness(x, s, np.ascontiguousarray(gains), hessian)
        return -rate / depth * hessian

    found = solve_ivp(speed, (0, times[-1]), start, method="Radau", t_eval=times, rtol=1e-10, atol=1e-13, jac=jacobian)
    reference = losses(found.y.T)
    error_of = partial(_relative, reference=reference)
    ours_path()
    ours = best(ours_path, repeats=5)
    rows: list[list[object]] = [["this", ours, error_of(ours_path()), "", 1.0, ""]]
    taken, error, tolerance = cheapest(
        scipy_solve, error_of, wanted=UNTIED_ERROR, tolerances=TOLERANCES[1:6], repeats=1
    )
    rows.append(["scipy LSODA, our compiled sum", taken, error, tolerance, taken / ours, ">= 3"])

    def field(_t: Any, gains: Any, data: Any) -> Any:
        import jax.numpy as jnp

        factors = 1 - gains[:, None] * data[0] / depth
        before = jnp.concatenate([jnp.ones((1, dim)), jnp.cumprod(factors, 0)[:-1]])
        after = jnp.concatenate([jnp.cumprod(factors[::-1], 0)[::-1][1:], jnp.ones((1, dim))])
        whole = before[-1] * factors[-1]
        return rate * ((before * after) @ (data[1] * data[0] * whole))

    # An implicit step costs diffrax some tenths of a second here: a few of them bound its time from below.
    for name, solve in _diffrax_solvers(field, start, (x, s), times, ("Kvaerno5",), FEW_STEPS).items():
        chosen = TOLERANCES[2]
        solve(chosen)
        start_of_run = time.perf_counter()
        error = error_of(losses(solve(chosen)))
        taken = time.perf_counter() - start_of_run
        ended = "" if error <= UNTIED_ERROR else f", its first {FEW_STEPS} steps only"
        rows.append([f"diffrax {name}{ended}", taken, error, chosen, taken / ours, ">= 3"])
    title = (
        f"Untied flow to its floor: dim {dim}, depth {depth}, t to 1e17, "
        f"loss {reference[0]:.4g} to {reference[-1]:.6g}, relative error <= {UNTIED_ERROR:g}"
    )
    table(title, ("solver", "seconds", "error", "tolerance", "ratio", "wanted"), rows)


def billion() -> None:
    """A power law of 1e9 modes, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", ONE_BILLION], capture_output=True, text=True, check=True)
    load, build, solve, memory, points, losses = json.loads(done.stdout)
    exact = [_exact(10**9, gamma, depth) for gamma, depth in ((0.0, 1), (10.0, 16), (1e3, 0), (1e8, 0))]
    error = max(abs(found / value - 1) for found, value in zip(losses, exact, strict=True))
    rows = [
        ["seconds, imports included", load + build + solve, "< 2"],
        ["  imports", load, ""],
        ["  compression", build, ""],
        ["  tied curve, depth 16, 200 times", solve, ""],
        ["peak memory of the process, MB", memory, "< 300"],
        ["points", float(points), ""],
        ["relative error against the exact sum", error, f"<= {MEASURE_ERROR:g}"],
    ]
    table("Power law of 1e9 modes", ("quantity", "value", "wanted"), rows)


def _exact(dim: int, gamma: float, depth: int) -> float:
    """Return sum_k k^-1.5 F(gamma / k): 1e6 modes one by one, the rest by Euler and Maclaurin at 30 digits."""
    import mpmath

    head = 10**6

    def term(k: Any) -> Any:
        u = mpmath.mpf(gamma) / k
        return k ** mpmath.mpf(-1.5) * (mpmath.exp(-2 * u) if depth == 0 else (1 - u / depth) ** (2 * depth))

    k = np.arange(1.0, head)
    u = gamma / k
    first = math.fsum(k**-1.5 * (np.exp(-2 * u) if depth == 0 else (1 - u / depth) ** (2 * depth)))
    with mpmath.workdps(30):
        edges = [mpmath.log(head) + (mpmath.log(dim) - mpmath.log(head)) * mpmath.mpf(j) / 12 for j in range(13)]
        integral = mpmath.quad(lambda t: term(mpmath.exp(t)) * mpmath.exp(t), edges)
        ends = (term(mpmath.mpf(head)) + term(mpmath.mpf(dim))) / 2
        slopes = (mpmath.diff(term, dim) - mpmath.diff(term, head)) / 12
        return first + float(integral + ends + slopes)


def bandwidth() -> None:
    """The right-hand side of the tied flow at dim 1e6 against reading its two arrays.

    Two peers, both a dot product: of the same two arrays, which a large last-level cache may hold, and of arrays too
    large for any cache, which is the memory's own bandwidth. A power of 2L - 1 costs log2(L) products a mode, so that
    the first can only be matched while arithmetic hides behind reading.
    """
    rows: list[list[object]] = []
    big, other = np.ones(LARGER_THAN_CACHE), np.ones(LARGER_THAN_CACHE)
    _dot(big, other)
    memory = 16 * big.size / best(lambda: _dot(big, other), repeats=7)
    dim = 10**6
    x = np.arange(1, dim + 1.0) ** -1.0
    weight = x**1.5
    read = best(lambda: _dot(x, weight), repeats=50)
    from_memory = 16 * dim / memory
    rows.append([f"dot product, 2 x {big.nbytes / 1e6:.0f} MB", 16 * big.size / memory, memory / 1e9, "", "", ""])
    rows.append(["dot product, dim 1e6", read, 16 * dim / read / 1e9, read / from_memory, 1.0, ""])
    for depth in (1, 4, 16, 64, 256, 1024):
        tied_force(x, weight, 0.7, depth)
        taken = best(lambda layers=depth: tied_force(x, weight, 0.7, layers), repeats=50)  # type: ignore[misc]
        speed = 16 * dim / taken / 1e9
        rows.append([f"right-hand side, depth {depth}", taken, speed, taken / from_memory, taken / read, "<= 1.5"])
    title = "Right-hand side of the tied flow, dim 1e6 (16 MB read), one thread"
    table(title, ("operation", "seconds", "GB/s", "against memory", "against dot", "wanted"), rows)


def main() -> None:
    """Print every table."""
    bandwidth()
    tied()
    billion()
    untied()


if __name__ == "__main__":
    main()
