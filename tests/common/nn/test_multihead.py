"""Multi-head attention against torch's own with the same weights, heads of keys repeated, positions, and its errors."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.attention import Alibi, Causal, Full, Mask, Padding, T5Bias, alibi_slopes
from common.nn.multihead import MultiHead


def multihead(d_model: int = 8, heads: int = 4, **settings: Any) -> MultiHead:
    torch.manual_seed(0)
    settings.setdefault("backend", "reference")
    module = MultiHead(d_model, heads, **settings)
    for bias in (module.w_q.bias, module.w_k.bias, module.w_v.bias, module.w_o.bias):
        if bias is not None:
            nn.init.normal_(bias)
    return module.double()


def torch_multihead(module: MultiHead, x: Tensor, memory: Tensor, **masks: Any) -> Tensor:
    """torch's own, written by others, with this module's weights; heads of keys and values are repeated."""
    repeat = module.heads // module.kv_heads
    parts = [module.w_q.weight, module.w_q.bias]
    for linear in (module.w_k, module.w_v):
        for tensor in (linear.weight, linear.bias):
            parts.append(tensor.unflatten(0, (module.kv_heads, -1)).repeat_interleave(repeat, 0).flatten(0, 1))
    theirs = nn.MultiheadAttention(x.shape[-1], module.heads, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        assert theirs.in_proj_weight is not None and theirs.in_proj_bias is not None
        theirs.in_proj_weight.copy_(torch.cat(parts[0::2]))
        theirs.in_proj_bias.copy_(torch.cat(parts[1::2]))
        theirs.out_proj.load_state_dict(module.w_o.state_dict())
    return theirs(x, memory, memory, need_weights=False, **masks)[0]


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_as_torch_with_causal_and_padding_masks(kv_heads: int) -> None:
    module = multihead(kv_heads=kv_heads)
    x, memory = torch.randn(2, 5, 8).double(), torch.randn(2, 7, 8).double()
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(module(x, mask=Causal()), torch_multihead(module, x, x, attn_mask=hidden))
    keep = torch.arange(7) < torch.tensor([[7], [3]])
    got = module(x, memory, mask=Padding(keep))
    torch.testing.assert_close(got, torch_multihead(module, x, memory, key_padding_mask=~keep))


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_head_by_head_with_keys_and_values_of_different_sizes(kv_heads: int) -> None:
    """softmax(q k^T / sqrt(d_k)) v of each head, its rows of the matrices cut out by hand; d_k = 3, d_v = 5."""
    module = multihead(kv_heads=kv_heads, head_dim_k=3, head_dim_v=5)
    x, memory = torch.randn(5, 8).double(), torch.randn(7, 8).double()
    q, k, v = module.w_q(x), module.w_k(memory), module.w_v(memory)
    heads = []
    for h in range(4):
        g = h // (4 // kv_heads)
        weights = (q[:, 3 * h : 3 * h + 3] @ k[:, 3 * g : 3 * g + 3].T / 3**0.5).softmax(-1)
        heads.append(weights @ v[:, 5 * g : 5 * g + 5])
    torch.testing.assert_close(module(x[None], memory[None], mask=Full())[0], module.w_o(torch.cat(heads, 1)))


@pytest.mark.parametrize("settings", [{}, {"kv_heads": 2, "head_dim_k": 6, "rotary": True, "scale": 0.7}])
def test_one_position_at_a_time(settings: dict[str, Any]) -> None:
    """Two hypotheses grow to six positions, with a bias by distance, and both look at one memory with padding."""
    module, alibi = multihead(**settings), Alibi(alibi_slopes(4).double())
    x = torch.randn(3, 2, 6, 8).double()
    whole = torch.stack([module(x[:, k], mask=Causal(), bias=alibi) for k in range(2)], 1)
    kept = module.nothing_yet(6, x, None)
    for t in range(6):
        bias = alibi.dense(1, t + 1)[0]
        out, kept = module.extend(x[:, :, t].flatten(0, 1), kept, bias)
        torch.testing.assert_close(out, whole[:, :, t].flatten(0, 1), rtol=0, atol=1e-12)
    if not module.rotary:
        memory, keep = torch.randn(3, 5, 8).double(), torch.arange(5) < torch.tensor([[5], [1], [3]])
        looked, weights = module.look(x[:, :, 0], *module.keys_values(memory), keep)
        torch.testing.assert_close(looked, module(x[:, :, 0], memory, mask=Padding(keep)), rtol=0, atol=1e-12)
        assert weights.shape == (3, 2, 4, 5) and not weights.masked_select(~keep[:, None, None]).any()
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 4).double())


def test_one_head_by_hand() -> None:
    """Queries 0, keys 0: weights are equal, so each output is W_o times the mean of W_v y = 3 y, twice that: 6 mean(y)."""
    module = MultiHead(1, 1, backend="reference", linear_bias=False)
    for linear, weight in ((module.w_q, 0.0), (module.w_k, 0.0), (module.w_v, 3.0), (module.w_o, 2.0)):
        nn.init.constant_(linear.weight, weight)
    y = torch.tensor([[[1.0], [2.0], [6.0]]])
    torch.testing.assert_close(module(y, mask=Full()), torch.full((1, 3, 1), 18.0))
    torch.testing.assert_close(module(y, mask=Causal()), torch.tensor([[[6.0], [9.0], [18.0]]]))


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("linear_bias", [True, False])
def test_parameter_count(kv_heads: int, linear_bias: bool) -> None:
    """d_k = 3, d_v = 5."""
    module = MultiHead(
        8, 4, kv_heads=kv_heads, head_dim_k=3, head_dim_v=5, backend="reference", linear_bias=linear_bias
    )
    weights = 8 * (4 * 3 + kv_heads * 3 + kv_heads * 5) + 4 * 5 * 8
    biases = 4 * 3 + kv_heads * 3 + kv_heads * 5 + 8
    assert sum(p.numel() for p in module.parameters()) == weights + linear_bias * biases


def test_the_scale_is_that_of_the_head() -> None:
    """Scores are divided by sqrt(head_dim), not sqrt(d_model); a scale given takes its place."""
    x = torch.randn(1, 6, 8).double()
    default, given, other = multihead(), multihead(scale=2**-0.5), multihead(scale=8**-0.5)
    torch.testing.assert_close(default(x, mask=Full()), given(x, mask=Full()))
    assert not torch.allclose(default(x, mask=Full()), other(x, mask=Full()))


@pytest.mark.parametrize("how", ["rotary", "alibi", "t5"])
def test_relative_positions_know_the_order_but_not_the_place(how: str) -> None:
    """The last query's output changes when earlier tokens swap places, and not when all move on by 100 places."""
    module = multihead(rotary=how == "rotary")
    table = torch.randn(32, 4).double()
    bias = {"rotary": None, "alibi": Alibi(alibi_slopes(4)), "t5": T5Bias(table, bidirectional=False)}[how]
    x = torch.randn(2, 6, 8).double()
    out = module(x, mask=Causal(), bias=bias)
    swapped = module(x[:, [1, 0, 2, 3, 4, 5]], mask=Causal(), bias=bias)
    assert (out - swapped)[:, -1].abs().max() > 1e-4
    if how == "rotary":
        moved = module(x, mask=Causal(), positions=torch.arange(100, 106))
        torch.testing.assert_close(out, moved, rtol=1e-8, atol=1e-8)
        each = torch.stack((torch.arange(100, 106), torch.arange(6)))
        torch.testing.assert_close(out, module(x, mask=Causal(), positions=each), rtol=1e-8, atol=1e-8)
        stretched = module(x, mask=Causal(), positions=2 * torch.arange(6))
        assert (out - stretched).abs().max() > 1e-4


def test_without_positions_the_order_of_keys_does_not_matter() -> None:
    module, x = multihead(), torch.randn(2, 6, 8).double()
    swapped = module(x[:, [1, 0, 2, 3, 4, 5]], mask=Causal())
    torch.testing.assert_close(module(x, mask=Causal())[:, -1], swapped[:, -1])


def test_a_scale_of_zero_is_no_default() -> None:
    """Weights are then equal: each output is that of the mean."""
    module, x = multihead(scale=0.0), torch.randn(1, 6, 8).double()
    mean = module.w_o(module.w_v(x.mean(1, keepdim=True)))
    torch.testing.assert_close(module(x, mask=Full()), mean.expand_as(x))


@pytest.mark.parametrize("backend", ["reference", "chunked"])
def test_dropout_only_in_training(backend: str) -> None:
    """Two calls in eval are bit-equal and as with no dropout; in training they differ."""
    module, none = multihead(dropout=0.5, backend=backend), multihead(backend=backend)
    x = torch.randn(1, 16, 8).double()
    module.eval()
    assert torch.equal(module(x, mask=Full()), module(x, mask=Full()))
    assert torch.equal(module(x, mask=Full()), none(x, mask=Full()))
    module.train()
    assert not torch.equal(module(x, mask=Full()), module(x, mask=Full()))


def test_dropout_that_a_backend_can_not_repeat_is_none_in_eval_and_refused_in_training() -> None:
    module, none = multihead(dropout=0.5, backend="sdpa"), multihead(backend="sdpa")
    x = torch.randn(1, 16, 8).double()
    assert torch.equal(module.eval()(x, mask=Full()), none(x, mask=Full()))
    with pytest.raises(ValueError, match="backend 'sdpa' draws its own random numbers"):
        module.train()(x, mask=Full())


@pytest.mark.parametrize("backend", ["reference", "sdpa", "chunked"])
def test_autocast(backend: str) -> None:
    """The output is in its dtype, near that in fp32; gradients are in that of the weights."""
    module = multihead(kv_heads=2, rotary=True, backend=backend).float()
    x = torch.randn(2, 6, 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = module(x, mask=Causal())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), module(x, mask=Causal()), atol=0.05, rtol=0.05)
    grads = torch.autograd.grad(out.float().square().sum(), list(module.parameters()))
    assert all(g.dtype == torch.float32 and torch.isfinite(g).all() for g in grads)


def test_nothing_of_a_call_is_kept() -> None:
    module = multihead(rotary=True)
    before = {name: set(vars(part)) for name, part in module.named_modules()}
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module(torch.randn(2, 6, 8).double(), mask=Causal())
    assert before == {name: set(vars(part)) for name, part in module.named_modules()}
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())


@pytest.mark.parametrize("backend", ["sdpa", "chunked"])
@pytest.mark.parametrize("mask", [Causal(), Padding.lengths(torch.tensor([9, 4]), 9)], ids=["causal", "padding"])
def test_backends_agree(backend: str, mask: Mask) -> None:
    x = torch.randn(2, 9, 8).double()
    outputs, gradients = [], []
    for name in ("reference", backend):
        module = multihead(kv_heads=2, rotary=True, backend=name)
        outputs.append(module(x, mask=mask))
        gradients.append(torch.autograd.grad(outputs[-1].square().sum(), list(module.parameters())))
    torch.testing.assert_close(outputs[0], outputs[1])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": 3}, "heads: got 3, expected a divisor of d_model 8"),
        ({"kv_heads": 3}, "kv_heads: got 3, expected a divisor of heads 4"),
        ({"kv_heads": 0}, "kv_heads: got 0"),
        ({"backend": "fast"}, "backend: got 'fast', expected one of reference"),
        ({"heads": 3, "head_dim_k": 4}, "heads: got 3, expected a divisor of d_model 8, or head_dim_k and head_dim_v"),
        ({"head_dim_k": 3, "rotary": True}, "head_dim_k: got 3, expected an even one"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        multihead(**settings)


def test_rotary_positions_of_a_memory_are_not_guessed() -> None:
    module, x = multihead(rotary=True), torch.randn(1, 3, 8).double()
    with pytest.raises(ValueError, match="got a memory"):
        module(x, x, mask=Full())
