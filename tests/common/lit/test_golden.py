"""Losses of 20 updates, kept: a refactor proves itself on them. They say that nothing changed, not that it is right.

To renew them after a change that is meant to change them: python -m tests.common.lit.test_golden
"""

import json
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate

from data.batch import Seq2SeqBatch
from reproductions.compose import job
from reproductions.dry_run import build
from reproductions.job import task_of
from reproductions.tasks.base import update

FILE = Path(__file__).resolve().parents[2] / "golden" / "seq2seq.json"
ROWS = (
    "bahdanau/rnnsearch_50",
    "bahdanau/rnnencdec_50",
    "luong/dropout",
    "luong/local_p_general_feed",
    "luong/global_location",
    "transformer/transformer_base",
)
UPDATES = 20


def losses(row: str) -> list[float]:
    config = job((f"experiment={row}", "scale=smoke"), None).config
    torch.set_num_threads(1)
    data = instantiate(config["data"])
    module, words = build(config, data), task_of(config).planned_sizes(data)["source_words"]
    optimizer = module.optimizer(module.parameters())
    for group in optimizer.param_groups:
        group["lr"] *= module.schedule(99, module.total_updates)
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(UPDATES):
        source = torch.randint(4, words, (16, 7), generator=generator)
        target = source.flip(1)
        target[:, -1] = source[:, -1] = 2
        source[:8, 4:], target[:8, 5:] = 0, 0
        source[:8, 3] = target[:8, 4] = 2
        found.append(update(module, optimizer, Seq2SeqBatch.of(source, target), bf16=False))
    return found


@pytest.mark.parametrize("row", ROWS)
def test_losses_are_the_golden_ones(row: str) -> None:
    assert losses(row) == pytest.approx(json.loads(FILE.read_text())[row], rel=1e-4)


if __name__ == "__main__":
    FILE.write_text(json.dumps({row: losses(row) for row in ROWS}, indent=1) + "\n")
