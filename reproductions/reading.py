"""How a model reads the sources of a data set while it is made to write their references."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from common.decode.forced import forced_weights
from common.lit.seq2seq import Seq2Seq
from data.bucketing import BatchSize
from data.translation import TranslationData

AT_A_TIME = 64


def read(module: Seq2Seq, data: TranslationData, split: str, rows: NDArray[np.int64]) -> Iterator[tuple[int, Tensor]]:
    """Of each of these pairs of a split, the longest first: its place and its weights (target words + 1, source words + 1),
    on the CPU, the end marks' last; nothing for a model without attention."""
    for batch in data.batches_of(split, rows, BatchSize("sentences", AT_A_TIME)):
        batch = batch.to(module.device)
        weights = forced_weights(module.translator, batch.source, batch.source_mask, batch.target_in)
        if weights is None:
            return
        sizes = zip(batch.target_mask.sum(1).tolist(), batch.source_mask.sum(1).tolist(), strict=True)
        for i, of_one, (target, source) in zip(batch.index.tolist(), weights.cpu(), sizes, strict=True):
            yield i, of_one[:target, :source]
