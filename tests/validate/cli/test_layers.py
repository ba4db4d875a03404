"""The layers command: one answer from every format, predictions against real ensembles, bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.tolerances import ROUNDOFF, sampling
from validate import layer_statistics, read_layer_file
from validate.cli import main

LAYERS, EXAMPLES = 8, 400


@pytest.fixture
def errors(rng: np.random.Generator) -> np.ndarray:
    """Correlated neighbours and a shared part, drawn by recursion."""
    own = np.empty((LAYERS, EXAMPLES))
    own[0] = rng.standard_normal(EXAMPLES)
    for layer in range(1, LAYERS):
        own[layer] = 0.6 * own[layer - 1] + 0.8 * rng.standard_normal(EXAMPLES)
    return own + 0.5 * rng.standard_normal(EXAMPLES)


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["layers", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def written(folder: Path, kind: str, errors: np.ndarray) -> tuple[Path, list[str]]:
    path = folder / f"errors.{kind.split('-')[0]}"
    frame = pd.DataFrame(errors, columns=[f"x{place}" for place in range(errors.shape[1])])
    if kind == "npy":
        np.save(path, errors)
    elif kind == "csv-bare":
        frame.to_csv(path, header=False, index=False)
    elif kind == "csv-index":
        frame.to_csv(path)
    elif kind == "csv-numbered":
        # Out of order: the column says which layer a row is.
        frame.assign(layer=range(1, len(frame) + 1)).iloc[::-1].to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        layer, example = np.indices(errors.shape)
        long = pd.DataFrame({"l": layer.ravel(), "id": example.ravel(), "miss": errors.ravel()})
        long.sample(frac=1, random_state=0).to_csv(path, index=False)
        return path, ["--layer", "l", "--example", "id", "--error", "miss"]
    return path, []


@pytest.mark.parametrize("kind", ["npy", "csv-bare", "csv-index", "csv-numbered", "parquet", "csv-long"])
def test_every_format_gives_the_same_answer(
    kind: str, errors: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, flags = written(tmp_path, kind, errors)
    code, out, err = call(capsys, path, *flags, "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert (answer["layers"], answer["examples"]) == (LAYERS, EXAMPLES)
    matrix = errors @ errors.T / EXAMPLES
    np.testing.assert_allclose(answer["covariance"], matrix, rtol=ROUNDOFF, atol=ROUNDOFF)
    off = (matrix.sum() - np.trace(matrix)) / (LAYERS * (LAYERS - 1))
    assert answer["plateau"]["value"] == pytest.approx(off, rel=ROUNDOFF)
    assert answer["gain"]["value"] == pytest.approx(np.trace(matrix) / LAYERS - off, rel=ROUNDOFF)
    assert answer["loss"]["value"] == pytest.approx(np.mean(errors.mean(axis=0) ** 2), rel=ROUNDOFF)
    low, high = answer["correlation_length"]["ci95"]
    assert low < -1 / np.log(0.6) < high


def test_a_shallower_ensemble_is_predicted(
    errors: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against the loss of the ensembles themselves: all windows of three neighbours."""
    path, _ = written(tmp_path, "npy", errors)
    code, out, _ = call(capsys, path, "--depth", "3,8", "--order", "consecutive", "--json")
    answer = json.loads(out)
    assert code == 0
    by_distance = [np.mean(errors[: LAYERS - lag] * errors[lag:]) for lag in range(3)]
    expected = (3 * by_distance[0] + 4 * by_distance[1] + 2 * by_distance[2]) / 9
    assert [row["depth"] for row in answer["predictions"]] == [3, 8]
    assert answer["predictions"][0]["value"] == pytest.approx(expected, rel=ROUNDOFF)
    assert answer["predictions"][1]["value"] == pytest.approx(answer["loss"]["value"], rel=ROUNDOFF)


def test_a_deeper_ensemble_is_predicted_from_half_of_it(
    rng: np.random.Generator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sixteen exchangeable layers: the first eight predict the loss of all, within its standard error."""
    whole = 0.7 * rng.standard_normal(3000) + rng.standard_normal((16, 3000))
    np.save(tmp_path / "half.npy", whole[:8])
    code, out, _ = call(capsys, tmp_path / "half.npy", "--depth", "16", "--json")
    predicted = json.loads(out)["predictions"][0]
    truth = 0.49 + 1 / 16
    assert code == 0
    assert abs(predicted["value"] - truth) < sampling(predicted["stderr"])
    # The standard error is that of the mean over examples, which for Gaussian errors is near sqrt(2/M) of the loss.
    assert predicted["stderr"] == pytest.approx(truth * np.sqrt(2 / 3000), rel=float(sampling(0.1)))


def test_outputs_groups_text_and_picture(
    errors: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stacked = np.stack([errors, 2 * errors], axis=2)
    np.save(tmp_path / "outputs.npy", stacked)
    code, out, _ = call(capsys, tmp_path / "outputs.npy", "--depth", "2,32", "--plot", tmp_path / "layers.png")
    assert code == 0
    assert f"{LAYERS} layers, {EXAMPLES} independent examples" in out
    assert "loss of 32 random layers" in out
    assert out.count("(extrapolated)") == 1
    assert (tmp_path / "layers.png").stat().st_size > 5000
    once, twice = layer_statistics(errors), layer_statistics(stacked)
    assert twice.plateau.value == pytest.approx(5 * once.plateau.value, rel=ROUNDOFF)
    layer, example = np.indices(errors.shape)
    long = pd.DataFrame({"layer": layer.ravel(), "id": example.ravel(), "e": errors.ravel()})
    long["pair"] = long["id"] // 2
    long.to_parquet(tmp_path / "long.parquet")
    columns = {"layer": "layer", "example": "id", "error": "e"}
    found = read_layer_file(tmp_path / "long.parquet", **columns, group="pair")
    assert found.groups == [str(place // 2) for place in range(EXAMPLES)]
    code, out, _ = call(
        capsys, tmp_path / "long.parquet", *(f"--{name}={column}" for name, column in columns.items()), "--group=pair"
    )
    assert f"{EXAMPLES // 2} independent examples" in out


def test_bad_input_is_one_line(errors: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = written(tmp_path, "npy", errors)
    np.save(tmp_path / "one.npy", errors[:1])
    np.save(tmp_path / "four.npy", errors[:, :, None, None])
    np.save(tmp_path / "zero.npy", np.zeros((3, 8)))
    np.save(tmp_path / "huge.npy", 1e200 * errors)
    (tmp_path / "twice.csv").write_text("layer,a,b\n1,1,2\n1,3,4\n", encoding="utf-8")
    (tmp_path / "mixed.csv").write_text("l,id,e,g\n1,a,1,x\n2,a,2,y\n1,b,1,x\n2,b,1,x\n", encoding="utf-8")
    long = ("--layer", "l", "--example", "id", "--error", "e")
    for arguments, message in (
        ((tmp_path / "no.npy",), "No such file"),
        ((tmp_path / "one.npy",), "at least 2 x 2"),
        ((tmp_path / "four.npy",), "at most 3 dimensions"),
        ((tmp_path / "twice.csv",), "must name each layer once"),
        ((tmp_path / "mixed.csv",), "no numbers"),
        ((tmp_path / "mixed.csv", *long, "--group", "g"), "g of id=a on line 3 differs"),
        ((path, "--depth", "0"), "depth='0'"),
        ((path, "--depth", "2,2"), "depth='2,2'"),
        ((path, "--depth", "two"), "depth='two'"),
        ((path, "--depth", "2", "--order", "sorted"), "order='sorted'"),
        ((path, "--order", "sorted"), "order='sorted'"),
        ((path, "--seed", "-1"), "seed=-1"),
        ((tmp_path / "zero.npy",), "largest error=0.0"),
        ((tmp_path / "huge.npy",), "must be between 1e-120 and 1e+120"),
        ((path, "--level", "1"), "level=1"),
        ((path, "--layer", "l"), "example, error"),
        ((path, "--group", "g"), "group='g'"),
    ):
        code, out, err = call(capsys, *arguments)
        assert (code, out) == (2, ""), arguments
        assert message in err, (arguments, err)
        assert err.count("\n") == 1
