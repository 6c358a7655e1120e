"""Linear Transformer, Tables 1, 2 and 5: how fast pictures are generated, pixel by pixel."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from common.attention.cache import Remembered
from common.bench.by_length import store
from common.bench.timing import seconds_of
from common.nn.long import LanguageModel, Memory
from data.symbols import CLS, vocabulary

AGAIN = "again"
REMEMBERED = "remembered"


@dataclass(frozen=True, kw_only=True)
class Generation:
    """`pictures_per_second`; `token_ms` at chosen positions, the mean of those around it; `memory_kb`, what is remembered of a
    picture by then. Weights are random: they do not change what is computed.

    models: row -> what makes a model of its vocabulary. how: row -> "again", the whole picture so far is read for each pixel,
    as the paper's softmax row does, or "remembered", its keys and values, or their sums, are kept. around: positions on each
    side that a time is taken over. Repeats are whole pictures, models in turns.
    """

    models: Mapping[str, Callable[..., LanguageModel]]
    how: Mapping[str, str]
    symbols: int
    pixels: int
    batch: int
    positions: Sequence[int]
    around: int
    device: str
    repeats: int
    threads: int

    @torch.no_grad()
    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        models = {
            row: make(vocabulary=vocabulary(self.symbols)).to(self.device).eval() for row, make in self.models.items()
        }
        rows: dict[str, dict[str, Any]] = {row: {} for row in models}
        for _ in range(self.repeats):
            for row, model in models.items():
                seconds, sizes = self.picture(model, self.how[row])
                store(rows, row, "pictures_per_second", "default", "1/s").append(self.batch / sum(seconds))
                for position in self.positions:
                    near = seconds[max(0, position - self.around) : position + self.around]
                    store(rows, row, "token_ms", position).append(1e3 * sum(near) / len(near))
                    size = sizes[position - 1] / self.batch / 1e3
                    store(rows, row, "memory_kb", position, "kB").append(size)
        return rows

    def picture(self, model: LanguageModel, how: str) -> tuple[list[float], list[int]]:
        """Seconds of each pixel of a batch of pictures, and bytes remembered behind it."""
        assert how in (AGAIN, REMEMBERED), how
        tokens = torch.full((self.batch, 1), CLS, device=self.device)
        memory: Memory | None = None
        seconds, sizes = [], []

        def pixel() -> None:
            nonlocal tokens, memory
            if how == AGAIN:
                logits = model(tokens)[:, -1]
            else:
                logits, memory = model.step(tokens[:, -1], memory)
            drawn = torch.multinomial(logits.float().softmax(-1), 1)
            tokens = torch.cat((tokens, drawn), 1)

        for _ in range(self.pixels):
            seconds.append(seconds_of(pixel))
            sizes.append(0 if memory is None else bytes_of(memory))
        return seconds, sizes


def bytes_of(memory: Memory) -> int:
    """Of keys and values, or of the sums in their place."""
    return sum(layer.bytes if isinstance(layer, Remembered) else sum(map(_bytes, layer)) for layer in memory.layers)


def _bytes(part: Tensor | None) -> int:
    return 0 if part is None else part.numel() * part.element_size()
