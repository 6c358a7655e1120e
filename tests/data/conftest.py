"""Small sources and data sets that the tests of `data` share; none needs a network."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from data.fetch import Download
from data.pairs import Counts, Pair
from data.sources.base import Context
from data.sources.toy import Toy
from data.translation import TranslationData

PAIRS: dict[str, dict[str, Iterable[Pair]]] = {}


@dataclass(frozen=True)
class Listed:
    """A source whose pairs the test lists; `key` stands for them in the settings."""

    key: str
    licence = "none"
    domain = "test"

    def downloads(self, context: Context) -> list[Download]:
        return []

    def identity(self, context: Context) -> dict[str, Any]:
        return {}

    def provenance(self, context: Context) -> dict[str, Any]:
        return {"from": "a test"}

    def pairs(self, context: Context, counts: Counts) -> dict[str, Iterable[Pair]]:
        return PAIRS[self.key]


@pytest.fixture
def listed(request: pytest.FixtureRequest) -> Callable[[Mapping[str, Iterable[Pair]]], Listed]:
    def make(pairs: Mapping[str, Iterable[Pair]]) -> Listed:
        PAIRS[request.node.nodeid] = dict(pairs)
        return Listed(request.node.nodeid)

    return make


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path / "cache", "en", "fr")


def settings(**changes: Any) -> dict[str, Any]:
    """Arguments of TranslationData for small tests."""
    return {
        "name": "small",
        "source_lang": "en",
        "target_lang": "fr",
        "source_vocab_size": 100,
        "target_vocab_size": 100,
        "max_words": None,
        "batch": {"unit": "sentences", "size": 8},
        "pool_batches": 3,
        "seed": 1,
    } | changes


@pytest.fixture
def make_data(tmp_path: Path) -> Callable[..., TranslationData]:
    """A TranslationData, prepared, in a cache of its own."""

    def make(source: Any, **changes: Any) -> TranslationData:
        data = TranslationData(source=source, **settings(cache=str(tmp_path / "cache")) | changes)
        data.prepare()
        return data

    return make


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> TranslationData:
    """101 generated training pairs of 2 to 9 words in batches of 8: 13 batches an epoch, in pools of 3."""
    source = Toy(words=9, shortest=2, longest=9, longest_long=15, train=101, dev=11, test=13, test_long=7)
    data = TranslationData(source=source, **settings(cache=str(tmp_path_factory.mktemp("cache"))))
    data.prepare()
    return data
