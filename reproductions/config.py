"""Checks of a resolved configuration: every key is read by something, every value has the type its reader wants.

Hydra accepts ``+model.drpout=0`` and turns ``lang: no`` into False; here both stop the run before it starts.
"""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, get_type_hints

from hydra.utils import get_object
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, TypeAdapter, ValidationError, model_validator


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Budget(Section):
    target_tokens: StrictInt | None = Field(gt=0)
    updates: StrictInt | None = Field(gt=0)

    @model_validator(mode="after")
    def one_of_the_two(self) -> Self:
        if (self.target_tokens is None) == (self.updates is None):
            raise ValueError("give either target_tokens or updates, the other as null")
        return self


class Averaged(Section):
    count: StrictInt = Field(gt=0)
    every: float = Field(gt=0, le=1)


class Checkpoint(Section):
    rule: Literal["best_dev_nll", "last", "average"]
    average: Averaged
    dev_checks: StrictInt = Field(gt=0)
    every: StrictInt = Field(gt=0)


class Decode(Section):
    beam: StrictInt = Field(gt=0)
    length_penalty: float = Field(ge=0)
    length_rule: Literal["power", "gnmt"]
    splits: list[str] = Field(min_length=1)
    max_ratio: float = Field(gt=0)
    max_extra: StrictInt = Field(ge=0)
    batch: StrictInt = Field(gt=0)
    heatmaps: StrictInt = Field(ge=0)
    dictionary_pairs: StrictInt = Field(ge=0)
    unknown: Literal["keep", "replace"]

    @model_validator(mode="after")
    def replaced_by_something(self) -> Self:
        if self.unknown == "replace" and not self.dictionary_pairs:
            raise ValueError("unknown: replace needs dictionary_pairs, training pairs to learn a dictionary from")
        return self


class Trainer(Section):
    accelerator: str
    devices: StrictInt = Field(gt=0)
    num_nodes: StrictInt = Field(gt=0)
    strategy: str
    precision: str
    accumulate: StrictInt = Field(gt=0)
    threads: StrictInt = Field(gt=0)


class Logger(Section):
    kind: Literal["wandb", "csv"]
    project: str
    mode: Literal["auto", "online", "offline", "disabled"]


class Scale(Section):
    name: str


class Optim(Section):
    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    clip_norm: float = Field(gt=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class Paths(Section):
    runs: str


class Train(Section):
    """The whole of a training configuration. Sections with a `_target_` are checked against what they build.

    `recipe` is where a paper's scale lists what its rows choose from: read by interpolation alone, checked where used.
    """

    paper: str
    table_id: str
    row: str
    label: str
    seed: StrictInt = Field(ge=0)
    fresh: StrictBool
    dry_run: StrictBool
    ensemble: list[str]
    budget: Budget
    checkpoint: Checkpoint
    decode: Decode
    trainer: Trainer
    logger: Logger
    scale: Scale
    optim: Optim
    paths: Paths
    data: dict[str, Any]
    model: dict[str, Any]
    recipe: dict[str, Any] = Field(default_factory=dict)


def check(config: Mapping[str, Any]) -> None:
    """Raises ValueError naming every key that nothing reads (with near matches) and every value of a wrong type."""
    problems: list[str] = []
    try:
        Train.model_validate(config)
    except ValidationError as error:
        for item in error.errors():
            where = ".".join(str(part) for part in item["loc"])
            if item["type"] == "extra_forbidden":
                problems.append(unknown(where, key_names(config, without=where)))
            else:
                problems.append(f"{where}: {item['msg']}, got {item['input']!r}")
    for section in ("data", "model", "optim"):
        problems += _check_target(section, config.get(section, {}))
    if config.get("data", {}).get("subword") and config.get("decode", {}).get("dictionary_pairs"):
        problems.append("decode.dictionary_pairs: a dictionary is of words, expected 0 with data.subword")
    if problems:
        raise ValueError("configuration: " + "; ".join(problems))


def _check_target(where: str, node: Any) -> list[str]:
    """Problems of a node with a `_target_`: keys and types against the signature of what it builds."""
    if not isinstance(node, Mapping):
        return []
    problems = [problem for key, child in node.items() for problem in _check_target(f"{where}.{key}", child)]
    if "_target_" not in node:
        return problems
    target = get_object(node["_target_"])
    parameters = inspect.signature(target).parameters
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    for key, value in node.items():
        if key.startswith("_"):
            continue
        if key not in parameters:
            problems.append(unknown(f"{where}.{key}", [f"{where}.{name}" for name in parameters]))
        elif key in hints and not isinstance(value, Mapping):
            problems += _check_type(f"{where}.{key}", value, hints[key])
    return problems


def _check_type(where: str, value: Any, hint: Any) -> list[str]:
    if hint in (int, bool) and type(value) is not hint:
        return [f"{where}: got {value!r}, expected {hint.__name__}"]
    if hint in (float, str) or str(hint) in ("int | None", "float | None", "str | None"):
        try:
            TypeAdapter(hint).validate_python(value)
        except ValidationError:
            return [f"{where}: got {value!r}, expected {getattr(hint, '__name__', hint)}"]
    return []


def unknown(key: str, known: Iterable[str]) -> str:
    """One clear sentence on a key that does not exist, with the nearest ones that do."""
    names = list(known)
    by_leaf = {name: name.rpartition(".")[2] for name in names}
    near = difflib.get_close_matches(key, names, n=3, cutoff=0.75)
    leaf = difflib.get_close_matches(key.rpartition(".")[2], list(by_leaf.values()), n=3, cutoff=0.75)
    near += [name for name in names if by_leaf[name] in leaf and name not in near][:3]
    beside = [name for name in names if name.rpartition(".")[0] == key.rpartition(".")[0]]
    return f"no key {key!r}; " + (f"near: {', '.join(near[:4])}" if near else f"known there: {', '.join(beside)}")


def key_names(node: Mapping[str, Any], prefix: str = "", without: str = "") -> list[str]:
    """All dotted keys of a nested mapping."""
    names = []
    for key, value in node.items():
        name = f"{prefix}{key}"
        if name != without:
            names.append(name)
            if isinstance(value, Mapping):
                names += key_names(value, f"{name}.", without)
    return names
