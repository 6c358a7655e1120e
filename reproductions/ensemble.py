"""Rows that are made of finished ones: an ensemble, tested as any other row is, or a model that starts from another's
weights."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from torch import nn

from common.naming import folder_name
from common.nn.ensemble import Ensemble
from data.stream import StreamData
from reproductions.stored import configuration, load_module


def folders(config: Mapping[str, Any]) -> dict[str, Path]:
    """Where the runs lie that it is made of, by row: of the same paper, scale and seed; none for a row of its own."""
    runs = Path(config["paths"]["runs"]) / config["paper"] / config["scale"]["name"]
    start = config["warm_start"]
    rows = [*config["ensemble"], *([start["row"]] if start else [])]
    return {row: runs / folder_name(row, config["seed"]) for row in rows}


def weights_of(config: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of the tested weights of each of them. Raises ValueError naming the run that is not there."""
    found = {}
    for member, folder in folders(config).items():
        configuration(folder)
        found[member] = hashlib.sha256((folder / "tested.ckpt").read_bytes()).hexdigest()
    return found


def load_members(config: Mapping[str, Any], data: StreamData) -> nn.Module:
    """The members as one model. Raises ValueError for members that are not there, or of other data."""
    return Ensemble([load_module(folder, data).model for folder in folders(config).values()])


def warm(config: Mapping[str, Any], model: nn.Module) -> None:
    """Fills a model with the tested weights of the row that it starts from, in the way that `warm_start.load` says."""
    [folder] = folders(config).values()
    state = torch.load(folder / "tested.ckpt", weights_only=False)["state_dict"]
    own = {name.removeprefix("model."): tensor for name, tensor in state.items() if name.startswith("model.")}
    instantiate(config["warm_start"]["load"])(model, own)
