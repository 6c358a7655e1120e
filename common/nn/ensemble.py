"""Several models as one: their probabilities averaged at each word (Sutskever et al. 2014, section 3.6; Luong et al. 2015)."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

Tensors = dict[str, Tensor]
State = dict[str, Any]
"""Of a member, as `common.decode` has it."""


class Ensemble(nn.Module):
    """Members with the same vocabularies, each with the step interface of a decoder. Weights are the mean of those members
    that attend."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        """Raises ValueError for no members."""
        super().__init__()
        if not members:
            raise ValueError("an ensemble: got no members, expected one or more")
        self.members = nn.ModuleList(members)

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor, target_mask: Tensor) -> Tensor:
        """Log-probabilities (N, V) of the N real target positions, which are logits of themselves."""
        given = (source, source_mask, target_in, target_mask)
        return self._mean([torch.log_softmax(member(*given).float(), -1) for member in self.members])

    def _mean(self, log_probs: list[Tensor]) -> Tensor:
        return torch.stack(log_probs).logsumexp(0) - math.log(len(log_probs))

    def begin(self, source: Tensor, source_mask: Tensor) -> tuple[Tensors, State]:
        memory, state = Tensors(), State()
        for n, member in enumerate(self.members):
            of_memory, of_state = cast(tuple[Tensors, State], member.begin(source, source_mask))  # type: ignore[operator]
            memory |= {f"{n}.{name}": tensor for name, tensor in of_memory.items()}
            state |= {f"{n}.{name}": kept for name, kept in of_state.items()}
        return memory, state

    def step(self, memory: Tensors, state: State, tokens: Tensor) -> tuple[Tensor, State, Tensor | None]:
        after, scores, looks = State(), list[Tensor](), list[Tensor]()
        for n, member in enumerate(self.members):
            log_probs, of_state, weights = member.step(_own(memory, n), _own(state, n), tokens)  # type: ignore[operator]
            after |= {f"{n}.{name}": kept for name, kept in of_state.items()}
            scores.append(log_probs)
            if weights is not None:
                looks.append(weights)
        return self._mean(scores), after, torch.stack(looks).mean(0) if looks else None


def _own(kept: dict[str, Any], n: int) -> dict[str, Any]:
    prefix = f"{n}."
    return {name.removeprefix(prefix): value for name, value in kept.items() if name.startswith(prefix)}
