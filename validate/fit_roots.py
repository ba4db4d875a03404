"""Where many rising profiles cross one level: expand until each is bracketed, then false position with bisection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from theory.checks import FloatArray

MOST_STEPS = 60
# Relative distance of sqrt(rise / level) from 1 at which a root is found, and of the two ends of its bracket.
ROOT_TOLERANCE = 1e-5
# Expansion of an unbracketed search, least and most.
EXPANSION = (1.2, 8.0)


def crossing_distances(
    first: FloatArray, reach: FloatArray, ratio_at: Callable[[np.ndarray, FloatArray], FloatArray]
) -> tuple[FloatArray, np.ndarray]:
    """Return the distance at which each profile's ratio is 1, and whether it was met before ``reach``, both (R,).

    Parameters
    ----------
    first
        First distances tried, (R,), positive.
    reach
        Longest distances, (R,); a profile that stays below 1 up to there has ``reach`` returned and is not met.
    ratio_at
        ``ratio_at(rows, distances)``: sqrt(rise/level) of the profiles ``rows`` at ``distances``.
    """
    size = first.size
    distance = np.minimum(first, reach)
    inner, inner_ratio = np.zeros(size), np.zeros(size)
    outer, outer_ratio = np.full(size, np.nan), np.full(size, np.nan)
    met = np.zeros(size, dtype=bool)
    searching = reach > 0
    for step in range(MOST_STEPS):
        rows = np.flatnonzero(searching)
        if not rows.size:
            break
        for row, ratio in zip(rows.tolist(), ratio_at(rows, distance[rows]).tolist(), strict=True):
            here = distance[row]
            if abs(ratio - 1.0) < ROOT_TOLERANCE:
                met[row], searching[row] = True, False
                continue
            if ratio < 1.0:
                inner[row], inner_ratio[row] = here, ratio
                if here >= reach[row]:
                    searching[row] = False
                    continue
            else:
                outer[row], outer_ratio[row] = here, ratio
            if np.isnan(outer[row]):
                guess = here / ratio if ratio > 1e-3 else np.inf
                distance[row] = min(np.clip(guess, EXPANSION[0] * here, EXPANSION[1] * here), reach[row])
                continue
            width = outer[row] - inner[row]
            if width <= ROOT_TOLERANCE * outer[row]:
                met[row], searching[row] = True, False
                continue
            share = (1.0 - inner_ratio[row]) / (outer_ratio[row] - inner_ratio[row])
            # Every third step halves the bracket, whatever the profile's shape.
            share = 0.5 if step % 3 == 2 else float(np.clip(share, 0.02, 0.98))
            distance[row] = inner[row] + share * width
    met |= searching & np.isfinite(outer)
    return distance, met
