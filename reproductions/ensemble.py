"""Rows without training of their own: an ensemble of finished rows, tested as any other row is."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from common.naming import folder_name
from common.nn.ensemble import Ensemble
from data.translation import TranslationData
from reproductions.stored import configuration, load_module


def folders(config: Mapping[str, Any]) -> dict[str, Path]:
    """Where the members' runs lie: rows of the same paper, scale and seed; none for a row that is trained."""
    runs = Path(config["paths"]["runs"]) / config["paper"] / config["scale"]["name"]
    return {member: runs / folder_name(member, config["seed"]) for member in config["ensemble"]}


def weights_of(config: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of each member's tested weights. Raises ValueError naming the run that is not there."""
    found = {}
    for member, folder in folders(config).items():
        configuration(folder)
        found[member] = hashlib.sha256((folder / "tested.ckpt").read_bytes()).hexdigest()
    return found


def load_members(config: Mapping[str, Any], data: TranslationData) -> nn.Module:
    """The members as one model. Raises ValueError for members that are not there, or of other data."""
    return Ensemble([load_module(folder, data).model for folder in folders(config).values()])
