"""Chains of operations in the graph that autograd keeps: what must wait for what (Vaswani et al. 2017, Table 1)."""

from collections import deque
from typing import Any

from torch import Tensor


def shortest(output: Tensor, leaf: Tensor) -> int:
    """Operations between a leaf and an output, along the shortest way through the graph."""
    queue = deque([(output.grad_fn, 1)])
    seen = set()
    while queue:
        node, steps = queue.popleft()
        if getattr(node, "variable", None) is leaf:
            return steps - 1  # the leaf's own node is no operation
        for before, _ in node.next_functions if node else ():
            if before is not None and before not in seen:
                seen.add(before)
                queue.append((before, steps + 1))
    raise AssertionError("the output does not depend on the leaf")


def longest(output: Tensor) -> int:
    """Operations on the longest chain that ends at the output."""
    lengths: dict[Any, int] = {}
    stack = [output.grad_fn]
    while stack:
        node = stack[-1]
        before = [other for other, _ in node.next_functions if other is not None] if node else []
        if missing := [other for other in before if other not in lengths]:
            stack += missing
            continue
        leaf = hasattr(node, "variable")
        lengths[stack.pop()] = 0 if leaf else 1 + max((lengths[other] for other in before), default=0)
    return lengths[output.grad_fn]
