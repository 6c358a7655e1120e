"""What all prepared data share: a folder named after what its rows depend on, with a manifest and a split in Arrow files."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets
from datasets.exceptions import DatasetGenerationError

from data.fetch import read_manifest


def fields_of(source: Any) -> dict[str, Any]:
    """What a source is called and its settings, as plain values."""
    assert dataclasses.is_dataclass(source) and not isinstance(source, type)
    fields = {field.name: _plain(getattr(source, field.name)) for field in dataclasses.fields(source)}
    return {"source": type(source).__name__, "fields": fields}


def _plain(value: Any) -> Any:
    """Mappings and sequences of any kind (a configuration's own too) as dict and list, in a fixed order."""
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    return [_plain(item) for item in value]


def named_folder(cache: Path, name: str, settings: Mapping[str, Any]) -> Path:
    text = json.dumps(settings, sort_keys=True)
    return cache / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def store(rows: Iterator[dict[str, Any]], folder: Path, build: Path, features: datasets.Features) -> None:
    """Write rows as an Arrow folder, in constant memory. `build` takes the intermediate files."""
    try:
        # The fingerprint spares `datasets` the hashing of our generator, which it could not pickle.
        data = datasets.Dataset.from_generator(
            lambda: rows, features=features, cache_dir=str(build), fingerprint=folder.name
        )
    except DatasetGenerationError as error:
        raise error.__cause__ or error from None
    data.save_to_disk(folder)


def load_splits(folder: Path, splits: Iterable[str]) -> dict[str, datasets.Dataset]:
    """These splits of a prepared folder, memory-mapped. Raises ValueError where rows are missing."""
    counts = read_manifest(folder)["counts"]
    found: dict[str, datasets.Dataset] = {}
    for split in splits:
        data = datasets.load_from_disk(str(folder / split))
        assert isinstance(data, datasets.Dataset)
        if len(data) != counts[split]["kept"]:
            raise ValueError(
                f"{folder / split}: got {len(data)} rows, expected {counts[split]['kept']}. "
                f"Delete {folder} and try again."
            )
        found[split] = data
    return found
