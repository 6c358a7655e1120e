"""Texts and documents as data, how they are scored, and rows that start from another's weights."""

from tests.mutants.fault import Fault

TEXT, MASKING, DOCUMENTS = "data/language_modeling.py", "data/masking.py", "data/documents.py"
SCORED, JOB, LIT = "reproductions/items.py", "reproductions/job.py", "common/lit/text.py"

T = "tests/data/test_language_modeling.py::"
BLOCKS = (T + "test_items_are_blocks_of_the_text_whatever_the_pieces",)
HIDDEN = (T + "test_the_same_bytes_are_hidden_whatever_the_length",)
BY_HAND = (T + "test_evaluation_by_hand",)
WORDS = ("tests/data/test_documents.py::test_words_are_the_most_frequent_of_train",)
R = "tests/repro/test_text_tasks.py::"
ITEMS = (R + "test_each_item_has_the_bits_of_its_own_scored_symbols",)
SAME = (R + "test_a_row_without_updates_is_the_other_rows_model",)
STAGED = ("tests/common/test_optim.py::test_stages_halve_the_rate_and_warm_up_in_each",)
RATES = "tests/common/metrics/test_rates.py::"

FAULTS = (
    Fault("a target is its own symbol", TEXT, "return ids[:-1], ids[1:]", "return ids[:-1], ids[:-1]", BY_HAND),
    Fault(
        "all is scored again and again",
        TEXT,
        "np.arange(len(ids) - 1) >= first",
        "np.arange(len(ids) - 1) >= 0",
        BY_HAND,
    ),
    Fault("a target belongs to the symbol before", TEXT, " + int(self.causal)\n", "\n", BLOCKS),
    Fault(
        "hidden bytes depend on the length", TEXT, "len(whole), HIDDEN_BY))", "len(whole), self.eval_length))", HIDDEN
    ),
    Fault(
        "evaluation as the first stage",
        TEXT,
        "index, len(self.staged) - 1)",
        "index, 0)",
        (T + "test_evaluation_is_as_the_last_stage",),
    ),
    Fault("one more is hidden", MASKING, "int(rate * length + 0.5)", "int(rate * length + 0.5) + 1", HIDDEN),
    Fault("words of test are known", DOCUMENTS, 'Words(stored["train"]', 'Words(stored["test"]', WORDS),
    Fault("the rarest words", DOCUMENTS, "(-counts[word], word)", "(counts[word], word)", WORDS),
    Fault("an unknown word is the first one", DOCUMENTS, "self.number.get(word, 0)", "self.number.get(word, 1)", WORDS),
    Fault("items by batch", SCORED, "nll.index_add_(0, item,", "nll.index_add_(0, item.sort()[0],", ITEMS),
    Fault("hits of the least likely", SCORED, "logits.argmax(-1) == right", "logits.argmin(-1) == right", ITEMS),
    Fault("batches behind one without a first item", SCORED, "            continue\n", "            break\n", ITEMS),
    Fault(
        "padding is scored",
        LIT,
        "self.of_all(batch)[batch.scored].float(), batch.targets[batch.scored]",
        "self.of_all(batch)[batch.real].float(), batch.targets[batch.real]",
        ITEMS,
    ),
    Fault("no warm start", JOB, "        warm(config, module.model)\n", "        pass\n", SAME),
    Fault("a rate that stays", "common/optim.py", "0.5**stage", "1.0", STAGED),
    Fault("one warm-up for all stages", "common/optim.py", "update - bounds[stage] + 1", "update + 1", STAGED),
    Fault(
        "bits are nats",
        "common/metrics/rates.py",
        "dtype=np.float64) / math.log(2)",
        "dtype=np.float64)",
        (RATES + "test_bits_are_of_all_symbols_and_not_the_mean_of_pieces",),
    ),
    Fault(
        "the mean of pieces",
        "common/metrics/rates.py",
        "math.fsum(sums) / sum(targets)",
        "float(np.mean(sums / np.asarray(targets)))",
        (RATES + "test_accuracy_is_in_percent_of_all_targets",),
    ),
    Fault(
        "modules that are chosen by name do not count",
        "data/code.py",
        'if package.endswith(".") and (start',
        "if not package and (start",
        ("tests/data/test_code.py::test_code_that_is_imported_counts",),
    ),
    Fault(
        "shards of a frozen part",
        "common/lit/training.py",
        "for name, p in self.model.named_parameters() if p._backward_hooks]",
        "for name, p in self.model.named_parameters() if p is None]",
        ("tests/common/lit/test_seq2seq.py::test_what_is_frozen_by_a_hook_is_not_sharded",),
    ),
    Fault(
        "speedup upside down",
        "reproductions/speed.py",
        "times = [f / s for",
        "times = [s / f for",
        ("tests/repro/longformer_bigbird/test_measured.py::test_updates_of_every_length_and_kind",),
    ),
    Fault(
        "memory before the update",
        "reproductions/speed.py",
        "peak_bytes(step, device=self.device)",
        "peak_bytes(int, device=self.device)",
        ("tests/repro/longformer_bigbird/test_measured.py::test_memory_of_an_update_by_length",),
    ),
)
