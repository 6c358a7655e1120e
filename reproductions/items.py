"""Texts and documents, scored one by one."""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from common.lit.training import Trained
from data.long_data import LongData

Record = dict[str, Any]


@torch.no_grad()
def scored_items(module: Trained, data: LongData, split: str, first: int | None = None) -> list[Record]:
    """A record an item of the split, in its order: sums over its targets, wherever a batch had them.

    first: so many items alone; batches that have none of them are left out.
    """
    items = data.items(split)[:first]
    nll = torch.zeros(len(items), dtype=torch.float64)
    hits, targets = (torch.zeros(len(items), dtype=torch.int64) for _ in range(2))
    for batch in data.eval_batches(split):
        item = data.item_of(split, batch)
        asked = item < len(items)
        if not asked.any():
            continue
        logits, right = (found.cpu()[asked] for found in module.logits(batch.to(module.device)))
        item = item[asked]
        nll.index_add_(0, item, cross_entropy(logits.double(), right, reduction="none"))
        hits.index_add_(0, item, (logits.argmax(-1) == right).long())
        targets.index_add_(0, item, torch.ones_like(right))
    found = zip(items, nll.tolist(), hits.tolist(), targets.tolist(), strict=True)
    return [
        {"id": item.id, "cluster": item.cluster, "length": item.length, "nll": n, "hits": h, "targets": t}
        for item, n, h, t in found
    ]
