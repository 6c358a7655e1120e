"""W&B as a view of what lies in runs/: one run a row and seed, and one for the published numbers."""

import os
from pathlib import Path
from typing import Any

import wandb
from pytorch_lightning.loggers import WandbLogger


def mode(setting: str) -> str:
    """auto: online if a key is at hand, else offline, so that nothing ever asks or waits."""
    if setting != "auto":
        return setting
    key = os.environ.get("WANDB_API_KEY") or wandb.api.api_key
    return "online" if key else "offline"


def start(project: str, setting: str, folder: Path, **settings: Any) -> Any:
    """wandb.init without questions and with a bounded wait for the network."""
    folder.mkdir(parents=True, exist_ok=True)
    return wandb.init(
        project=project, mode=mode(setting), dir=str(folder), reinit="finish_previous",  # type: ignore[arg-type]
        settings=wandb.Settings(init_timeout=30, console="off", silent=True), **settings,
    )


def row_logger(config: dict[str, Any], folder: Path) -> WandbLogger:
    """A Lightning logger: group paper/table, name row-s<seed>, tags for scale and ablation."""
    run = start(
        config["logger"]["project"], config["logger"]["mode"], folder,
        group=f"{config['paper']}/{config['table_id']}", name=f"{config['row']}-s{config['seed']}",
        tags=[config["scale"]["name"], *(["ablation"] if "+" in config["row"] else [])], config=config,
    )
    return WandbLogger(experiment=run)
