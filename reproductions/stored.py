"""Finished runs, loaded again: configuration and the weights that were tested."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from hydra.utils import instantiate
from torch import Tensor, nn

from common.lit.training import Trained
from data.stream import StreamData

Config = dict[str, Any]


def configuration(folder: Path) -> Config:
    """The resolved configuration of a finished run. Raises ValueError if it is none."""

    def need(name: str) -> str:
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder} has no {name}: expected the folder of a finished run, runs/<paper>/<scale>/<row>-s<seed>"
            )
        return name

    config: Config = yaml.safe_load((folder / need("config.yaml")).read_text(encoding="utf-8"))
    need("result.json")
    if not config.get("ensemble"):
        need("tested.ckpt")
    return config


def load_module(folder: Path, data: StreamData) -> Trained:
    """The tested model of a finished run. Raises ValueError if `data` is not what it was trained on."""
    from reproductions.ensemble import load_members, weights_of
    from reproductions.job import as_module, build_module, task_of

    config = configuration(folder)
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if data.checksum != result["data_checksum"]:
        raise ValueError(
            f"{folder} was trained on data {result['data_checksum'][:12]}, {data.folder} holds {data.checksum[:12]}: its "
            "vocabularies would be others. Restore the data, or train again."
        )
    if config.get("ensemble"):
        members = weights_of(config)
        if changed := [member for member in members if members[member] != result["members"].get(member)]:
            raise ValueError(f"{folder} was tested with other weights of {', '.join(changed)}: run it again")
        return as_module(load_members(config, data), config, total=1, dev=data.size("dev")).eval()
    module = build_module(config, task_of(config).sizes(data), total=1, dev=data.size("dev"))
    module.load_state_dict(torch.load(folder / "tested.ckpt", weights_only=False)["state_dict"])
    return module.eval()


@dataclass(frozen=True)
class Opened:
    """A finished run: as it was tested, and its prepared data."""

    module: Trained
    data: Any


def prepared(run: str, **settings: Any) -> Any:
    """The data of a finished run's folder, with these settings of it in place of its own. Raises ValueError where it is none."""
    data = instantiate(configuration(Path(run))["data"] | settings)
    data.prepare()
    return data


def opened(run: str, data: Any = None) -> Opened:
    """Of a finished run's folder. data: prepared before. Raises ValueError where it is none, and for other data than its own."""
    data = prepared(run) if data is None else data
    return Opened(load_module(Path(run), data), data)


@dataclass(frozen=True)
class Reader:
    """A model of text as it was tested and as it was drawn, and sequences from all over its test text, (B, T) ids."""

    tested: nn.Module
    drawn: nn.Module
    tokens: Tensor


def reader(run: str, sequences: int) -> Reader:
    """Of a finished run's folder. Raises ValueError where it is none."""
    from reproductions.job import build

    of = opened(run)
    drawn = build(configuration(Path(run)), of.data).model.eval()
    whole = torch.cat([batch.tokens[batch.real.all(1)] for batch in of.data.eval_batches("test")])
    chosen = torch.linspace(0, len(whole) - 1, min(sequences, len(whole))).long()
    return Reader(of.module.model, drawn, whole[chosen])
