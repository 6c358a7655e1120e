"""Finished runs, loaded again: configuration, data and the weights that were tested."""

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from hydra.utils import instantiate

from common.lit.seq2seq import Seq2Seq
from data.translation import TranslationData

Config = dict[str, Any]


def load(folder: Path) -> tuple[Seq2Seq, TranslationData, Config]:
    """Model, data (for its vocabularies) and configuration. Raises ValueError if it is no finished run."""
    config = configuration(folder)
    data: TranslationData = instantiate(config["data"])
    data.prepare()
    return load_module(folder, data), data, config


def configuration(folder: Path) -> Config:
    """The resolved configuration of a finished run. Raises ValueError if it is none."""
    for name in ("config.yaml", "tested.ckpt", "result.json"):
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder} has no {name}: expected the folder of a finished run, runs/<paper>/<scale>/<row>-s<seed>"
            )
    return yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))


def load_module(folder: Path, data: TranslationData) -> Seq2Seq:
    """The tested model of a finished run. Raises ValueError if `data` is not what it was trained on."""
    from reproductions.job import build_module

    config = configuration(folder)
    trained = json.loads((folder / "result.json").read_text(encoding="utf-8"))["data_checksum"]
    if data.checksum != trained:
        raise ValueError(
            f"{folder} was trained on data {trained[:12]}, {data.folder} holds {data.checksum[:12]}: its vocabularies "
            "would be others. Restore the data, or train again."
        )
    module = build_module(config, len(data.source_vocab), len(data.target_vocab), total=1, dev=data.size("dev"))
    module.load_state_dict(torch.load(folder / "tested.ckpt", weights_only=False)["state_dict"])
    return module.eval()
