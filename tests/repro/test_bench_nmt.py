"""make bench-nmt on tiny models: every line is there, and its numbers fit each other."""

import re

import pytest

from reproductions.bench import main

TINY = (
    "bench=nmt", "threads=1", "repeats=1", "sentences=3", "words=4", "vocabulary=30", "embedding=8", "hidden=8", "maxout=4",
    "beam=2", "transformer={layers: 1, d_model: 8, d_ff: 16, heads: 2}",
)  # fmt: skip


def test_speeds_of_every_model_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(TINY) == 0
    out = capsys.readouterr().out
    rows = {
        line[:30].strip(): [float(x.rstrip("%")) for x in re.findall(r"[\d.]+%?", line[30:])]
        for line in out.splitlines()
        if re.match(r"(RNN|Trans).{27}\s", line)
    }
    trained = {name for name in rows if name.endswith(("fp32", "bf16", "loop"))}
    assert trained == {f"{m} {p}" for m in ("RNNsearch", "RNNencdec", "Transformer") for p in ("fp32", "bf16")} | {
        "RNNsearch fp32, plain loop"
    }
    assert rows["RNNsearch fp32"][1] == rows["RNNsearch fp32, plain loop"][1], "the same products, written out or not"
    assert set(rows) - trained == {"RNNsearch", "Transformer", "Transformer, no cache"}
    cached, anew = rows["Transformer"], rows["Transformer, no cache"]
    for beam in (0, 1):
        assert cached[2 + beam] == pytest.approx(cached[beam] / anew[beam], rel=0.01, abs=0.006)
