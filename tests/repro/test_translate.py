"""A user's text through a finished run: order, blank lines, n-best lists, alignments, and what stops halfway."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
import torch

from common.decode.beam import beam_search
from data.vocab import BOS, EOS, PAD
from reproductions.compose import Job
from reproductions.config import Decode, requested
from reproductions.job import run
from reproductions.translate import BLOCK, Request, Translator, load, shown

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tested(tiny: Callable[..., Job]) -> Job:
    job = tiny("budget.target_tokens=20000")
    run(job.config, job.folder, [])
    return job


@pytest.fixture(scope="module")
def stored(tested: Job) -> list[dict]:
    return [json.loads(line) for line in (tested.folder / "sentences" / "test.jsonl").read_text().splitlines()]


@pytest.fixture
def translator(tested: Job) -> Callable[[int], Translator]:
    module, data, config = load(tested.folder)
    return lambda n: Translator(module, data, Decode(**config["decode"]), n)


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tested: Job) -> Iterator[Start]:
    """The command in a process of its own, its standard input still open."""
    started: list[subprocess.Popen[bytes]] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, and by children too

    def begin(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "reproductions.translate", f"run={tested.folder}", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        started.append(process)
        return process

    yield begin
    signal.signal(signal.SIGINT, before)
    for process in started:
        process.kill()
        process.wait()


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def test_order_and_blank_lines_are_kept(translator: Callable[[int], Translator], stored: list[dict]) -> None:
    sources, expected = ([r[key] for r in stored] for key in ("source", "hypothesis"))
    assert len({len(s.split()) for s in sources}) > 3, "lines of one length would keep their order anyway"
    lines = [sources[0], "", *sources[1:20], " \u3000", *sources[20:]]
    found = [line.hypotheses[0].text for line in translator(1)(lines)]
    assert found == [expected[0], "", *expected[1:20], "", *expected[20:]]


def test_the_best_ones_with_their_scores_and_alignments(
    tested: Job, translator: Callable[[int], Translator], stored: list[dict]
) -> None:
    """Against a beam search of one sentence, its weights read here."""
    module, data, _ = load(tested.folder)
    line = translator(3)([stored[4]["source"]])[0]
    words = stored[4]["source"].split()
    assert line.source == words
    source = torch.tensor([[*data.source_vocab.encode(words), EOS]])
    limit = int(len(source[0]) * tested.config["decode"]["max_ratio"]) + tested.config["decode"]["max_extra"]
    (best,) = beam_search(module.translator, source, source != PAD, bos=BOS, eos=EOS, beam=3, max_len=limit, n_best=3)
    assert len(line.hypotheses) == 3
    for found, expected in zip(line.hypotheses, best, strict=True):
        assert found.units == data.target_vocab.units(expected.tokens)
        assert found.text.split() == found.units, "generated words need no detokenizer"
        assert found.log_prob == pytest.approx(expected.log_prob, abs=1e-4)
        assert expected.weights is not None
        looks = [(int(row[: len(words)].argmax()), t) for t, row in enumerate(expected.weights[: len(found.units)])]
        assert found.alignment == " ".join(f"{j}-{t}" for j, t in looks)
    scores = [h.log_prob for h in line.hypotheses]
    assert scores == sorted(scores, reverse=True) and len({h.text for h in line.hypotheses}) == 3


def test_an_nbest_list_counts_the_lines_of_the_text(
    tested: Job, translator: Callable[[int], Translator], stored: list[dict]
) -> None:
    lines = translator(2)([stored[0]["source"], "", stored[1]["source"]])
    request = Request(run=tested.folder, beam=None, nbest=2)
    rows = [row.split(" ||| ") for i, line in enumerate(lines) for row in shown(7 + i, line, request).splitlines()]
    assert [row[0] for row in rows] == ["7", "7", "8", "9", "9"]
    assert rows[2][1] == "" and rows[0][1] == lines[0].hypotheses[0].text
    assert float(rows[0][2]) >= float(rows[1][2])


def test_json_has_a_line_for_a_line(tested: Job, start: Start, stored: list[dict]) -> None:
    process = start("output=json", "nbest=2", "beam=2")
    out, error = process.communicate(f"{stored[0]['source']}\n\n".encode())
    assert process.returncode == 0, error.decode()
    first, blank = (json.loads(line) for line in out.decode().splitlines())
    assert first["source"] == stored[0]["source"].split() and len(first["hypotheses"]) == 2
    assert set(first["hypotheses"][0]) == {"text", "units", "log_prob", "score", "finished", "alignment"}
    assert blank["source"] == [] and [h["text"] for h in blank["hypotheses"]] == [""]


def test_ctrl_c_leaves_whole_lines_and_says_where_to_go_on(start: Start, stored: list[dict]) -> None:
    process = start()
    text = "".join(f"{stored[i % 20]['source']}\n" for i in range(BLOCK + 5))
    pipe(process.stdin).write(text.encode())
    pipe(process.stdin).flush()
    found = [pipe(process.stdout).readline().decode().rstrip("\n") for _ in range(BLOCK)]  # the pipe stays open
    process.send_signal(signal.SIGINT)
    rest, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert found == [stored[i % 20]["hypothesis"] for i in range(BLOCK)] and rest == b""
    assert f"interrupted after {BLOCK} lines" in error.decode() and f"tail -n +{BLOCK + 1}" in error.decode()
    assert "Traceback" not in error.decode()


def test_a_line_that_is_no_text_costs_nothing_before_it(start: Start, stored: list[dict]) -> None:
    process = start()
    out, error = process.communicate(f"{stored[0]['source']}\n{stored[1]['source']}\n".encode() + b"\xff\n")
    assert process.returncode == 2
    assert out.decode().splitlines() == [stored[0]["hypothesis"], stored[1]["hypothesis"]]
    assert "line 3: not valid UTF-8" in error.decode() and "Traceback" not in error.decode()


def test_a_reader_that_has_enough_ends_it_quietly(start: Start, stored: list[dict]) -> None:
    process = start()
    pipe(process.stdout).close()
    pipe(process.stdin).write(f"{stored[0]['source']}\n".encode())
    pipe(process.stdin).close()
    assert process.wait(60) == 141 and pipe(process.stderr).read() == b""


def test_it_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no config.yaml: expected the folder of a finished run"):
        load(tmp_path)
    for arguments, message in (
        (["beam=3"], "run: Field required, got 'nothing'"),
        (["run=x", "beem=3"], "no key 'beem'; near: beam"),
        (["run=x", "beam=0"], "beam: .* greater than 0, got '0'"),
        (["run=x", "output=yaml"], "output: .*'text' or 'json', got 'yaml'"),
    ):
        with pytest.raises(ValueError, match=message):
            requested(Request, arguments)
