"""What holds for every backend, one function each: it raises AssertionError where the backend named does not keep to it.

On a CPU, or on another device for those that run there.

Exact values come from `plain` in fp64, which knows no blocks, and from the inputs themselves.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from common.attention import Blocks, Causal, Full, Global, Mask, Packed, Padding, Window, attention
from tests.common.attention.plain import gradients, plain, relative_rms

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def inputs(
    lq: int = 37, lk: int | None = None, *, batch: int = 2, heads: int = 4, kv: int = 4, d: int = 8, dv: int = 8,
    dtype: torch.dtype = torch.float32, seed: int = 0, device: str = "cpu",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """q, k, v and a gradient of the output."""
    generator = torch.Generator().manual_seed(seed)
    lk = lq if lk is None else lk
    shapes = ((batch, heads, lq, d), (batch, kv, lk, d), (batch, kv, lk, dv), (batch, heads, lq, dv))
    q, k, v, do = (torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype) for shape in shapes)
    return q, k, v, do


def by_time(x: Tensor) -> Tensor:
    """The same, with the heads of one time side by side in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def doubled(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q.double(), k.double(), v.double()


def with_gradients(
    backend: str, q: Tensor, k: Tensor, v: Tensor, do: Tensor, mask: Mask, bias: Tensor | None = None
) -> dict[str, Tensor]:
    """output, dq, dk, dv (and dbias) of a backend, as `plain.gradients` names them."""
    leaves = {"q": q, "k": k, "v": v} | ({} if bias is None else {"bias": bias})
    copies = {name: t.detach().clone().requires_grad_() for name, t in leaves.items()}
    out = attention(copies["q"], copies["k"], copies["v"], mask=mask, backend=backend, bias=copies.get("bias"))
    grads = torch.autograd.grad(out, list(copies.values()), do)
    return {"output": out.detach()} | {f"d{name}": g for name, g in zip(copies, grads, strict=True)}


def assert_close(got: Tensor, expected: Tensor, what: str = "value") -> None:
    assert got.shape == expected.shape, f"{what}: {tuple(got.shape)} is not {tuple(expected.shape)}"
    assert torch.isfinite(got).all(), f"{what} is not finite"
    error = float((got.detach().double() - expected.detach().double()).abs().max()) if got.numel() else 0.0
    assert error <= TOLERANCE[got.dtype], f"{what}: off by {error}"


def assert_exact(
    backend: str, tensors: tuple[Tensor, Tensor, Tensor, Tensor], mask: Mask, bias: Tensor | None = None
) -> None:
    """Output and all gradients against `plain` in fp64."""
    q, k, v, do = tensors
    wide = doubled(q, k, v)
    exact = gradients(*wide, mask, do.double(), scale=q.shape[-1] ** -0.5, bias=None if bias is None else bias.double())
    for name, got in with_gradients(backend, q, k, v, do, mask, bias).items():
        assert_close(got, exact[name], f"{name} of {mask}")


def assert_within_gate(
    backend: str, tensors: tuple[Tensor, Tensor, Tensor, Tensor], mask: Mask, bias: Tensor | None = None
) -> None:
    """Relative RMS error against fp64, at most twice that of `plain` in the same dtype, + 1e-5: output and gradients."""
    q, k, v, do = tensors
    scale = q.shape[-1] ** -0.5
    wide = doubled(q, k, v)
    exact = gradients(*wide, mask, do.double(), scale=scale, bias=None if bias is None else bias.double())
    usual = gradients(q, k, v, mask, do, scale=scale, bias=bias)
    for name, got in with_gradients(backend, q, k, v, do, mask, bias).items():
        error, allowed = relative_rms(got, exact[name]), 2 * relative_rms(usual[name], exact[name]) + 1e-5
        assert error <= allowed, f"{name} of {mask} in {q.dtype}: {error:.2e}, allowed {allowed:.2e}"


def causality(backend: str, device: str = "cpu") -> None:
    """The gradient of one output row reaches its own position and those before, and no other."""
    q, k, v, _ = inputs(21, device=device)
    for t in (q, k, v):
        t.requires_grad_()
    out = attention(q, k, v, mask=Causal(), backend=backend)
    grads = torch.autograd.grad(out[:, :, 9].pow(2).sum(), (q, k, v))
    reached = [sorted(set(g.abs().sum((0, 1, 3)).nonzero().flatten().tolist())) for g in grads]
    assert reached == [[9], list(range(10)), list(range(10))]


def no_leak_from_after(backend: str, device: str = "cpu") -> None:
    """A window of two keys before and none after: changing token t touches rows t, t + 1 and t + 2."""
    q, k, v, _ = inputs(8, batch=1, device=device)
    before = attention(q, k, v, mask=Window(2, 0), backend=backend)
    for t, touched in ((7, [7]), (4, [4, 5, 6])):
        other = [x.clone() for x in (k, v)]
        for x in other:
            x[:, :, t] += 1
        change = (attention(q, *other, mask=Window(2, 0), backend=backend) - before).abs().amax((0, 1, 3))
        assert (change > 1e-6).nonzero().flatten().tolist() == touched


def permutation(backend: str, device: str = "cpu") -> None:
    """Keys in another order, with their mask: the same output."""
    q, k, v, _ = inputs(30, device=device)
    keep = torch.rand(2, 30, generator=torch.Generator().manual_seed(1)) > 0.4
    order = torch.randperm(30, generator=torch.Generator().manual_seed(2))
    one = attention(q, k, v, mask=Padding(keep), backend=backend)
    other = attention(q, k[:, :, order], v[:, :, order], mask=Padding(keep[:, order]), backend=backend)
    assert_close(one, other)


def wide_window(backend: str, device: str = "cpu") -> None:
    """A window that reaches everywhere is no window."""
    q, k, v, _ = inputs(33, 50, device=device)
    assert_close(
        attention(q, k, v, mask=Window(50, 50), backend=backend), attention(q, k, v, mask=Full(), backend=backend)
    )
    assert_close(
        attention(q, k, v, mask=Window(50, 0), backend=backend), attention(q, k, v, mask=Causal(), backend=backend)
    )


def grouped_heads(backend: str, device: str = "cpu") -> None:
    """Heads 0 and 1 read the first head of k and v, 2 and 3 the second; its gradient is the sum over its heads.

    Also where there are as many keys as heads of them, and these change places in memory.
    """
    for length, layout in ((23, lambda t: t), (2, by_time)):
        q, k, v, do = (layout(t) for t in inputs(length, kv=2, device=device))
        grouped = with_gradients(backend, q, k, v, do, Causal())
        repeated = with_gradients(backend, q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), do, Causal())
        for name in ("dk", "dv"):
            repeated[name] = repeated[name].unflatten(1, (2, 2)).sum(2)
        for name, got in grouped.items():
            assert_close(got, repeated[name], name)
        numbered = torch.arange(2.0, device=device).view(1, 2, 1, 1).expand(2, 2, length, 8)
        out = attention(q, k, numbered, mask=Full(), backend=backend)
        assert out.mean((0, 2, 3)).round().tolist() == [0, 0, 1, 1]


def packed(backend: str, device: str = "cpu") -> None:
    """Sequences in one row, some of them empty on one side or both, as each alone: outputs and gradients."""
    for q_len, k_len in (([0, 1, 0, 0, 1], [2, 4, 0, 0, 3]), ([0, 0, 1], [0, 0, 2]), ([2, 0, 3], [2, 4, 0])):
        q, k, v, do = inputs(sum(q_len), sum(k_len), batch=1, heads=6, kv=2, device=device)
        numbers = [torch.repeat_interleave(torch.arange(len(n)), torch.tensor(n))[None] for n in (q_len, k_len)]
        together = with_gradients(backend, q, k, v, do, Packed(*numbers))
        wide, anything = [t.requires_grad_() for t in doubled(q, k, v)], torch.tensor(True, device=device)
        parts = zip(*(t.split(n, 2) for t, n in zip(wide, (q_len, k_len, k_len), strict=True)), strict=True)
        alone = [
            plain(one_q, one_k, one_v, anything, scale=8**-0.5) if one_k.numel() else torch.zeros_like(one_q)
            for one_q, one_k, one_v in parts
        ]
        output = torch.cat(alone, 2)
        grads = torch.autograd.grad(output, wide, do.double())
        for (name, got), expected in zip(together.items(), (output, *grads), strict=True):
            assert_close(got, expected, f"{name} of {q_len} queries and {k_len} keys")


def decode(backend: str, device: str = "cpu") -> None:
    """One new query after all keys is the last row of the whole."""
    q, k, v, _ = inputs(40, device=device)
    for mask in (Causal(), Causal() & Window(7, 0), Full()):
        whole = attention(q, k, v, mask=mask, backend=backend)
        assert_close(attention(q[:, :, -1:], k, v, mask=mask, backend=backend), whole[:, :, -1:])
        assert_close(attention(q[:, :, -5:], k, v, mask=mask, backend=backend), whole[:, :, -5:])


def dead_rows(backend: str, device: str = "cpu") -> None:
    """Queries that see no key give exact zeros and pass no gradient on, whatever they hold."""
    keep = torch.zeros(9, 9, dtype=torch.bool)
    keep[:5, :5] = True
    for mask, dead in ((Blocks(keep, 1), slice(5, 9)), (Causal() & Padding(torch.arange(9)[None] > 2), slice(0, 3))):
        q, k, v, do = inputs(9, batch=1, device=device)
        exact = gradients(*doubled(q, k, v), mask, do.double(), scale=8**-0.5)
        q[:, :, dead] = torch.nan
        got = with_gradients(backend, q, k, v, do, mask)
        assert bool((got["output"][:, :, dead] == 0).all()) and bool((got["dq"][:, :, dead] == 0).all())
        for name, value in got.items():
            assert_close(value, exact[name], name)
    assert_exact(backend, inputs(5, 2, device=device), Causal())  # rows 0 to 2 of 5 see none of two keys
    row3 = attention(*inputs(5, 2, device=device)[:3], mask=Causal(), backend=backend)[:, :, 3]
    assert_close(row3, inputs(5, 2, device=device)[2][:, :, 0])


def unseen_garbage(backend: str, device: str = "cpu") -> None:
    """A key that nobody sees takes no part, whatever it holds, in output or gradients; nor does it get a gradient."""
    keep = torch.tensor([[True] * 4 + [False] * 2, [False] + [True] * 5])
    for mask in (Padding(keep), Padding(keep) & Causal()):
        q, k, v, do = inputs(6, device=device)
        clean = with_gradients(backend, q, k, v, do, mask)
        for junk in (1e10, torch.inf, torch.nan):
            of_k, of_v = (t.masked_fill(~keep[:, None, :, None].to(device), junk) for t in (k, v))
            for name, got in with_gradients(backend, q, of_k, of_v, do, mask).items():
                assert torch.equal(got, clean[name]), f"{junk} leaks into {name}"


def scale_of_scores(backend: str, device: str = "cpu") -> None:
    """None: head_dim^(-1/2), of one head; 0: all weights equal, never "none given"."""
    q, k, v, _ = inputs(11, device=device)
    exact = plain(*doubled(q, k, v), torch.tensor(True, device=device), scale=8**-0.5)
    assert_close(attention(q, k, v, mask=Full(), backend=backend), exact)
    exact = plain(*doubled(q, k, v), torch.tensor(True, device=device), scale=1.0)
    assert_close(attention(q, k, v, mask=Full(), backend=backend, scale=1.0), exact)
    uniform = attention(q, k, v, mask=Full(), backend=backend, scale=0.0)
    assert_close(uniform, v.mean(2, keepdim=True).expand_as(v))


def true_may_attend(backend: str, device: str = "cpu") -> None:
    """Of a lower triangle of True the first query sees the first key alone; of padding only what is kept is seen."""
    q, k, v, _ = inputs(4, batch=1, device=device)
    triangle = Blocks(torch.ones(4, 4, dtype=torch.bool).tril(), 1)
    assert_close(attention(q, k, v, mask=triangle, backend=backend)[:, :, 0], v[:, :, 0])
    keep = torch.tensor([[False, True, False, False]])
    assert_close(attention(q, k, v, mask=Padding(keep), backend=backend), v[:, :, 1:2].expand_as(q))


def hidden_by_a_bias(backend: str, device: str = "cpu") -> None:
    """A bias of 0 and -inf is the mask of the same meaning, also where it hides every key of a query."""
    q, k, v, do = inputs(21, device=device)
    allowed = torch.rand(21, 21, generator=torch.Generator().manual_seed(1)) > 0.5
    allowed[4] = False
    for seen, mask in ((allowed, Blocks(allowed, 1)), (allowed[:1], Padding(allowed[:1]))):
        expected = with_gradients(backend, q, k, v, do, mask)
        bias = torch.zeros(1, 1, *seen.shape).masked_fill(~seen, -torch.inf).to(device)
        copies = [t.requires_grad_() for t in (q.clone(), k.clone(), v.clone())]
        out = attention(*copies, mask=Full(), backend=backend, bias=bias)  # type: ignore[call-arg]
        for (name, right), got in zip(expected.items(), (out, *torch.autograd.grad(out, copies, do)), strict=True):
            assert_close(got, right, name)


def low_scores(backend: str, device: str = "cpu") -> None:
    """Seen scores below any number that could stand for "masked", in each dtype: what is masked still has weight 0.

    All keys score alike, but for the last one, which scores far more and which the last query alone may see.
    """
    large = 1e17 if device == "cpu" else 2e4  # a fused product and sum on a GPU is off by the rounding of a score: 2^64
    for dtype, size in ((torch.float32, large), (torch.bfloat16, large), (torch.float16, 90.0)):
        _, _, v, _ = inputs(20, dtype=dtype, device=device)
        q, k = torch.full_like(v, -size), torch.full_like(v, size)
        k[:, :, -1] = 0
        expected = v.double().cumsum(2) / torch.arange(1, 21, device=device)[:, None]
        expected[:, :, -1] = v[:, :, -1]
        assert_close(attention(q, k, v, mask=Causal(), backend=backend), expected, str(dtype))


def layouts(backend: str, device: str = "cpu") -> None:
    """Neither the strides of the inputs nor those of the incoming gradient matter."""
    q, k, v, do = inputs(17, kv=2, device=device)
    clean = with_gradients(backend, q, k, v, do, Causal())
    other = [torch.cat([t, t], -1)[..., :8] for t in (q, k, v, do)]
    turned = [t.transpose(1, 3).contiguous().transpose(1, 3) for t in (q, k, v, do)]
    for variant in (other, turned, [by_time(t) for t in (q, k, v, do)]):
        assert not variant[0].is_contiguous()
        copies = [t.detach().requires_grad_() for t in variant[:3]]
        out = attention(*copies, mask=Causal(), backend=backend)
        assert_close(out, clean["output"])
        for name, got in zip(("dq", "dk", "dv"), torch.autograd.grad(out, copies, variant[3]), strict=True):
            assert_close(got, clean[name], name)
    ones = with_gradients(backend, q, k, v, torch.ones_like(do), Causal())
    stride_0 = with_gradients(backend, q, k, v, torch.ones((), device=device).expand_as(do), Causal())
    for name, got in stride_0.items():
        assert_close(got, ones[name], name)


def short_lengths(backend: str, device: str = "cpu") -> None:
    """Around the sizes of blocks, one by one."""
    for length in (1, 2, 15, 16, 17, 31, 33, 63, 65, 127, 129):
        for mask in (Full(), Causal()):
            assert_exact(backend, inputs(length, batch=1, heads=2, kv=2, d=16, dv=16, seed=length, device=device), mask)


def short_lengths_in_16_bits(backend: str, device: str = "cpu") -> None:
    one_head = {"batch": 1, "heads": 1, "kv": 1, "d": 64, "dv": 64, "device": device}
    for length in (1, 2, 15, 16, 17, 31, 33, 127, 129):
        for mask in (Full(), Causal()):
            assert_exact(backend, inputs(length, dtype=torch.float16, seed=length, **one_head), mask)


def longformers_lengths(backend: str, device: str = "cpu") -> None:
    """Lengths that no window divides: the real rows are those of a dense band, nothing is seen of any filling."""
    for length in (70, 96, 5, 33):
        tensors = inputs(length, batch=1, heads=2, kv=1, device=device)
        assert_exact(backend, tensors, Window(16, 16))
        assert_exact(backend, tensors, Window(16, 16) | Global((0, length - 1)))
    q, k, v, _ = inputs(70, batch=1, heads=2, kv=1, device=device)
    alone = attention(q, k, v, mask=Window(16, 16), backend=backend)
    for filling in (0.0, 1e4, torch.nan):
        filled = (torch.nn.functional.pad(t, (0, 0, 0, 26), value=filling) for t in (q, k, v))
        mask = Window(16, 16) & Padding.lengths(torch.tensor([70]), 96)
        out = attention(*filled, mask=mask, backend=backend)  # type: ignore[call-arg]
        assert_close(out[:, :, :70], alone, f"filled with {filling}")


def repeatable(backend: str, device: str = "cpu") -> None:
    """The same bits every time, gradients too; and head dimensions that are no power of two."""
    for d in (1, 3, 5, 40, 63):
        q, k, v, do = inputs(30, d=d, dv=d, device=device)
        assert_exact(backend, (q, k, v, do), Causal())
        first = with_gradients(backend, q, k, v, do, Causal())
        for _ in range(2):
            for name, got in with_gradients(backend, q, k, v, do, Causal()).items():
                assert torch.equal(got, first[name]), f"{name} changes from call to call"


def autocast(backend: str, device: str = "cpu") -> None:
    """q in bf16, k and v in fp32: all in bf16, gradients in the dtypes of the inputs, softmax in fp32 all the same."""
    q, k, v, do = inputs(20, device=device)
    q, do = q.bfloat16(), do.bfloat16()
    copies = [t.requires_grad_() for t in (q, k, v)]
    with torch.autocast(device, torch.bfloat16):
        out = attention(*copies, mask=Causal(), backend=backend)
    grads = torch.autograd.grad(out, copies, do)
    assert out.dtype == torch.bfloat16 and [g.dtype for g in grads] == [t.dtype for t in copies]
    low_q, low_k, low_v = (t.detach().bfloat16() for t in copies)
    same = with_gradients(backend, low_q, low_k, low_v, do, Causal())
    assert torch.equal(out, same["output"])
    for name, got in zip(("dq", "dk", "dv"), grads, strict=True):
        assert torch.equal(got.bfloat16(), same[name]), name


def nothing_to_do(backend: str, device: str = "cpu") -> None:
    """An empty batch, no queries, no keys: zeros of the right shape, and gradients that exist."""
    keep = torch.ones(0, 4, dtype=torch.bool)
    for batch, lq, lk, mask in ((0, 3, 4, Padding(keep)), (2, 0, 4, Causal()), (2, 4, 0, Full()), (2, 0, 0, Causal())):
        q, k, v, do = inputs(lq, lk, batch=batch, device=device)
        got = with_gradients(backend, q, k, v, do, mask)
        assert got["output"].shape == (batch, 4, lq, 8)
        assert all(bool((value == 0).all()) for value in got.values())


ALL: list[Callable[..., None]] = [
    causality, no_leak_from_after, permutation, wide_window, grouped_heads, packed, decode, dead_rows, unseen_garbage,
    scale_of_scores, true_may_attend, hidden_by_a_bias, low_scores, layouts, short_lengths, short_lengths_in_16_bits,
    longformers_lengths, repeatable, autocast, nothing_to_do,
]  # fmt: skip


def named(check: object) -> str:
    return getattr(check, "__name__", str(check))
