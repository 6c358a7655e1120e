"""Rows of the tables: their sizes."""

import pytest
import torch
from hydra.utils import instantiate

from common.bench.sizes import equal_sizes
from reproductions.compose import jobs_of
from reproductions.dry_run import build

TASKS = ("listops", "text", "retrieval", "image")


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
@pytest.mark.parametrize("task", TASKS)
def test_the_long_range_arena_compares_models_of_equal_size(task: str, scale: str) -> None:
    """Tay et al. 2020, section 2.3: within a tenth."""
    rows = ",".join(f"longformer_bigbird/{task}_{kind}" for kind in ("full", "local", "longformer", "bigbird"))
    with torch.device("meta"):
        models = {
            job.config["row"]: build(job.config, instantiate(job.config["data"])).model
            for job in jobs_of((f"experiment={rows}", f"scale={scale}"), None)
        }
    assert len(equal_sizes(models)) == 4
