import base64
import json

import numpy as np
import pytest
from rich.console import Console

from tacit.cli.commands.group import Edge
from tacit.cli.screen import OnConsole
from tacit.errors import ConfigError

pytest.importorskip("xgboost", reason="xgboost is not installed")
pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

import xgboost

from tacit.cli.commands.verify import verify
from tacit.jobs.verify import answer, make_result
from tacit.verify.spec import Question, VerifyData, VerifyModel, VerifySpec

QUIET = Console(quiet=True)
SILENT = OnConsole(QUIET)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model of 3 × 4 images, images as such and as a table."""
    folder = tmp_path_factory.mktemp("page")
    generator = np.random.default_rng(5)
    x = generator.uniform(size=(200, 12)).astype(np.float32)
    y = (x[:, 0] + 0.3 * x[:, 7] > 0.6).astype(int)
    xgboost.XGBClassifier(n_estimators=6, max_depth=3).fit(x, y).save_model(folder / "model.json")
    np.savez(folder / "images.npz", features=x[:30].reshape(-1, 3, 4), y=y[:30])
    np.savez(folder / "table.npz", features=x[:30], y=y[:30])
    return folder


def question(files, data="images.npz", **changed):
    beside, shape = changed.pop("beside", ()), changed.pop("shape", None)
    return VerifySpec(
        model=VerifyModel(file=files / "model.json", beside=beside),
        data=VerifyData(file=files / data, label="y", shape=shape),
        verify=Question(eps=0.05, seconds=10.0, **changed),
    )


def result_of(asked):
    return make_result(asked, answer(asked, SILENT), SILENT)


def test_the_page_is_written_and_holds_the_verified_accuracy(files):
    out = Console(record=True, width=100)
    page, found = files / "page.html", files / "found.json"
    arguments = [files / "model.json", files / "images.npz", "--eps", 0.05, "--label", "y"]
    arguments += ["--html", page, "--out", found, "--importance", 10]
    verify.main(list(map(str, arguments)), obj=Edge(out=out, err=QUIET), standalone_mode=False)
    text = page.read_text()
    every = json.loads(found.read_text())["groups"][0]
    assert "verified robust accuracy" in text.lower()
    assert f"{every['robust']} of {every['rows']} rows" in text
    assert str(page.name) in out.export_text().replace("\n", "")


def test_metrics_are_counts_of_rows_with_an_interval_around_them(files):
    asked = question(files)
    every = answer(asked, SILENT).findings.groups[0]
    metrics = {one.name: one for one in result_of(asked).utility}
    verified = metrics["verified robust accuracy"]
    assert verified.value == every.verified / every.rows
    assert verified.low <= verified.value <= verified.high
    assert verified.samples == every.rows
    assert metrics["unsolved rows"].value == 0


def test_an_image_stands_beside_what_changes_its_class(files):
    pictures = result_of(question(files)).pictures
    assert pictures
    assert len(pictures) % 3 == 0
    for picture in pictures:
        channels = {"gray": 1, "rgb": 3}[picture.mode]
        assert (picture.width, picture.height) == (4, 3)
        assert len(base64.b64decode(picture.pixels)) == 12 * channels


def test_importance_draws_one_map_per_class_with_robust_rows(files):
    result = result_of(question(files, importance=20))
    maps = [one for one in result.pictures if one.title == "Local robust feature importance"]
    assert 1 <= len(maps) <= 2
    assert any(sheet.title == "Robust feature sets" for sheet in result.sheets)


def test_the_pixels_of_a_robust_set_are_the_ones_that_are_red(files):
    asked = question(files, importance=20)
    result = result_of(asked)
    drawn = [one for one in result.pictures if one.title.startswith("Robust feature sets")]
    sheet = next(one for one in result.sheets if one.title == "Robust feature sets")
    assert drawn
    for picture, line in zip(drawn, sheet.rows, strict=False):
        pixels = np.frombuffer(base64.b64decode(picture.pixels), np.uint8).reshape(-1, 3)
        red = np.flatnonzero(pixels[:, 0] > pixels[:, 1].astype(int) + 1)
        assert picture.caption.startswith(f"row {line[0]}, class {line[1]}")
        assert ", ".join(f"pixel {f}" for f in red) == line[3]


def test_a_table_gets_importance_as_numbers_instead_of_pictures(files):
    result = result_of(question(files, "table.npz", importance=20))
    assert result.pictures == ()
    shares = next(one for one in result.sheets if one.title == "Local robust feature importance")
    # Only two features decide, and the trees may ask for any.
    assert {row[0] for row in shares.rows[:2]} == {"feature 0", "feature 7"}


def test_a_table_with_a_shape_is_shown_as_images(files):
    assert result_of(question(files, "table.npz", shape="3x4")).pictures


@pytest.mark.parametrize("shape", ["3x3", "12", "0x0", "3 x 4"])
def test_a_shape_that_does_not_fit_is_refused(files, shape):
    with pytest.raises(ConfigError, match="--shape"):
        answer(question(files, "table.npz", shape=shape), SILENT)


def test_importance_of_a_regression_is_refused(files):
    with pytest.raises(ConfigError, match="--importance"):
        question(files, rho=0.1, importance=3)


def test_models_beside_it_show_the_effect_of_trees_and_depth(files):
    rng = np.random.default_rng(6)
    x = rng.uniform(size=(200, 12)).astype(np.float32)
    y = (x[:, 0] + 0.3 * x[:, 7] > 0.6).astype(int)
    for trees, depth in ((2, 1), (12, 3)):
        model = xgboost.XGBClassifier(n_estimators=trees, max_depth=depth).fit(x, y)
        model.save_model(files / f"{trees}x{depth}.json")
    beside = (files / "12x3.json", files / "2x1.json")
    result = result_of(question(files, beside=beside))
    sheet = next(one for one in result.sheets if one.title == "Effect of trees × depth")
    assert [row[1:3] for row in sheet.rows] == [("2", "1"), ("6", "3"), ("12", "3")]
    lines = [one for one in result.curves if one.title == "Robustness against trees × depth"]
    assert [(one.name, len(one.points)) for one in lines] == [("depth 1", 1), ("depth 3", 2)]
