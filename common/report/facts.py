"""Facts of result.json and of measurements as text."""

from __future__ import annotations

from collections.abc import Mapping


def fact_text(value: object) -> str:
    """Any value of result.json as a short text."""
    if isinstance(value, Mapping):
        parts = {key: text for key, item in value.items() if (text := fact_text(item))}
        if any(isinstance(item, Mapping) for item in value.values()):
            return "; ".join(f"{key}: {text}" for key, text in parts.items())
        return ", ".join(f"{key} {text}" for key, text in parts.items())
    if isinstance(value, list):
        return ", ".join(map(fact_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)
