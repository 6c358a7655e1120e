"""Subword models of a prepared data set: trained once on its train split, stored beside it, then only loaded."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from data.code import code_hash
from data.corpus import SIDES, share_of, word_counts
from data.fetch import new_folder, read_manifest, write_manifest
from data.prepare import load
from data.subwords import Subword, Subwords, train_model
from data.vocab import Vocab

SHARED = "shared"


def subword_folder(corpus: Path, settings: Subword, train_share: float) -> Path:
    """Where the subword models of a prepared folder lie: beside it, one folder for each text, setting and code."""
    text = json.dumps(subword_settings(corpus, settings, train_share), sort_keys=True)
    return corpus.with_name(f"{corpus.name}.{settings.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}")


def subword_settings(corpus: Path, settings: Subword, train_share: float) -> dict[str, Any]:
    return {
        "corpus": read_manifest(corpus)["checksum"],
        "train_share": train_share,
        "subword": asdict(settings),
        "code": code_hash([Subword.__module__]),
        "sentencepiece": version("sentencepiece"),
    }


def prepare_subwords(corpus: Path, settings: Subword, train_share: float) -> Path:
    """Train the subword models of a prepared folder, on its train split (its share) alone, unless they are there yet.

    A second process waits for the first. Raises ValueError if the text does not make so many pieces.
    """
    folder = subword_folder(corpus, settings, train_share)
    with new_folder(folder) as content:
        if content is not None:
            data = load(corpus)["train"]
            shared = share_of(data, train_share)
            print(f"Training {settings} on {int(shared.sum()):,} pairs", flush=True)
            counts = [word_counts(data, side, shared) for side in SIDES]
            texts = {SHARED: counts[0] + counts[1]} if settings.shared else dict(zip(SIDES, counts, strict=True))
            checksums = {}
            for name, words in texts.items():
                model = train_model(words, settings)
                (content / f"{name}.model").write_bytes(model)
                checksums[name] = hashlib.sha256(model).hexdigest()
            write_manifest(
                content,
                subword_settings(corpus, settings, train_share) | {"models": checksums, "checksum": joint(checksums)},
            )
    return folder


def load_subwords(folder: Path) -> tuple[Vocab, Vocab]:
    """The vocabularies of both sides; one and the same where they share it. Raises ValueError for a changed file."""
    vocabs: dict[str, Vocab] = {}
    for name, checksum in read_manifest(folder)["models"].items():
        model = (folder / f"{name}.model").read_bytes()
        if (got := hashlib.sha256(model).hexdigest()) != checksum:
            raise ValueError(
                f"{folder / name}.model: got sha256 {got}, expected {checksum}. Delete {folder} and try again."
            )
        vocabs[name] = Subwords.of(model)
    source, target = (vocabs[SHARED if SHARED in vocabs else side] for side in SIDES)
    return source, target


def joint(checksums: Mapping[str, str]) -> str:
    """One checksum of several."""
    return hashlib.sha256(json.dumps(checksums, sort_keys=True).encode()).hexdigest()
