"""What a run cost, over all its parts if it was interrupted."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pytorch_lightning import Callback


class Spent(Callback):
    """Wall-clock seconds and peak memory since this was made; what earlier parts spent travels in the checkpoint.

    Time after the last checkpoint of a killed part is lost with it.
    """

    def __init__(self, peak_memory: Callable[[], int] = lambda: 0) -> None:
        self.peak_memory = peak_memory
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self.earlier, self.earlier_peak = 0.0, 0
        self._since = time.monotonic()

    def facts(self) -> dict[str, Any]:
        """started (UTC, of the first part), seconds, peak_memory_bytes (of the part that had most)."""
        return {
            "started": self.started,
            "seconds": self.earlier + time.monotonic() - self._since,
            "peak_memory_bytes": max(self.earlier_peak, self.peak_memory()),
        }

    def state_dict(self) -> dict[str, Any]:
        return self.facts()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.started = state_dict["started"]
        self.earlier, self.earlier_peak = state_dict["seconds"], state_dict["peak_memory_bytes"]
