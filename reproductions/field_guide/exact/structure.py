"""What attends to what: sources, masks, heads, layers."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Generator, Tensor, autograd

from common.attention import Causal, Full, Mask, Window, attention
from common.attention.scores import dot_score, masked_softmax
from common.bench import count_flops
from common.nn.classifier import Classifier
from common.nn.decoder import DecoderBlock
from common.nn.encoder_decoder import Transformer
from common.nn.multihead import MultiHead
from common.nn.sparse import Full as FullKind
from reproductions.field_guide.exact.scores import DEEP, EXACT, able, drawn, usable
from reproductions.field_guide.exact.value import Value, about, at_least, at_most, same, true

MASKS: dict[str, Mask] = {"full": Full(), "causal": Causal(), "sparse": Window(1, 1)}


def layer(heads: int = 4, d: int = 8, **options: object) -> MultiHead:
    """Weights of one draw, in fp64."""
    torch.manual_seed(0)
    return MultiHead(d, heads, backend="reference", linear_bias=False, **options).double()  # pyright: ignore[reportArgumentType]


def by_loop(made: MultiHead, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
    """The same head by head (Vaswani et al. 2017, section 3.2.2), each with its own rows of the matrices."""
    group, seen = made.heads // made.kv_heads, mask.dense(x.shape[1], memory.shape[1])
    heads = []
    for n in range(made.heads):
        w_q = made.w_q.weight[n * made.head_dim_k : (n + 1) * made.head_dim_k]
        of = n // group
        w_k = made.w_k.weight[of * made.head_dim_k : (of + 1) * made.head_dim_k]
        w_v = made.w_v.weight[of * made.head_dim_v : (of + 1) * made.head_dim_v]
        scores = (x @ w_q.mT) @ (memory @ w_k.mT).mT / made.head_dim_k**0.5
        heads.append(scores.masked_fill(~seen, -torch.inf).softmax(-1) @ (memory @ w_v.mT))
    return torch.cat(heads, -1) @ made.w_o.weight.mT


def looks_back(draw: Generator) -> Iterator[Value]:
    """A17: each step of a decoder has a context of its own from all states of the encoder; without one of them only the
    steps that attended to it change."""
    states = torch.eye(5, 8, dtype=DEEP)
    queries = torch.stack((states[0] + states[1], states[2] + states[3], states[0] + states[4]))
    scores = torch.stack([dot_score(1e3 * q, states) for q in queries])
    real = torch.ones(5, dtype=torch.bool)
    contexts = masked_softmax(scores, real) @ states
    for n, (before, after) in enumerate(pairwise(contexts)):
        yield at_least(f"change of the context from step {n + 1} to the next", (after - before).abs().max(), 0.1)
    without = real.clone()
    without[3] = False
    changed = (masked_softmax(scores, without) @ states - contexts).abs().amax(-1)
    for n, attended in enumerate((False, True, False)):
        yield (at_least if attended else at_most)(
            f"change of step {n + 1} without state 4", changed[n], 0.1 if attended else 0
        )
    soft = masked_softmax(scores / 1e3, real)
    yield at_least("smallest weight where scores are soft", soft.min(), 1e-3)


def one_or_two_inputs(draw: Generator) -> Iterator[Value]:
    """A27: with one input the layer is self-attention, with two it is cross-attention; a model of self-attention alone needs
    no other."""
    made, x, memory = layer(), drawn(draw, 2, 5, 8), drawn(draw, 2, 7, 8)
    yield same("one input", made(x, mask=Full()), made(x, x, mask=Full()), 0.0)
    yield same("two inputs", made(x, memory, mask=Full()), by_loop(made, x, memory, Full()), EXACT)
    torch.manual_seed(0)
    model = Classifier(
        9, 2, 8, 2, 16, classes=3, attention=FullKind(backend="reference"), max_length=6, positions="learned"
    )
    yield true("a classifier alone", model(torch.ones(2, 6, dtype=torch.int64)).shape == (2, 3))
    yield about("decoders in it", sum(isinstance(module, DecoderBlock) for module in model.modules()), 0)


def trunks(draw: Generator) -> Iterator[Value]:
    """A32: encoder and decoder are stacks of self-attention."""
    model = transformer()
    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        blocks = [block for block in stack.modules() if hasattr(block, "attention") and hasattr(block, "feedforward")]
        yield about(f"layers of self-attention, {name}", len(blocks), 2)


def transformer(**options: object) -> Transformer:
    torch.manual_seed(0)
    sizes = {"layers": 2, "d_model": 8, "d_ff": 16, "heads": 2, "backend": "reference"} | options
    return Transformer(11, 11, **sizes).double().eval()  # pyright: ignore[reportArgumentType]


def cross(draw: Generator) -> Iterator[Value]:
    """A33: queries of the decoder, keys and values of the encoder, computed once for a source."""
    made, x = layer(), drawn(draw, 1, 3, 8).requires_grad_()
    memory = drawn(draw, 1, 6, 8).requires_grad_()
    keys, values = made.keys_values(memory)
    yield true("queries and keys of other lengths", made(x, memory, mask=Full()).shape == (1, 3, 8))
    yield true("keys and values read the encoder", all(t.shape[2] == 6 for t in (keys, values)))
    of_keys = autograd.grad(keys.sum() + values.sum(), (x, memory), allow_unused=True)
    yield true("and it alone", of_keys[0] is None and of_keys[1] is not None)
    model, calls = transformer(), []
    for block in model.decoder.blocks:
        assert isinstance(block, DecoderBlock)
        block.cross.w_k.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        memory_of, state = model.begin(torch.tensor([[3, 4, 5]]), torch.ones(1, 3, dtype=torch.bool))
        for word in (1, 2, 3, 4):
            _, state, _ = model.step(memory_of, state, torch.tensor([[word]]))
    yield about("times that keys of the source are computed in four steps, a layer", len(calls) / 2, 1)


def sublayers(draw: Generator) -> Iterator[Value]:
    """B28: a decoder layer has three sublayers: masked self-attention, attention to the encoder's output, feed-forward."""
    model = transformer()
    block = model.decoder.blocks[0]
    order: list[str] = []
    for name in ("attention", "cross", "feedforward"):
        getattr(block, name).register_forward_hook(lambda *_, name=name: order.append(name))
    source, real = torch.tensor([[3, 4, 5, 6]]), torch.ones(1, 4, dtype=torch.bool)
    words = torch.tensor([[1, 2, 3, 4, 5]])
    mask = torch.ones_like(words, dtype=torch.bool)
    with torch.no_grad():
        logits = model(source, real, words, mask)
        yield true("order", order == ["attention", "cross", "feedforward"])
        later = model(source, real, torch.tensor([[1, 2, 3, 9, 9]]), mask)
        yield at_most("change of the first three positions by later words", (later - logits)[:3].abs().max(), 0.0)
        yield at_least("change of the fourth", (later - logits)[3].abs().max(), 1e-6)
        other = model(torch.tensor([[3, 4, 5, 7]]), real, words, mask)
        yield at_least("change of the first position by the last source word", (other - logits)[0].abs().max(), 1e-9)
        hidden = model(torch.tensor([[3, 4, 5, 7]]), real & (source != 6), words, mask)
        same_hidden = model(source, real & (source != 6), words, mask)
        yield at_most("change by a source word that is masked", (hidden - same_hidden).abs().max(), 0.0)


def causal(draw: Generator) -> Iterator[Value]:
    """A34, the exact half: the derivative of output i by input j is 0 for j > i, on every backend that has one."""
    q, k, v = (drawn(draw, 1, 1, 6, 4).requires_grad_() for _ in range(3))
    for backend in able(q, k, v, Causal()):
        out = attention(q, k, v, mask=Causal(), backend=backend)[0, 0]
        early, late = 0.0, []
        for i in range(6):
            grads = autograd.grad(out[i].sum(), (k, v), retain_graph=True)
            early = max(early, *(float(g[0, 0, i + 1 :].abs().sum()) for g in grads))
            late += [float(grads[1][0, 0, : i + 1].abs().amin())]
        yield at_most(f"derivative by later inputs, {backend}", early, 0.0)
        yield at_least(f"smallest one by earlier values, {backend}", min(late), 1e-6)


def heads(draw: Generator) -> Iterator[Value]:
    """A35, B10: h sets of projections in parallel, d_model / h wide, joined and mapped by W_O; one head is plain attention."""
    x, memory = drawn(draw, 2, 5, 8), drawn(draw, 2, 7, 8)
    for h in (1, 2, 4, 8):
        made = layer(h)
        yield same(f"{h} heads", made(x, memory, mask=Full()), by_loop(made, x, memory, Full()), EXACT)
        yield about(f"width of a head of {h}", made.head_dim_v, 8 / h)
        yield about(f"parameters with {h} heads", sum(p.numel() for p in made.parameters()), 4 * 8 * 8)
    one = layer(1)
    q, k, v = (x @ w.weight.mT for w in (one.w_q, one.w_k, one.w_v))
    plain = attention(q[:, None], k[:, None], v[:, None], mask=Full(), backend="reference")[:, 0] @ one.w_o.weight.mT
    yield same("one head is single attention", one(x, mask=Full()), plain, EXACT)


def grouped(draw: Generator) -> Iterator[Value]:
    """A36: as many groups as heads are multi-head attention, one is multi-query; keys and values are shared, not copied."""
    q = drawn(draw, 2, 8, 5, 4)
    for groups in (1, 2, 4, 8):
        k, v = drawn(draw, 2, groups, 6, 4), drawn(draw, 2, groups, 6, 4)
        for backend in usable(q, k, v):
            shared = attention(q, k, v, mask=Full(), backend=backend)
            copied = attention(q, *(t.repeat_interleave(8 // groups, 1) for t in (k, v)), mask=Full(), backend=backend)
            yield same(f"{groups} groups, {backend}", shared, copied, EXACT)
    x = drawn(draw, 1, 5, 8)
    for groups in (1, 2, 4):
        made = layer(4, kv_heads=groups)
        yield same(f"layer of {groups} groups", made(x, mask=Full()), by_loop(made, x, x, Full()), EXACT)
        held = made.nothing_yet(1, x, None)
        for t in range(5):
            _, held = made.extend(x[:, t], held)
        kept = held.keys.numel() + held.values.numel()
        yield about(f"numbers kept by {groups} groups over those by 4", kept / (2 * 4 * 5 * 2), groups / 4)


def teaching_sketch(draw: Generator) -> Iterator[Value]:
    """B43: grouped attention as it is taught, with keys and values copied by repeat_interleave, is the layer without copies."""
    d, h, g = 8, 4, 2
    made, x = layer(h, d, kv_heads=g), drawn(draw, 2, 5, d)
    size = d // h
    q = (x @ made.w_q.weight.mT).view(2, 5, h, size).transpose(1, 2)
    k, v = (
        (x @ w.weight.mT).view(2, 5, g, size).transpose(1, 2).repeat_interleave(h // g, dim=1)
        for w in (made.w_k, made.w_v)
    )
    out = ((q @ k.mT) / size**0.5).softmax(-1) @ v
    yield same("output", made(x, mask=Full()), out.transpose(1, 2).reshape(2, 5, d) @ made.w_o.weight.mT, EXACT)
    yield true("W_k and W_v map to d / h * g", made.w_k.weight.shape == made.w_v.weight.shape == (size * g, d))
    yield true("groups that do not divide the heads are refused", refused(lambda: layer(4, kv_heads=3)))


def refused(make: object) -> bool:
    try:
        make()  # type: ignore[operator]
    except ValueError:
        return True
    return False


def output_width(draw: Generator) -> Iterator[Value]:
    """B44: the output is as wide as the values are: h d_v numbers before W_O."""
    for wide in (1, 2, 5):
        made = layer(4, head_dim_v=wide)
        yield about(f"width before W_O, d_v = {wide}", made.w_o.in_features, 4 * wide)
    yield about("h * d_model / h", 4 * layer(4).head_dim_v, 8)


def output_width_of_the_block(draw: Generator) -> Iterator[Value]:
    """B44's limit: another d_v changes the width of the block's output."""
    for wide in (1, 2, 5):
        out = layer(4, head_dim_v=wide)(drawn(draw, 1, 3, 8), mask=Full())
        yield about(f"width of the output, d_v = {wide}", out.shape[-1], 4 * wide)


def grid(draw: Generator) -> Iterator[Value]:
    """A39: every attention has a source of queries and keys, self or cross, and a visibility, full, causal or sparse."""
    made, x, memory = layer(), drawn(draw, 2, 6, 8), drawn(draw, 2, 9, 8)
    for source, other in (("self", x), ("cross", memory)):
        for visible, mask in MASKS.items():
            yield same(f"{source}, {visible}", made(x, other, mask=mask), by_loop(made, x, other, mask), EXACT)


def projections(draw: Generator) -> Iterator[Value]:
    """B08: project, score, scale, softmax whose rows sum to 1, weighted sum."""
    made, x = layer(2), drawn(draw, 1, 5, 8)
    yield true("shapes", all(w.weight.shape == (8, 8) for w in (made.w_q, made.w_k, made.w_v, made.w_o)))
    yield same("sums of rows", made.weights(x, mask=Full()).sum(-1), torch.ones(1, 2, 5, dtype=DEEP), 1e-6)
    yield same("output", made(x, mask=Full()), by_loop(made, x, x, Full()), EXACT)


def permuted(draw: Generator) -> Iterator[Value]:
    """A40: without positions attention does not know the order: permuted words give permuted outputs."""
    x, order = drawn(draw, 1, 7, 8), torch.randperm(7, generator=draw)
    made = layer()
    turned = layer(d=16, rotary=True)  # heads of 4: two turns
    yield same("permuted", made(x[:, order], mask=Full()), made(x, mask=Full())[:, order], EXACT)
    wide = drawn(draw, 1, 7, 16)
    apart = turned(wide[:, order], mask=Full()) - turned(wide, mask=Full())[:, order]
    yield at_least("difference with rotary positions", apart.abs().max(), 1e-3)
    words = drawn(draw, 3, 8)  # the cat, chases, the ball
    first, second = made(words[None], mask=Full())[0], made(words[[2, 1, 0]][None], mask=Full())[0]
    yield same("cat chases ball, ball chases cat", first, second[[2, 1, 0]], EXACT)


def order_through_the_mask(draw: Generator) -> Iterator[Value]:
    """A40's limit: it does not know the order under a causal mask either."""
    x, order = drawn(draw, 1, 7, 8), torch.tensor([1, 0, 2, 3, 4, 5, 6])
    made = layer()
    yield same("permuted, causal", made(x[:, order], mask=Causal()), made(x, mask=Causal())[:, order], EXACT)


def more_heads(draw: Generator) -> Iterator[Value]:
    """B11's second half: more heads of d_model / h are more computation."""
    x = torch.randn(1, 32, 64, generator=draw)
    flops = {}
    for h in (1, 4, 16):
        made = layer(h, 64).float()
        flops[h] = count_flops(lambda made=made: made(x, mask=Full()))
    yield at_least("FLOPs of 16 heads over those of one", flops[16] / flops[1], 1.01)
