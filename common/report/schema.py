"""Reading YAML and JSON so that an error names the file, the key and what was expected there."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

REQUIRED: Final[Any] = object()


def near(word: str, choices: Collection[str]) -> str:
    """Return what to use instead of an unknown word: close matches first, else every choice."""
    close = difflib.get_close_matches(word, list(choices), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(sorted(choices))}"


class Node:
    """A mapping that knows its file and place. Every key must be read before `done()`: a misspelt key is an error."""

    def __init__(self, data: Any, file: Path | str, place: str = "") -> None:
        self.file, self.place = file, place
        if not isinstance(data, Mapping):
            raise self.error("", f"expected a mapping of keys, got {_kind(data)}")
        for key in data:
            if not isinstance(key, str):
                raise self.error("", f"key {key!r} must be text: quote it")
        self.data: Mapping[str, Any] = data
        self.read: set[str] = set()

    def error(self, key: str, message: str) -> ValueError:
        """Return a ValueError that names file and key path."""
        return ValueError(f"{self.file}: {self._path(key)}: {message}")

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = REQUIRED) -> Any:
        """Return the value of `key`, of the given kind; a default makes the key optional (null counts as absent)."""
        self.read.add(key)
        value = self.data.get(key)
        if value is None:
            if default is REQUIRED:
                raise self.error(key, f"missing, expected {_names(kind)}")
            return default
        # A YAML `yes` is a bool and Python's bool is an int: a number must not be read from it.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, f"expected {_names(kind)}, got {_kind(value)}")
        return value

    def text(self, key: str, default: Any = REQUIRED) -> str:
        """Return a string, with line breaks of folded YAML text made into spaces."""
        value = self.get(key, str, default)
        return " ".join(value.split()) if isinstance(value, str) else value

    def number(self, key: str, default: Any = REQUIRED) -> float:
        """Return a number (int or float)."""
        value = self.get(key, (int, float), default)
        return float(value) if isinstance(value, (int, float)) else value

    def choice(self, key: str, choices: Collection[str], default: Any = REQUIRED) -> str:
        """Return a string that must be one of `choices`."""
        value = self.get(key, str, default)
        if value is not default and value not in choices:
            raise self.error(key, f"got {value!r}, {near(value, choices)}")
        return value

    def texts(self, key: str, default: Any = REQUIRED) -> tuple[str, ...]:
        """Return a list of strings as a tuple."""
        values = self.get(key, (list, tuple), default)
        if not all(isinstance(value, str) for value in values):
            raise self.error(key, f"expected a list of strings, got {values!r}")
        return tuple(values)

    def pair(self, key: str, default: Any = REQUIRED) -> tuple[float, float]:
        """Return [low, high] with low <= high."""
        values = self.get(key, (list, tuple), default)
        if values is default:
            return values
        if len(values) != 2 or not all(isinstance(v, (int, float)) for v in values) or values[0] > values[1]:
            raise self.error(key, f"expected [low, high] with low <= high, got {values!r}")
        return values[0], values[1]

    def child(self, key: str, default: Any = REQUIRED) -> Node:
        """Return the mapping under `key` as a node of its own."""
        return Node(self.get(key, Mapping, default), self.file, self._path(key))

    def children(self, key: str) -> list[Node]:
        """Return the list of mappings under `key`."""
        return [Node(item, self.file, f"{self._path(key)}[{i}]") for i, item in enumerate(self.get(key, list))]

    def done(self) -> None:
        """Raise ValueError for a key that nobody read."""
        for key in self.data:
            if key not in self.read:
                raise self.error(key, f"unknown key, {near(key, self.read)}")

    def _path(self, key: str) -> str:
        return ".".join(part for part in (self.place, key) if part) or "top level"


def load_yaml(path: Path) -> Node:
    """Read a YAML file whose top level is a mapping. Raises ValueError for a missing file or broken YAML."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        return Node(yaml.safe_load(path.read_text(encoding="utf-8")), path)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not valid YAML: {error}") from error


def _names(kind: type | tuple[type, ...]) -> str:
    words = {
        str: "text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        list: "a list",
        Mapping: "a mapping",
    }
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if float in kinds:
        return "a number"
    return words.get(kinds[0], kinds[0].__name__)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r}"
