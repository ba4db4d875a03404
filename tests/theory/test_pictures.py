"""The README's picture: its numbers against closed forms and each other, and that it draws."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF_LONG, SOLVER
from theory import Spectrum, isotropic_tied_optimum, isotropic_untied_floor
from theory.pictures import depth_laws_figure, shown_spectra, spectrum_laws

# An infinitely deep curve is that of depth 10^4 to 1/depth.
DEEP = 1e-3


def test_isotropic_column_is_the_closed_form() -> None:
    law = spectrum_laws(shown_spectra()[3], depths=(1, 2, 4))
    np.testing.assert_allclose(
        law.untied, [isotropic_untied_floor(2.0, depth) for depth in law.depths], rtol=ROUNDOFF_LONG
    )
    np.testing.assert_allclose(law.tied, [isotropic_tied_optimum(2.0, d)[1] for d in law.depths], rtol=ROUNDOFF_LONG)


def test_curves_end_on_their_floors_and_start_on_the_deep_one() -> None:
    law = spectrum_laws(Spectrum.power_law(50, 1.5, 1.0), depths=(2, 10_000))
    np.testing.assert_allclose(law.curves[0, -1], law.tied[0], rtol=SOLVER)
    shown = law.curves[1] > 2 * law.tied[1]
    np.testing.assert_allclose(law.curves[1, shown], law.deep[shown], rtol=DEEP)
    assert np.all(np.diff(law.deep) < 0)
    assert list(law.to_frame().columns) == ["depth", "tied", "untied"]


def test_untied_layers_gain_more_than_the_square_on_separate_eigenvalues() -> None:
    depths = (16, 32)
    law = spectrum_laws(Spectrum.power_law(100_000, 1.5, 1.0), depths=depths)
    slope = -np.diff(np.log(law.untied))[0] / np.log(2)
    # (2 + nu) beta = 3.5, approached from below; a dense spectrum would give 2 beta = 2.
    assert 3.1 < slope < 3.5


def test_it_draws_a_column_a_spectrum() -> None:
    figure = depth_laws_figure([Spectrum.isotropic(3), Spectrum.power_law(20, 1.0, 1.0)])
    assert len(figure.axes) == 4
    with pytest.raises(ValueError, match="spectra"):
        depth_laws_figure([])
