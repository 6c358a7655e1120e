"""Measured tables from configuration to report."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common.report.results import load_results
from reproductions import bench, finished, measure, provenance

CALLS: list[int] = []


@dataclass(frozen=True)
class Part:
    """Gives a quantity of row `a`; fails where told."""

    values: Sequence[float]
    fails: bool = False
    row: str = ""
    of: Any = None

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        CALLS.append(seed)
        if self.fails:
            raise RuntimeError("no such luck")
        return {"a": {"time_ms": {"unit": "ms", "at": {"1": list(self.values)}, "refused": {"2": "too long"}}}}


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    CALLS.clear()
    part = {"_target_": f"{__name__}.Part", "values": [1.0, 2.0]}
    return {
        "paper": "made_up", "rows": {"a": "A", "b": "B"}, "seed": 3, "fresh": False, "scale": {"name": "small"},
        "paths": {"runs": str(tmp_path)}, "logger": {"kind": "csv"}, "parts": {"one": part},
    }  # fmt: skip


def row(tmp_path: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = tmp_path / "made_up" / "small" / name
    return json.loads((folder / "result.json").read_text()), json.loads((folder / "samples.json").read_text())


def test_a_row_has_what_its_parts_gave_and_a_report_can_read_it(config: dict[str, Any], tmp_path: Path) -> None:
    assert measure.run(config, ()) == 0
    result, samples = row(tmp_path, "a-s3")
    assert samples == {"time_ms": {"unit": "ms", "at": {"1": [1.0, 2.0]}, "refused": {"2": "too long"}}}
    assert result["status"] == "ok" and result["seed"] == 3 and result["git_commit"]
    assert row(tmp_path, "b-s3")[1] == {}
    results = load_results(tmp_path, "made_up", "small", provenance.source_hash)
    assert {name: r.stale for name, r in results.rows.items()} == {"a": False, "b": False}


def test_a_part_is_measured_once_and_again_when_settings_or_fresh_say_so(config: dict[str, Any]) -> None:
    measure.run(config, ())
    measure.run(config, ())
    assert CALLS == [3]
    config["parts"]["one"]["values"] = [5.0]
    measure.run(config, ())
    measure.run(config | {"fresh": True}, ())
    assert CALLS == [3, 3, 3]


def test_a_failing_part_fails_the_rows_and_loses_no_other(config: dict[str, Any], tmp_path: Path) -> None:
    config["parts"] |= {"two": {"_target_": f"{__name__}.Part", "values": [1.0], "fails": True}}
    assert measure.run(config, ()) == 1
    result, samples = row(tmp_path, "a-s3")
    assert result["status"] == "failed" and "two: RuntimeError: no such luck" in result["error"]
    assert samples["time_ms"]["at"] == {"1": [1.0, 2.0]}
    assert measure.run(config, ()) == 1
    assert CALLS == [3, 3, 3], "the good part is kept"


def test_a_failing_part_fails_the_rows_that_it_names_alone(config: dict[str, Any], tmp_path: Path) -> None:
    config["parts"] |= {"two": {"_target_": f"{__name__}.Part", "values": [1.0], "fails": True, "row": "b"}}
    assert measure.run(config, ()) == 1
    assert row(tmp_path, "a-s3")[0]["status"] == "ok" and row(tmp_path, "b-s3")[0]["status"] == "failed"
    nested = {"models": {"b": {"x": 1}}, "more": ["c"], "other": "none"}
    assert set(measure.rows_of(nested, ("a", "b", "c"))) == {"b", "c"}
    assert set(measure.rows_of({"x": 1}, ("a", "b"))) == {"a", "b"}


def test_a_part_that_reads_a_run_is_measured_again_when_its_weights_change(
    config: dict[str, Any], tmp_path: Path
) -> None:
    run = tmp_path / "run-s3"
    run.mkdir()
    config["parts"]["one"]["of"] = {"run": str(run)}
    counts = []
    for weights in (b"first", b"first", b"second"):
        (run / "tested.ckpt").write_bytes(weights)
        measure.run(config, ())
        counts.append(len(CALLS))
    assert counts == [1, 1, 2]


def test_an_override_makes_rows_of_its_own(config: dict[str, Any], tmp_path: Path) -> None:
    measure.run(config, ())
    measure.run(config, ("parts.one.values=[1.0]",))
    assert row(tmp_path, "a-s3")[0]["ablation"] == []
    names = sorted(path.name for path in (tmp_path / "made_up" / "small").glob("a+*"))
    assert len(names) == 1 and "parts.one.values" in names[0]


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_the_scales_of_a_paper_compose_and_its_rows_are_told_apart(scale: str, tmp_path: Path) -> None:
    config = bench.configured(["bench=flash_attention", f"scale={scale}"])
    more = {"longformer", "bigbird", "linformer"}
    assert set(config["rows"]) == {"standard", "flash", "block_sparse_flash", "local_attention"} | more
    hashes = {
        provenance.config_hash(measure.row_config(config, (), row, label)) for row, label in config["rows"].items()
    }
    assert len(hashes) == 7
    row_config = measure.row_config(config, (), "flash", config["rows"]["flash"])
    record = {
        "seed": 1, "row": "flash", "status": "ok",
        "config_hash": provenance.config_hash(row_config), "source_hash": provenance.source_hash(row_config),
    }  # fmt: skip
    assert finished.measured_now("flash_attention", scale, record, tmp_path)
    assert not finished.measured_now("flash_attention", scale, record | {"source_hash": "older"}, tmp_path)
    assert not finished.measured_now("flash_attention", scale, record | {"config_hash": "other"}, tmp_path)


def test_a_wrong_key_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["bench=flash_attention", "parts.runtime.lenghts=[1]"]) == 2
    assert "lenghts" in capsys.readouterr().err
