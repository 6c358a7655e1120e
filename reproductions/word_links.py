"""The links that a model's attention makes between the words of a sentence and its reference, against links made by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from common.decode.forced import forced_weights
from common.lit.seq2seq import Seq2Seq
from common.metrics.aer import alignment_records
from data.bucketing import BatchSize
from data.gold import FILE, gold_links
from data.translation import TranslationData

AT_A_TIME = 64


def score_links(module: Seq2Seq, data: TranslationData, split: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Writes links/<split>.jsonl and returns the alignment error rate (Luong et al. 2015, section 5.4); nothing for a model
    without attention, for data without links made by hand, and for subwords, whose weights are between pieces of words."""
    known = (data.folder / FILE).is_file() and data.subword is None
    weights = _forced(module, data, split) if known else []
    if not weights:
        return {}
    records, score = alignment_records(weights, gold_links(data, split), data.examples(split))
    file = folder / "links" / f"{split}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return {f"{split}/aer": {"value": score.value, "signature": score.signature}}


def _forced(module: Seq2Seq, data: TranslationData, split: str) -> list[np.ndarray]:
    """Of each example (target words + 1, source words + 1), the model being made to write the reference."""
    found: dict[int, np.ndarray] = {}
    for batch in data.eval_batches(split, BatchSize("sentences", AT_A_TIME)):
        batch = batch.to(module.device)
        weights = forced_weights(module.translator, batch.source, batch.source_mask, batch.target_in)
        if weights is None:
            return []
        lengths = zip(batch.source_mask.sum(1).tolist(), batch.target_mask.sum(1).tolist(), strict=True)
        for i, of_one, (source, target) in zip(
            batch.index.tolist(), weights.float().cpu().numpy(), lengths, strict=True
        ):
            found[i] = of_one[:target, :source]
    return [found[i] for i in range(len(found))]
