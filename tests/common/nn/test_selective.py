"""Mamba's block, position by position from the paper's equations, and what its states promise."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil, exp, log
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from torch import Tensor

from common.nn.long import LanguageModel, Memory
from common.nn.selective import Selective, SelectiveLayer, State, scan
from common.nn.sparse import Full
from reproductions.compose import job
from reproductions.config import check
from tests.common.nn.sparse.spec import compare, made, reached, texts

KINDS = {
    "selective": Selective(state=3, expand=1.5),
    "one position after the other": Selective(state=3, expand=1.5, chunk=None),
    "short chunks": Selective(state=2, chunk=2, rank=5),
    "constant": Selective(state=3, selective=False, chunk=4),
    "no convolution": Selective(state=3, conv=0),
    "convolution of one": Selective(state=3, conv=1),
    "no gate": Selective(state=1, gate=False),
    "biases": Selective(state=3, linear_bias=True, gate=False, conv=2),
}


def layer_of(kind: str | Selective, **settings: Any) -> SelectiveLayer:
    layer: Any = made(replace(KINDS[kind] if isinstance(kind, str) else kind, **settings))
    return layer


def written_out(layer: SelectiveLayer, x: Tensor, real: Tensor) -> Tensor:
    """Algorithm 2 with figure 3's block, one text, position and number of the state at a time. Rows of zeros at padding."""
    rows = [[torch.zeros(12, dtype=x.dtype) for _ in range(x.shape[1])] for _ in range(len(x))]
    for b in range(len(x)):
        before: list[Tensor] = []
        h = [torch.zeros(layer.channels, dtype=x.dtype) for _ in range(layer.log_a.shape[1])]
        for t in real[b].nonzero().flatten().tolist():
            projected = layer.w_in(x[b, t])
            u = projected[: layer.channels]
            before.append(u)
            if layer.width:
                u = layer.conv_bias
                for back in range(min(layer.width, len(before))):
                    u = u + layer.conv_weight[:, layer.width - 1 - back] * before[-1 - back]
            u = u / (1 + (-u).exp())
            delta, to_state, from_state = of_token(layer, u)
            for n in range(len(h)):
                a = -layer.log_a[:, n].exp()
                h[n] = (delta * a).exp() * h[n] + delta * to_state[n] * u
            y = layer.skip * u
            for n in range(len(h)):
                y = y + from_state[n] * h[n]
            if layer.gated:
                z = projected[layer.channels :]
                y = y * z / (1 + (-z).exp())
            rows[b][t] = layer.w_o(y)
    return torch.stack([torch.stack(row) for row in rows])


def of_token(layer: SelectiveLayer, u: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Delta, and B and C of each number of the state."""
    count = layer.log_a.shape[1]
    if not layer.selective:
        return (1 + layer.delta_bias.exp()).log(), list(layer.b.unbind(1)), list(layer.c.unbind(1))
    found = layer.w_x.weight @ u
    low, b, c = found[: layer.rank], found[layer.rank : layer.rank + count], found[layer.rank + count :]
    return (1 + (layer.w_delta @ low + layer.delta_bias).exp()).log(), list(b), list(c)


@pytest.mark.parametrize("lengths", [[1], [9, 4, 1], [16]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients(kind: str, lengths: list[int]) -> None:
    layer, (x, real) = layer_of(kind), texts(lengths)
    compare(layer, written_out(layer, x.requires_grad_(), real), x, real)


def test_a_state_by_hand() -> None:
    """Delta 1, A = -ln 2: half of the state is kept. B = 3, C = 2, D = 5: h = 3, 1.5, 0.75, 6.375; y = 2 h + 5 u."""
    layer = Selective(state=1, expand=1, selective=False, conv=0, gate=False)(1, 1, 0, 1).double()
    for name, value in (("delta_bias", log(exp(1) - 1)), ("log_a", log(log(2))), ("b", 3.0), ("c", 2.0), ("skip", 5.0)):
        layer.get_parameter(name).data.fill_(value)
    y, h = layer.scanned(torch.tensor([1.0, 0, 0, 2]).double().view(1, 4, 1), None, None)
    assert y.flatten().tolist() == pytest.approx([11, 3, 1.5, 22.75]) and h.item() == pytest.approx(6.375)


@pytest.mark.parametrize("chunk", [None, 1, 5, 64])
def test_constants_make_a_convolution(chunk: int | None) -> None:
    """Kernel K_j = sum_n C_n Delta B_n exp(-j Delta exp(log_a_n)) of each channel."""
    layer = layer_of("constant", chunk=chunk)
    u = torch.randn(1, 40, layer.channels, dtype=torch.float64)
    delta, rate, b, c, skip = (
        p.detach().numpy() for p in (layer.delta_bias, layer.log_a.exp(), layer.b, layer.c, layer.skip)
    )
    delta = np.log1p(np.exp(delta))
    expected = np.empty((40, layer.channels))
    for d in range(layer.channels):
        kernel = [(c[d] * delta[d] * b[d] * np.exp(-j * delta[d] * rate[d])).sum() for j in range(40)]
        of_u = u[0, :, d].numpy()
        expected[:, d] = np.convolve(kernel, of_u)[:40] + skip[d] * of_u
    found = layer.scanned(u, None, None)[0][0].detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-10, rtol=1e-10)


def test_constants_know_no_token_and_selection_does() -> None:
    """Twice the input is twice what a fixed kernel gives, and not what a chosen one does."""
    for kind, linear in (("constant", True), ("selective", False)):
        layer = layer_of(kind)
        u = torch.randn(1, 9, layer.channels, dtype=torch.float64)
        once, twice = layer.scanned(u, None, None)[0], layer.scanned(2 * u, None, None)[0]
        assert torch.allclose(twice, 2 * once) == linear


def scanned(decay: Tensor, added: Tensor, state: Tensor) -> Tensor:
    found = torch.empty_like(added)
    for t in range(added.shape[1]):
        found[:, t] = decay[:, t] * (state if t == 0 else found[:, t - 1].clone()) + added[:, t]
    return found


def compared(decay: Tensor, added: Tensor, state: Tensor, chunk: int | None) -> None:
    leaves = [t.requires_grad_() for t in (decay, added, state)]
    weight = torch.randn(added.shape, generator=torch.Generator().manual_seed(3), dtype=added.dtype)
    results = [scan(decay, added, state, chunk=chunk), scanned(decay, added, state)]
    grads = [torch.autograd.grad((result * weight).sum(), leaves) for result in results]
    for got, wanted in zip((results[0], *grads[0]), (results[1], *grads[1]), strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got, wanted, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("chunk", [None, 1, 2, 3, 8, 100])
@pytest.mark.parametrize("time", [1, 2, 8, 23])
def test_scans_of_any_chunk_are_the_recurrence(time: int, chunk: int | None) -> None:
    torch.manual_seed(0)
    decay, added = torch.rand(2, time, 3, 2).double(), torch.randn(2, time, 3, 2).double()
    compared(decay, added, torch.randn(2, 3, 2).double(), chunk)


@pytest.mark.parametrize("chunk", [None, 4, 16])
def test_states_that_die_out_or_stay(chunk: int | None) -> None:
    """Decays whose product over a chunk is far below the least number that there is, whose inverse would be infinite; 0; 1."""
    torch.manual_seed(0)
    decay = torch.tensor([1e-200, 0.0, 1.0, 1e-3]).double().repeat(2, 16, 1).clone()
    decay[:, 5] = 0.0
    compared(decay, torch.randn(2, 16, 4).double(), torch.randn(2, 4).double(), chunk)
    layer, (x, _) = layer_of("selective", chunk=chunk), texts([16])
    with torch.no_grad():
        layer.delta_bias.fill_(1e4)
    out = layer(x.requires_grad_())
    out.sum().backward()
    assert out.isfinite().all() and x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_follows_is_seen(kind: str) -> None:
    """dy_i / dx_j is 0 for j > i, exactly, and no other is 0."""
    layer, (x, _) = layer_of(kind, chunk=3), texts([8])
    jacobian: Any = torch.autograd.functional.jacobian(layer, x)
    of_pairs = jacobian[0, :, :, 0].abs().amax((1, 3))
    assert torch.equal(of_pairs > 0, torch.ones(8, 8, dtype=torch.bool).tril())
    assert reached(layer, x, 3) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("kind", KINDS)
def test_neither_padding_nor_neighbours_matter(kind: str) -> None:
    layer, (x, real) = layer_of(kind), texts([9, 5, 1])
    junk = x.masked_fill(~real[..., None], torch.nan)
    left = torch.stack([torch.roll(row, 9 - length, 0) for row, length in zip(junk, [9, 5, 1], strict=True)])
    together, from_right = layer(junk, real=real), layer(left, real=real.flip(1))
    assert together.isfinite().all() and from_right.isfinite().all()
    for b, length in enumerate([9, 5, 1]):
        alone = layer(x[b : b + 1, :length])[0]
        torch.testing.assert_close(together[b, :length], alone, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(from_right[b, 9 - length :], alone, atol=1e-10, rtol=1e-10)


def test_padding_on_the_right_leaves_the_state() -> None:
    layer, (x, real) = layer_of("biases"), texts([9, 5])
    padded = layer.run(x.masked_fill(~real[..., None], 0.0), real, None)[1].hidden
    torch.testing.assert_close(padded[1:], layer.run(x[1:, :5], None, None)[1].hidden)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_give_what_the_whole_text_gives(kind: str) -> None:
    """One by one, and in pieces."""
    layer, (x, _) = layer_of(kind), texts([9, 9])
    whole, memory, found = layer(x), None, []
    for part in x.split(1, 1):
        out, memory = layer.step(part, memory)
        found.append(out)
    torch.testing.assert_close(torch.cat(found, 1), whole, atol=1e-10, rtol=1e-10)
    first, memory = layer.step(x[:, :4], None)
    second, _ = layer.step(x[:, 4:], memory)
    torch.testing.assert_close(torch.cat((first, second), 1), whole, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("conv", [0, 1, 4])
def test_one_size_of_state_for_all_lengths(conv: int) -> None:
    """Channels times N, and the inputs of a convolution but its own: of 18 channels, 18 * 3 + 18 * (conv - 1) numbers."""
    layer, (x, _) = layer_of("selective", conv=conv), texts([30])
    for length in (1, 2, 30):
        state = layer.run(x[:, :length], None, None)[1]
        assert state.inputs.shape == (1, max(conv - 1, 0), 18) and state.hidden.shape == (1, 18, 3)


def language_model(attention: Any, **options: Any) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(11, 2, 12, 3, 16, attention=attention, **options)


def test_a_language_model_writes_what_it_reads() -> None:
    model = language_model(KINDS["selective"]).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens, memory, found = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(1)), None, []
    sizes = set()
    for t in range(9):
        logits, memory = model.step(tokens[:, t], memory)
        found.append(logits)
        sizes.add(sum(part.numel() for of_layer in memory.layers for part in of_layer))
    torch.testing.assert_close(torch.stack(found, 1), model(tokens), atol=1e-10, rtol=1e-10)
    assert isinstance(memory, Memory) and sizes == {2 * 2 * (18 * 3 + 18 * 3)}


def test_autocast_keeps_the_state_in_fp32() -> None:
    """A state that forgets nothing: 2000 times 1 / 64 to what becomes 31.25, of which bf16 would stop at 4."""
    layer = layer_of(Selective(state=1, selective=False, conv=0, gate=False)).float()
    with torch.no_grad():
        layer.delta_bias.fill_(log(exp(1) - 1))
        layer.log_a.fill_(-30.0)
        layer.b.fill_(1 / 64)
    u = torch.ones(1, 2000, layer.channels)
    with torch.autocast("cpu", torch.bfloat16):
        out, state = layer.scanned(u.bfloat16(), None, None)
        memory = layer.step(torch.ones(1, 1, 12), None)[1]
    assert out.dtype == torch.bfloat16 and state.dtype == memory.hidden.dtype == torch.float32
    torch.testing.assert_close(state, torch.full_like(state, 31.25), rtol=1e-4, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_16_bits(kind: str) -> None:
    """Cast, or under autocast, they come near what fp64 gives, and so does a step."""
    layer, (x, real) = layer_of(kind), texts([20, 7])
    for parameter in layer.parameters():
        parameter.data.mul_(0.3)
    x = x.masked_fill(~real[..., None], 0.0).bfloat16()
    exact = layer(x.double(), real=real)[real]
    with torch.autocast("cpu", torch.bfloat16):
        cast = layer.float()(x.float(), real=real)[real]
    layer.bfloat16()
    state = layer.step(x[:, :1], None)[1]
    for got in (cast, layer(x, real=real)[real]):
        assert got.dtype == torch.bfloat16 and (got.double() - exact).norm() <= 0.03 * exact.norm()
    assert isinstance(state, State) and state.hidden.dtype == torch.float32


@pytest.mark.parametrize(
    ("gate", "conv", "selective", "rank"), [(True, 4, True, 2), (False, 0, False, 2), (True, 3, False, 1)]
)
def test_how_many_parameters(gate: bool, conv: int, selective: bool, rank: int) -> None:
    """Of d = 20, E = 40 channels, N = 5: into u and z and out of y; kernel and bias; rank, B and C, and Delta from its rank, or
    B and C themselves; Delta's bias, A and D."""
    layer = Selective(state=5, gate=gate, conv=conv, selective=selective, rank=rank)(20, 4, 0, 1)
    of_conv = 40 * conv + 40 if conv else 0
    of_token = 40 * (rank + 2 * 5) + 40 * rank if selective else 2 * 40 * 5
    expected = 20 * 40 * (2 + gate) + of_conv + of_token + 40 + 40 * 5 + 40
    assert sum(p.numel() for p in layer.parameters()) == expected
    assert Selective()(40, 4, 0, 1).rank == ceil(40 / 16) == 3


def test_what_a_model_starts_from() -> None:
    """Delta between 0.001 and 0.1 and A_n = -n, and W_Delta as wide as its rank asks, whatever a model's other weights are."""
    model = language_model(Selective(state=4, rank=4), std=1e-5)
    for block in model.trunk.blocks:
        layer: Any = block.attention
        delta = (1 + layer.delta_bias.detach().double().exp()).log()
        assert 0.000999 < float(delta.min()) < 0.02 and 0.02 < float(delta.max()) < 0.1001
        torch.testing.assert_close(layer.log_a.exp(), torch.tensor([1.0, 2, 3, 4]).repeat(24, 1))
        assert layer.skip.eq(1).all() and layer.w_in.weight.abs().max() < 1e-4
        assert 0.4 < float(layer.w_delta.detach().abs().max()) <= 0.5


def test_one_flag_takes_the_place_of_attention() -> None:
    """Of a row of the paper's, as the command line has it; and of as many weights as the row by `match`."""
    swap = "model.attention._target_=common.nn.selective.Selective"
    given = (
        "experiment=performer_linformer/uni_transformer",
        "scale=smoke",
        "model.d_ff=128",
        swap,
        "+model.match=params",
    )
    config = job(given, None).config
    check(config)
    model: Any = instantiate(config["model"], vocabulary=11)
    layers = [block.attention for block in model.trunk.blocks]
    assert layers and all(isinstance(layer, SelectiveLayer) and layer.selective for layer in layers)
    assert model(torch.zeros(1, 3, dtype=torch.int64)).shape == (1, 3, 11)
    plain: Any = instantiate(job(given[:3], None).config["model"], vocabulary=11)
    counts = [sum(p.numel() for p in one.parameters() if p.ndim == 2) for one in (model, plain)]
    assert abs(counts[0] - counts[1]) <= len(layers) * config["model"]["d_model"]
    off = job((*given, "+model.attention.selective=false", "+model.attention.conv=0"), None).config["model"]
    layer: Any = instantiate(off, vocabulary=11).trunk.blocks[0].attention
    assert not layer.selective and not layer.width


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Selective(causal=False),
            "causal: got False, expected True: the state holds what stands before a token",
        ),
        (lambda: Selective(dropout=0.1), "dropout, head_dim: got 0.1, None, expected 0, None"),
        (lambda: Selective(head_dim=8), "dropout, head_dim: got 0.0, 8, expected 0, None"),
        (lambda: Selective(state=0), "state, conv: got 0, 4, expected 1 or more"),
        (lambda: Selective(conv=-1), "state, conv: got 16, -1, expected 1 or more, and 0"),
        (lambda: Selective(rank=0), "rank: got 0, expected 1 or more, or None"),
        (lambda: Selective(chunk=0), "chunk: got 0, expected 1 or more, or None"),
        (lambda: Selective(expand=0.01)(12, 3, 0, 1), "expand: got 0.01, expected 1 channel or more of d_model 12"),
        (lambda: Selective(backend="mamba")(12, 3, 0, 1), "backend: got 'mamba', expected one of reference"),
        (
            lambda: layer_of("no gate")(texts([3])[0], is_global=torch.ones(1, 3, dtype=torch.bool)),
            "is_global: got global tokens, expected None, as a state-space layer has none",
        ),
        (lambda: layer_of("no gate")(texts([3])[0], real=torch.ones(1, 3)), "real: got torch.float32"),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_it_stands_where_attention_stands() -> None:
    """The same factory's interface as `Full`, and no gradient of second order by a wrong one of first."""
    selective, full = Selective(), Full(backend="reference", causal=True)
    for name in ("causal", "extra_tokens", "uses_global"):
        assert getattr(selective, name) == getattr(full, name)
    decay = torch.rand(1, 4, 1).double().requires_grad_()
    (first,) = torch.autograd.grad(scan(decay, decay, decay[:, 0], chunk=2).square().sum(), decay, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
