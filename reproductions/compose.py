"""From command-line overrides to checked jobs: one job is one row with one seed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from common.naming import folder_name
from reproductions.config import check, key_names, unknown
from reproductions.cpu import training_precision
from reproductions.provenance import NO_RESULT

OmegaConf.register_new_resolver("training_precision", training_precision, replace=True)

CONF = Path(__file__).resolve().parent.parent / "conf"
SELECTS = {"experiment", "table", "scale", "seed", "trainer", "hydra"}
"""Overrides that choose a published row, or where it runs; any other that touches a result makes a row of its own."""

BAD_CONFIG = (HydraException, OmegaConfBaseException, YAMLError)


@dataclass(frozen=True)
class Job:
    """overrides recompose config; folder is where its result lies."""

    overrides: tuple[str, ...]
    config: dict[str, Any]
    ablation: tuple[str, ...]

    @property
    def folder(self) -> Path:
        config = self.config
        name = folder_name(config["row"], config["seed"])
        return Path(config["paths"]["runs"]) / config["paper"] / config["scale"]["name"] / name


def parse(overrides: Sequence[str]) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ValueError(f"override: {first_line(error)}") from None


def jobs_of(overrides: Sequence[str], searchpath: str | None) -> list[Job]:
    """All jobs of a sweep: the rows of `table=a,b` or of `experiment=a,b`, times the seeds; each once.

    Raises ValueError naming the override that does not fit, near matches, and which rows have its key.
    """
    parsed = parse(overrides)
    tables = [o for o in parsed if o.key_or_group == "table" and o.is_sweep_override()]
    if not tables:
        return _swept(parsed, table_params([str(o.input_line) for o in parsed], searchpath), searchpath)
    others = [str(o.input_line) for o in parsed if o not in tables]
    params = {name: table_params([f"table={name}"], searchpath) for name in tables[-1].sweep_string_iterator()}
    rows = [row.strip() for of_table in params.values() for row in str(of_table.get("experiment", "")).split(",")]
    found: dict[Path, Job] = {}
    for name, of_table in params.items():
        for one in _swept(parse([f"table={name}", *others]), of_table, searchpath, rows):
            found.setdefault(one.folder, one)
    return list(found.values())


def _swept(
    parsed: Sequence[Override], params: Mapping[str, Any], searchpath: str | None, beside: Sequence[str] = ()
) -> list[Job]:
    """params: what the table sweeps over. beside: further rows, to be named where an override fits one of them alone."""
    sweep = {o.key_or_group: list(o.sweep_string_iterator()) for o in parsed if o.is_sweep_override()}
    fixed = [o for o in parsed if not o.is_sweep_override()]
    plain = [str(o.input_line) for o in fixed]
    given = {o.key_or_group for o in fixed}
    for key, values in params.items():
        if key not in given:
            sweep.setdefault(key, [value.strip() for value in str(values).split(",")])
    rows = beside or [str(row) for row in sweep.get("experiment", ())]
    combinations: list[list[str]] = [[]]
    for key, values in sweep.items():
        combinations = [[*chosen, f"{key}={value}"] for chosen in combinations for value in values]
    return [job(tuple(plain + chosen), searchpath, rows) for chosen in combinations]


def table_params(overrides: Sequence[str], searchpath: str | None) -> dict[str, Any]:
    """What a table file sweeps over (hydra.sweeper.params)."""
    tables = [o for o in overrides if o.startswith("table=")]
    if not tables:
        return {}
    try:
        config = _compose([*tables, "~experiment"], searchpath, hydra=True)
    except BAD_CONFIG as error:
        raise ValueError(f"{tables[0]}: {first_line(error)}") from None
    return dict(OmegaConf.to_container(config.hydra.sweeper.params) or {})  # type: ignore[arg-type]


def job(overrides: tuple[str, ...], searchpath: str | None, rows: Sequence[str] = ()) -> Job:
    """Compose and check one job. Overrides that touch the science give it a name of its own."""
    try:
        check_hydra_keys(overrides, searchpath)
        config = _compose(overrides, searchpath)
    except BAD_CONFIG as error:
        raise ValueError(explain(error, overrides, searchpath, rows)) from None
    science = {o.split("=")[0]: o for o in overrides if is_science(o)}
    ablation = tuple(sorted(o.removeprefix("ablation=") for o in science.values()))
    try:
        resolved: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ValueError(f"{' '.join(overrides)}: {first_line(error)}") from None
    if ablation:
        resolved |= {key: f"{resolved[key]}+{','.join(ablation)}" for key in ("row", "label")}
    check(resolved)
    return Job(overrides, resolved, ablation)


def is_science(override: str) -> bool:
    key = override.lstrip("+~").split("=")[0]
    if key in SELECTS or key.startswith("hydra."):
        return False
    return not any(key == other or key.startswith(f"{other}.") for other in NO_RESULT - {"recipe"})


def explain(error: Exception, overrides: Sequence[str], searchpath: str | None, rows: Sequence[str]) -> str:
    """A composition error in one sentence that names the override, near keys, and rows that have the key."""
    context = [o for o in overrides if o.split("=")[0] in ("experiment", "table", "scale")]
    with suppress(*BAD_CONFIG):
        base = key_names(OmegaConf.to_container(_compose(context, searchpath)))  # type: ignore[arg-type]
        for o in parse(overrides):
            if o.input_line in context or o.key_or_group.startswith("hydra."):
                continue
            try:
                _compose([*context, str(o.input_line)], searchpath)
            except BAD_CONFIG as cause:
                key = o.key_or_group
                if key in base or "/" in str(cause) or "Could not find" in str(cause):
                    return f"{o.input_line}: {first_line(cause)}"
                having = [row for row in rows if key in row_keys(row, context, searchpath)]
                return unknown(key, base) + (f"; rows that have it: {', '.join(having)}" if having else "")
    return first_line(error)


def row_keys(row: str, context: Sequence[str], searchpath: str | None) -> list[str]:
    others = [o for o in context if not o.startswith("experiment=")]
    return key_names(OmegaConf.to_container(_compose([*others, f"experiment={row}"], searchpath)))  # type: ignore[arg-type]


def check_hydra_keys(overrides: Sequence[str], searchpath: str | None) -> None:
    """Hydra itself accepts any key below `hydra.`."""
    mine = [o.key_or_group for o in parse(overrides) if o.key_or_group.startswith("hydra.")]
    if mine:
        rest = [o for o in overrides if not o.lstrip("+").startswith("hydra.")]
        config = _compose(rest, searchpath, hydra=True)
        known = key_names(OmegaConf.to_container(config.hydra, resolve=False), "hydra.")  # type: ignore[arg-type]
        for key in mine:
            if key not in known:
                raise ValueError(unknown(key, known))


def _compose(overrides: Sequence[str], searchpath: str | None, hydra: bool = False) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", [*searched(searchpath), *overrides], return_hydra_config=hydra)


def searched(searchpath: str | None) -> list[str]:
    """The override that adds a folder of configurations."""
    return [f"hydra.searchpath=[file://{Path(searchpath).resolve()}]"] if searchpath else []


def first_line(error: Exception) -> str:
    """The message without Hydra's hints and links."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("To append", "full_key", "object_type", "See http"))]
    return "; ".join(kept[:12])
