"""Translation data for Lightning: prepared once, encoded in memory, read as an endless stream of batches."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.batch import Seq2SeqBatch
from data.bucketing import BatchSize, Ints, Plan, epoch_batches, sorted_batches
from data.corpus import Corpus, load_corpus
from data.fetch import Download, read_manifest
from data.pairs import Counts, Example, describe
from data.prepare import cache_folder, prepare, prepared_folder
from data.sources.base import Context, Source
from data.stream import EpochData, Item, recorded
from data.subword_models import joint, load_subwords, prepare_subwords, subword_folder
from data.subwords import Subword
from data.vocab import Vocab


class TranslationData(EpochData[Seq2SeqBatch]):
    """Pairs of a source, as batches.

    `source_vocab_size` and `target_vocab_size` are the most frequent words of the whole train split, before the limit
    of `max_words`, so that all rows of a table share their vocabularies; special ids are not counted.
    `subword` is None or {kind: bpe | unigram, size, shared}, see `data.subwords`: ids are then pieces of words, of a model
    of the same text as the words' list; both vocabulary sizes must be its size. What counts tokens (batches, budgets,
    perplexities) then counts pieces.
    `max_words` limits both sides of training pairs (the paper's 30 or 50), EOS not counted; None: no limit. It counts
    words, of subwords too, so that rows of words and of subwords train on the same pairs. Dev and test sets are always
    whole.
    `batch` is {unit: sentences | tokens, size}, see `data.bucketing`; `pool_batches` batches are sorted together.
    `train_share` keeps that share of the training documents, a smaller share inside a larger one.
    `cache` is the folder of all data; None: $ATTN_DATA, or the user's cache folder.
    """

    corpus: Corpus

    def __init__(
        self,
        name: str,
        source: Source,
        source_lang: str,
        target_lang: str,
        source_vocab_size: int,
        target_vocab_size: int,
        max_words: int | None,
        batch: Mapping[str, Any],
        pool_batches: int,
        seed: int,
        train_share: float = 1.0,
        allow_newer: bool = False,
        cache: str | None = None,
        subword: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not 0 < train_share <= 1:
            raise ValueError(f"data.train_share: got {train_share}, expected more than 0 and at most 1")
        if (max_words is not None and max_words < 1) or pool_batches < 1:
            raise ValueError(f"got max_words {max_words} and pool_batches {pool_batches}, expected at least 1")
        self.subword = None if subword is None else Subword(**subword)
        if self.subword and {source_vocab_size, target_vocab_size} != {self.subword.size}:
            raise ValueError(
                f"data.source_vocab_size, data.target_vocab_size: got {source_vocab_size} and {target_vocab_size}, expected "
                f"{self.subword.size} twice, the size of data.subword"
            )
        self.name = name
        self.pairs = source
        self.context = Context(cache_folder(cache), source_lang, target_lang, allow_newer)
        self.vocab_sizes = source_vocab_size, target_vocab_size
        self.max_words = max_words
        self.batch_size = BatchSize(**batch)
        self.pool_batches = pool_batches
        self.seed = seed
        self.train_share = train_share

    # Preparation

    def to_fetch(self) -> list[Download]:
        return self.pairs.downloads(self.context)

    def left(self) -> str:
        return "" if self.prepared else f"; {self.subword} to be trained"

    @property
    def folder(self) -> Path:
        return prepared_folder(self.name, self.pairs, self.context)

    @property
    def subword_folder(self) -> Path | None:
        """Where the subword models lie, known once the pairs are prepared; None for words."""
        return subword_folder(self.folder, self.subword, self.train_share) if self.subword else None

    @property
    def prepared(self) -> bool:
        """Whether nothing is left to be prepared."""
        return self.folder.exists() and (self.subword_folder is None or self.subword_folder.exists())

    def prepare_data(self) -> None:
        folder = prepare(self.name, self.pairs, self.context)
        if self.subword:
            prepare_subwords(folder, self.subword, self.train_share)

    @cached_property
    def manifests(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Those of the prepared pairs and of the subword models, if there are any."""
        models = self.subword_folder
        return read_manifest(self.folder), models and read_manifest(models)

    def setup(self, stage: str | None = None) -> None:
        if not hasattr(self, "corpus"):
            _ = self.manifests  # now, since whoever trains for days may find the folders gone
            subwords = load_subwords(self.subword_folder) if self.subword_folder else None
            self.corpus = load_corpus(self.folder, self.vocab_sizes, self.max_words, self.train_share, subwords)

    @property
    def source_vocab(self) -> Vocab:
        return self.corpus.source_vocab

    @property
    def target_vocab(self) -> Vocab:
        return self.corpus.target_vocab

    @property
    def text_checksum(self) -> str:
        """sha256 over the prepared pairs of all splits and their tokens, hex."""
        return self.manifests[0]["checksum"]

    @property
    def checksum(self) -> str:
        """That of the text; of the text and the subword models where there are any."""
        models = self.manifests[1]
        return joint({"text": self.text_checksum, "subwords": models["checksum"]}) if models else self.text_checksum

    @property
    def counts(self) -> Counts:
        return self.corpus.counts

    @property
    def record(self) -> dict[str, Any]:
        """What to say of the data wherever a number on it is shown: name, source, licence, domain, counts, origin; with
        subwords also what they are, and the checksum of the text alone, by which rows of words and of subwords compare."""
        said = recorded(self.corpus.manifest, self.counts)
        if (models := self.manifests[1]) is None:
            return said
        library = f"sentencepiece {models['sentencepiece']}"
        subwords = models["subword"] | {"checksum": models["checksum"], "library": library}
        return said | {"text_checksum": self.text_checksum, "subwords": subwords}

    @property
    def splits(self) -> list[str]:
        return list(self.corpus.splits)

    def examples(self, split: str) -> list[Example]:
        """The pairs of a split; `index` of a batch counts in this list. Train: only those trained on."""
        return self.corpus.splits[split].examples()

    def size(self, split: str) -> int:
        return len(self.corpus.splits[split].rows)

    def items(self, split: str) -> list[Item]:
        """Pairs by the length of their sources in words."""
        return [Item(pair.id, pair.cluster, len(pair.source_tokens)) for pair in self.examples(split)]

    def describe(self) -> str:
        """What was read, left out and kept, and how batches are cut, in a line."""
        return f"{self.name}: {describe(self.counts)}; {f'{self.subword}; ' if self.subword else ''}{self.batch_size}"

    # Batches

    def make_plan(self, epoch: int) -> Plan:
        train = self.corpus.splits["train"].encoded
        lengths = train.source.lengths, train.target.lengths
        return epoch_batches(*lengths, self.batch_size, self.pool_batches, self.seed, epoch)

    def train_batch(self, rows: Ints) -> Seq2SeqBatch:
        return self.corpus.splits["train"].encoded.batch(rows)

    @property
    def train_targets(self) -> Ints:
        """Real target tokens of each training pair, EOS counted."""
        return self.corpus.splits["train"].encoded.target.lengths

    def eval_batches(self, split: str, batch: BatchSize | None = None) -> Iterator[Seq2SeqBatch]:
        """Every pair of the split once, the longest first; `index` says which it is. `batch` None: as in training.

        A pair whose source is blank comes too, as a lone EOS.
        """
        return self.batches_of(split, np.arange(self.size(split)), batch or self.batch_size)

    def batches_of(self, split: str, rows: NDArray[np.int64], batch: BatchSize) -> Iterator[Seq2SeqBatch]:
        """These pairs of a split once, the longest first; `index` counts in the whole split."""
        encoded = self.corpus.splits[split].encoded
        plan = sorted_batches(encoded.source.lengths[rows], encoded.target.lengths[rows], batch)
        return (encoded.batch(rows[plan[k]]) for k in range(len(plan)))
