"""Time and memory of a run in parts, by a made-up clock."""

import pytest

from common.callbacks.spent import Spent


def test_what_earlier_parts_spent_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now, memory = [100.0], [5]
    monkeypatch.setattr("common.callbacks.spent.time.monotonic", lambda: now[0])
    first = Spent(lambda: memory[0])
    first.started = "2026-01-01T00:00:00+00:00"
    now[0] = 107.0
    saved = first.state_dict()  # killed a while later
    now[0], memory[0] = 1000.0, 3
    second = Spent(lambda: memory[0])
    now[0] = 1002.0
    second.load_state_dict(saved)
    now[0] = 1004.0
    assert second.facts() == {"started": "2026-01-01T00:00:00+00:00", "seconds": 7.0 + 4.0, "peak_memory_bytes": 5}
    memory[0] = 6
    assert second.facts()["peak_memory_bytes"] == 6
