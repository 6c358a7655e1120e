"""What is measured beside the trained rows: costs of layers by hand, equal sizes, parameters with the vocabulary that fits."""

from functools import partial
from itertools import pairwise

import pytest
import torch
from hydra.utils import instantiate

from common.bench.depth import longest, shortest
from common.nn.encoder_decoder import Transformer
from reproductions.bahdanau.model import RNNSearch
from reproductions.bench import configured
from reproductions.compose import job
from reproductions.dry_run import build
from reproductions.transformer.layers import Layers, flops_of
from reproductions.transformer.sizes import Sizes
from reproductions.transformer.throughput import Throughput

KINDS = ("self_attention", "recurrent", "convolutional", "restricted")


@pytest.fixture(scope="module")
def layers() -> Layers:
    return Layers(
        rows={kind: kind for kind in KINDS},
        lengths=[16, 32],
        widths=[8, 16],
        chain_lengths=[3, 4],
        d=8,
        heads=2,
        kernel=3,
        neighbours=4,
        repeats=2,
        threads=1,
    )


def test_chains_of_a_graph_by_hand() -> None:
    """z = (a + b) * a + exp(exp(b)): to z from a two operations or three, from b three, one of them by way of both exps."""
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    z = (a + b) * a + b.exp().exp()
    assert shortest(z, a) == 2 and shortest(z, b) == 3
    assert longest(z) == 3 and longest(z.neg().neg()) == 5
    assert longest(a * 2) == shortest(a * 2, a) == 1


def test_operations_of_a_layer_are_those_of_the_table(layers: Layers) -> None:
    """n^2 d for the scores and again for what they weigh; n d^2 for each of four gates from the input and from the state;
    k n d^2. A multiply-add is two."""
    n, d, k = 32, 8, 3
    assert flops_of(layers.layer("self_attention", d), n, d) == 2 * 2 * n * n * d
    assert flops_of(layers.layer("recurrent", d), n, d) == 2 * 8 * n * d * d
    assert flops_of(layers.layer("convolutional", d), n, d) == 2 * k * n * d * d
    assert flops_of(layers.layer("restricted", d), n, d) < flops_of(layers.layer("self_attention", d), n, d)


def test_what_must_wait_in_a_layer(layers: Layers) -> None:
    for kind in ("self_attention", "convolutional", "restricted"):
        assert layers.depth(kind, 5) == layers.depth(kind, 50), kind
    depths = [layers.depth("recurrent", n) for n in (4, 5, 6, 7)]
    assert {b - a for a, b in pairwise(depths)} == {depths[1] - depths[0]} and depths[1] > depths[0]


@pytest.mark.parametrize(("kind", "reach"), [("convolutional", (3, 9, 27)), ("restricted", (4, 7, 10))])
def test_a_path_has_as_many_layers_as_reach_the_first_position(
    layers: Layers, kind: str, reach: tuple[int, ...]
) -> None:
    """L causal convolutions of kernel 3 that widen threefold see 3^L positions; L neighbourhoods of 3 before see 3 L + 1."""
    paths = [layers.path(kind, n) for n in reach]
    assert [layers.path(kind, n + 1) for n in reach[:-1]] == paths[1:]
    assert paths[1] - paths[0] == paths[2] - paths[1] > 0, "a layer adds the same operations each time"
    assert layers.path("self_attention", 3) == layers.path("self_attention", 30)


def test_every_kind_is_measured_at_every_point(layers: Layers) -> None:
    found = layers(1)
    assert set(found) == set(KINDS)
    for quantities in found.values():
        assert {q: list(s["at"]) for q, s in quantities.items()} == {
            "flops": ["16", "32"],
            "flops_by_width": ["8", "16"],
            "depth": ["3", "4"],
            "path": ["3", "4"],
            "layer_ms": ["16", "32"],
        }
        assert len(quantities["layer_ms"]["at"]["16"]) == 2


def test_models_of_other_sizes_are_not_compared() -> None:
    small, large = (partial(RNNSearch, attention=True, embedding=8, hidden=h, alignment=8, maxout=4) for h in (8, 16))
    shared = {"vocabulary": 20, "lengths": [3, 6], "tokens": 24, "precision": "fp32", "device": "cpu"}
    with pytest.raises(ValueError, match="expected none to be over a tenth larger"):
        Throughput(models={"a": small, "b": large}, repeats=1, threads=1, **shared)(1)
    found = Throughput(models={"a": small, "b": small}, repeats=2, threads=1, **shared)(1)
    for quantities in found.values():
        times, rates = quantities["update_ms"]["at"], quantities["tokens_per_second"]["at"]
        assert list(times) == ["3", "6"] and all(len(repeats) == 2 for repeats in times.values())
        assert [ms * rate for ms, rate in zip(times["6"], rates["6"], strict=True)] == pytest.approx([1e6] * 2)


def test_sizes_are_a_closed_form_and_their_fitting_vocabulary() -> None:
    """N = 6, d = 512, d_ff = 2048, 37,004 shared types: one matrix of them; 4 d^2 a self-attention, 8 d^2 a decoder layer's
    two; 2 d d_ff + d_ff + d a feed-forward network; 2 d a norm, of which an encoder layer has two and a decoder layer three."""
    d, ff, types = 512, 2048, 37004
    network = 2 * d * ff + ff + d
    closed = types * d + 6 * (4 * d * d + network + 2 * 2 * d) + 6 * (8 * d * d + network + 3 * 2 * d)
    found = measured_sizes()(1)["size_base"]
    assert found["parameters"]["at"]["paper"] == [closed / 1e6]
    assert found["fitting_types"]["at"]["paper"] == pytest.approx([(types + (65e6 - closed) / d) / 1e3])


def measured_sizes() -> Sizes:
    return instantiate(configured(["bench=transformer", "scale=smoke"])["parts"]["sizes"])


def test_the_sizes_are_those_of_the_rows_at_the_paper_scale() -> None:
    sizes = measured_sizes()
    found = sizes(1)
    for name in sizes.models:
        row = name.removeprefix("size_")
        config = job((f"experiment=transformer/{row}", "scale=paper"), None).config
        with torch.device("meta"):
            module = build(config, instantiate(config["data"]))
        assert found[name]["parameters"]["at"]["paper"] == [sum(p.numel() for p in module.parameters()) / 1e6], row


def test_the_meta_models_are_the_real_ones() -> None:
    config = {"layers": 1, "d_model": 8, "d_ff": 16, "heads": 2, "backend": "reference"}
    with torch.device("meta"):
        on_paper = sum(p.numel() for p in Transformer(20, 20, **config).parameters())
    assert on_paper == sum(p.numel() for p in Transformer(20, 20, **config).parameters())
