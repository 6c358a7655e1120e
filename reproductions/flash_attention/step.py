"""Table 2: one training step of a GPT-2-style language model, attention written out and fused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from common.bench.timing import interleaved, seconds_of
from common.nn.transformer import DecoderOnly

POINT = "gpt2"


@dataclass(frozen=True)
class Step:
    """Milliseconds of forward, backward and update, methods in turns; the speed-up over the first method, by turns.

    methods: row -> backend. Not the paper's: size, batch and dtype as given; random tokens, which cost what text does.
    """

    methods: Mapping[str, str]
    model: Mapping[str, Any]
    batch: int
    length: int
    dtype: str
    device: str
    repeats: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        timers = {row: self.timer(backend, seed) for row, backend in self.methods.items()}
        seconds = interleaved(timers, repeats=self.repeats)
        base = seconds[next(iter(self.methods))]
        return {
            row: {
                "step_ms": {"unit": "ms", "at": {POINT: [s * 1e3 for s in own]}, "refused": {}},
                "step_speedup": {
                    "unit": "times, per turn",
                    "at": {POINT: [b / s for b, s in zip(base, own, strict=True)]},
                    "refused": {},
                },
            }
            for row, own in seconds.items()
        }

    def timer(self, backend: str, seed: int) -> Any:
        torch.manual_seed(seed)
        model = DecoderOnly(**self.model, backend=backend).to(self.device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        tokens = torch.randint(self.model["vocabulary"], (self.batch, self.length + 1), device=self.device)

        def step() -> None:
            with torch.autocast(self.device, torch.bfloat16, enabled=self.dtype == "bf16"):
                logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return lambda: seconds_of(step)
