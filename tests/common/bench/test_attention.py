"""The attention bench end to end at tiny sizes: which rows there are, what is in them, what becomes of trouble."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from common.bench import group, job
from common.bench.__main__ import main
from common.bench.attention import line
from common.bench.group import History, Problem, attempt, measure
from common.bench.job import Job
from common.bench.ratios import coverage, ratio
from common.bench.record import Row, read
from common.bench.settings import parse
from common.bench.workload import Inputs


@pytest.fixture(autouse=True)
def short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "LEAST_SECONDS", 1e-4)


TINY = ["device=cpu", "hidden=16", "head_dims=8", "product=32", "repeats=2"]


def rows(*words: str, history: History | None = None) -> list[Row]:
    settings = parse([*TINY, *words])
    shape = settings.shape(settings.lengths[0], settings.head_dims[0], settings.dtypes[0])
    return measure(settings, shape, History() if history is None else history)


def test_one_file_with_every_row(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "bench.json"
    words = [
        "lengths=32,16",
        "backends=reference,plain,triton",
        "masks=full,causal,causal-window:4,blocks:0.5",
        "block=8",
        "dropout=0,0.25",
        "dtypes=fp32,bf16",
    ]
    assert main(["attention", *TINY, *words, f"out={out}"]) == 0
    record = read(out)
    assert record.complete and record.bench == "attention" and record.commit != ""
    assert record.settings["lengths"] == [32, 16] and "lengths=32,16" in record.command
    assert {"torch", "python"} <= set(record.versions) and record.machine["threads"] == torch.get_num_threads()
    kinds = [(r.dtype, r.length, r.mask, r.dropout, r.backend, r.passes) for r in record.rows]
    assert len(set(kinds)) == len(kinds) == 2 * 2 * 4 * 2 * 3 * 3
    assert [r.length for r in record.rows] == ([16] * 72 + [32] * 72) * 2
    for row in record.rows:
        assert (row.status == "refused") == (row.backend == "triton") and row.batch == 1 and row.heads == 2
        if row.status == "measured":
            assert len(row.samples) == 2 and row.input_sets == 1 and row.calls is not None and row.calls >= 1
            assert (row.peak_bytes is None) == (row.passes == "backward")
            assert set(row.ratios) == {"plain", "reference"} - {row.backend}
            assert row.over_block_density is not None and row.seconds is not None and row.product_tflops is not None


def test_the_numbers_of_a_row() -> None:
    """Batch 3, 2 heads of 8, length 16: 4 B H L^2 D = 49152; a window of 4 keeps 1 + 2 + 3 + 4 + 12 x 5 of 256 pairs."""
    found = rows("lengths=16", "batch=3", "backends=plain,reference", "masks=full,causal,causal-window:4", "dropout=0")
    by = {(r.mask, r.backend, r.passes): r for r in found}
    full, causal, window = (by[mask, "plain", "forward"] for mask in ("full", "causal", "causal-window:4"))
    assert (full.flops_paper, full.flops_kept, full.density) == (49152, 49152, 1)
    assert (causal.flops_paper, causal.flops_kept) == (49152 / 2, 49152 * 136 / 256)
    assert (window.flops_paper, window.flops_kept, window.density) == (None, 49152 * 70 / 256, 70 / 256)
    assert by["causal", "plain", "both"].flops_paper == 3.5 * 49152 / 2
    assert full.peak_bytes == 2 * 3 * 2 * 16**2 * 4  # scores and weights; Q scaled is gone by then
    for row in found:
        assert row.seconds and row.product_tflops and row.tflops_kept
        assert row.tflops_kept == pytest.approx(row.flops_kept / row.seconds / 1e12)
        best = row.tflops_kept if row.flops_paper is None else row.flops_paper / row.seconds / 1e12
        assert row.share_of_product == pytest.approx(best / row.product_tflops)
        other = by[row.mask, "reference" if row.backend == "plain" else "plain", row.passes]
        quotients = [a / b for a, b in zip(other.samples, row.samples, strict=True)]
        assert row.ratios[other.backend].median == pytest.approx(sum(quotients) / 2)
        whole = by["full", row.backend, row.passes]
        assert whole.seconds and row.over_block_density == pytest.approx(row.seconds / whole.seconds)


def test_the_peak_is_that_of_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 x 32^3 FLOP in half a second."""
    monkeypatch.setattr(group, "seconds_of", lambda function: 0.5)
    [row] = rows("lengths=16", "masks=full", "dropout=0", "passes=forward", "backends=plain")
    assert row.product_tflops == pytest.approx(2 * 32**3 / 0.5 / 1e12)


def test_time_over_block_density() -> None:
    """2 of 4 blocks: half the time of the full mask would be 1."""
    words = ("lengths=256", "backends=reference", "masks=full,blocks:0.5", "dropout=0", "passes=forward")
    full, half = rows(*words)
    assert half.block_density == 0.5 and half.seconds and full.seconds
    assert half.over_block_density == pytest.approx(2 * half.seconds / full.seconds)
    assert full.over_block_density == 1 and rows(*words[:2], "masks=causal")[0].over_block_density is None


def test_tokens_set_the_batch_and_hidden_the_heads() -> None:
    settings = parse([*TINY, "tokens=64", "hidden=32", "head_dims=8,16", "kv_heads=2", "lengths=16,128"])
    shapes = [settings.shape(length, size, "fp32") for length in (16, 128) for size in (8, 16)]
    assert [(s.batch, s.heads, s.kv_heads) for s in shapes] == [(4, 4, 2), (4, 2, 2), (1, 4, 2), (1, 2, 2)]


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Instead of `plain`, a function that a test puts here under "attend"."""
    box: dict[str, Any] = {"attend": lambda q, k, v: q * k.sum() * v.sum()}
    prepare = group.prepare

    def planted_prepare(name: str, inputs: Inputs, *rest: Any) -> Any:
        return (lambda q, k, v: box["attend"](q, k, v)) if name == "plain" else prepare(name, inputs, *rest)

    monkeypatch.setattr(group, "prepare", planted_prepare)
    return box


def raising(error: BaseException) -> Any:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise error

    return attend


WORDS = ("masks=full", "dropout=0", "passes=forward", "backends=plain,reference")


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "out of memory", "CUDA out of memory."),
        (MemoryError(), "out of memory", "MemoryError"),
        (RuntimeError("No available kernel. Aborting execution."), "refused", "has no kernel of torch's for this"),
        (RuntimeError("misaligned\n address"), "failed", "RuntimeError: misaligned address"),
    ],
)
def test_trouble_is_a_row_and_the_rest_goes_on(
    planted: dict[str, Any], error: Exception, status: str, reason: str
) -> None:
    planted["attend"] = raising(error)
    plain, reference = rows("lengths=16", *WORDS)
    assert (plain.status, plain.reason, plain.seconds) == (status, reason, None)
    assert reference.status == "measured" and reference.ratios == {}


def test_trouble_in_a_later_turn_is_a_row_too(planted: dict[str, Any]) -> None:
    calls: list[int] = []

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 3:
            raise torch.OutOfMemoryError("late")
        return q * 1

    planted["attend"] = attend
    plain, reference = rows("lengths=16", *WORDS)
    assert (plain.status, plain.reason, plain.samples) == ("out of memory", "late", ())
    assert reference.status == "measured"


def test_an_allocation_that_fails_on_a_cpu_is_out_of_memory() -> None:
    problem = attempt(lambda: torch.empty(1 << 60))
    assert isinstance(problem, Problem) and problem.status == "out of memory"


def test_memory_that_ended_is_not_tried_again_at_greater_length(planted: dict[str, Any]) -> None:
    history, tried = History(), []

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tried.append(q.shape[2])
        raise torch.OutOfMemoryError("full")

    planted["attend"] = attend
    assert rows("lengths=16", *WORDS, history=history)[0].reason == "full"
    later = rows("lengths=32", *WORDS, history=history)
    assert (later[0].status, later[0].reason) == ("out of memory", "as at length 16")
    assert tried == [16] and later[1].status == "measured"


def test_what_takes_longer_than_the_budget_is_skipped(planted: dict[str, Any]) -> None:
    """By the first call where nothing is known yet; without a call where a shorter length foretells it."""
    history, tried = History(), []

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tried.append(q.shape[2])
        return q * 1

    planted["attend"] = attend
    for length, how in ((16, "by its first call"), (32, "expected, from 16 tokens")):
        row = rows(f"lengths={length}", "budget=1e-9", *WORDS, history=history)[0]
        assert row.status == "skipped" and row.reason is not None
        assert how in row.reason and "more than the budget of 1e-09 s" in row.reason
    assert set(tried) == {16}


def test_what_is_known_of_cost_is_by_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """6 s for a batch of 3 are 2 s each; twice the length 8 s, for a batch of 4 and 2 repeats and 3 calls more 160 s."""
    history = History()
    monkeypatch.setattr(Job, "warm_up", lambda self: setattr(self, "cost", 6.0))
    rows("lengths=16", "batch=3", "budget=100", *WORDS, history=history)
    assert list(history.costs.values()) == [[(16, 2.0)]] * 2
    later = rows("lengths=32", "batch=4", "budget=100", *WORDS, history=history)
    assert [row.reason for row in later] == ["160 s expected, from 16 tokens, more than the budget of 100 s"] * 2


def test_the_forecast_follows_the_growth_between_linear_and_square() -> None:
    for known, expected in (
        ([], None),
        ([(100, 1.0)], 16.0),
        ([(100, 1.0), (200, 2.0)], 4.0),
        ([(100, 1.0), (200, 4.0)], 16.0),
        ([(100, 1.0), (200, 2.0**1.5)], 8.0),
        ([(100, 1.0), (200, 0.5)], 1.0),
        ([(100, 1.0), (200, 100.0)], 400.0),
        ([(50, 9.0), (100, 1.0), (200, 2.0)], 4.0),
    ):
        history = History(costs={("a",): known})
        assert history.forecast(("a",), 400) == (None if expected is None else pytest.approx(expected))


def test_a_failed_row_is_told_by_the_exit_code(planted: dict[str, Any], tmp_path: Path) -> None:
    planted["attend"] = raising(RuntimeError("broken"))
    out = tmp_path / "b.json"
    assert main(["attention", *TINY, "lengths=16", *WORDS, f"out={out}"]) == 1
    assert [row.status for row in read(out).rows] == ["failed", "measured"]


def test_a_run_that_is_cut_short_leaves_its_rows(planted: dict[str, Any], tmp_path: Path) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if q.shape[2] > 16:
            raise KeyboardInterrupt
        return q * 1

    planted["attend"] = attend
    out = tmp_path / "b.json"
    with pytest.raises(KeyboardInterrupt):
        main(["attention", *TINY, "lengths=16,32", *WORDS, f"out={out}"])
    record = read(out)
    assert not record.complete and {row.length for row in record.rows} == {16}


def test_ratios_by_turns() -> None:
    """Medians of quotients, not quotients of medians: turns 8/1, 6/2, 9/3 are 8, 3, 3."""
    got = ratio([8.0, 6.0, 9.0], [1.0, 2.0, 3.0])
    assert (got.median, got.low, got.high, got.coverage) == (3.0, 3.0, 8.0, 0.75)  # 1 - 2 / 2^3
    nine = ratio([float(n) for n in (5, 1, 9, 2, 8, 3, 7, 4, 6)], [1.0] * 9)
    assert (nine.median, nine.low, nine.high) == (5.0, 2.0, 8.0)  # one off at each end: 1 - 2 (1 + 9) / 2^9
    assert nine.coverage == coverage(9, 1) == 1 - 20 / 512
    assert ratio([1.0] * 6, [1.0] * 6).coverage == 1 - 2 / 64


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("length=16", "got 'length=16', expected key=value with a key of device, lengths"),
        ("lengths", "got 'lengths', expected key=value"),
        ("lengths=16,x", "lengths: got 'x', expected int"),
        ("lengths=0", "got 0, expected lengths, sizes and repeats of 1 or more"),
        ("budget=long", "budget: got 'long', expected float"),
        ("dtypes=int8", "dtypes: got 'int8', expected of fp16"),
        ("backends=fast", "backends: got 'fast', expected of reference"),
        ("passes=sideways", "passes: got 'sideways', expected of forward"),
        ("masks=triangle", "mask: got 'triangle', expected one of full"),
        ("dropout=1", "dropout: got"),
        ("hidden=12", "hidden: got 12, expected a multiple of head_dims 8"),
        ("kv_heads=3", "expected a multiple of head_dims 8 .and kv_heads 3"),
        ("device=tpu", "device: got 'tpu', expected cpu"),
    ],
)
def test_settings_that_mean_nothing(word: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=message):
        parse([*TINY, word])
    assert main(["attention", *TINY, word]) == 2
    assert "expected" in capsys.readouterr().err


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(f"  {name}=" in text for name in json.loads(json.dumps(vars(parse(["device=cpu"])))))


def test_what_the_meter_does_not_see_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "UNMETERED", {("plain", "cpu")})
    words = ("lengths=16", "masks=full", "dropout=0", "passes=forward,both", "backends=plain,reference")
    assert [row.peak_bytes is None for row in rows(*words)] == [True, True, False, False]


def test_it_runs_where_there_is_torch_alone(tmp_path: Path) -> None:
    code = f"""
import sys
for name in ("numpy", "hydra", "omegaconf", "pytorch_lightning", "yaml", "scipy", "pydantic"):
    sys.modules[name] = None  # as if it were not installed
from common.bench.__main__ import main
words = {[*TINY, "lengths=16", "masks=causal,blocks:0.5", "block=8", "backends=reference,plain,sdpa,chunked"]}
sys.exit(main(["attention", *words, "out={tmp_path}/b.json"]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=Path(__file__).parents[3])
    assert {row.status for row in read(tmp_path / "b.json").rows} == {"measured", "refused"}


def test_a_line_for_people() -> None:
    measured, refused = rows("lengths=16", "masks=causal", "dropout=0", "passes=both", "backends=plain,triton")
    assert "causal" in line(measured) and " ms " in line(measured) and " MiB" in line(measured)
    assert line(refused).endswith("refused: is only interpreted on a CPU, which says nothing of its speed")
