"""Checks of a resolved configuration: every key is read by something, every value has the type its reader wants.

Hydra accepts ``+model.drpout=0`` and turns ``lang: no`` into False; here both stop the run before it starts.
"""

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar, get_args, get_type_hints

from hydra.utils import get_object
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, TypeAdapter, ValidationError, model_validator

TRANSLATION = "reproductions.tasks.translation.Translation"


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


SectionT = TypeVar("SectionT", bound=Section)


def requested(section: type[SectionT], arguments: Sequence[str]) -> SectionT:
    """A command line of key=value. Raises ValueError naming what is wrong with it."""
    given = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    try:
        return section.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise ValueError(unknown(key, section.model_fields)) from None
        raise ValueError(f"{key}: {first['msg']}, got {given.get(key, 'nothing')!r}") from None


class Budget(Section):
    target_tokens: StrictInt | None = Field(gt=0)
    updates: StrictInt | None = Field(ge=0)

    @model_validator(mode="after")
    def one_of_the_two(self) -> Self:
        if (self.target_tokens is None) == (self.updates is None):
            raise ValueError("give either target_tokens or updates, the other as null")
        return self


class Averaged(Section):
    count: StrictInt = Field(gt=0)
    every: float = Field(gt=0, le=1)


class WarmStart(Section):
    row: str
    load: dict[str, Any]


class Checkpoint(Section):
    rule: Literal["best_dev_nll", "last", "average"]
    diverged: Literal["fail", "test"]
    average: Averaged
    dev_checks: StrictInt = Field(gt=0)
    every: StrictInt = Field(gt=0)

    @model_validator(mode="after")
    def weights_then(self) -> Self:
        if self.diverged == "test" and self.rule != "last":
            raise ValueError(f"diverged: test needs rule: last, the weights that there are then, got {self.rule}")
        return self


class Decode(Section):
    beam: StrictInt = Field(gt=0)
    greedy: StrictBool = False
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
    penalty: dict[str, Any] | None = None


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
    warm_start: WarmStart | None
    budget: Budget
    checkpoint: Checkpoint
    task: dict[str, Any]
    decode: Decode | None
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
    for section in ("data", "model", "optim", "task", "warm_start"):
        problems += _check_target(section, config.get(section))
    problems += _check_task(config)
    if problems:
        raise ValueError("configuration: " + "; ".join(problems))


def _check_task(config: Mapping[str, Any]) -> list[str]:
    """Problems of settings that only some tasks have."""
    translates, decode = config.get("task", {}).get("_target_") == TRANSLATION, config.get("decode")
    if translates != bool(decode):
        got, expected = ("none", "how to translate") if translates else ("settings", "none (/decode: none)")
        return [f"decode: got {got}, expected {expected} with task {config.get('task', {}).get('_target_')}"]
    if config.get("budget", {}).get("updates") == 0 and not config.get("warm_start"):
        return ["budget.updates: got 0, expected 1 or more for a model that starts from nothing"]
    if config.get("ensemble") and not translates:
        return ["ensemble: only translation models are tested together, expected []"]
    if config.get("data", {}).get("subword") and decode and decode.get("dictionary_pairs"):
        return ["decode.dictionary_pairs: a dictionary is of words, expected 0 with data.subword"]
    return []


def _check_target(where: str, node: Any) -> list[str]:
    """Problems of a node with a `_target_`: keys and types against the signature of what it builds."""
    if not isinstance(node, Mapping):
        return []
    problems = [problem for key, child in node.items() for problem in _check_target(f"{where}.{key}", child)]
    if "_target_" not in node:
        return problems
    target = get_object(node["_target_"])
    parameters, hints = _arguments(target)
    for key, value in node.items():
        if key.startswith("_"):
            continue
        if key not in parameters:
            problems.append(unknown(f"{where}.{key}", [f"{where}.{name}" for name in parameters]))
        elif key in hints and not isinstance(value, Mapping):
            problems += _check_type(f"{where}.{key}", value, hints[key])
    return problems


def _arguments(target: Any) -> tuple[list[str], dict[str, Any]]:
    """Names and types of what it takes; of keywords that are a typed dictionary (**x: Unpack[X]), those of X."""
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    names: list[str] = []
    for name, parameter in inspect.signature(target).parameters.items():
        of_dictionary = get_args(hints.get(name)) if parameter.kind is inspect.Parameter.VAR_KEYWORD else ()
        if of_dictionary:
            hints |= get_type_hints(of_dictionary[0])
            names += get_type_hints(of_dictionary[0])
        else:
            names.append(name)
    return names, hints


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
