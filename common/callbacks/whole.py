"""Weights that a strategy keeps in shards, one for each process (FSDP), put together."""

from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from common.nn.shards import whole


class Whole(Callback):
    """`state`: the state of the module at the end of a fit, on the CPU, while its processes are still together."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.state = {name: whole(tensor).cpu() for name, tensor in pl_module.state_dict().items()}
