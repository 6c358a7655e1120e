"""Linear attention: the score is a product of features, so that keys and values are summed once for all queries
(Katharopoulos et al. 2020, section 3.2; Choromanski et al. 2020, section 2.1).

    q, k = positive(q, draw), positive(k, draw)                       # features, see `common.attention.features`
    out, state = linear_attention(q, k, v, causal=True, log=True)     # a whole text
    out, state = linear_attention(q1, k1, v1, causal=True, log=True, state=state)     # what follows, a token or more

Time and memory grow with the length; what is kept of the keys and values seen, `State`, does not.

    linear_attention(q, k, v, causal=True, log=True, backend="triton")     # the same on a GPU, in kernels
"""

from typing import NamedTuple

import torch
from torch import Tensor

from common.attention.backends.triton import no_machine
from common.attention.request import DTYPES

BACKENDS = ("reference", "triton")
CHUNK = 128


class State(NamedTuple):
    """Sums over the keys seen, at least fp32. sums: (B, H, M, Dv + 1) of phi(k) [v, 1]^T, exp(logs) in front of each
    feature's taken out; logs: (B, H, M), None where features are not logarithms."""

    sums: Tensor
    logs: Tensor | None


class Attended(NamedTuple):
    """output: (B, H, Lq, Dv), in the dtype of v. state: after the last key."""

    output: Tensor
    state: State


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    log: bool = False,
    real: Tensor | None = None,
    state: State | None = None,
    chunk: int | None = None,
    backend: str = "reference",
) -> Attended:
    """sum_j (phi(q_i) . phi(k_j)) v_j / sum_j phi(q_i) . phi(k_j), over all j, or j <= i.

    Args:
        q: (B, H, Lq, M), features of the queries; k: (B, H, Lk, M), of the keys; v: (B, H, Lk, Dv). Floating point; computed
            in fp32, fp64 where one is fp64.
        causal: Lq = Lk, and a query sees the keys up to its own, after those of `state`.
        log: q and k hold logarithms of features, which are positive then. The largest logarithm of each feature is taken out
            of sum and quotient, so that nothing overflows. Exact at any size but in a causal text whose chunk holds a later key
            with features beyond exp(87) times an earlier one's (fp32): what the earlier ones add is lost there. `chunk=1`
            has no later keys. With "triton", beyond exp(16) where v is fp16.
        real: bool (B, Lk), False = padding, which takes no part whatever it holds.
        state: of keys seen before; with all queries of a causal text or of another one.
        chunk: keys that are compared with queries one by one, causal only; CHUNK unless given. "triton" has its own.
        backend: "reference", or "triton", for a GPU of NVIDIA (or a CPU under TRITON_INTERPRET=1, for tests): the same
            states and gradients. It multiplies in the dtype of v where that has 16 bits, for which features are rounded to
            it (in fp16 plain ones have to be below 65 504), adds in fp32, and is never put in place of the other.

    Returns:
        zeros for a query that sees no key, and without `log` for one whose sum of scores is 0. Signed features may have
        sums near 0: see the instability in Choromanski et al. 2020, section 2.3.

    Raises:
        ValueError: for shapes, dtypes and devices that do not fit, and where the backend can't run, with its reason.
    """
    _check(q, k, v, causal, log, real, state, chunk)
    if backend not in BACKENDS:
        raise ValueError(f"backend: got {backend!r}, expected one of {', '.join(BACKENDS)}")
    if backend == "triton":
        return _by_kernels(q, k, v, causal, log, real, state, chunk)
    return _reference(q, k, v, causal, log, real, state, chunk or CHUNK)


def _by_kernels(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, log: bool, real: Tensor | None, state: State | None, chunk: int | None
) -> Attended:  # fmt: skip
    dtypes = q.dtype, k.dtype, v.dtype
    if wrong := [dtype for dtype in dtypes if dtype not in DTYPES]:
        reason = f"takes fp16, bf16, fp32 and fp64, not {wrong[0]}"
    elif not v.shape[3]:
        reason = "takes values of 1 number or more"
    elif chunk is not None:
        reason = f"has chunks of its own, and takes none of {chunk}"
    else:
        reason = no_machine(q.device, torch.float64 if torch.float64 in dtypes else q.dtype)
    if reason:
        raise ValueError(f"backend 'triton' {reason}; these can: reference")
    from common.attention.kernels.linear_launch import Problem, linear

    with torch.autocast(q.device.type, enabled=False):
        output, sums, logs = linear(Problem(q, k, v, real, causal, log), *(state or (None, None)))
    return Attended(output, State(sums, logs))


def _reference(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, log: bool, real: Tensor | None, state: State | None, chunk: int
) -> Attended:
    """The specification."""
    wide = torch.promote_types(torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype), torch.float32)
    dtype = v.dtype
    with torch.autocast(q.device.type, enabled=False):  # the sums have to be wide
        q, k, v = (tensor.to(wide) for tensor in (q, k, v))
        if real is not None:
            k = k.masked_fill(~real[:, None, :, None], -torch.inf if log else 0.0)
            v = v.masked_fill(~real[:, None, :, None], 0.0)
        v = torch.cat((v, v.new_ones(*v.shape[:-1], 1)), -1)
        if state is None:
            batch, heads, _, features = k.shape
            logs = k.new_full((batch, heads, features), -torch.inf) if log else None
            state = State(k.new_zeros(batch, heads, features, v.shape[-1]), logs)
        if not causal:
            state = _seen(state, k, v)
            both = _asked(state, q)
        else:
            parts = []
            # split, not slices: the gradient of each slice would be as large as the whole
            for q_part, k_part, v_part in zip(*(tensor.split(chunk, 2) for tensor in (q, k, v)), strict=True):
                part, state = _chunk(state, q_part, k_part, v_part)
                parts.append(part)
            both = torch.cat(parts, 2)
        output, total = both[..., :-1], both[..., -1:]
        return Attended((output / total.masked_fill(total == 0, 1.0)).to(dtype), state)


def _seen(state: State, k: Tensor, v: Tensor) -> State:
    """The state after more keys."""
    if state.logs is None:
        return State(state.sums + k.mT @ v, None)
    if not k.shape[2]:
        return state
    logs = torch.maximum(state.logs, k.detach().amax(2))
    return State(_rescaled(state, logs) + _exp(k, logs[:, :, None]).mT @ v, logs)


def _asked(state: State, q: Tensor) -> Tensor:
    """Sums over the keys of the state, (B, H, Lq, Dv + 1), up to a factor of each query."""
    return (q if state.logs is None else _weights(q, state.logs)) @ state.sums


def _chunk(state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, State]:
    """Sums of queries over the state and, up to their own, over the keys of a chunk; and the state after it."""
    after = _seen(state, k, v)
    if after.logs is None:
        return q @ state.sums + (q @ k.mT).tril() @ v, after
    weights = _weights(q, after.logs)
    scores = weights @ _exp(k, after.logs[:, :, None]).mT
    return weights @ _rescaled(state, after.logs) + scores.tril() @ v, after


def _weights(q: Tensor, logs: Tensor) -> Tensor:
    """exp(q + logs) over its largest in each query, which cancels: a constant to the gradient."""
    x = q + logs[:, :, None]
    largest = x.detach().amax(-1, keepdim=True)
    return (x - largest.masked_fill(largest == -torch.inf, 0.0)).exp()


def _rescaled(state: State, logs: Tensor) -> Tensor:
    """Its sums with other logarithms taken out, no smaller than its own."""
    assert state.logs is not None
    return _exp(state.logs, logs)[..., None] * state.sums


def _exp(x: Tensor, without: Tensor) -> Tensor:
    """exp(x - without), and 0 where both are -inf: a feature that no key has."""
    return (x - without.masked_fill(without == -torch.inf, 0.0)).exp()


def _check(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, log: bool, real: Tensor | None, state: State | None, chunk: int | None
) -> None:  # fmt: skip
    """Raises ValueError, naming what was got and expected."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim != 4 or not tensor.is_floating_point():
            raise ValueError(
                f"{name}: got {tensor.dtype} {tuple(tensor.shape)}, expected floating point (batch, heads, length, size)"
            )
    batch, heads, length, features = k.shape
    wanted = {
        "q": (q, (batch, heads, length if causal else q.shape[2], features)),
        "v": (v, (batch, heads, length, v.shape[3])),
    }
    for name, (tensor, shape) in wanted.items():
        if tensor.shape != shape:
            raise ValueError(
                f"{name}: got {tuple(tensor.shape)}, expected {shape} to go with k of {(batch, heads, length, features)}"
                + (" in a causal text" if causal else "")
            )
    for name, tensor in (("k", k), ("v", v), ("real", real), ("state", state and state.sums)):
        if tensor is not None and tensor.device != q.device:
            raise ValueError(f"{name}: got {tensor.device}, expected {q.device} as q")
    if not features:
        raise ValueError("k: got no features, expected 1 or more")
    if real is not None and (real.dtype != torch.bool or real.shape != (batch, length)):
        raise ValueError(f"real: got {real.dtype} {tuple(real.shape)}, expected bool {(batch, length)}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk: got {chunk}, expected 1 or more")
    if state is not None and (state.logs is None) == log:
        kind = "plain features" if log else "logarithms"
        raise ValueError(f"state: got one of {kind}, expected that of log={log}")
    if state is not None and state.sums.shape != (batch, heads, features, v.shape[3] + 1):
        raise ValueError(
            f"state: got sums of {tuple(state.sums.shape)}, expected {(batch, heads, features, v.shape[3] + 1)}"
        )
