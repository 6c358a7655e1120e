"""Files of a bench, as the report shows them beside the published figures."""

import json
import statistics
from pathlib import Path

import pytest

from common.bench.record import SCHEMA, UNITS, Record, Row, write
from common.report.elsewhere import elsewhere_views, load_benches
from common.report.published import load_published
from reproductions.flash_attention import export

PUBLISHED = Path(export.__file__).parent / "published.yaml"


def row(backend: str, samples: tuple[float, ...] = (0.5, 0.25, 0.125), **changed: object) -> Row:
    """Forward and backward of 32 sequences of 512 tokens, 16 heads of 128."""
    about = {
        "passes": "both", "mask": "full", "dropout": 0.0, "dtype": "bf16", "batch": 32, "heads": 16, "kv_heads": 16,
        "length": 512, "head_dim": 128, "density": 1.0, "block_density": 1.0, "flops_paper": 1e12, "flops_kept": 1e12,
        "status": "measured",
    }  # fmt: skip
    numbers = {
        "seconds": statistics.median(samples or (1.0,)), "calls": 1, "tflops_paper": 4.0, "tflops_kept": 4.0,
        "product_tflops": 8.0, "share_of_product": 0.5, "samples": samples, "peak_bytes": 3_000_000,
    }  # fmt: skip
    return Row(backend=backend, **(about | (numbers if samples else {}) | changed))  # type: ignore[arg-type]


def record(*rows: Row, complete: bool = True) -> Record:
    return Record(
        schema=SCHEMA, bench="attention", complete=complete, date="2026-01-31T10:20:30+00:00", seconds=1.0, command="c",
        machine={"device": "NVIDIA H100 (toy)"}, versions={"torch": "2"}, commit="abc", source="def", settings={},
        clocks=(), units=UNITS, rows=rows,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(export, "FOLDER", tmp_path / "measured")
    return tmp_path


def test_speeds_stand_beside_the_published_ones(folder: Path) -> None:
    """1e12 FLOP in 0.25 s is 4 TFLOP/s; FlashAttention-2 printed 248 on an H100, PyTorch 93."""
    refused = row("flash_attn", (), status="refused", reason="is not installed")
    write(record(row("triton"), row("plain", (1.0, 1.0, 1.0)), refused), folder / "bench.json")
    assert export.main([str(folder / "bench.json")]) == 0

    (bench,) = load_benches(folder / "measured")
    assert bench.file.name == "nvidia-h100-toy-2026-01-31t10-20.json" and bench.device == "NVIDIA H100 (toy)"
    views = [v for v in elsewhere_views(load_published(PUBLISHED), [bench]) if v.quantity == "tflops_both_d128"]
    view = next(v for v in views if v.table is not None and v.table.id == "fa2_h100_128")
    lines = {line.label: line.cells[0] for line in view.rows}
    assert lines["triton, bf16"].ours.value == 4.0 and lines["triton, bf16"].published is None  # type: ignore[union-attr]
    assert lines["plain, bf16"].published == 93 and lines["flash_attn, bf16"].published == 248
    assert lines["flash_attn, bf16"].refused == "refused: is not installed"
    assert lines["FlashAttention"].published == 127 and lines["FlashAttention"].ours is None


@pytest.mark.parametrize("changed, name", [
    ({}, "both_d128"),
    ({"passes": "forward", "mask": "causal", "head_dim": 64, "heads": 32, "kv_heads": 32}, "forward_d64_causal"),
    ({"mask": "causal-window:128", "flops_paper": None, "dropout": 0.1}, "both_d128_causal_window_128_dropout0.1"),
    ({"batch": 16}, "both_d128_b16_h16_kv16"),  # other than the figures' 16K tokens a batch
    ({"kv_heads": 4}, "both_d128_b32_h16_kv4"),
])  # fmt: skip
def test_only_the_shapes_of_the_figures_bear_their_names(changed: dict, name: str) -> None:
    quantities = [found["quantity"] for found in export.export(record(row("triton", **changed)))["rows"]]
    assert quantities == [f"tflops_{name}", f"memory_mb_{name}"]


def test_an_unfinished_bench_is_no_result(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(record(row("triton"), complete=False), folder / "bench.json")
    (folder / "other.json").write_text(json.dumps({"rows": []}))
    for name, told in (
        ("bench.json", "stopped before its last row"),
        ("other.json", "expected the keys of Record"),
        ("none.json", "No such"),
    ):
        assert export.main([str(folder / name)]) == 2
        assert told in capsys.readouterr().err
    assert not (folder / "measured").exists()
