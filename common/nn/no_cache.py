"""Decoding without a cache: the yardstick of the decoder's own, in tests and in `make bench-nmt`."""

import torch
from torch import Tensor

from common.nn.decoder import Tensors
from common.nn.encoder_decoder import Transformer


class NoCache:
    """A Transformer asked one word after another that keeps nothing but words: at each step it computes the decoder anew
    over all words so far, with teacher forcing's own code, and logits of the last. The encoder runs once a sentence; its
    annotations are repeated for each hypothesis."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def begin(self, source: Tensor, source_mask: Tensor) -> tuple[Tensors, Tensors]:
        memory = {"annotations": self.model.encode(source, source_mask), "mask": source_mask}
        return memory, {"words": source.new_empty(len(source), 1, 0)}

    def step(self, memory: Tensors, state: Tensors, tokens: Tensor) -> tuple[Tensor, Tensors, None]:
        words = torch.cat((state["words"], tokens.unsqueeze(-1)), -1)  # (B, K, t)
        annotations, mask = (memory[name].repeat_interleave(tokens.shape[1], 0) for name in ("annotations", "mask"))
        hidden = self.model.decode(annotations, mask, words.flatten(0, 1))[:, -1].unflatten(0, tokens.shape)
        return self.model.logits(hidden).log_softmax(-1), {"words": words}, None
