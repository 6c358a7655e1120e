"""Rows of the Long Range Arena, whichever package they are in: their sizes."""

import pytest
import torch
from hydra.utils import instantiate

from common.bench.sizes import equal_sizes
from reproductions.compose import jobs_of
from reproductions.dry_run import build

TASKS = ("listops", "text", "retrieval", "image")
KINDS = {
    "longformer_bigbird": ("full", "local", "longformer", "bigbird"),
    "performer_linformer": ("full", "performer", "linformer", "linear"),
}


@pytest.mark.parametrize("paper", KINDS)
@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
@pytest.mark.parametrize("task", TASKS)
def test_the_long_range_arena_compares_models_of_equal_size(task: str, scale: str, paper: str) -> None:
    """Tay et al. 2020, section 2.3: within a tenth."""
    rows = ",".join(f"{paper}/{task}_{kind}" for kind in KINDS[paper])
    with torch.device("meta"):
        models = {
            job.config["row"]: build(job.config, instantiate(job.config["data"])).model
            for job in jobs_of((f"experiment={rows}", f"scale={scale}"), None)
        }
    assert len(equal_sizes(models)) == 4
