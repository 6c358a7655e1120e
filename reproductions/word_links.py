"""The links that a model's attention makes between the words of a sentence and its reference, against links made by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from common.lit.seq2seq import Seq2Seq
from common.metrics.aer import alignment_records
from data.gold import FILE, gold_links
from data.translation import TranslationData
from reproductions.reading import read


def score_links(module: Seq2Seq, data: TranslationData, split: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Writes links/<split>.jsonl and returns the alignment error rate (Luong et al. 2015, section 5.4); nothing for a model
    without attention, for data without links made by hand, and for subwords, whose weights are between pieces of words."""
    known = (data.folder / FILE).is_file() and data.subword is None
    read_pairs = read(module, data, split, np.arange(data.size(split))) if known else ()
    weights = {i: of_one.float().numpy() for i, of_one in read_pairs}
    if not weights:
        return {}
    in_order = [weights[i] for i in range(len(weights))]
    records, score = alignment_records(in_order, gold_links(data, split), data.examples(split))
    file = folder / "links" / f"{split}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return {f"{split}/aer": {"value": score.value, "signature": score.signature}}
