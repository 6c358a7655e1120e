"""samples.json, and columns that read it: every error names file, quantity and point."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.report.measures import Quantity
from common.report.published import Plot, load_published
from common.report.samples import in_order, number_of, read_samples
from tests.common.report.measured_runs import POINTS, PUBLISHED, measure, results, timed

GOOD: dict[str, Any] = {"unit": "ms", "at": {"128": [1, 2.5], "fp16": [3]}, "refused": {"256": "no memory"}}


def write(tmp_path: Path, **changes: Any) -> Path:
    file = tmp_path / "samples.json"
    file.write_text(json.dumps({"forward_ms": {k: v for k, v in (GOOD | changes).items() if v is not None}}))
    return file


def test_repeats_and_refusals_are_read(tmp_path: Path):
    samples = read_samples(write(tmp_path))["forward_ms"]
    assert samples.at == {"128": (1.0, 2.5), "fp16": (3.0,)}
    assert samples.refused == {"256": "no memory"}
    assert samples.unit == "ms"


@pytest.mark.parametrize(("unit", "is_timed"), [("ms", True), ("s", True), ("TFLOP/s", True), ("tokens/s", True)])
def test_times_and_rates_vary(tmp_path: Path, unit: str, is_timed: bool):
    assert read_samples(write(tmp_path, unit=unit))["forward_ms"].timed is is_timed


@pytest.mark.parametrize("unit", ["bytes", "GB", "FLOP", "relative error"])
def test_counts_do_not(tmp_path: Path, unit: str):
    assert not read_samples(write(tmp_path, unit=unit))["forward_ms"].timed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit": None}, "forward_ms.unit: missing, expected text"),
        ({"at": None}, "forward_ms.at: missing, expected a mapping"),
        ({"at": {"128": 3}}, "forward_ms.at.128: expected a list, got int 3"),
        ({"at": {"128": []}}, "forward_ms.at.128: expected a list of finite numbers, one per repeat, got []"),
        (
            {"at": {"128": [1, "2"]}},
            "forward_ms.at.128: expected a list of finite numbers, one per repeat, got [1, '2']",
        ),
        ({"at": {"128": [True]}}, "forward_ms.at.128: expected a list of finite numbers"),
        ({"at": {"128": [float("nan")]}}, "forward_ms.at.128: expected a list of finite numbers"),
        ({"at": {"128": [float("inf")]}}, "forward_ms.at.128: expected a list of finite numbers"),
        (
            {"refused": {"128": "no"}},
            "forward_ms.refused: point '128' is measured in at: expected it in one of the two",
        ),
        ({"refused": {"256": 3}}, "forward_ms.refused.256: expected text, got int 3"),
        ({"refusd": {}}, "forward_ms.refusd: unknown key, did you mean refused?"),
    ],
)
def test_errors_name_quantity_and_point(tmp_path: Path, changes: dict[str, Any], message: str):
    with pytest.raises(ValueError) as error:
        read_samples(write(tmp_path, **changes))
    assert str(error.value).startswith(f"{tmp_path}/samples.json: {message}")


def test_broken_samples_are_an_error_of_the_run(tmp_path: Path):
    folder = measure(tmp_path, "fast")
    (folder / "samples.json").write_text("{")
    with pytest.raises(ValueError, match=r"fast-s1/samples\.json: not valid JSON"):
        results(tmp_path)


def test_a_measured_run_needs_neither_data_nor_metrics(tmp_path: Path):
    folder = measure(tmp_path, "fast", samples={"forward_ms": timed({"128": [1, 2]})})
    [run] = results(tmp_path).runs
    assert run.ok and run.samples["forward_ms"].at["128"] == (1.0, 2.0)
    (folder / "samples.json").unlink()
    with pytest.raises(ValueError, match="data_checksum: missing"):
        results(tmp_path)


def test_what_a_failed_run_left_is_not_used(tmp_path: Path):
    folder = measure(tmp_path, "fast", status="failed", error="killed")
    (folder / "samples.json").write_text("half a fi")
    [run] = results(tmp_path).runs
    assert (run.ok, run.error, run.samples) == (False, "killed", {})


@pytest.mark.parametrize(
    ("point", "number"), [("128", 128.0), ("0.25", 0.25), ("fp16", None), ("0", None), ("nan", None)]
)
def test_points_as_numbers(point: str, number: float | None):
    assert number_of(point) == number


def test_points_are_ordered_by_size_where_they_have_one():
    assert in_order(["1024", "128", "256", "128"]) == ["128", "256", "1024"]
    assert in_order(["fp32", "fp16", "128", "fp32"]) == ["128", "fp32", "fp16"]


def load(tmp_path: Path, number: int = 0, **changes: Any):
    data = copy.deepcopy(PUBLISHED)
    data["tables"][number].update(changes)
    (tmp_path / "published.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return load_published(tmp_path / "published.yaml").tables[number]


def test_a_column_per_point(tmp_path: Path):
    table = load(tmp_path)
    assert [(c.id, c.label, c.ours, c.digits) for c in table.columns] == [
        (p, p, Quantity("forward_ms", (p,), 1.0, "ms"), None) for p in POINTS
    ]
    other = table.row("other")
    assert other is not None and other.values == {"128": 0.3, "256": 0.9, "512": "OOM"}
    assert table.plot == Plot("quantity", ("plain", "fast", "other"), "", "", "forward_ms")


def test_columns_of_their_own_stand_before_the_points(tmp_path: Path):
    columns = {"note": {"label": "note"}, "m": {"label": "memory", "ours": {"quantity": "memory", "at": "128"}}}
    table = load(tmp_path, columns=columns)
    assert [column.id for column in table.columns] == ["note", "m", *POINTS]
    assert [column.id for column, _ in table.quantities] == ["m", *POINTS]


POINT = {"quantity": "forward_ms", "at": list(POINTS)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": {**POINT, "at": []}}, "points.at: expected a list of points of a quantity"),
        ({"points": {**POINT, "at": [128]}}, "points.at: expected a list of strings, got [128]"),
        ({"points": {"at": ["128"]}}, "points"),
        ({"points": {**POINT, "factor": 1000}}, "points.unit: missing: the factor changes the unit of the samples"),
        ({"points": {**POINT, "untis": "ms"}}, "points.untis: unknown key, did you mean unit"),
        (
            {"rows": {"fast": {"label": "F", "points": [1]}}},
            "rows.fast.points: expected 4 values, one per point or null, got 1",
        ),
        ({"columns": {"128": {"label": "x"}}}, "points: a point is a column already: their names must differ"),
        (
            {"columns": {"m": {"label": "m", "ours": {"quantity": "memory"}}}},
            "columns.m.ours.at: expected one point, got []",
        ),
        (
            {"columns": {"m": {"label": "m", "ours": {"quantity": "memory", "at": ["1", "2"]}}}},
            "columns.m.ours.at: expected one point, got ['1', '2']",
        ),
        (
            {"columns": {"m": {"label": "m", "ours": {"quantity": "memory", "at": 128}}}},
            "columns.m.ours.at: expected a list",
        ),
        ({"plot": {"kind": "quantity"}}, "plot.quantity: missing, expected text"),
        ({"plot": {"kind": "quantity", "quantity": "x", "rows": ["fst"]}}, "plot.rows: got 'fst', did you mean fast?"),
        ({"plot": {"kind": "quantity", "quantity": "x", "split": "test"}}, "plot.split: unknown key"),
    ],
)
def test_errors_in_published_yaml(tmp_path: Path, changes: dict[str, Any], message: str):
    with pytest.raises(ValueError) as error:
        load(tmp_path, **changes)
    assert str(error.value).startswith(f"{tmp_path}/published.yaml: tables[0].{message}")
