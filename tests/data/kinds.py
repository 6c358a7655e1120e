"""Which data module a file of conf/data makes."""

from pathlib import Path
from typing import cast

from omegaconf import DictConfig, OmegaConf

DATA = Path(__file__).parents[2] / "conf" / "data"
NAMES = sorted(path.stem for path in DATA.glob("*.yaml"))


def kind(name: str) -> str:
    """Its class, by the file that it is made of if it names none itself."""
    file = cast(DictConfig, OmegaConf.load(DATA / f"{name}.yaml"))
    target = file.get("_target_")
    return target.rpartition(".")[2] if target else kind(file["defaults"][0])
