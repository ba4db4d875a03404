import json

import numpy as np
import pandas as pd
import pytest

from tests.tolerances import ROUNDOFF
from theory import Spectrum
from validate.cli import main
from validate.spectrum_files import read_spectrum_file


@pytest.fixture
def rows(rng):
    basis = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    return rng.standard_normal((600, 30)) * np.arange(1, 31.0) ** -0.6 @ basis


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err


def test_every_format_holds_the_same_samples(tmp_path, rows, rng):
    labels = rows @ rng.standard_normal(30)
    table = np.column_stack([rows, labels])
    frame = pd.DataFrame(table, columns=[*(f"x{i}" for i in range(30)), "label"])
    np.save(tmp_path / "a.npy", table)
    frame.to_csv(tmp_path / "b.csv", index=False)
    frame.to_csv(tmp_path / "c.csv", index=False, header=False)
    frame.to_parquet(tmp_path / "d.parquet")
    expected = Spectrum.from_samples(rows, labels)
    for name, column in (("a.npy", "-1"), ("b.csv", "label"), ("c.csv", "30"), ("d.parquet", "label")):
        found = read_spectrum_file(tmp_path / name, labels=column)
        assert found.kind == "samples"
        np.testing.assert_allclose(found.spectrum().eigenvalues, expected.eigenvalues, rtol=ROUNDOFF)
        np.testing.assert_allclose(found.spectrum().signal, expected.signal, rtol=ROUNDOFF, atol=ROUNDOFF)


def test_eigenvalues_and_covariances_are_recognised(tmp_path, rows):
    covariance = rows.T @ rows / 600
    np.save(tmp_path / "covariance.npy", covariance)
    values = np.linalg.eigvalsh(covariance)[::-1]
    np.save(tmp_path / "values.npy", values)
    np.savetxt(tmp_path / "row.csv", values[None], delimiter=",")
    Spectrum(values, np.arange(1, 31.0)).to_frame().to_csv(tmp_path / "frame.csv", index=False)
    for name, kind in (
        ("covariance.npy", "covariance"),
        ("values.npy", "eigenvalues"),
        ("row.csv", "eigenvalues"),
        ("frame.csv", "eigenvalues"),
    ):
        found = read_spectrum_file(tmp_path / name)
        assert found.kind == kind
        np.testing.assert_allclose(found.spectrum().eigenvalues, values, rtol=ROUNDOFF)
    power = read_spectrum_file(tmp_path / "frame.csv").spectrum().task_power
    assert power[1] / power[0] == pytest.approx(2, rel=ROUNDOFF)
    # A sample size makes a difference, and only there.
    with_rows = read_spectrum_file(tmp_path / "values.npy", rows=100).estimate()
    assert not np.allclose(with_rows.eigenvalues, values)
    with pytest.raises(ValueError, match="rows="):
        read_spectrum_file(tmp_path / "row.csv", kind="samples", rows=5)


def test_command_prints_one_object_and_draws(capsys, tmp_path, rows):
    np.save(tmp_path / "x.npy", rows)
    code, out, err = run(capsys, "spectrum", tmp_path / "x.npy", "--json", "--plot", tmp_path / "x.png")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert answer["kind"] == "samples"
    low, high = answer["capacity_interval"]
    assert low <= 1.2 <= high
    assert (tmp_path / "x.png").stat().st_size > 1000
    code, out, _ = run(capsys, "spectrum", tmp_path / "x.npy")
    assert code == 0
    assert "capacity" in out


def test_predict_takes_a_file(capsys, tmp_path):
    spectrum = Spectrum.power_law(45, 1.75, 0.5)
    spectrum.to_frame().to_parquet(tmp_path / "s.parquet")
    flags = ["--depth", 4, "--times", "10,1e4", "--json"]
    from_file = json.loads(run(capsys, "predict", "--spectrum", tmp_path / "s.parquet", *flags)[1])
    from_flags = json.loads(run(capsys, "predict", "--dim", 45, "--capacity", 1.75, "--source", 0.5, *flags)[1])
    np.testing.assert_allclose(from_file["loss"], from_flags["loss"], rtol=ROUNDOFF)


def test_simulate_takes_a_file(capsys, tmp_path):
    np.save(tmp_path / "s.npy", np.array([1.0, 0.5, 0.25]))
    flags = ["--context", 8, "--batch", 4, "--steps", 2, "--device", "cpu", "--json"]
    code, out, _ = run(capsys, "simulate", "--spectrum", tmp_path / "s.npy", *flags)
    assert code == 0
    assert json.loads(out)["final_loss"] > 0


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("1,2\n3,x\n", [], "no numbers"),
        ("1,2\n3,\n", [], "finite"),
        ("a,b\n", [], "no rows"),
        ("1\n2\n", ["--labels", "0"], "labels="),
        ("a,b\n1,2\n3,4\n5,7\n", ["--labels", "c"], "a, b"),
        ("1\n2\n", ["--kind", "guess"], "kind="),
        ("1,2\n3,4\n5,7\n", ["--kind", "eigenvalues"], "one row or column"),
        ("1\n2\n", ["--level", "1.5"], "level="),
    ],
)
def test_bad_files_are_one_line(capsys, tmp_path, content, arguments, message):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    code, out, err = run(capsys, "spectrum", path, *arguments)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_other_files_are_one_line(capsys, tmp_path):
    (tmp_path / "x.npy").write_bytes(b"not an array")
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2)))
    np.save(tmp_path / "object.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    for name in ("x.npy", "cube.npy", "object.npy", "missing.npy", "x.txt"):
        code, out, err = run(capsys, "spectrum", tmp_path / name)
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert run(capsys, "predict", "--labels", "0")[0] == 2
