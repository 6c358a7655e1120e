"""Weights from torch's attention and back, against torch's own outputs and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.adapters.torch_multihead import from_torch, mask_from_torch, to_torch
from common.nn.multihead import MultiHead

SIZE, HEADS, OTHER = 12, 3, 10
HIDDEN = torch.arange(7) >= torch.tensor([[7], [4], [1]])  # torch's: True = hidden
ATOL = {torch.float32: 1e-6, torch.float64: 1e-12}


def torch_attention(dtype: torch.dtype = torch.float64, **settings: Any) -> nn.MultiheadAttention:
    """With biases that aren't zero, as torch's are at first."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(SIZE, HEADS, batch_first=True, dtype=dtype, **settings)
    for name, parameter in theirs.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return theirs.train()


def outputs(theirs: nn.MultiheadAttention, x: Tensor, memory: Tensor, **masks: Any) -> Tensor:
    return theirs(x, memory, memory, need_weights=False, **masks)[0]


@pytest.mark.parametrize("dtype", ATOL)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("settings", [{}, {"kdim": OTHER, "vdim": OTHER}], ids=["packed", "separate"])
@pytest.mark.parametrize("backend", ["reference", "sdpa", "chunked"])
def test_cross_attention_with_padding(backend: str, settings: dict[str, int], bias: bool, dtype: torch.dtype) -> None:
    theirs = torch_attention(dtype, bias=bias, **settings)
    ours = from_torch(theirs, backend=backend)
    x, memory = torch.randn(3, 5, SIZE, dtype=dtype), torch.randn(3, 7, settings.get("kdim", SIZE), dtype=dtype)
    want = outputs(theirs, x, memory, key_padding_mask=HIDDEN)
    got = ours(x, memory, mask=mask_from_torch(HIDDEN))
    torch.testing.assert_close(got, want, rtol=0, atol=ATOL[dtype])
    torch.testing.assert_close(
        ours(x, memory, mask=mask_from_torch()), outputs(theirs, x, memory), rtol=0, atol=ATOL[dtype]
    )


@pytest.mark.parametrize("dtype", ATOL)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("backend", ["reference", "sdpa", "chunked"])
def test_causal_self_attention_with_and_without_padding(backend: str, bias: bool, dtype: torch.dtype) -> None:
    theirs = torch_attention(dtype, bias=bias)
    ours = from_torch(theirs, backend=backend)
    x, future = torch.randn(3, 7, SIZE, dtype=dtype), torch.ones(7, 7, dtype=torch.bool).triu(1)
    for hidden in (None, HIDDEN):
        want = outputs(theirs, x, x, attn_mask=future, key_padding_mask=hidden)
        got = ours(x, mask=mask_from_torch(hidden, causal=True))
        torch.testing.assert_close(got, want, rtol=0, atol=ATOL[dtype])


@pytest.mark.parametrize("settings", [{}, {"kdim": OTHER, "vdim": OTHER}], ids=["packed", "separate"])
@pytest.mark.parametrize("dtype", ATOL)
def test_gradients(dtype: torch.dtype, settings: dict[str, int]) -> None:
    """Of the inputs and of every parameter, torch's packed ones taken apart."""
    theirs = torch_attention(dtype, **settings)
    ours = from_torch(theirs, backend="chunked")
    x, memory = torch.randn(3, 5, SIZE, dtype=dtype), torch.randn(3, 7, settings.get("kdim", SIZE), dtype=dtype)
    weight = torch.randn(3, 5, SIZE, dtype=dtype) / 10

    def gradients(attend: Any, module: nn.Module) -> tuple[Tensor, Tensor]:
        inputs = x.clone().requires_grad_(), memory.clone().requires_grad_()
        module.zero_grad()
        (attend(*inputs) * weight).sum().backward()
        assert inputs[0].grad is not None and inputs[1].grad is not None
        return inputs[0].grad, inputs[1].grad

    want = gradients(lambda *inputs: outputs(theirs, *inputs, key_padding_mask=HIDDEN), theirs)
    got = gradients(lambda *inputs: ours(*inputs, mask=mask_from_torch(HIDDEN)), ours)
    torch.testing.assert_close(got, want, rtol=0, atol=ATOL[dtype])
    of = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    packed = of.get("in_proj_weight")
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    weights = [of[name] for name in names] if packed is None else packed.chunk(3)
    assert of["in_proj_bias"] is not None
    want = [*weights, of["out_proj.weight"], *of["in_proj_bias"].chunk(3), of["out_proj.bias"]]
    linears = ours.w_q, ours.w_k, ours.w_v, ours.w_o
    got = [linear.weight.grad for linear in linears] + [linear.bias.grad for linear in linears]
    for mine, other in zip(got, want, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=ATOL[dtype])


def test_weights_of_each_head() -> None:
    """In torch's order of heads."""
    theirs, x = torch_attention(), torch.randn(3, 7, SIZE).double()
    want = theirs(x, x, x, key_padding_mask=HIDDEN, average_attn_weights=False)[1]
    got = from_torch(theirs, backend="reference").weights(x, mask=mask_from_torch(HIDDEN))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_the_copy_is_one_and_has_their_mode_and_dropout() -> None:
    theirs = torch_attention(dropout=0.25)
    ours = from_torch(theirs, backend="reference")
    assert ours.training and ours.dropout == 0.25 and not from_torch(theirs.eval(), backend="reference").training
    before = theirs.out_proj.weight.detach().clone()
    nn.init.zeros_(ours.w_o.weight)
    nn.init.zeros_(ours.w_q.weight)
    assert torch.equal(theirs.out_proj.weight, before) and theirs.in_proj_weight.abs().sum() > 1


@pytest.mark.parametrize(
    ("settings", "got"),
    [
        ({"add_bias_kv": True}, "add_bias_kv=True"),
        ({"add_zero_attn": True}, "add_zero_attn=True"),
        ({"kdim": 5, "vdim": 6}, "kdim 5 and vdim 6"),
        ({"kdim": 5}, f"kdim 5 and vdim {SIZE}"),
    ],
)
def test_what_ours_does_not_have_is_refused(settings: dict[str, Any], got: str) -> None:
    with pytest.raises(ValueError, match=got):
        from_torch(nn.MultiheadAttention(SIZE, HEADS, **settings), backend="reference")


def test_a_mask_of_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"key_padding_mask: got torch.float32, expected bool"):
        mask_from_torch(torch.zeros(3, 7))


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
@pytest.mark.parametrize("linear_bias", [True, False])
def test_back_to_torch(kv_heads: int, linear_bias: bool) -> None:
    torch.manual_seed(0)
    ours = MultiHead(SIZE, 6, kv_heads=kv_heads, linear_bias=linear_bias, backend="reference", dropout=0.25).double()
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    theirs = to_torch(ours.eval())
    assert theirs.dropout == 0.25 and not theirs.training
    x, memory = torch.randn(3, 5, SIZE).double(), torch.randn(3, 7, SIZE).double()
    got = outputs(theirs, x, memory, key_padding_mask=HIDDEN)
    torch.testing.assert_close(got, ours(x, memory, mask=mask_from_torch(HIDDEN)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("settings", [{}, {"kdim": OTHER, "vdim": OTHER}], ids=["packed", "separate"])
def test_there_and_back_gives_the_same_numbers(settings: dict[str, int], bias: bool) -> None:
    theirs = torch_attention(torch.float64, bias=bias, **settings)
    back = to_torch(from_torch(theirs, backend="sdpa")).state_dict()
    assert back.keys() == theirs.state_dict().keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in theirs.state_dict().items())


@pytest.mark.parametrize(
    ("settings", "got"),
    [
        ({"rotary": True}, "rotary=True"),
        ({"scale": 1.0}, "scale 1.0"),
        ({"head_dim_k": 5}, "heads of 5 and 4"),
        ({"head_dim_v": 5}, "heads of 4 and 5"),
    ],
)
def test_what_torch_does_not_have_is_refused(settings: dict[str, Any], got: str) -> None:
    with pytest.raises(ValueError, match=got):
        to_torch(MultiHead(SIZE, HEADS, backend="reference", **settings))
