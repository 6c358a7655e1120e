"""What models are asked, on models whose answers are known."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.nn.long import LanguageModel
from common.nn.sparse import Full
from common.nn.sparse.full import FullAttention
from data.symbols import CLS, SPECIALS
from reproductions.field_guide.layers import Recurrent
from reproductions.field_guide.probes import longer, pronouns
from reproductions.field_guide.probes.far import Far
from reproductions.field_guide.probes.layers import Layers
from reproductions.field_guide.probes.maps import measured
from reproductions.field_guide.probes.pronouns import Sentences, at_the_answer, looks_most, pushed
from reproductions.field_guide.probes.remedies import REMEDIES, Remedies
from reproductions.field_guide.probes.reordered import mean_place, tau

CAUSAL: dict[str, Any] = {"backend": "reference", "causal": True}


def model(layers: int = 2, **options: Any) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(20, layers, 8, 2, 16, attention=Full(**CAUSAL, **options), positions="none").eval()


def queries_of_zeros(of: nn.Module) -> None:
    with torch.no_grad():
        for layer in of.modules():
            if isinstance(layer, FullAttention):
                layer.w_q.weight.zero_()
                layer.w_q.bias.zero_()


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 2, 5], 1.0), ([5, 2, 1], -1.0), ([2, 1, 3], 1 / 3), ([1, 1, 2], 2 / 3)]
)
def test_tau_by_hand(values: list[int], expected: float) -> None:
    assert tau(torch.tensor(values)) == pytest.approx(expected)


def test_a_mean_place_moves_where_the_word_most_looked_at_does_not() -> None:
    """Evenly over the words that are left, of which the first is a little more: as a translator from the end may read."""
    left = torch.tensor([[0.3, 0.2, 0.2, 0.2], [0.4, 0.3, 0.3, 0.0], [0.6, 0.4, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(mean_place(left), torch.tensor([1.2 / 0.9, 0.9, 0.4, 0.0]))
    assert tau(-left.argmax(-1)) == 0.0 and tau(-mean_place(left)) == 1.0


def test_maps_without_queries_are_flat_and_alike() -> None:
    flat, tokens = model(), torch.randint(20, (1, 9), generator=torch.Generator().manual_seed(0))
    queries_of_zeros(flat)
    found = measured(flat, tokens)
    assert found["entropy"] == pytest.approx(1.0) and found["alike_maps"] == pytest.approx(1.0)
    assert found["alike_outputs"] < 0.9


def test_heads_that_are_copies_hand_on_the_same() -> None:
    same, tokens = model(), torch.randint(20, (1, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for layer in same.modules():
            if isinstance(layer, FullAttention):
                for w in (layer.w_q, layer.w_k, layer.w_v):
                    w.weight.mul_(40.0)
                    w.weight[4:] = w.weight[:4]
    found = measured(same, tokens)
    assert found["alike_maps"] == pytest.approx(1.0) and found["alike_outputs"] == pytest.approx(1.0)
    assert found["entropy"] < 0.99


def test_rotary_positions_are_stretched() -> None:
    turned = model(rotary=True)
    longer.stretch(turned, "interpolation", 4.0)
    layer = turned.trunk.blocks[0].attention
    assert isinstance(layer, FullAttention) and layer.rotary_scaling is not None
    assert (layer.rotary_scaling.kind, layer.rotary_scaling.factor) == ("interpolation", 4.0)
    plain = model(rotary=True)
    text = torch.tensor([[5, 6, 7, 8]])
    assert (plain(text) - turned(text)).abs().max() > 1e-6


def sentences(count: int = 3) -> Sentences:
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(SPECIALS, 20, (count, 7), generator=draw)
    tokens[:, 0] = CLS
    at = torch.tensor([2, 3, 1][:count])
    return Sentences(tokens, tokens.gather(1, at[:, None])[:, 0], tokens[:, 5], at, torch.full((count,), 5))


def test_a_push_moves_the_weight_by_the_closed_form() -> None:
    """w e^b / (1 - w + w e^b), in that head, at that query, alone."""
    of, given = model(), sentences()
    before = at_the_answer(of, given.tokens)
    plain = of(given.tokens)
    with pushed(of, (1, 0), given.other_at, 2.0) as found:
        moved = of(given.tokens)
    w = before[1, 0].gather(1, given.other_at[:, None])[:, 0]
    raised = w * torch.tensor(2.0).exp()
    torch.testing.assert_close(found[0].gather(1, given.other_at[:, None])[:, 0], raised / (1 - w + raised))
    assert (moved[:, -1] - plain[:, -1]).abs().max() > 1e-6
    torch.testing.assert_close(moved[:, :-1], plain[:, :-1])
    torch.testing.assert_close(of(given.tokens), plain)
    with pushed(of, (1, 0), given.other_at, 0.0):
        torch.testing.assert_close(of(given.tokens), plain)


def test_the_head_that_looks_most(monkeypatch: pytest.MonkeyPatch) -> None:
    given = sentences()
    weights = {(0, 0): torch.full((3, 7), 0.1), (1, 1): torch.full((3, 7), 0.05)}
    weights[1, 1].scatter_(1, given.meant_at[:, None], 0.7)
    weights[0, 0].scatter_(1, given.other_at[:, None], 0.9)
    monkeypatch.setattr(pronouns, "at_the_answer", lambda *_: weights)
    assert looks_most(model(), given) == (1, 1)


class Sum(nn.Module):
    """y_T = sum_k r^k x_(T-k)."""

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio

    def forward(self, x: Tensor) -> Tensor:
        powers = self.ratio ** torch.arange(x.shape[1] - 1, -1, -1, dtype=x.dtype)
        return (x * powers[:, None]).sum(1, keepdim=True).expand_as(x)


@pytest.mark.parametrize("ratio", [0.5, 1e-12])
def test_a_gradient_that_fades_with_each_step(ratio: float) -> None:
    layers: Any = {"row": lambda *_: Sum(ratio)}
    found = Far(layers=layers, distances=[1, 2, 5], d_model=4, heads=1, draws=3, threads=1)(1)["row"]["gradient"]["at"]
    assert found == {
        "1": [1.0] * 3,
        "2": pytest.approx([ratio] * 3),
        "5": pytest.approx([ratio**4] * 3, rel=1e-6, abs=0),
    }


def test_what_layers_cost_at_each_length() -> None:
    """Attention that is written out keeps matrices of T^2, a fused kernel keeps none."""
    layers = {
        "written": Full(**CAUSAL),
        "fused": Full(**{**CAUSAL, "backend": "sdpa"}),
        "recurrent": Recurrent(cell="gru"),
    }
    found = Layers(
        layers=layers, lengths=[4, 64, 128], both=[64, 128], batch=1, d_model=8, heads=2, repeats=3, threads=1
    )(1)  # fmt: skip
    for row in layers:
        at = {name: {length: len(taken) for length, taken in of["at"].items()} for name, of in found[row].items()}
        assert at["forward_ms"] == {"4": 3, "64": 3, "128": 3} and at["both_ms"] == {"64": 3, "128": 3}
        assert at["forward_mb"] == {"4": 1, "64": 1, "128": 1} and at["both_mb"] == {"64": 1, "128": 1}
    for direction in ("forward", "both"):
        grown = {
            row: (of := found[row][f"{direction}_mb"]["at"])["128"][0] / of["64"][0] for row in ("written", "fused")
        }
        assert grown["written"] > 3.3 and grown["fused"] < 2.7, (direction, grown)


def test_remedies() -> None:
    """What must be so: two halves and blocks computed again are the same gradient, bf16 is not, a window is its own model;
    less memory for all."""
    found = Remedies(
        row="memory", layers=3, d_model=16, heads=2, d_ff=32, vocabulary=32, length=64, batch=4, window=8, draws=2, repeats=1,
        threads=1,
    )(1)  # fmt: skip
    assert set(found) == {"memory", *(f"memory_{remedy}" for remedy in REMEDIES)}
    error = {row: max(of["error"]["at"]["default"]) for row, of in found.items()}
    memory = {row: of["memory_mb"]["at"]["default"][0] for row, of in found.items()}
    for remedy in ("kernel", "window", "accumulation", "checkpointing"):
        assert error[f"memory_{remedy}"] < 1e-5
    assert 1e-3 < error["memory_bf16"] < 0.1
    for remedy in ("kernel", "accumulation", "checkpointing"):
        assert memory[f"memory_{remedy}"] < memory["memory"], remedy
