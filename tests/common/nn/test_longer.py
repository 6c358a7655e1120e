"""A model from the weights of another one (Beltagy et al. 2020, section 5 and table 5; Choromanski et al. 2020, section 4.3)."""

from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from torch import Tensor, nn

from common.nn.classifier import Classifier
from common.nn.linear import Favor
from common.nn.long import MaskedModel
from common.nn.longer import start_from, start_trunk_from, tiled
from common.nn.sparse import BigBird, Factory, Full, Windowed
from reproductions.compose import job


def model(attention: Factory, max_length: int, seed: int = 0, **options: Any) -> MaskedModel:
    torch.manual_seed(seed)
    made = MaskedModel(11, 2, 12, 3, 16, attention=attention, positions="learned", max_length=max_length, **options)
    for name, parameter in made.named_parameters():
        if "_global" not in name:
            nn.init.normal_(parameter, std=0.3)
    return made.double()


FULL = Full(backend="reference")
WINDOWED = Windowed(backend="chunked", window=2, global_attention="separate")


def tokens(time: int = 6) -> Tensor:
    return torch.randint(4, 11, (2, time), generator=torch.Generator().manual_seed(1))


def test_a_copied_table_is_tiles_of_the_short_one() -> None:
    """512 positions copied to 4096 are eight tables; a length that they do not divide cuts the last one off."""
    short, long = model(FULL, 6), model(WINDOWED, 15, seed=1)
    start_from(long, short.state_dict(), positions="copied")
    of_short, of_long = (m.trunk.embedding.places for m in (short, long))
    assert of_short is not None and of_long is not None
    assert torch.equal(of_long, torch.cat((of_short, of_short, of_short[:3])))
    assert tiled(torch.zeros(512, 2), 4096).shape == (4096, 2)


def test_all_else_is_loaded_and_short_texts_read_the_same() -> None:
    """A window that spans the short text is full attention of the same weights."""
    short, long = model(FULL, 6), model(Windowed(backend="chunked", window=5), 15, seed=1)
    start_from(long, short.state_dict(), positions="copied")
    torch.testing.assert_close(long(tokens()), short(tokens()))
    assert not torch.allclose(long(tokens(12))[:, :6], short(tokens(12)[:, :6]))


def test_random_positions_stay_as_they_were_drawn() -> None:
    """Table 5: the model starts from all weights but those, and reads nothing right."""
    short, long = model(FULL, 6), model(WINDOWED, 15, seed=1)
    assert long.trunk.embedding.places is not None
    drawn = long.trunk.embedding.places.detach().clone()
    start_from(long, short.state_dict(), positions="random")
    assert torch.equal(long.trunk.embedding.places, drawn)
    assert torch.equal(long.trunk.embedding.weight, short.trunk.embedding.weight)


def test_global_projections_become_copies() -> None:
    """Section 3.1. Those of a model that has its own are kept."""
    short, long = model(FULL, 6), model(WINDOWED, 15, seed=1)
    start_from(long, short.state_dict(), positions="copied")
    for n in range(2):
        layer: Any = long.trunk.get_submodule(f"blocks.{n}.attention")
        for own, other in ((layer.w_q_global, layer.w_q), (layer.w_k_global, layer.w_k), (layer.w_v_global, layer.w_v)):
            assert torch.equal(own.weight, other.weight) and torch.equal(own.bias, other.bias)
    with torch.no_grad():
        layer.w_q_global.weight.zero_()
    longer = model(WINDOWED, 20, seed=2)
    start_from(longer, long.state_dict(), positions="copied")
    assert not longer.state_dict()["trunk.blocks.1.attention.w_q_global.weight"].any()


def test_bigbirds_draws_and_extra_tokens_stay() -> None:
    short = model(FULL, 6)
    for factory in (
        BigBird(backend="chunked", block=2, global_blocks=1, random_blocks=1, max_length=15),
        BigBird(backend="chunked", block=2, global_tokens=3),
    ):
        long = model(factory, 15, seed=1)
        own = {name: t.clone() for name, t in long.state_dict().items() if name.endswith(("order", "extra"))}
        start_from(long, short.state_dict(), positions="copied")
        assert own and all(torch.equal(long.state_dict()[name], t) for name, t in own.items())


def test_random_features_take_the_weights_and_keep_their_draws() -> None:
    """Choromanski et al. 2020, section 4.3: all of a Transformer's weights, nothing of the draw."""
    softmax, performer = model(FULL, 6), model(Favor(features=5, seed=3), 6, seed=1)
    drawn = {name: tensor.clone() for name, tensor in performer.named_buffers()}
    assert {name.rpartition(".")[2] for name in drawn} == {"draw", "calls"}
    start_from(performer, softmax.state_dict(), positions="copied")
    loaded = performer.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in softmax.state_dict().items())
    assert all(torch.equal(loaded[name], tensor) for name, tensor in drawn.items())


def test_a_classifier_takes_a_trunk_and_keeps_its_head() -> None:
    pretrained = model(FULL, 6)
    torch.manual_seed(2)
    classifier = Classifier(11, 2, 12, 3, 16, classes=4, attention=FULL, positions="learned", max_length=6).double()
    head = {name: tensor.clone() for name, tensor in classifier.state_dict().items() if not name.startswith("trunk.")}
    start_trunk_from(classifier, pretrained.state_dict())
    ids = tokens()
    torch.testing.assert_close(classifier.trunk(ids), pretrained.trunk(ids))
    assert head and all(torch.equal(classifier.state_dict()[name], tensor) for name, tensor in head.items())


def test_a_trunk_of_another_kind_is_refused() -> None:
    classifier = Classifier(11, 2, 12, 3, 16, classes=4, attention=FULL, positions="learned", max_length=6).double()
    before = classifier.trunk.embedding.weight.clone()
    longer = {name: tensor for name, tensor in model(WINDOWED, 6).state_dict().items()}
    with pytest.raises(ValueError, match=r"weights of a trunk: missing \[\], too many \['trunk\.blocks\.0\.attention"):
        start_trunk_from(classifier, longer)
    with pytest.raises(ValueError, match="positions: got a table of 8"):
        start_trunk_from(classifier, model(FULL, 8).state_dict())
    assert torch.equal(classifier.trunk.embedding.weight, before)


def test_what_does_not_fit_is_refused_and_nothing_is_loaded() -> None:
    short, long = model(FULL, 6), model(WINDOWED, 15, seed=1)
    before = {name: t.clone() for name, t in long.state_dict().items()}
    some = {name: t for name, t in short.state_dict().items() if name != "bias"}
    for weights, message in (
        (some, r"missing \['bias'\], too many \[\], of another shape \[\]"),
        (short.state_dict() | {"extra_bias": torch.zeros(1)}, r"too many \['extra_bias'\]"),
        (short.state_dict() | {"bias": torch.zeros(3)}, r"of another shape \['bias'\]"),
        (model(FULL, 16).state_dict(), "got a table of 16, expected at most the 15 of the longer model"),
    ):
        with pytest.raises(ValueError, match=message):
            start_from(long, weights, positions="copied")
    with pytest.raises(ValueError, match="positions: got 'zeros', expected copied or random"):
        start_from(long, short.state_dict(), positions="zeros")  # type: ignore[arg-type]
    assert all(torch.equal(long.state_dict()[name], t) for name, t in before.items())


def test_only_the_new_positions_are_trained() -> None:
    """Table 5, last row: after an update as the row makes it, the short model's weights, its six positions too, are what they
    were."""
    short, long = model(FULL, 6), model(WINDOWED, 15, seed=1)
    start_from(long, short.state_dict(), positions="copied", only_new_positions=True)
    before = {name: tensor.clone() for name, tensor in long.state_dict().items()}
    row = job(("experiment=longformer_bigbird/mlm_positions_only", "scale=small"), None).config
    optimizer = instantiate(row["optim"]["optimizer"])(long.parameters(), lr=0.1)
    long(tokens(15)).square().sum().backward()
    optimizer.step()
    changed = {name for name, tensor in long.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"trunk.embedding.places"}
    moved = (long.state_dict()["trunk.embedding.places"] != before["trunk.embedding.places"]).any(1)
    assert moved.tolist() == [False] * 6 + [True] * 9


def test_new_positions_need_a_table() -> None:
    without = MaskedModel(11, 2, 12, 3, 16, attention=FULL)
    with pytest.raises(ValueError, match="got a model without learned positions"):
        start_from(without, without.state_dict(), positions="copied", only_new_positions=True)
