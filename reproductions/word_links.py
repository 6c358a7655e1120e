"""The links that a model's attention makes between the words of a sentence and its reference, against links made by hand."""

from typing import Any

import numpy as np

from common.lit.seq2seq import Seq2Seq
from common.metrics.aer import alignment_records
from common.metrics.score import Score
from data.gold import FILE, gold_links
from data.translation import TranslationData
from reproductions.reading import read


def score_links(module: Seq2Seq, data: TranslationData, split: str) -> tuple[list[dict[str, Any]], Score] | None:
    """One record a sentence, and the alignment error rate (Luong et al. 2015, section 5.4); None for a model without
    attention, for data without links made by hand, and for subwords, whose weights are between pieces of words."""
    if not (data.folder / FILE).is_file() or data.subword is not None:
        return None
    rows = np.arange(data.size(split))
    weights = {i: of_one.float().numpy() for i, of_one in read(module, data, split, rows)}
    if not weights:
        return None
    return alignment_records([weights[i] for i in rows.tolist()], gold_links(data, split), data.examples(split))
