"""Each look at a planted fault, which it names, and at a model without one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from common.bench.memory import peak_bytes
from common.lit.text import LanguageModel
from common.nn.sparse import Full
from common.nn.sparse.full import FullAttention
from reproductions.doctor import oom
from reproductions.doctor import position as longer_texts
from reproductions.doctor.__main__ import main
from reproductions.doctor.blur import heads
from reproductions.doctor.causal import leaks
from reproductions.doctor.dims import walk
from reproductions.doctor.oom import Remedy, measure, predict, remedies
from reproductions.doctor.position import longer, reordered
from reproductions.doctor.subject import Report, Subject, subject_of

TEXT = ("experiment=field_guide/text_full", "scale=smoke")
PAIRS = ("experiment=transformer/base", "scale=smoke")
RECURRENT = ("experiment=bahdanau/rnnsearch_50", "scale=smoke")


def drawn(*words: str) -> tuple[Subject, LanguageModel]:
    subject = subject_of(words or TEXT)
    module: Any = subject.drawn()
    return subject, module


def block(module: Any, number: int) -> Any:
    return module.model.trunk.blocks[number]


@pytest.mark.parametrize("row", [TEXT, PAIRS, RECURRENT], ids=lambda row: row[0])
@pytest.mark.parametrize("look", ["causal", "dims"])
def test_rows_without_a_fault(row: tuple[str, ...], look: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([look, *row]) == 0
    assert capsys.readouterr().out.endswith("nothing wrong found\n")


def test_the_walk_names_the_part_that_does_not_fit() -> None:
    subject, module = drawn()
    batch, width = subject.made_up(2, 12), block(module, 0).attention.w_o.in_features
    block(module, 0).attention.w_o = nn.Linear(width + 1, width)
    found = walk(module, batch)
    [fault] = found.faults
    assert fault.startswith(f"trunk.blocks.0.attention.w_o (Linear), given (2, 12, {width}): ")
    assert found.lines[0].startswith("trunk.embedding") and not any("feedforward" in line for line in found.lines)


def test_the_first_part_that_sees_what_follows_is_named() -> None:
    """The second block looks both ways; the first does not, and what follows the second has it from there."""
    subject, module = drawn()
    batch, attention = subject.made_up(2, 12), block(module, 1).attention
    width = attention.w_o.in_features
    block(module, 1).attention = Full(backend="reference")(width, attention.heads, 1, 2)
    [fault] = leaks(module, batch).faults
    assert fault.startswith("trunk.blocks.1.attention (FullAttention): position ")


def test_one_key_too_many_is_a_leak() -> None:
    """Shifted by one, after the last layer."""

    class Ahead(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1e-6 * x.roll(-1, 1)

    subject, module = drawn()
    trunk: Any = module.model.trunk
    trunk.last = Ahead()
    [fault] = leaks(module, subject.made_up(2, 12)).faults
    assert fault.startswith("trunk.last (Ahead): position 0 hangs on position 1, which nothing that it is given does")


def test_a_model_of_both_sides_has_nothing_to_leak(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["causal", "experiment=longformer_bigbird/mlm_short", "scale=smoke"]) == 0
    assert "sees both sides of a position, as it should" in capsys.readouterr().out


def test_heads_that_read_evenly_or_alike_are_named() -> None:
    subject, module = drawn()
    _, before = drawn()
    tokens = subject.made_up(2, 12).tokens
    assert len(heads(before.model, before.model, tokens).faults) >= 8, "as drawn from N(0, 0.02^2) all are even"
    with torch.no_grad():
        for layer in (block(module, 0).attention, block(module, 1).attention):
            assert isinstance(layer, FullAttention)
            layer.w_q.weight.normal_()  # sharp, so that heads differ
            layer.w_k.weight.normal_()
        size = layer.w_q.out_features // layer.heads
        layer.w_q.weight[:size].zero_()
        layer.w_q.bias[:size].zero_()
        layer.w_q.weight[2 * size : 3 * size] = layer.w_q.weight[size : 2 * size]
        layer.w_k.weight[2 * size : 3 * size] = layer.w_k.weight[size : 2 * size]
    found = heads(module.model, before.model, tokens)
    assert [fault.partition(" (")[0] for fault in found.faults] == [
        "layer 1, head 0: reads evenly",
        "layer 1: heads 1 and 2 look at the same",
    ]


def test_a_configuration_has_no_trained_heads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["blur", *TEXT]) == 2
    assert "expected the folder of a finished run" in capsys.readouterr().err


def test_a_model_without_positions_is_blind_to_order() -> None:
    """One layer, whose last position is asked: a set to it. Two layers know from what each position before could see."""
    for options, blind in (
        (("model.positions=none", "model.max_length=null", "model.layers=1"), True),
        (("model.positions=none", "model.max_length=null", "model.layers=2"), False),
        (("model.positions=sinusoidal", "model.max_length=null", "model.layers=1"), False),
    ):
        subject, module = drawn(*TEXT, *options)
        with torch.no_grad():
            for weight in module.parameters():
                weight.normal_(std=0.3)
        found = reordered(module, subject.made_up(4, 12).tokens)
        assert [fault.partition(":")[0] for fault in found.faults] == ["blind to the order"] * blind, options


def test_texts_longer_than_those_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """ln 4 nats a symbol at 64, ln 5 at 128, a quarter more, and none at 256, as the model refuses them."""
    nats = {64: 4.0, 128: 5.0}

    def records(_: Any, text: int, *__: Any) -> list[dict[str, float]]:
        if text not in nats:
            raise ValueError("no position beyond 128")
        return [{"nll": float(torch.tensor(nats[text]).log()) * 10, "targets": 10}]

    monkeypatch.setattr(longer_texts, "prepared", lambda run, eval_length, eval_step: eval_length)
    monkeypatch.setattr(longer_texts, "opened", lambda run, text: Subject({}))
    monkeypatch.setattr(Subject, "module", None, raising=False)
    monkeypatch.setattr(longer_texts, "scored_items", records)
    longer("a run", 64, report := Report())
    assert report.faults == ["128 tokens: perplexity 1.25 times that of 64, its training"]
    assert report.lines[-1] == "256 tokens: refused: no position beyond 128"


def test_which_remedies_there_are() -> None:
    config = subject_of(TEXT).config
    written = config | {
        "model": config["model"] | {"attention": config["model"]["attention"] | {"backend": "reference"}}
    }
    found = dict(remedies(written, 64))
    kernel, window = found["fused kernel"], found["window of an eighth"]
    assert isinstance(kernel, Remedy) and isinstance(window, Remedy)
    assert kernel.config["model"]["attention"]["backend"] == "sdpa"
    attention = window.config["model"]["attention"]
    assert (attention["_target_"], attention["window"], attention["causal"]) == ("common.nn.sparse.Windowed", 8, True)
    assert dict(remedies(kernel.config, 64))["fused kernel"] == "has one"
    recurrent = dict(remedies(subject_of(RECURRENT).config, 64))
    assert recurrent["fused kernel"] == "no model.attention of full attention to compute otherwise"


def test_memory_is_predicted_within_a_tenth() -> None:
    """Of a process of its own, which knows nothing of the prediction; half the items at once take about half."""
    subject = subject_of((*TEXT, "model.d_model=128", "model.d_ff=512", "model.max_length=128"))
    whole, halves = Remedy(subject.config), Remedy(subject.config, halves=True)
    predicted = [predict(subject, remedy, 64, 128) for remedy in (whole, halves)]
    found = [measure(remedy, 64, 128) for remedy in (whole, halves)]
    if found == [None, None]:
        pytest.skip("this system does not say what a process has resident")
    assert predicted == pytest.approx(found, rel=0.1)
    held = oom.held(subject.drawn())
    module, update = oom.made(whole)
    update([batch := subject.made_up(64, 128)])
    assert predicted[0] == pytest.approx(oom.held(module) + peak_bytes(lambda: update([batch])), rel=0.01)
    assert (predicted[1] - held) / (predicted[0] - held) == pytest.approx(0.5, abs=0.1)


def test_a_prediction_that_is_off_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of(TEXT)
    monkeypatch.setattr(oom, "predict", lambda *_: 100_000_000)
    monkeypatch.setattr(oom, "measure", lambda *_: 115_000_000)
    assert oom.oom(subject).faults[0] == "as it is: predicted 100 MB, measured 115: beyond a tenth"
    monkeypatch.setattr(oom, "measure", lambda *_: 109_000_000)
    assert oom.oom(subject).faults == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["oom"], "expected one of oom, blur, position, causal, dims"),
        (["vision", *TEXT], "expected one of oom"),
        (["dims", "runs/nothing"], "runs/nothing: expected the folder of a finished run, or overrides"),
        (["dims", "table=luong_1", "scale=smoke"], "expected overrides that choose one"),
        (["dims", "experiment=luong/none"], "none"),
        (["position", *PAIRS], "expected a model of text"),
    ],
)
def test_bad_arguments(words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err
