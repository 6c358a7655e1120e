"""What a result depends on, as hashes: the resolved configuration and our own source code.

Needs neither torch nor hydra, so that a report can tell whether a stored row is still that of the present code.
"""

import hashlib
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from data.code import code_hash

ROOT = Path(__file__).resolve().parent.parent
ENTRY = ("reproductions.job",)
"""What every trained row runs; its task is among its targets."""
LOGGERS = "reproductions.log_"
NO_RESULT = {"logger", "paths", "fresh", "dry_run", "recipe", "data.cache"} | {
    f"trainer.{key}" for key in ("accelerator", "devices", "num_nodes", "strategy")
}
"""Keys, with all below them, that can't change a result; what a row takes from its recipe stands where it is used."""
VERSIONS = ("torch", "pytorch-lightning", "hydra-core", "datasets", "sacrebleu", "sacremoses", "numpy")


def head(config: Mapping[str, Any], ablation: Sequence[str]) -> dict[str, Any]:
    """What a result.json says of its run before it has run."""
    return {
        **{key: config[key] for key in ("paper", "row", "label", "seed")},
        "table": config["table_id"],
        "scale": config["scale"]["name"],
        "ablation": list(ablation),
        "command": shlex.join(["python", "-m", command_of(), *sys.argv[1:]]),
        "config_hash": config_hash(config),
        "source_hash": source_hash(config),
        **git_state(),
        "versions": versions(),
        "hardware": hardware(config["trainer"]["accelerator"] if "trainer" in config else "cpu"),
    }


def command_of() -> str:
    """The module that was started."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec and spec.name.startswith("reproductions.") else "reproductions.train"


def config_hash(config: Mapping[str, Any]) -> str:
    """sha256 of a resolved configuration without what cannot change a result: logger, paths, devices, cache."""
    return hashlib.sha256(json.dumps(_without(config), sort_keys=True).encode()).hexdigest()


def _without(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if f"{prefix}{key}" not in NO_RESULT}
    return {k: _without(v, f"{prefix}{k}.") if isinstance(v, Mapping) else v for k, v in kept.items()}


def source_hash(config: Mapping[str, Any]) -> str:
    """sha256 of the code that a configuration runs: the modules that its `_target_`s and the job itself import.

    Loggers and everything that only reads results do not count.
    """
    targets = {str(target).rpartition(".")[0] for target in _values(config, "_target_")}
    return code_hash(targets | set(ENTRY if "trainer" in config else ()), LOGGERS)


def _values(node: Any, key: str) -> Iterator[Any]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            if name == key:
                yield value
            yield from _values(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from _values(value, key)


def git_state() -> dict[str, Any]:
    """git_commit and git_dirty of the checkout; None outside one."""

    def git(*arguments: str) -> str | None:
        run = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
        return run.stdout.strip() if run.returncode == 0 else None

    changed = git("status", "--porcelain", "--untracked-files=no")
    strange = git("ls-files", "--others", "--exclude-standard", "--", "*.py")  # a new module can be imported
    dirty = None if changed is None else bool(changed or strange)
    return {"git_commit": git("rev-parse", "HEAD"), "git_dirty": dirty}


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}}


def hardware(accelerator: str) -> dict[str, Any]:
    """Processor and cores, and the GPU's name if it is one that trains (`trainer.accelerator`)."""
    import torch

    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else cpu
    gpu = torch.cuda.get_device_name() if accelerator != "cpu" and torch.cuda.is_available() else None
    return {"cpu": cpu, "cores": os.cpu_count(), "gpu": gpu}


def peak_memory(accelerator: str) -> int:
    """Peak resident memory of this process in bytes, or what torch held on the GPU if it is one that trains."""
    import torch

    if accelerator != "cpu" and torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
