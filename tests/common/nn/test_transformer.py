"""The blocks against numbers worked by hand and torch's own layers; the language model's counts, causality and start."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.attention import Full, Packed, Padding
from common.nn.embedding import Embedding, sinusoids
from common.nn.feedforward import Activation, FeedForward
from common.nn.transformer import POSITIONS, Block, BlockSettings, DecoderOnly, Norm, Stack, normaliser, residual

SIZES = {"vocabulary": 11, "layers": 2, "d_model": 8, "heads": 4, "kv_heads": 2, "d_ff": 12}


def decoder(**settings: Any) -> DecoderOnly:
    torch.manual_seed(0)
    chosen: dict[str, Any] = SIZES | {"backend": "reference", "max_length": 16} | settings
    if chosen.get("positions", "learned") != "learned":
        chosen["max_length"] = None
    return DecoderOnly(**chosen)


def tokens(batch: int = 2, time: int = 7) -> Tensor:
    return torch.randint(0, SIZES["vocabulary"], (batch, time), generator=torch.Generator().manual_seed(1))


# Embedding and positions


@pytest.mark.parametrize("d_model", [1, 6, 7])
def test_sinusoids_by_the_formula(d_model: int) -> None:
    got = sinusoids(torch.arange(5), d_model)
    assert got.shape == (5, d_model)
    for pos in range(5):
        for column in range(d_model):
            angle = pos / 10000 ** (2 * (column // 2) / d_model)
            assert got[pos, column].item() == pytest.approx(
                math.cos(angle) if column % 2 else math.sin(angle), abs=1e-6
            )


def test_sinusoids_far_out_keep_their_precision() -> None:
    assert sinusoids(torch.tensor([1_000_003]), 4)[0, 2].item() == pytest.approx(math.sin(10_000.03), abs=1e-6)


def test_embedding_is_scaled_before_positions_are_added() -> None:
    embedding = Embedding(3, 4, positions="sinusoidal", scale=True)
    nn.init.constant_(embedding.weight, 5.0)
    expected = [5 * 2 + math.sin(1), 5 * 2 + math.cos(1), 5 * 2 + math.sin(0.01), 5 * 2 + math.cos(0.01)]
    torch.testing.assert_close(embedding(torch.tensor([[0, 2]]))[0, 1], torch.tensor(expected))


def test_learned_positions_are_looked_up() -> None:
    embedding = Embedding(3, 2, positions="learned", max_length=4)
    assert embedding.places is not None
    x = embedding(torch.tensor([[1, 1], [2, 0]]), torch.tensor([[3, 0], [1, 1]]))
    torch.testing.assert_close(x[0, 0], embedding.weight[1] + embedding.places[3])
    torch.testing.assert_close(x[1, 1], embedding.weight[0] + embedding.places[1])
    torch.testing.assert_close(embedding(torch.tensor([[1, 1]]))[0, 1], embedding.weight[1] + embedding.places[1])
    with pytest.raises(ValueError, match="got 5 in a row, expected at most 4"):
        embedding(torch.zeros(1, 5, dtype=torch.int64))


@pytest.mark.parametrize(("first", "told"), [(2, "2 to 5"), (-1, "-1 to 2"), (258, "258 to 261")])
def test_given_positions_beyond_the_learned_ones_are_refused(first: int, told: str) -> None:
    """As where positions count on from the number that stands for padding."""
    embedding = Embedding(3, 2, positions="learned", max_length=5)
    words = torch.zeros(1, 4, dtype=torch.int64)
    assert embedding(words, torch.arange(1, 5)).shape == (1, 4, 2)
    assert embedding(words[:, :0], torch.arange(0)).shape == (1, 0, 2)
    with pytest.raises(ValueError, match=f"positions: got {told}, expected 0 to 4"):
        embedding(words, torch.arange(first, first + 4))


def test_tied_embedding_starts_at_the_right_size() -> None:
    """Scaled vectors have variance 1, and an untrained model is about as good as guessing: ln 1000 = 6.91, plus 1/2 for
    logits of variance 1."""
    torch.manual_seed(0)
    embedding = Embedding(1000, 512, positions="none", scale=True)
    ids, hidden = torch.randint(0, 1000, (256,)), torch.randn(256, 512)
    assert 0.8 < embedding(ids).var().item() < 1.25
    logits = nn.functional.layer_norm(hidden, (512,)) @ embedding.weight.t()
    assert 6.5 < nn.functional.cross_entropy(logits, ids).item() < 8


VASWANI: dict[str, Any] = {
    "norm": "post", "positions": "sinusoidal", "activation": "relu", "scale_embedding": True, "std": None,
}  # fmt: skip


@pytest.mark.parametrize("settings", [{"layers": 1}, VASWANI | {"layers": 6}], ids=["gpt2", "vaswani"])
def test_an_untrained_model_guesses(settings: dict[str, Any]) -> None:
    """Near ln 1000 on random targets, though a tied model that has done nothing yet says the token it has read again."""
    model = decoder(vocabulary=1000, d_model=512, heads=8, kv_heads=8, d_ff=2048, **settings)
    ids, targets = torch.randint(0, 1000, (2, 8, 16))
    assert 6.5 < nn.functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).item() < 8


# Blocks


def test_residual_of_a_sublayer_that_adds_nothing() -> None:
    x, norm = torch.randn(2, 3, 8) * 3, nn.LayerNorm(8)
    assert torch.equal(residual("pre", norm, x, torch.zeros_like), x)
    torch.testing.assert_close(residual("post", norm, x, torch.zeros_like), nn.functional.layer_norm(x, (8,)))


def test_residual_by_hand() -> None:
    """LayerNorm of two numbers is (1, -1) for the larger first. pre: (3, 1) + 2 (1, -1); post: LN((3, 1) + 2 (3, 1))."""
    x, norm = torch.tensor([3.0, 1.0]), nn.LayerNorm(2, eps=0)
    assert residual("pre", norm, x, lambda y: 2 * y).tolist() == [5.0, -1.0]
    assert residual("post", norm, x, lambda y: 2 * y).tolist() == [1.0, -1.0]


def test_rms_norm_by_hand() -> None:
    """(3, 4) over the root of its mean square, sqrt(12.5); no mean is taken off, and there is no bias."""
    norm = normaliser("rms", 2)
    torch.testing.assert_close(norm(torch.tensor([3.0, 4.0])), torch.tensor([3.0, 4.0]) / 12.5**0.5)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


@pytest.mark.parametrize(("norm", "expected"), [("pre", [9.0, 39.0]), ("post", [-3.0, 6.0])])
def test_block_by_hand(norm: Norm, expected: list[float]) -> None:
    """One token, so attention gives 2 y. norm_1 is 2 LN + 1, norm_2 (4, 5) LN + 1, FFN(a, b) = 8 (max(0, b), max(0, a)).

    pre: (3, 1) + 2 norm_1(3, 1) = (3, 1) + 2 (3, -1) = (9, -1); norm_2: (5, -4); FFN: (0, 40); sum (9, 39).
    post: norm_1((3, 1) + 2 (3, 1)) = (3, -1); FFN: (0, 24); norm_2(3, 23) = (-3, 6).
    """
    block = Block(BlockSettings(d_model=2, heads=1, d_ff=2, backend="reference", norm=norm))
    values = {
        "attention.w_v.weight": [[2.0, 0.0], [0.0, 2.0]],
        "attention.w_o.weight": [[1.0, 0.0], [0.0, 1.0]],
        "feedforward.w_1.weight": [[1.0, 0.0], [0.0, 1.0]],
        "feedforward.w_2.weight": [[0.0, 8.0], [8.0, 0.0]],
        "norm_1.weight": [2.0, 2.0],
        "norm_1.bias": [1.0, 1.0],
        "norm_2.weight": [4.0, 5.0],
        "norm_2.bias": [1.0, 1.0],
    }
    block.load_state_dict(block.state_dict() | {name: torch.tensor(value) for name, value in values.items()})
    out = block(torch.tensor([[[3.0, 1.0]]]), mask=Full())
    torch.testing.assert_close(out, torch.tensor([[expected]]), atol=1e-3, rtol=0)  # eps of the norms


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_stack_as_torch_layers(norm: Norm, activation: Activation) -> None:
    """Against torch's encoder with the same weights, padded on the right."""
    torch.manual_seed(2)
    settings = BlockSettings(d_model=8, heads=4, d_ff=12, backend="reference", norm=norm, activation=activation)
    stack = Stack(2, settings, bidirectional=True).double()
    for parameter in stack.parameters():
        nn.init.normal_(parameter, std=0.5)
    layer = nn.TransformerEncoderLayer(
        8, 4, 12, 0.0, activation, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    )
    last = nn.LayerNorm(8, dtype=torch.float64) if norm == "pre" else None
    theirs = nn.TransformerEncoder(layer, 2, last, enable_nested_tensor=False)
    state = stack.state_dict()
    for name in theirs.state_dict():
        ours = name.replace("layers", "blocks").replace("self_attn.out_proj", "attention.w_o")
        ours = ours.replace("linear", "feedforward.w_").replace("norm1", "norm_1").replace("norm2", "norm_2")
        ours = ours.replace("norm.", "last.") if name.startswith("norm") else ours
        if "in_proj" in name:
            block, kind = ours.split("self_attn.in_proj_")
            whole = torch.cat([state[f"{block}attention.w_{part}.{kind}"] for part in "qkv"])
        else:
            whole = state[ours]
        theirs.get_parameter(name).data.copy_(whole)
    x, keep = torch.randn(2, 6, 8).double(), torch.arange(6) < torch.tensor([[6], [4]])
    expected = theirs(x, src_key_padding_mask=~keep)
    torch.testing.assert_close(stack(x, mask=Padding(keep))[keep], expected[keep])


def test_feedforward_activations() -> None:
    """gelu(x) = x Phi(x), exactly and not by tanh."""
    cases: list[tuple[Activation, list[float]]] = [
        ("relu", [0.0, 0.5]),
        ("gelu", [-0.5 * phi(-0.5), 0.5 * phi(0.5)]),
    ]
    for activation, expected in cases:
        layer = FeedForward(1, 1, activation=activation)
        nn.init.ones_(layer.w_1.weight)
        nn.init.ones_(layer.w_2.weight)
        torch.testing.assert_close(
            layer(torch.tensor([[-0.5], [0.5]])).flatten(), torch.tensor(expected), rtol=1e-5, atol=1e-6
        )


def phi(x: float) -> float:
    return (1 + math.erf(x / math.sqrt(2))) / 2


# The language model


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_parameter_count(positions: str, norm: Norm, kv_heads: int) -> None:
    model = decoder(positions=positions, norm=norm, kv_heads=kv_heads)
    vocabulary, d, ff, dk = 11, 8, 12, 8 // 4
    attention = 2 * (d * d + d) + 2 * (d * kv_heads * dk + kv_heads * dk)
    block = attention + 2 * d * ff + ff + d + 2 * 2 * d
    extra = {"learned": 16 * d, "t5": 32 * 4}.get(positions, 0)
    expected = vocabulary * d + 2 * block + 2 * d * (norm == "pre") + extra
    assert sum(p.numel() for p in model.parameters()) == expected


def test_gpt2_medium_has_its_published_size() -> None:
    """Radford et al. 2019, table 2: 24 layers of 1024 are "345M", which with 50257 words and 1024 positions are 354.8M."""
    with torch.device("meta"):
        model = decoder(vocabulary=50257, layers=24, d_model=1024, heads=16, kv_heads=16, d_ff=4096, max_length=1024)
    assert sum(p.numel() for p in model.parameters()) == 354_823_168


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_causality_by_gradient(positions: str, norm: Norm) -> None:
    """The logits of place t depend on the tokens up to t, on each of them, and on no later one."""
    model = random_decoder(positions, norm=norm)
    embedded: list[Any] = []
    model.embedding.register_forward_hook(lambda module, args, out: embedded.append(out))
    logits = model(tokens(batch=1))
    weights = torch.randn_like(logits)
    for t in range(logits.shape[1]):
        [gradient] = torch.autograd.grad((logits * weights)[0, t].sum(), embedded, retain_graph=True)
        size = gradient[0].abs().amax(-1)
        assert (size[: t + 1] > 1e-9).all() and (size[t + 1 :] == 0).all()


def test_the_softmax_is_tied_to_the_embedding() -> None:
    model = decoder(layers=1)
    hidden: list[Any] = []
    model.stack.register_forward_hook(lambda module, args, out: hidden.append(out))
    logits = model(tokens())
    torch.testing.assert_close(logits, hidden[0] @ model.embedding.weight.t())
    unread = ~torch.isin(torch.arange(11), tokens())
    assert unread.sum() >= 2
    chosen = int(unread.nonzero()[0])
    logits[..., chosen].sum().backward()  # its row has a gradient by its logit, though it is read nowhere
    assert model.embedding.weight.grad is not None
    rows = model.embedding.weight.grad.abs().sum(1) > 0
    assert rows[chosen] and rows[tokens().unique()].all() and rows.sum() == 1 + len(tokens().unique())


def test_initial_weights() -> None:
    """N(0, 0.02^2), those that write into the residual sum over sqrt(2 * layers), biases zero."""
    model = decoder(layers=8, d_model=64, d_ff=256)
    for name, parameter in model.named_parameters():
        if name.endswith(("w_o.weight", "w_2.weight")):
            assert parameter.std().item() == pytest.approx(0.02 / 4, rel=0.06)
        elif name.endswith(("w_q.weight", "w_1.weight", "embedding.weight", "places")):
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1)
        elif name.endswith("bias"):
            assert not parameter.any()
    own = decoder(layers=1, d_model=64, d_ff=256, std=None)
    assert own.stack.get_parameter("blocks.0.feedforward.w_2.weight").std().item() == pytest.approx(
        (2 / (64 + 256)) ** 0.5, rel=0.05
    )
    assert own.embedding.weight.std().item() == pytest.approx(64**-0.5, rel=0.1)
    scaled = decoder(layers=1, d_model=64, std=None, scale_embedding=True, positions="none")
    assert scaled.embedding(tokens()).std().item() == pytest.approx(1, rel=0.1)


def random_decoder(positions: str, **settings: Any) -> DecoderOnly:
    model = decoder(positions=positions, **settings).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


@pytest.mark.parametrize("positions", POSITIONS)
def test_each_kind_of_positions_reaches_the_logits(positions: str) -> None:
    """The last logits know the order of the tokens before, and the positions given; without positions neither: of one
    layer, for in the next causality itself tells the order."""
    model, ids = random_decoder(positions, layers=1), tokens(batch=1)
    last = model(ids)[:, -1]
    swapped = model(ids[:, [1, 0, *range(2, 7)]])[:, -1]
    assert ids[0, 0] != ids[0, 1] and torch.allclose(last, swapped) == (positions == "none")
    stretched = model(ids, positions=2 * torch.arange(7))[:, -1]
    assert torch.allclose(last, stretched) == (positions in ("none", "alibi", "t5"))


def test_t5_buckets_of_a_decoder_are_all_for_keys_before_the_query() -> None:
    """Half of the 32 hold one distance each, 0 to 15; keys behind the query would count as distance 0."""
    bias = decoder(positions="t5").stack.bias
    assert bias is not None and bias.table is not None
    bias.table.data.copy_(torch.arange(32)[:, None])
    assert bias().values(-torch.arange(17))[0].tolist() == list(range(17))
    assert bias().values(torch.arange(3))[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_on_the_left_changes_nothing(positions: str) -> None:
    model = decoder(positions=positions, layers=2)
    alone, pad = tokens(batch=1, time=4), torch.zeros(1, 3, dtype=torch.int64)
    keep = torch.tensor([[False] * 3 + [True] * 4])
    places = (keep.long().cumsum(-1) - 1).clamp(min=0)
    beside = model(torch.cat((pad, alone), 1), mask=Padding(keep), positions=places)
    torch.testing.assert_close(beside[:, 3:], model(alone), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("positions", POSITIONS)
def test_packed_sequences_are_as_one_by_one(positions: str) -> None:
    model = decoder(positions=positions)
    first, second = tokens(batch=1, time=3), tokens(batch=1, time=7)[:, 3:]
    places = torch.cat((torch.arange(3), torch.arange(4)))
    packed = model(torch.cat((first, second), 1), mask=Packed.lengths(torch.tensor([3, 4])), positions=places)
    torch.testing.assert_close(packed, torch.cat((model(first), model(second)), 1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("settings", [{"dropout": 0.5}, {"attention_dropout": 0.5}])
def test_dropout_only_in_training(settings: dict[str, float]) -> None:
    model, none = decoder(**settings).eval(), decoder()
    assert torch.equal(model(tokens()), model(tokens()))
    assert torch.equal(model(tokens()), none(tokens()))
    model.train()
    assert not torch.equal(model(tokens()), model(tokens()))


@pytest.mark.parametrize("silent", ["attention.w_o", "feedforward.w_2"])
def test_dropout_is_of_what_each_sublayer_adds(silent: str) -> None:
    """With one of the two silent, the other still drops: half of what it adds is zero, the rest twice as much."""
    settings = BlockSettings(
        d_model=8, heads=2, d_ff=8, backend="reference", norm="pre", activation="gelu", dropout=0.5
    )
    block = Block(settings)
    nn.init.zeros_(block.get_parameter(f"{silent}.weight"))
    x = torch.randn(4, 50, 8)
    added = block.eval()(x, mask=Full()) - x
    dropped = block.train()(x, mask=Full()) - x
    kept = dropped != 0
    assert 0.45 < kept.float().mean() < 0.55
    torch.testing.assert_close(dropped[kept], 2 * added[kept], rtol=1e-3, atol=1e-5)


def test_dropout_of_a_model_is_of_the_embedding_and_of_each_block() -> None:
    model = decoder(dropout=0.5)
    x = model.embedding(torch.zeros(40, 16, dtype=torch.int64))
    assert 0.45 < (x == 0).float().mean() < 0.55
    assert not torch.equal(model.stack(x, mask=Full()), model.stack(x, mask=Full()))


@pytest.mark.parametrize("backend", ["sdpa", "chunked"])
def test_backends_agree(backend: str) -> None:
    models = [decoder(backend=name).double() for name in ("reference", backend)]
    logits = [model(tokens()) for model in models]
    gradients = [
        torch.autograd.grad(y.square().sum(), list(m.parameters())) for y, m in zip(logits, models, strict=True)
    ]
    torch.testing.assert_close(*logits)
    torch.testing.assert_close(*gradients)


def test_it_learns_to_repeat() -> None:
    """Fifty steps on rows whose second half repeats the first: the loss of the second half, ln 11 = 2.4, nearly goes."""
    model = decoder(d_model=32, d_ff=64, std=None)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(50):
        half = torch.randint(0, 11, (16, 6))
        row = torch.cat((half, half), 1)
        loss = nn.functional.cross_entropy(model(row)[:, 5:-1].flatten(0, 1), row[:, 6:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] > 2 and losses[-1] < 0.3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm": "none"}, "norm: got 'none', expected one of pre, post"),
        ({"positions": "rope"}, "positions: got 'rope', expected one of learned"),
        ({"activation": "tanh"}, "activation: got 'tanh', expected one of relu, gelu"),
        ({"max_length": None}, "max_length: got None, expected a number for learned positions"),
        ({"kv_heads": 3}, "kv_heads: got 3, expected a divisor of heads 4"),
        ({"d_model": 7}, "heads: got 4, expected a divisor of d_model 7"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decoder(**settings)


def test_a_decoder_with_odd_d_model_and_sinusoids_works() -> None:
    model = decoder(d_model=7, heads=7, kv_heads=1, positions="sinusoidal")
    assert model(tokens()).shape == (2, 7, 11)
