"""Translation: sentences of one language into another."""

import time
from pathlib import Path

from common.decode.beam import beam_search
from common.lit.seq2seq import Seq2Seq
from data.batch import Seq2SeqBatch, made_up_batch
from data.translation import TranslationData
from data.vocab import BOS, EOS, SPECIALS
from reproductions.config import Decode
from reproductions.evaluate import check_references, evaluate
from reproductions.tasks.base import Config, Task, Tested

TEST_SENTENCES = 7500
"""All that a row translates, about; generated data says its size."""
MEAN_SHARE = 0.55
"""Mean sentence length over the longest allowed, about."""


class Translation(Task):
    """Tested as `decode` says: see `reproductions.evaluate`."""

    module = Seq2Seq

    def sizes(self, data: TranslationData) -> dict[str, int]:
        return {"source_words": len(data.source_vocab), "target_words": len(data.target_vocab)}

    def planned_sizes(self, data: TranslationData) -> dict[str, int]:
        source, target = data.vocab_sizes
        return {"source_words": len(SPECIALS) + source, "target_words": len(SPECIALS) + target}

    def check(self, data: TranslationData, config: Config) -> None:
        check_references(data, config["decode"]["splits"])

    def made_up(self, data: TranslationData, items: int, length: int) -> Seq2SeqBatch:
        sizes = self.planned_sizes(data)
        return made_up_batch(sizes["source_words"], sizes["target_words"], items, length)

    def usual(self, data: TranslationData) -> tuple[int, int]:
        words = max(2, int(MEAN_SHARE * (data.max_words or 50)))
        batch = data.batch_size
        return (batch.size if batch.unit == "sentences" else max(1, batch.size // words)), words

    def evaluate(self, module: Seq2Seq, data: TranslationData, config: Config, folder: Path) -> Tested:
        return evaluate(module, data, Decode(**config["decode"]), folder, config["seed"])

    def test_seconds(self, module: Seq2Seq, config: Config, data: TranslationData) -> float:
        decode, (_, words) = config["decode"], self.usual(data)
        test = self.made_up(data, decode["batch"], words)
        started = time.perf_counter()
        source, mask = test.source, test.source_mask
        beam_search(module.translator, source, mask, bos=BOS, eos=EOS, beam=decode["beam"], max_len=int(words * 1.2))
        spent = time.perf_counter() - started
        generated = config["data"]["source"]
        known = "test" in generated and "test_long" in generated
        sentences = 3 * generated["test"] if known else TEST_SENTENCES
        return max(1, len(config["ensemble"])) * spent * sentences / decode["batch"]
