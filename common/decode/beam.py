"""Beam search over a batch of sentences; with one beam and no length penalty it is greedy search."""

from collections.abc import Sequence

import torch
from torch import Tensor

from common.decode.hypotheses import LENGTH_RULES, LengthRule, Pool, Trace, length_norm
from common.decode.types import Hypothesis, Rows, State, StepModel

NEG_INF = float("-inf")


@torch.no_grad()
def beam_search(
    model: StepModel,
    source: Tensor,
    source_mask: Tensor,
    *,
    bos: int,
    eos: int,
    max_len: int | Tensor,
    beam: int = 1,
    length_penalty: float = 0.0,
    length_rule: LengthRule = "power",
    min_len: int = 0,
    forbid: Sequence[int] = (),
    n_best: int = 1,
    pad: int = 0,
) -> list[list[Hypothesis]]:
    """The n_best translations of each sentence, best first: up to n_best finished ones, then unfinished ones.

    At each step the `beam` best continuations that do not end are kept alive, and those of the `beam` best that do end
    are put aside. A sentence is over when no live hypothesis can still enter its n-best list: log-probs only fall and what
    they are divided by never does, so the best score that a live one can reach is its log-prob over the norm of max_len.
    Sentences that are over leave the batch, and a sentence is translated the same way whatever else is in it.

    Args:
        source, source_mask: (B, S); every source has at least one real position (its EOS).
        max_len: most target words, EOS counted; one number or (B,). What has not ended by then is unfinished.
        length_penalty: alpha in log_prob / length ** alpha; 0 ranks by log-prob alone. length_rule "gnmt": in log_prob /
            ((5 + length) / 6) ** alpha. The length counts EOS.
        min_len: fewest target words, EOS not counted.
        forbid: words never chosen, such as UNK; `bos` and `pad` never are.

    Raises:
        ValueError: for settings that contradict each other, log-probs that are none (NaN or above 0), a state that is
            not (batch, beam, ...), and a sentence for which no word at all is possible.
    """
    limit = _limits(max_len, source, min_len)
    _check_settings(source, source_mask, eos, beam, length_penalty, length_rule, forbid, n_best)
    banned = torch.tensor(sorted({bos, pad, *forbid} - {eos}), device=source.device)
    without_eos = torch.cat([banned, banned.new_tensor([eos])])

    memory, state = model.begin(source, source_mask)
    rows = torch.arange(len(source), device=source.device)  # which sentence each row of the shrinking batch is
    tokens = torch.full((len(source), 1), bos, device=source.device)
    live = torch.zeros(len(source), 1, device=source.device)
    pool, trace = Pool(len(source), n_best, source.device), Trace()
    length = 0
    while len(rows):
        length += 1
        _check_state(state, tokens)
        size = tokens.shape[0], tokens.shape[1]
        norm = length_norm(length, length_penalty, length_rule)
        log_probs, state, weights = model.step(memory, state, tokens)
        scores, parents, words = _continuations(live, log_probs, beam, banned if length > min_len else without_eos)

        ends = words == eos
        at_end = torch.where(ends, scores, NEG_INF)[:, :beam]
        pool.offer(rows, at_end, norm, tokens=length - 1, slot=parents[:, :beam], finished=True)

        kept = ends.to(torch.int8).argsort(dim=1, stable=True)[:, :beam]  # those that go on, still best first
        live = scores.masked_fill(ends, NEG_INF).gather(1, kept)
        parents, tokens = parents.gather(1, kept), words.gather(1, kept)
        trace.add(rows, parents, tokens, weights)

        bound = live[:, 0] / length_norm(limit.to(live.dtype), length_penalty, length_rule)
        over = (pool.worst(rows) >= bound) | (limit <= length)
        slots = torch.arange(live.shape[1], device=live.device).expand_as(live)
        pool.offer(rows[over], live[over], norm, tokens=length, slot=slots[over], finished=False)
        go_on = (~over).nonzero().squeeze(1)
        if not len(go_on):
            break
        state = _reorder(state, go_on, parents[go_on], size)
        if len(go_on) < len(rows):
            memory = {name: tensor[go_on] for name, tensor in memory.items()}
            rows, tokens, live, limit = rows[go_on], tokens[go_on], live[go_on], limit[go_on]
    return trace.hypotheses(pool, source_mask)


def _continuations(live: Tensor, log_probs: Tensor, beam: int, banned: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each sentence: log-prob, parent beam and word, each (B, <= 2 * beam), best first.

    A parent has one ending, so 2 * beam hold `beam` that go on. They lie among the best beam + 1 allowed words of each
    parent, which saves a copy of all (B, K, V).
    """
    best, words = log_probs.topk(min(beam + 1 + len(banned), log_probs.shape[-1]), dim=-1)
    if not (best <= 1e-3).all():  # topk puts NaN first
        raise ValueError(f"the model's log-probs must be at most 0, got {best.max().item()}: pass log_softmax(logits)")
    allowed = (words.unsqueeze(-1) != banned).all(-1)
    scores = torch.where(allowed, live.unsqueeze(-1) + best.to(live.dtype), NEG_INF).flatten(1)
    scores, index = scores.topk(min(2 * beam, scores.shape[1]), dim=1)
    return scores, index // words.shape[-1], words.flatten(1).gather(1, index)


def _reorder(state: State, rows: Tensor, parents: Tensor, size: tuple[int, int]) -> State:
    """The state of the chosen parents, (len(rows), beam, ...), of the rows that go on. size: rows and beams that there were."""
    index = (rows.unsqueeze(1) * size[1] + parents).flatten()
    if torch.equal(index, torch.arange(size[0] * size[1], device=index.device)):
        return state  # as at each step of greedy search, until a sentence is over

    def pick(kept: Tensor | Rows) -> Tensor | Rows:
        if not isinstance(kept, Tensor):
            return kept.reordered(index)
        return kept.flatten(0, 1).index_select(0, index).unflatten(0, parents.shape)

    return {name: pick(kept) for name, kept in state.items()}


def _limits(max_len: int | Tensor, source: Tensor, min_len: int) -> Tensor:
    limit = torch.as_tensor(max_len, device=source.device)
    if limit.shape not in ((), (len(source),)):
        raise ValueError(f"max_len must be one number or ({len(source)},), one a sentence; got {tuple(limit.shape)}")
    limit = limit.expand(len(source))
    if min_len < 0 or (limit <= min_len).any():
        raise ValueError(f"need 0 <= min_len < max_len (which counts EOS); got min_len {min_len}, max_len {max_len}")
    return limit


def _check_settings(
    source: Tensor,
    mask: Tensor,
    eos: int,
    beam: int,
    length_penalty: float,
    length_rule: str,
    forbid: Sequence[int],
    n_best: int,
) -> None:
    if source.ndim != 2 or source.shape != mask.shape or mask.dtype != torch.bool:
        raise ValueError(
            "source and source_mask must both be (batch, words), the mask bool with True = real word; "
            f"got {tuple(source.shape)} and {tuple(mask.shape)} {mask.dtype}"
        )
    if not 1 <= n_best <= beam:
        raise ValueError(f"need 1 <= n_best <= beam; got n_best {n_best}, beam {beam}")
    if length_penalty < 0:
        raise ValueError(f"length_penalty must be at least 0 (it divides by length ** penalty); got {length_penalty}")
    if length_rule not in LENGTH_RULES:
        raise ValueError(f"length_rule: got {length_rule!r}, expected one of {', '.join(LENGTH_RULES)}")
    if eos in forbid:
        raise ValueError(f"EOS ({eos}) is in forbid: nothing could end; use min_len to forbid short translations")


def _check_state(state: State, tokens: Tensor) -> None:
    for name, kept in state.items():
        if not isinstance(kept, Tensor):
            if len(kept) != tokens.numel():
                raise ValueError(
                    f"state {name!r} must be of batch * beam = {tokens.numel()} hypotheses, got {len(kept)}"
                )
        elif kept.shape[:2] != tokens.shape:
            raise ValueError(
                f"state {name!r} must be (batch, beam, ...) = {tuple(tokens.shape)} + ..., got {tuple(kept.shape)}: "
                "a tensor without the beam dimension would keep the state of other beams"
            )
