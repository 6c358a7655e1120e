"""What is measured of the approximations, on cases whose answer is known."""

import copy
import math
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from torch import nn

from common.nn.linear import Elu
from common.nn.long import LanguageModel, MaskedModel, Trunk
from common.nn.sparse import Full
from reproductions import stored
from reproductions.compose import job
from reproductions.launcher import work
from reproductions.performer_linformer import trained
from reproductions.performer_linformer.approximation import Approximation
from reproductions.performer_linformer.generation import Generation
from reproductions.performer_linformer.inference import Inference
from reproductions.performer_linformer.lengths import Lengths, crossover
from reproductions.performer_linformer.values import Values
from reproductions.stored import Reader


def test_errors_fall_as_one_over_the_features() -> None:
    """Mean square of a mean, where scores are small enough for none to dominate; trigonometric features of small vectors."""
    rows = {"row": {"kind": "trigonometric", "orthogonal": False}}
    found = Approximation(
        rows=rows, uniform="mean", sizes={"error": 1.0, "of_none": 0.0}, length=64, head_dim=4, features=[512, 4096],
        draws=40, threads=1,
    )(1)  # fmt: skip
    assert max(found["mean"]["of_none"]["at"]["512"]) < 1e-12, "all scores alike: attention is the mean"
    assert found["mean"]["error"]["at"]["512"] == found["mean"]["error"]["at"]["4096"]
    at = found["row"]["error"]["at"]
    assert len(at["512"]) == len(at["4096"]) == 40
    assert statistics.median(at["512"]) / statistics.median(at["4096"]) == pytest.approx(8, rel=0.4)


@pytest.mark.parametrize(
    ("ratios", "place"),
    [
        ([0.5, 2.0], math.sqrt(200 * 100)),  # halfway between the logarithms
        ([0.25, 2.0], 100 * 2 ** (2 / 3)),
        ([0.9, 1.1, 0.8, 1.25], 566.0),  # the last crossing: log 400 + log 2 * log 1.25 / (2 log 1.25)
        ([1.2, 1.5], 100.0),
        ([2.0, 0.9], None),
        ([], None),
    ],
)
def test_where_two_lines_cross(ratios: list[float], place: float | None) -> None:
    lengths = [100 * 2**i for i in range(len(ratios))]
    found = crossover(lengths, ratios)
    assert found is None if place is None else found == pytest.approx(place, rel=1e-3)


def test_linear_attention_against_the_length() -> None:
    """Memory: 2 times from length to length; that of softmax attention written out, 4 times."""
    methods = {"exact": "plain", "performer": "favor", "linear": "elu"}
    found = Lengths(
        methods=methods, lengths=[256, 512], batch=1, heads=2, head_dim=8, dtype="fp32", device="cpu", repeats=2,
        budget=1e9, threads=1, exact="exact", features=8, causal=True,
    )(1)  # fmt: skip
    growth = {row: found[row]["memory_mb"]["at"]["512"][0] / found[row]["memory_mb"]["at"]["256"][0] for row in methods}
    assert growth["exact"] == pytest.approx(4, rel=0.1)
    assert growth["performer"] == pytest.approx(2, rel=0.15) and growth["linear"] == pytest.approx(2, rel=0.15)
    for row in ("performer", "linear"):
        crossed, both = found[row]["crossover"], {m: found[m]["both_ms"]["at"]["512"] for m in ("exact", row)}
        faster = sum(e > t for e, t in zip(both["exact"], both[row], strict=True))
        if faster == 2:
            assert len(crossed["at"]["default"]) == 2 and all(256 <= place <= 512 for place in crossed["at"]["default"])
        else:
            assert f"{faster} of 2" in crossed["refused"]["default"] and not crossed["at"]
    assert "crossover" not in found["exact"]


def test_values_alone_are_the_values() -> None:
    layer = Values()(8, 2, 0, 1)
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(layer(x), layer.w_o(layer.w_v(x)))
    full = Full(backend="reference")(8, 2, 0, 1)
    assert sum(p.numel() for p in layer.parameters()) == sum(p.numel() for p in full.parameters())


def test_linformer_reads_with_less_memory() -> None:
    """At 1,024 tokens scores written out are 1,024 x 1,024 a head, or 1,024 x 8; a fused kernel stores neither."""
    part = Inference(
        rows={"low": 8, "high": 600}, lengths=[1024], batch=1, layers=1, d_model=8, heads=4, d_ff=8, vocabulary=20,
        written_out="reference", fused="sdpa", device="cpu", repeats=2, threads=1,
    )  # fmt: skip
    found = part(1)
    for quantity in ("times_faster", "times_faster_fused"):
        assert len(found["low"][quantity]["at"]["1024"]) == 2
    saved = {q: found["low"][q]["at"]["1024"][0] for q in ("memory_saving", "memory_saving_fused")}
    assert saved["memory_saving"] > 20 and saved["memory_saving_fused"] == pytest.approx(1, abs=0.5)
    assert "half the text" in found["high"]["memory_saving"]["refused"]["1024"]


def test_generated_pictures_are_timed_and_what_they_remember_counted() -> None:
    """One layer of two heads of four: 2 * 8 numbers of 4 bytes a pixel and picture; sums of 2 * 4 * 5 numbers."""
    make = partial(LanguageModel, layers=1, d_model=8, heads=2, d_ff=8, positions="sinusoidal")
    full = partial(make, attention=Full(backend="reference", causal=True))
    models: Any = {"again": full, "stateful": full, "linear": partial(make, attention=Elu(causal=True))}
    how = {"again": "again", "stateful": "remembered", "linear": "remembered"}
    found = Generation(
        models=models,
        how=how,
        symbols=10,
        pixels=6,
        batch=3,
        positions=[2, 6],
        around=1,
        device="cpu",
        repeats=2,
        threads=1,
    )(1)
    for row in how:
        assert len(found[row]["pictures_per_second"]["at"]["default"]) == 2
        assert {p: len(taken) for p, taken in found[row]["token_ms"]["at"].items()} == {"2": 2, "6": 2}
    kilobytes = {row: {p: taken[0] for p, taken in found[row]["memory_kb"]["at"].items()} for row in how}
    assert kilobytes["stateful"] == {"2": pytest.approx(0.128), "6": pytest.approx(0.384)}
    assert kilobytes["linear"] == {"2": pytest.approx(0.160), "6": pytest.approx(0.160)}
    assert set(kilobytes["again"].values()) == {0}


def trunk() -> Trunk:
    torch.manual_seed(0)
    made = Trunk(11, 2, 8, 2, 16, attention=Full(backend="reference"), positions="learned", max_length=12)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made.eval()


def test_matrices_are_those_of_the_layers() -> None:
    """A layer's output is its matrices times its values."""
    made, tokens = trunk(), torch.randint(11, (2, 12))
    inputs: list[torch.Tensor] = []
    outputs: list[torch.Tensor] = []
    layer: Any = made.blocks[1].attention
    layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    layer.register_forward_hook(lambda _, __, out: outputs.append(out))
    found = trained.matrices(made, tokens)
    assert len(found) == 2 and found[1].shape == (2, 2, 12, 12)
    torch.testing.assert_close(found[1].sum(-1), torch.ones(2, 2, 12))
    values = layer.split(layer.w_v(inputs[0]))
    torch.testing.assert_close(layer.merge(found[1] @ values), outputs[0])


@torch.no_grad()
def test_many_features_come_close_in_every_layer() -> None:
    model: Any = MaskedModel(11, 2, 8, 2, 16, attention=Full(backend="reference"), positions="learned", max_length=12)
    model.trunk, tokens = trunk(), torch.randint(11, (2, 12))
    exact = trained.hidden(model.trunk, tokens)
    torch.testing.assert_close(model.trunk.last(exact[-1]), model.trunk(tokens))
    errors = {}
    for count in (4, 4096):
        close = trained.hidden(trained.approximate(model, count, 1), tokens)
        errors[count] = [float((a - b).norm() / a.norm()) for a, b in zip(exact, close, strict=True)]
    assert all(many < few / 20 for many, few in zip(errors[4096], errors[4], strict=True)), errors


def test_the_spectrum_of_attention_to_everything_alike() -> None:
    """Queries of zero weigh all keys alike: a matrix of rank one, all of whose sum is in the largest value."""
    model: Any = MaskedModel(11, 2, 8, 2, 16, attention=Full(backend="reference"), positions="learned", max_length=12)
    other = copy.deepcopy(model)
    model.trunk, other.trunk = trunk(), trunk()
    for name, parameter in other.named_parameters():
        if ".w_q." in name:
            nn.init.zeros_(parameter)
    reader = Reader(model, other, torch.randint(11, (3, 12)))
    found = trained.Spectrum(of=reader, share=0.25, trained_row="a", untrained_row="b", threads=1)(1)
    for layer in ("1", "2"):
        assert found["b"]["energy"]["at"][layer] == pytest.approx([100.0] * 6)
        assert len(found["a"]["energy"]["at"][layer]) == 6 and max(found["a"]["energy"]["at"][layer]) < 99.99


def test_errors_by_layer_and_draw() -> None:
    model: Any = MaskedModel(11, 2, 8, 2, 16, attention=Full(backend="reference"), positions="learned", max_length=12)
    model.trunk = trunk()
    reader = Reader(model, model, torch.randint(11, (3, 12)))
    found = trained.Stacked(of=reader, rows={"few": 4, "many": 1024}, draws=3, threads=1)(1)
    for row in ("few", "many"):
        at = found[row]["relative_error"]["at"]
        assert {layer: len(set(taken)) for layer, taken in at.items()} == {"1": 3, "2": 3}, "each draw another"
    assert max(found["many"]["relative_error"]["at"]["2"]) < min(found["few"]["relative_error"]["at"]["2"])


def test_a_reader_reads_all_of_the_test_text(tmp_path: Path) -> None:
    """Of a run of the smoke scale: the weights it was tested with, those it was drawn with, the first and the last piece."""
    arguments = ("experiment=performer_linformer/bid_transformer", "scale=smoke", "logger=csv", "budget.updates=3",
                 f"paths.runs={tmp_path}", f"data.cache={tmp_path / 'cache'}")  # fmt: skip
    made = job(arguments, None)
    assert work(made) == 0
    reader = stored.reader(str(made.folder), 3)
    state = torch.load(made.folder / "tested.ckpt", weights_only=False)["state_dict"]
    weights = "trunk.embedding.weight"
    tested, drawn = (model.state_dict()[weights] for model in (reader.tested, reader.drawn))
    assert torch.equal(tested, state[f"model.{weights}"]) and not torch.equal(drawn, tested)
    data: Any = instantiate(made.config["data"])
    data.prepare()
    pieces = torch.cat([batch.tokens for batch in data.eval_batches("test")])
    assert torch.equal(reader.tokens[[0, -1]], pieces[[0, -1]]) and len(reader.tokens) == 3


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"bid_transformer-s1 has no config\.yaml: expected the folder of a finished run"
    ):
        stored.reader(str(tmp_path / "bid_transformer-s1"), 1)
