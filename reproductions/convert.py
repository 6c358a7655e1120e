"""python -m reproductions.convert run=runs/mqa_gqa/small/multi_head-s1 kv_heads=2 how=mean out=<file>

Writes the weights that a finished run was tested with for a model with fewer heads of keys and values (Ainslie et al. 2023,
section 2.1), nothing trained: a checkpoint in the form of tested.ckpt, which is not overwritten. A row does the same by
itself before it trains on: warm_start with common.nn.fewer_heads.start_from_more_heads.

    kv_heads=N    heads of keys and values, a divisor of those there are
    how=mean      of the heads of a group their mean; first: the first of them; random: drawn anew, by the run's seed
    out=<file>    where to, with its configuration as `config`
    grouped=a,b   which attentions of a Transformer, of encoder, decoder and cross; those of the run unless given
"""

import copy
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from hydra.utils import get_object, instantiate
from pydantic import BeforeValidator, Field

from common.lit.training import Trained
from common.nn.encoder_decoder import Place
from common.nn.fewer_heads import How, grouped_attentions, keys_and_values, start_from_more_heads
from data.stream import StreamData
from reproductions.config import Section, requested
from reproductions.job import build
from reproductions.stored import Config, configuration, load_module


class Request(Section):
    """The command line."""

    run: Path
    kv_heads: int = Field(gt=0)
    how: How
    out: Path
    grouped: Annotated[list[Place], BeforeValidator(lambda names: names.split(","))] | None = None


def load(folder: Path) -> tuple[Trained, StreamData, Config]:
    """Model, data (for its vocabularies) and configuration. Raises ValueError if it is no finished run, or one of several
    models."""
    config = configuration(folder)
    if config.get("ensemble"):
        raise ValueError(f"{folder} is an ensemble, expected a run with weights of its own: convert its members")
    data: StreamData = instantiate(config["data"])
    data.prepare()
    return load_module(folder, data), data, config


def with_kv_heads(config: Config, kv_heads: int, grouped: list[Place] | None = None) -> Config:
    """The configuration with these in every part of the model that takes them, and feed-forward layers no wider for it: a
    checkpoint has none of the weights that would be added. Raises ValueError where no part takes what is given."""
    changed = copy.deepcopy(config)
    found = [node for node in _targets(changed["model"]) if "kv_heads" in _taken(node)]
    if not found:
        raise ValueError(f"kv_heads: got {kv_heads}, but {config['model']['_target_']} takes none in this run")
    for node in found:
        node["kv_heads"] = kv_heads
        if grouped is not None:
            if "grouped" not in _taken(node):
                raise ValueError(f"grouped: got {','.join(grouped)}, but {node['_target_']} takes none")
            node["grouped"] = grouped
    if "match" in changed["model"]:
        changed["model"]["match"] = "none"
    return changed


def convert(tested: Trained, data: StreamData, config: Config, how: How) -> Trained:
    """A model of `config` from the weights of one with as many heads of keys and values, or more; drawn by its seed where
    they are random."""
    module = build(config, data)
    start_from_more_heads(module.model, tested.model.state_dict(), how=how)
    return module.eval()


def refuse(tested: Trained, folder: Path, kv_heads: int) -> None:
    """Raises ValueError where there is nothing to convert."""
    heads = max((part.kv_heads for part in grouped_attentions(tested.model).values()), default=None)
    if heads is None:
        raise ValueError(
            f"{folder} has no attention whose keys and values could have fewer heads: expected a model with multi-head "
            "attention or common.nn.sparse.Full"
        )
    if kv_heads >= heads or heads % kv_heads:
        raise ValueError(f"kv_heads: got {kv_heads}, expected a divisor of the {heads} that {folder} has, and fewer")


def write(module: Trained, config: Config, out: Path) -> None:
    """Whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f"{out.name}.part")
    torch.save({"state_dict": module.state_dict(), "config": config}, part)
    part.replace(out)


def told(tested: Trained, made: Trained, request: Request) -> str:
    """What was done, in one line."""
    before, after = ({name: t.shape for name, t in module.model.state_dict().items()} for module in (tested, made))
    fewer = [name for name in keys_and_values(made.model) if before[name] != after[name]]
    sizes = [sum(p.numel() for p in module.model.parameters()) for module in (tested, made)]
    return (
        f"wrote {request.out}: {sizes[1]:,} weights, {sizes[0] - sizes[1]:,} fewer than {request.run}; {len(fewer)} tensors of "
        f"keys and values are of kv_heads={request.kv_heads} ({request.how}), the {len(after) - len(fewer)} others copies"
    )


def _targets(node: Any) -> Iterator[dict[str, Any]]:
    """Every part of a configuration that builds something."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield node  # type: ignore[misc]
        for child in node.values():
            yield from _targets(child)


def _taken(node: Mapping[str, Any]) -> Mapping[str, Any]:
    return inspect.signature(get_object(node["_target_"])).parameters


def main(argv: Sequence[str] | None = None) -> int:
    try:
        request = requested(Request, sys.argv[1:] if argv is None else argv)
        if request.out.exists():
            raise ValueError(f"out: got {request.out}, which is there already, expected a new file")
        tested, data, config = load(request.run)
        refuse(tested, request.run, request.kv_heads)
        changed = with_kv_heads(config, request.kv_heads, request.grouped)
        made = convert(tested, data, changed, request.how)
        write(made, changed, request.out)
        print(told(tested, made, request))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
