"""Capacity and source from samples: coverage of the intervals, with and without noise modes, and honest refusals."""

import math

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF, SAMPLING_Z, sampling
from theory import Spectrum
from theory.asymptotics import gain_law
from theory.estimate import estimate_from_eigenvalues, estimate_spectrum, well_determined
from theory.sampling_bias import without_sampling_bias

LEVEL = 0.9


def samples(rng, dim, n, nu, beta, noise=0.1, noise_modes=0, noise_at=None):
    """Gaussian rows in a random basis, labels of a Gaussian task; some modes may be noise of one variance."""
    k = np.arange(1, dim - noise_modes + 1.0)
    x = np.concatenate([k**-nu, np.full(noise_modes, 0.0 if noise_at is None else float(noise_at) ** -nu)])
    task = np.concatenate([rng.standard_normal(k.size) * k ** ((nu - nu * beta - 1) / 2), np.zeros(noise_modes)])
    rows = rng.standard_normal((n, dim)) * np.sqrt(x)
    labels = rows @ task
    labels += math.sqrt(noise) * labels.std() * rng.standard_normal(n)
    basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return rows @ basis, labels


def within_binomial(hits, trials, level):
    return hits >= trials * level - SAMPLING_Z * math.sqrt(trials * level * (1 - level))


@pytest.mark.parametrize(("nu", "beta"), [(1.2, 0.6), (0.7, 0.8)])
def test_intervals_hold_what_they_say(rng, nu, beta):
    trials, hits, width = 24, np.zeros(2), []
    for _ in range(trials):
        found = estimate_spectrum(*samples(rng, 80, 800, nu, beta), level=LEVEL)
        hits += [
            found.capacity_interval[0] <= nu <= found.capacity_interval[1],
            found.source_interval[0] <= beta <= found.source_interval[1],
        ]
        width.append(np.diff(found.capacity_interval)[0])
    assert within_binomial(hits[0], trials, LEVEL)
    assert within_binomial(hits[1], trials, LEVEL)
    # Intervals that hold because they are useless would hold too.
    assert np.median(width) < 0.1


@pytest.mark.parametrize("noise_at", [8, 30, 75])
def test_ten_per_cent_of_noise_modes_do_not_fool_it(rng, noise_at):
    trials, hits, plain = 12, np.zeros(2), []
    for _ in range(trials):
        rows, labels = samples(rng, 100, 1000, 1.2, 0.6, noise_modes=10, noise_at=noise_at)
        found = estimate_spectrum(rows, labels, level=LEVEL)
        hits += [
            found.capacity_interval[0] <= 1.2 <= found.capacity_interval[1],
            found.source_interval[0] <= 0.6 <= found.source_interval[1],
        ]
        raw = np.log(found.raw)
        plain.append(-np.polyfit(np.log(np.arange(1, 101)), raw, 1)[0])
        assert found.capacity_interval[1] - found.capacity_interval[0] < 0.2
    assert within_binomial(hits[0], trials, LEVEL)
    assert within_binomial(hits[1], trials, LEVEL)
    # The line through all sample eigenvalues is fooled where the noise stands among the first.
    assert noise_at > 8 or abs(np.mean(plain) - 1.2) > 0.05


@pytest.mark.parametrize(("dim", "n", "nu", "noise_modes"), [(100, 400, 0.8, 10), (60, 120, 1.0, 0)])
def test_few_rows_and_flat_spectra_widen_the_interval_rather_than_fool_it(rng, dim, n, nu, noise_modes):
    trials, hits, width = 14, 0, []
    for _ in range(trials):
        rows, _ = samples(rng, dim, n, nu, 0.8, noise_modes=noise_modes, noise_at=30 if noise_modes else None)
        low, high = estimate_spectrum(rows, level=LEVEL).capacity_interval
        # What is left open is not a wrong answer.
        hits += math.isnan(low) or low <= nu <= high
        width.append(high - low)
    assert within_binomial(hits, trials, LEVEL)
    assert np.nanmedian(width) < 0.4


def test_bias_correction_undoes_the_bias_it_was_not_told(rng):
    dim, n, nu = 150, 300, 1.0
    truth = np.arange(1, dim + 1.0) ** -nu
    ratio_raw, ratio = [], []
    for _ in range(10):
        rows = rng.standard_normal((n, dim)) * np.sqrt(truth)
        raw = np.linalg.svd(rows, compute_uv=False) ** 2 / n
        ratio_raw.append(np.log(raw / truth))
        ratio.append(np.log(without_sampling_bias(raw, n) / truth))
    before, after = np.abs(np.mean(ratio_raw, axis=0)), np.abs(np.mean(ratio, axis=0))
    # The smallest sample eigenvalues are several times too small.
    assert before[-10:].mean() > 0.5
    assert after[:100].max() < 0.15
    assert after.mean() < 0.25 * before.mean()


def test_exact_eigenvalues_give_the_exponents_back():
    spectrum = Spectrum.power_law(400, 1.5, 0.7)
    found = estimate_from_eigenvalues(spectrum.eigenvalues, spectrum.signal)
    assert found.capacity_interval[0] <= 1.5 <= found.capacity_interval[1]
    assert found.source_interval[0] <= 0.7 <= found.source_interval[1]
    assert found.window == (1, 400)
    bin_error = 0.01
    assert found.capacity == pytest.approx(1.5, abs=bin_error)


def test_sample_size_beside_eigenvalues_corrects_them(rng):
    n, truth, told, not_told = 250, np.arange(1, 121.0) ** -1.0, [], []
    for _ in range(12):
        raw = np.linalg.svd(rng.standard_normal((n, 120)) * np.sqrt(truth), compute_uv=False) ** 2 / n
        told.append(estimate_from_eigenvalues(raw, samples=n).capacity)
        not_told.append(-np.polyfit(np.log(np.arange(1, 121)), np.log(raw), 1)[0])
    standard_error = np.std(told, ddof=1) / math.sqrt(12)
    assert np.mean(told) == pytest.approx(1.0, abs=sampling(standard_error))
    assert np.mean(not_told) > 1.1


@pytest.mark.parametrize(
    "eigenvalues", [np.ones(5), np.exp(-0.3 * np.arange(60)), np.concatenate([np.ones(30), np.full(30, 1e-3)])]
)
def test_what_is_no_power_law_is_not_called_one(eigenvalues):
    found = estimate_from_eigenvalues(eigenvalues)
    assert math.isnan(found.capacity)
    assert math.isnan(found.capacity_interval[0])
    assert found.window == (0, 0)
    assert "power law" in found.status
    assert well_determined(found) == {}


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (3, 10), (12, 12), (300, 12), (400, 100)])
def test_white_noise_is_no_power_law_however_few_the_rows(rng, shape):
    found = estimate_spectrum(rng.standard_normal(shape), rng.standard_normal(shape[0]))
    assert math.isnan(found.capacity)
    assert math.isnan(found.source)
    assert Spectrum.from_samples(rng.standard_normal(shape)).capacity is None


def test_too_few_rows_leave_the_source_open(rng):
    rows, labels = samples(rng, 80, 90, 1.0, 0.5)
    found = estimate_spectrum(rows, labels)
    assert math.isnan(found.source)
    assert "too few" in found.status
    pure_noise = rng.standard_normal(800)
    found = estimate_spectrum(samples(rng, 80, 800, 1.0, 0.5)[0], pure_noise)
    assert math.isnan(found.source)
    assert "noise" in found.status


def test_the_same_samples_give_the_same_estimate(rng):
    rows, labels = samples(rng, 40, 400, 1.0, 0.5)
    assert estimate_spectrum(rows, labels).to_dict() == estimate_spectrum(rows, labels).to_dict()


def test_spectrum_from_samples_carries_what_is_determined(rng):
    rows, labels = samples(rng, 80, 4000, 1.2, 1.5, noise=0.01)
    spectrum = Spectrum.from_samples(rows, labels)
    estimate = estimate_spectrum(rows, labels)
    assert spectrum.capacity == estimate.capacity
    np.testing.assert_allclose(spectrum.eigenvalues, estimate.raw, rtol=ROUNDOFF)
    assert Spectrum.from_samples(rows).source is None
    # Fitted exponents do not make it an exact power law.
    with pytest.raises(ValueError, match="exact power law"):
        gain_law(dataclasses_replace_source(spectrum))


def dataclasses_replace_source(spectrum):
    import dataclasses

    return dataclasses.replace(spectrum, source=1.5)


def test_results_print_plot_and_convert(rng):
    found = estimate_spectrum(*samples(rng, 60, 600, 1.2, 0.6, noise_modes=6, noise_at=10))
    assert "capacity" in str(found)
    assert list(found.to_frame()) == ["mode", "raw", "eigenvalue", "signal", "in_window"]
    assert len(found.plot().lines) >= 3
    assert found.to_dict()["window"] == list(found.window)
    unfound = estimate_from_eigenvalues(np.ones(3))
    assert "undetermined" in str(unfound)
    assert unfound.to_dict()["capacity"] is None
    unfound.plot()


@pytest.mark.parametrize(
    ("rows", "labels", "name"),
    [
        (np.ones(3), None, "X"),
        (np.full((3, 2), np.nan), None, "X"),
        (np.zeros((3, 2)), None, "X"),
        (np.ones((3, 2)), np.ones(4), "y"),
    ],
)
def test_bad_input_is_named(rows, labels, name):
    with pytest.raises(ValueError, match=name):
        estimate_spectrum(rows, labels)
