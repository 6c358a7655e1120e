import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from common.metrics import perplexity
from common.metrics.token_loss import TokenLoss

# Nine sentences: four with one token at 4 nats, four with one at 2 nats, one with three tokens at 8 nats.
NLL = [4.0] * 4 + [2.0] * 4 + [24.0]
TOKENS = [1] * 8 + [3]
MEAN = 48 / 11  # the mean of batch means would be (4 + 2 + 8) / 3
BATCHES = [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


def fed(batches: list[list[int]], sentences: int = 9) -> TokenLoss:
    metric = TokenLoss(sentences)
    for batch in batches:
        index = torch.tensor(batch)
        metric.update(torch.tensor(NLL)[index], torch.tensor(TOKENS)[index], index)
    return metric


def test_perplexity_is_exponentiated_once():
    score = perplexity(nll=NLL, tokens=TOKENS)
    assert score.value == pytest.approx(math.exp(MEAN))
    assert score.statistics.tolist() == [[n, t] for n, t in zip(NLL, TOKENS, strict=True)]
    assert score.signature == "perplexity|exp(sum nll / sum tokens)|eos:yes"


@pytest.mark.parametrize(("nll", "tokens"), [([1.0], [1, 2]), ([], []), ([0.0], [0])])
def test_perplexity_needs_tokens_of_every_sentence(nll, tokens):
    with pytest.raises(ValueError, match=f"got {len(nll)} and {len(tokens)}"):
        perplexity(nll=nll, tokens=tokens)


def test_uneven_batches_weigh_by_their_tokens():
    result = {name: value.item() for name, value in fed(BATCHES).compute().items()}
    assert result == {
        "nll_per_token": pytest.approx(MEAN),
        "nll_per_sentence": pytest.approx(48 / 9),
        "perplexity": pytest.approx(math.exp(MEAN)),
    }


def test_a_repeated_sentence_counts_once():
    assert fed([*BATCHES, [8, 0]]).compute() == fed(BATCHES).compute()


def test_a_part_of_the_split():
    assert fed([[0, 1], [8]]).compute()["nll_per_token"].item() == pytest.approx(32 / 5)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_reset_and_nothing_seen():
    metric = fed(BATCHES)
    metric.reset()
    with pytest.raises(ValueError, match="no sentence"):
        metric.compute()


WORKER = """
import json, sys
import torch
from tests.common.metrics.test_perplexity import fed
rank = int(sys.argv[1])
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
# 9 sentences on 2 ranks: a distributed sampler repeats the first one on the second rank.
metric = fed([[0, 2, 4, 6], [8]] if rank == 0 else [[1, 3, 5, 7], [0]])
print(json.dumps({name: value.item() for name, value in metric.compute().items()}), flush=True)
torch.distributed.destroy_process_group()  # else its threads may still run when the process ends
"""


def test_two_ranks_of_different_size(tmp_path: Path):
    root = Path(__file__).parents[3]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), str(tmp_path / "store")],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [worker.communicate(timeout=120)[0].strip() for worker in workers]
    expected = {name: value.item() for name, value in fed(BATCHES).compute().items()}
    assert [json.loads(out) for out in outputs] == [pytest.approx(expected)] * 2
