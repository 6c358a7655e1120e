"""The chooser on planted measurements, whose answers follow by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.report.samples import Samples
from reproductions import choose
from reproductions.choose import BOTH, LEFT, TASKS, Chosen, Shape, at_length, front, main, measured, memory_of

GIB = 2**30
SHAPE = Shape(
    length=8192, batch=1, layers=2, heads=4, head_dim=32, groups=2, window=256, features=64, vocabulary=1000
)  # fmt: skip
ASK = ["--length", "8192", "--task", "longqa", "--phase", "infer", "--memory", "1GiB", "--layers", "2", "--heads", "4"]
HARDWARE = {"cpu": "a processor", "cores": 2, "gpu": None}
GOOD = {"status": "ok", "git_commit": "a" * 40, "git_dirty": False, "source_hash": "b", "hardware": HARDWARE, "versions": {"torch": "2"}}  # fmt: skip
SQUARE, LINE = ((512, 1.0), (2048, 16.0), (8192, 256.0)), ((512, 4.0), (2048, 16.0), (8192, 64.0))


def plant(runs: Path, row: str, **changed: Any) -> Path:
    folder = runs / f"{row}-s1"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({"row": row, **GOOD, **changed}))
    (folder / "config.yaml").write_text(yaml.safe_dump({"parts": {"layers": {"d_model": 128}}}))
    return folder


def plant_layer(runs: Path, row: str, times: tuple[tuple[int, float], ...], mb: float, **changed: Any) -> None:
    """mb: at each length, per 1,000 tokens."""
    quantities = {
        **{f"{name}_ms": {"unit": "ms", "at": {str(n): [t, t, t] for n, t in times}} for name in ("forward", "both")},
        "both_mb": {"unit": "MB", "at": {str(n): [mb * n / 1000] for n, _ in times}},
    }
    (plant(runs, f"layer_{row}", **changed) / "samples.json").write_text(json.dumps(quantities))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Softmax and sums cross at 2,048 tokens; the sums recall half."""
    for row in ("fused", "multi_query", "both_fused"):
        plant_layer(tmp_path, row, SQUARE, 10.0)
    for row in ("elu", "both_window"):
        plant_layer(tmp_path, row, LINE, 10.0)
    for row, accuracy in (("full", 90.0), ("linear", 45.0), ("multi_query", 89.0)):
        plant(tmp_path, f"recall_{row}", metrics={"test/accuracy": {"value": accuracy}})
    return tmp_path


def ask(runs: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main([*ASK, "--runs", str(runs), *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def line(out: str, kind: str) -> str:
    [found] = [line for line in out.splitlines() if line.startswith(f"{kind}  ")]
    return found


def test_times_between_and_beyond_the_measured_lengths() -> None:
    """By squares in between: 4 at 1,024; beyond by the given power: 1,024 at 16,384, of which a line would make 512."""
    samples = Samples("ms", {str(n): (t,) for n, t in SQUARE}, {})
    assert at_length(samples, 1024, 2) == (pytest.approx(4.0), False)
    assert at_length(samples, 2048, 2) == (pytest.approx(16.0), False)
    assert at_length(samples, 16384, 2) == (pytest.approx(1024.0), True)
    assert at_length(samples, 16384, 1) == (pytest.approx(512.0), True)
    assert at_length(samples, 256, 2) == (pytest.approx(0.25), True)


@pytest.mark.parametrize(("text", "bytes"), [("24GiB", 24 * GIB), ("80GB", 80 * 10**9), ("1.5MiB", 3 * 2**19)])
def test_units_of_memory(text: str, bytes: int) -> None:
    assert memory_of(text) == bytes


def test_what_generation_keeps() -> None:
    """Of 8,192 tokens, 4 heads of 32: full 2 x 8,192 x 128, one head a quarter of it, two half, a window of 256 a 32nd; sums 4 x
    32 x 33, features 4 x 64 x 33."""
    kept = {option.row: option.kept(SHAPE) for option in LEFT}
    assert kept["full"] == kept["fused"] == 2097152
    assert (kept["multi_query"], kept["grouped"], kept["window"]) == (524288, 1048576, 65536)
    assert (kept["elu"], kept["features"]) == (4224, 8448)
    assert all(option.kept(SHAPE) == 0 for option in BOTH), "an encoder keeps nothing"


def test_memory_worked_by_hand() -> None:
    """Weights: 2 blocks of 12 x 128^2 and 1,000 x 128. To infer 2 bytes each and of the caches; to train 16 bytes each and what
    layers hold, here 3 bytes a token and dimension."""
    weights = 2 * 12 * 128**2 + 1000 * 128
    assert SHAPE.weights == weights == 521216
    [fused] = [option for option in LEFT if option.row == "fused"]
    assert choose.plan_memory(fused, SHAPE, "infer", 3.0) == 2 * (weights + 2 * 2097152)
    assert choose.plan_memory(fused, SHAPE, "train", 3.0) == 16 * weights + 2 * 8192 * 128 * 3
    assert choose.plan_memory(fused, replace(SHAPE, batch=3), "infer", 3.0) == 2 * (weights + 3 * 2 * 2097152)


def test_the_front_is_what_nothing_beats() -> None:
    def one(row: str, time: float, memory: int, recall: float | None) -> Chosen:
        [option] = [option for option in LEFT if option.row == row]
        return Chosen(option, time, False, memory, recall)

    slow, fast = one("fused", 10, 100, 90.0), one("elu", 1, 10, 45.0)
    worse, unknown = one("multi_query", 11, 100, 89.0), one("features", 20, 200, None)
    assert front([slow, fast, worse], far=True) == [slow, fast]
    assert front([slow, fast, worse], far=False) == [fast], "where recall does not count"
    assert front([slow, fast, unknown], far=True) == [slow, fast, unknown], "what was not measured is not beaten"
    near = one("window", 1, 10, None)
    assert front([near, unknown], far=True) == [near, unknown], "one layer of a window sees less"
    assert front([near, unknown], far=False) == [near]


def test_a_request_from_measurements_to_reasons(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(runs, capsys)
    assert code == 0
    # 32,000 x 256 + 2 x 12 x 256^2 weights of 2 bytes, 0.0182 GiB, and of full attention 2 x 2 x 8,192 x 256 x 2 bytes, 0.0156.
    assert line(out, "sums, elu + 1").removeprefix("sums, elu + 1").split()[:4] == ["64", "0.02", "45.0", "front"]
    assert line(out, "full, fused kernel").removeprefix("full, fused kernel").split()[:4] == [
        "256",
        "0.03",
        "90.0",
        "front",
    ]
    assert "front" in line(out, "multi-query"), "less memory, a little less recall"
    assert "a processor, 2 cores" in out and "agrees: linear attention pays above 4,096 tokens" in out
    assert "DISAGREES: linear attention recalls less" not in out and "agrees: linear attention recalls less" in out


def test_where_the_rule_and_the_measurement_disagree(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At 4,096 tokens 64 ms and 32 ms: sums are ahead where the rule says not yet. At 2,048 both take 16 ms."""
    assert (
        "DISAGREES: linear attention pays above 4,096 tokens: here softmax attention (softmax 64 ms, linear 32 ms)"
        in (ask(runs, capsys, "--length", "4096")[1])
    )
    assert "DISAGREES: linear attention pays" in ask(runs, capsys, "--length", "2048")[1]
    assert "agrees: linear attention pays" in ask(runs, capsys, "--length", "512")[1]


def test_what_is_too_large_is_not_chosen(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """32,000 x 256 + 2 x 12 x 256^2 weights of 2 bytes are 0.018 GiB, and 8,192 tokens of full attention 0.016 more."""
    _, out, _ = ask(runs, capsys, "--memory", "20MiB")
    assert "too large" in line(out, "full, fused kernel") and "front" in line(out, "sums, elu + 1")
    assert "Nothing fits 0.0 GiB: sums, elu + 1 needs least" in ask(runs, capsys, "--memory", "1MiB")[1]


def test_tasks_that_read_both_ways_have_kinds_of_their_own(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = ask(runs, capsys, "--task", "classify", "--phase", "train")
    assert "front" in line(out, "window") and "front" not in line(out, "full, fused kernel")
    assert "multi-query" not in out and {TASKS[name].left for name in ("classify", "retrieve")} == {False}
    _, far, _ = ask(runs, capsys, "--task", "retrieve", "--phase", "train")
    assert "front" in line(far, "full, fused kernel") and "sees through several layers alone" in far


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"git_commit": None}, "no git_commit"),
        ({"versions": {}}, "no versions"),
        ({"git_dirty": True}, "made of changed sources"),
        ({"hardware": {**HARDWARE, "cores": 8}}, "layers measured on a processor, 2 cores and on a processor, 8 cores"),
    ],
)
def test_measurements_without_provenance_are_refused(
    runs: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], told: str
) -> None:
    plant_layer(runs, "window", LINE, 10.0, **changed)
    code, out, err = ask(runs, capsys)
    assert (code, out) == (2, "") and told in err


def test_bad_requests(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "make stored-field-guide" in ask(tmp_path / "none", capsys)[2]
    assert "--length -1: expected 1 or more" in ask(runs, capsys, "--length", "-1")[2]
    with pytest.raises(SystemExit):
        ask(runs, capsys, "--memory", "24")
    assert "got '24', expected a number and a unit, such as 24GiB" in capsys.readouterr().err


def test_a_quantity_that_is_not_there_is_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = runs / "layer_elu-s1/samples.json"
    kept = {name: found for name, found in json.loads(file.read_text()).items() if name == "forward_ms"}
    file.write_text(json.dumps(kept))
    code, out, err = ask(runs, capsys)
    assert (code, out) == (2, "") and "layer_elu: no both_mb: measured otherwise" in err


def test_a_run_that_failed_says_nothing(runs: Path) -> None:
    plant_layer(runs, "window", LINE, 10.0, status="failed")
    assert "window" not in measured(runs).samples
