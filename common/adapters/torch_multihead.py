"""`MultiHead` from torch.nn.MultiheadAttention and back: the same weights, the same outputs."""

import torch
from torch import Tensor, nn

from common.attention import Causal, Full, Mask, Padding
from common.nn.feedforward import projection
from common.nn.multihead import MultiHead

SEPARATE = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
"""torch's names where keys and values have another size than queries; else one matrix, in_proj_weight."""


def from_torch(theirs: nn.MultiheadAttention, *, backend: str) -> MultiHead:
    """Copies of its weights, with its dropout, dtype, device and mode.

    Ours takes (batch, time, d_model) whatever theirs has for batch_first, its second argument is keys and values at once
    (B, Lk, kdim), and its mask is that of `mask_from_torch`. A query that sees no key gets the output bias alone, NaN in
    theirs. Raises ValueError for what ours does not have: add_bias_kv, add_zero_attn, a kdim that is not vdim.
    """
    if theirs.bias_k is not None or theirs.add_zero_attn or theirs.kdim != theirs.vdim:
        raise ValueError(
            f"nn.MultiheadAttention: got add_bias_kv={theirs.bias_k is not None}, add_zero_attn={theirs.add_zero_attn}, "
            f"kdim {theirs.kdim} and vdim {theirs.vdim}, expected neither of the first two, and kdim as vdim, as keys and "
            "values are read from one memory"
        )
    has_bias = theirs.in_proj_bias is not None
    ours = MultiHead(theirs.embed_dim, theirs.num_heads, backend=backend, dropout=theirs.dropout, linear_bias=has_bias)
    ours.w_k, ours.w_v = (projection(theirs.kdim, theirs.embed_dim, bias=has_bias) for _ in range(2))
    given = theirs.state_dict()
    weights = given["in_proj_weight"].chunk(3) if "in_proj_weight" in given else [given[name] for name in SEPARATE]
    state = {f"w_{name}.weight": weight for name, weight in zip("qkv", weights, strict=True)}
    state["w_o.weight"] = given["out_proj.weight"]
    if has_bias:
        state |= {f"w_{name}.bias": bias for name, bias in zip("qkv", given["in_proj_bias"].chunk(3), strict=True)}
        state["w_o.bias"] = given["out_proj.bias"]
    ours.to(theirs.out_proj.weight).load_state_dict(state)  # in this order: fp64 would be rounded on the way
    return ours.train(theirs.training)


def to_torch(ours: MultiHead) -> nn.MultiheadAttention:
    """Copies of its weights, with its dropout, dtype, device and mode, and batch_first.

    Where keys and values have fewer heads, each is repeated for the query heads that read it, so that the outputs are the
    same. Raises ValueError for what theirs does not have: rotary positions, a scale or head sizes of one's own.
    """
    d_model, kdim, has_bias = ours.w_q.in_features, ours.w_k.in_features, ours.w_q.bias is not None
    sizes = ours.head_dim_k * ours.heads, ours.head_dim_v * ours.heads
    if ours.rotary or ours.scale != ours.head_dim_k**-0.5 or sizes != (d_model, d_model):
        raise ValueError(
            f"MultiHead: got rotary={ours.rotary}, scale {ours.scale} and heads of {ours.head_dim_k} and "
            f"{ours.head_dim_v}, expected no rotary positions and, for {ours.heads} heads in {d_model}, heads of "
            f"{d_model / ours.heads:g} and a scale of {(d_model / ours.heads) ** -0.5:g}"
        )

    def whole(tensor: Tensor) -> Tensor:
        """(kv_heads * head_dim, ...) to (heads * head_dim, ...)."""
        heads = tensor.unflatten(0, (ours.kv_heads, -1))
        return heads.repeat_interleave(ours.heads // ours.kv_heads, 0).flatten(0, 1)

    theirs = nn.MultiheadAttention(
        d_model, ours.heads, dropout=ours.dropout, bias=has_bias, kdim=kdim, vdim=kdim, batch_first=True
    )
    own = ours.state_dict()
    weights = [own["w_q.weight"], whole(own["w_k.weight"]), whole(own["w_v.weight"])]
    state: dict[str, Tensor] = dict(zip(SEPARATE, weights, strict=True))
    if kdim == d_model:
        state = {"in_proj_weight": torch.cat(weights)}
    state["out_proj.weight"] = own["w_o.weight"]
    if has_bias:
        biases = [own["w_q.bias"], whole(own["w_k.bias"]), whole(own["w_v.bias"])]
        state |= {"in_proj_bias": torch.cat(biases), "out_proj.bias": own["w_o.bias"]}
    theirs.to(ours.w_o.weight).load_state_dict(state)  # in this order, as above
    return theirs.train(ours.training)


def mask_from_torch(key_padding_mask: Tensor | None = None, *, causal: bool = False) -> Mask:
    """What nn.MultiheadAttention hides with key_padding_mask, bool (B, Lk), True = hidden: ours has True = may attend.

    causal: also what an attn_mask of torch.ones(L, L, dtype=torch.bool).triu(1) hides. Raises ValueError for a mask that
    isn't bool.
    """
    mask = Causal() if causal else Full()
    if key_padding_mask is None:
        return mask
    if key_padding_mask.dtype != torch.bool:
        raise ValueError(f"key_padding_mask: got {key_padding_mask.dtype}, expected bool, True = hidden")
    padding = Padding(~key_padding_mask)
    return padding & mask if causal else padding
