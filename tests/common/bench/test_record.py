"""The file of a bench: written and read again, and refused where it is not as it should be; the machine it tells of."""

import copy
import json
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from common.bench import machine
from common.bench.record import SCHEMA, UNITS, Ratio, Record, Row, read, write

ABOUT: dict[str, Any] = {
    "backend": "plain", "passes": "both", "mask": "window:4", "dropout": 0.0, "dtype": "fp32", "batch": 1, "heads": 2,
    "kv_heads": 2, "length": 16, "head_dim": 8, "density": 0.5, "block_density": 1.0, "flops_paper": None,
    "flops_kept": 7.0,
}  # fmt: skip
OTHER: dict[str, Any] = {"backend": "flex"}
NUMBERS: dict[str, Any] = {
    "calls": 3, "input_sets": 1, "samples": (1.0, 4.0, 2.0), "seconds": 2.0, "tflops_kept": 3.5, "product_tflops": 7.0,
    "share_of_product": 0.5, "peak_bytes": 1024,
}  # fmt: skip


def example() -> Record:
    return Record(
        schema=SCHEMA,
        bench="attention",
        complete=True,
        date="2026-01-02T03:04:05+00:00",
        seconds=12.5,
        command="python -m common.bench attention",
        machine={"device": "a CPU", "cores": 2, "memory_bytes": None},
        versions={"torch": "2.13.0"},
        commit=None,
        source="0" * 64,
        settings={"lengths": [16], "tokens": None},
        clocks=({"cpu_mean_mhz": 2600.0}, {}),
        units=UNITS,
        rows=(
            Row(**ABOUT, **NUMBERS, status="measured", ratios={"sdpa": Ratio(2.0, 1.5, 3.0, 0.96)}),
            Row(**(ABOUT | OTHER), status="refused", reason="can't"),
        ),
    )


def test_written_and_read_again(tmp_path: Path) -> None:
    write(example(), tmp_path / "a" / "b.json")
    assert read(tmp_path / "a" / "b.json") == example()
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["b.json"]


def test_every_number_of_a_row_has_a_unit() -> None:
    text = {"backend", "passes", "mask", "dtype", "status", "reason"}
    assert set(UNITS) == {name for name in Row.__dataclass_fields__ if name not in text}


def put(*path: Any) -> Callable[[Any], None]:
    """Sets what lies at path[:-1] to path[-1]."""

    def change(content: Any) -> None:
        for key in path[:-2]:
            content = content[key]
        content[path[-2]] = path[-1]

    return change


FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another schema": (put("schema", 2), "schema: got 2, expected 1"),
    "no rows": (lambda c: c.pop("rows"), r"got \['rows'\] too many or missing, expected the keys of Record"),
    "a key too many": (lambda c: c["rows"][0].update(speed=1), r"rows\[0\]: got \['speed'\] too many or missing"),
    "text for a number": (put("rows", 0, "seconds", "2.0"), r"rows\[0\].seconds: got '2.0'"),
    "truth for a number": (put("rows", 0, "calls", True), r"rows\[0\].calls: got True"),
    "a share for a count": (put("rows", 0, "length", 16.5), r"rows\[0\].length: got 16.5, expected int"),
    "another pass": (put("rows", 0, "passes", "sideways"), r"rows\[0\].passes: got 'sideways'"),
    "another status": (put("rows", 1, "status", "lost"), r"rows\[1\].status: got 'lost'"),
    "no times": (put("rows", 0, "samples", []), r"rows\[0\]: a measured row: got .* samples \(\)"),
    "no share": (put("rows", 0, "share_of_product", None), r"rows\[0\]: a measured row: got"),
    "another median": (put("rows", 0, "seconds", 3.0), r"rows\[0\]: seconds: got 3.0, expected the median"),
    "no reason": (put("rows", 1, "reason", None), r"rows\[1\]: a row that is refused: got reason None"),
    "times where refused": (put("rows", 1, "seconds", 1.0), r"rows\[1\]: a row that is refused"),
    "a broken ratio": (lambda c: c["rows"][0]["ratios"]["sdpa"].pop("low"), r"rows\[0\].ratios.sdpa: got \['low'\]"),
    "a unit missing": (lambda c: c["units"].pop("seconds"), "units: got none for seconds"),
    "a list for an object": (put("machine", []), r"machine: got \[\]"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_file_that_is_not_right_is_refused_with_the_place(name: str, tmp_path: Path) -> None:
    write(example(), tmp_path / "b.json")
    content = json.loads((tmp_path / "b.json").read_text())
    before = copy.deepcopy(content)
    fault, message = FAULTS[name]
    fault(content)
    assert content != before
    (tmp_path / "b.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "b.json")


def test_no_json_and_no_nan(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(ValueError, match="got no JSON"):
        read(tmp_path / "b.json")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(replace(example(), seconds=float("nan")), tmp_path / "c.json")
    assert not (tmp_path / "c.json").exists()


def test_source_changes_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("attention/kernels", "bench"):
        (tmp_path / "common" / part).mkdir(parents=True)
    file = tmp_path / "common/attention/kernels/flash.py"
    file.write_text("a = 1\n")
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    first = machine.source()
    file.write_text("a = 2\n")
    second = machine.source()
    file.rename(file.with_name("other.py"))
    assert len({first, second, machine.source()}) == 3 and machine.commit() is None


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A device whose nvidia-smi prints what is written into the file returned, and keeps how it was called beside it."""
    answer, tool = tmp_path / "answer", tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n/bin/cat {answer}\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    told = SimpleNamespace(
        uuid="12ab", name="H", major=9, minor=0, multi_processor_count=132, total_memory=8, L2_cache_size=50
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: told)
    return answer


def test_clocks_of_a_gpu(gpu: Path) -> None:
    gpu.write_text("1980, 1980, 2619, 2619, [N/A], 700.00, 35\n")
    assert machine.clocks("cuda") == {
        "sm_mhz": 1980.0,
        "sm_max_mhz": 1980.0,
        "memory_mhz": 2619.0,
        "memory_max_mhz": 2619.0,
        "power_limit_watt": 700.0,
        "temperature_celsius": 35.0,
    }
    assert "-i GPU-12ab --query-gpu=clocks.sm,clocks.max.sm," in (gpu.parent / "called").read_text()
    gpu.write_text("570.1\n")
    assert machine.machine("cuda")["driver"] == "570.1" and machine.machine("cuda")["l2_bytes"] == 50


def test_no_nvidia_smi_is_no_trouble(gpu: Path) -> None:
    (gpu.parent / "nvidia-smi").unlink()
    assert machine.clocks("cuda") == {} and machine.machine("cuda")["driver"] is None


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
def test_within_the_limit_an_allocation_too_large_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1 GiB free, 2 GiB can't be had, and 128 MiB can; afterwards and on a GPU there is no limit."""
    monkeypatch.setattr(machine, "_available", lambda: 1 << 30)
    with machine.memory_limit("cpu"):
        torch.empty(1 << 27, dtype=torch.uint8)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            torch.empty(1 << 31, dtype=torch.uint8)
    torch.empty(1 << 31, dtype=torch.uint8)
    with machine.memory_limit("cuda"):
        torch.empty(1 << 31, dtype=torch.uint8)
