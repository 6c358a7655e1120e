"""Tests a trained translation model: translates the test sets, scores every sentence, keeps what a report needs."""

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common.decode.beam import beam_search
from common.decode.types import Hypothesis
from common.lit.seq2seq import Seq2Seq
from common.metrics.alignment import monotonicity
from common.metrics.bleu import bleu, check_text, chrf
from common.metrics.perplexity import perplexity
from data.bucketing import BatchSize
from data.pairs import Example
from data.text import is_blank
from data.tokenize import detokenize
from data.translation import TranslationData
from data.vocab import BOS, EOS, UNK
from reproductions.config import Decode
from reproductions.heads import drawable, write_heads
from reproductions.records import write_lines
from reproductions.tasks.base import Tested, training_nll
from reproductions.unknown_words import dictionary_of, replace_words
from reproductions.word_links import score_links

HEADS_OF = 2
"""Sentences of which the weights of every layer and head are kept."""


def evaluate(module: Seq2Seq, data: TranslationData, settings: Decode, folder: Path, seed: int) -> Tested:
    """Writes sentences/*.jsonl, alignments.json and heads.json under folder.

    Passes a test set: all sentences; the same translations with their unknown words replaced, where a dictionary is
    learnt; the translations of greedy search, where asked for; sentences without an unknown word on either side with UNK forbidden (the second column of Bahdanau's Table 1);
    and, as a control, all references against translations of *other* sentences of the same length.
    """
    module.eval()
    metrics: dict[str, dict[str, Any]] = {}
    seconds, sentences, unfinished = 0.0, 0, 0
    dictionary = dictionary_of(module, data, settings.dictionary_pairs) if settings.dictionary_pairs else None
    for split in (name for name in settings.splits if name in data.splits):
        examples = data.examples(split)
        nll, tokens = sentence_nll(module, data, split)
        started = time.perf_counter()
        chosen = translate(module, data, split, settings)
        seconds, sentences = seconds + time.perf_counter() - started, sentences + len(examples)
        unfinished += sum(not h.finished for h in chosen)
        everything = range(len(examples))
        words = [data.target_vocab.decode(hypothesis.tokens) for hypothesis in chosen]
        if dictionary is not None:
            replaced = [replace_words(e, w, h, dictionary) for e, w, h in zip(examples, words, chosen, strict=True)]
            if settings.unknown == "replace":
                words = replaced
            else:
                records = _records(data, examples, chosen, everything, nll, tokens, replaced)
                metrics |= _kept(records, folder, f"{split}.unk_replaced")
        records = _records(data, examples, chosen, everything, nll, tokens, words)
        metrics |= _kept(records, folder, split)
        metrics[f"{split}/perplexity"] = perplexity(nll=nll, tokens=tokens).recorded
        if links := score_links(module, data, split):
            link_records, error_rate = links
            metrics[f"{split}/aer"] = error_rate.recorded
            write_lines(folder / "links" / f"{split}.jsonl", link_records)

        known = [i for i, record in enumerate(records) if not record["source_unk"] + record["reference_unk"]]
        if known and data.subword is None:  # with subwords every word is known
            chosen_known = translate(module, data, split, settings, keep=known, forbid=(UNK,))
            known_words = [data.target_vocab.decode(hypothesis.tokens) for hypothesis in chosen_known]
            records = _records(data, examples, chosen_known, known, nll, tokens, known_words)
            metrics |= _kept(records, folder, f"{split}.no_unk")
        if settings.greedy:
            greedily = translate(module, data, split, settings.model_copy(update={"beam": 1}))
            greedy_words = [data.target_vocab.decode(hypothesis.tokens) for hypothesis in greedily]
            records = _records(data, examples, greedily, everything, nll, tokens, greedy_words)
            metrics |= _kept(records, folder, f"{split}.greedy")
        others = neighbours(examples)
        records = _records(
            data, examples, [chosen[j] for j in others], everything, nll, tokens, [words[j] for j in others]
        )
        metrics |= _kept(records, folder, f"{split}.shuffled")
        if split == settings.splits[0]:
            if any(hypothesis.weights is not None for hypothesis in chosen):
                (folder / "alignments.json").write_text(
                    json.dumps(_alignments(data, split, chosen, settings.heatmaps, seed))
                )
            write_heads(module, data, split, chosen, folder / "heads.json", min(HEADS_OF, settings.heatmaps))
    decode = {
        "sentences": sentences,
        "seconds": seconds,
        "sentences_per_second": sentences / max(seconds, 1e-9),
        "beam": settings.beam,
        "unfinished": unfinished,
    }
    dev, _ = sentence_nll(module, data, "dev")
    return Tested(metrics, training_nll(module, data), sum(dev) / len(dev), {"decode": decode})


def check_references(data: TranslationData, splits: Sequence[str]) -> None:
    """Raises ValueError for references that no score can be made of, before anything is trained."""
    for split in (name for name in splits if name in data.splits):
        examples = data.examples(split)
        for lines in ([e.target for e in examples], [" ".join(e.target_tokens) for e in examples]):
            try:
                check_text(lines, [lines])
            except ValueError as error:
                raise ValueError(f"{data.name}, references of {split}: {error}") from None


@torch.no_grad()
def sentence_nll(module: Seq2Seq, data: TranslationData, split: str) -> tuple[list[float], list[int]]:
    """Summed nll in nats and token count (EOS counted) of every reference, in input order, in full precision."""
    count = len(data.examples(split))
    nll, tokens = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    for batch in data.eval_batches(split):
        sums, lengths = module.item_nll(batch.to(module.device))
        nll[batch.index], tokens[batch.index] = sums.double().cpu(), lengths.cpu()
    return nll.tolist(), tokens.tolist()


def translate(
    module: Seq2Seq,
    data: TranslationData,
    split: str,
    settings: Decode,
    *,
    keep: Sequence[int] | None = None,
    forbid: Sequence[int] = (),
) -> list[Hypothesis]:
    """The best hypothesis of every sentence (of `keep`, positions in the split), in input order."""
    wanted = set(range(len(data.examples(split))) if keep is None else keep)
    blank = {i for i, example in enumerate(data.examples(split)) if is_blank(example.source)}
    found = {i: Hypothesis([], 0.0, 0.0, None, True) for i in blank & wanted}  # no model is asked about nothing
    wanted -= blank
    for batch in data.eval_batches(split, BatchSize("sentences", settings.batch)):
        rows = [row for row, i in enumerate(batch.index.tolist()) if i in wanted]
        if not rows:
            continue
        source, mask = batch.source[rows].to(module.device), batch.source_mask[rows].to(module.device)
        best = search(module, source, mask, settings, forbid)
        found.update((int(batch.index[row]), hypotheses[0]) for row, hypotheses in zip(rows, best, strict=True))
    return [found[i] for i in sorted(found)]


def search(
    module: Seq2Seq, source: Tensor, mask: Tensor, settings: Decode, forbid: Sequence[int] = (), n_best: int = 1
) -> list[list[Hypothesis]]:
    """The n_best hypotheses of each source (B, S), best first, with a length limit that grows with its words."""
    limit = (mask.sum(1) * settings.max_ratio).long() + settings.max_extra
    return beam_search(
        module.translator,
        source,
        mask,
        bos=BOS,
        eos=EOS,
        beam=settings.beam,
        max_len=limit,
        length_penalty=settings.length_penalty,
        length_rule=settings.length_rule,
        forbid=forbid,
        n_best=n_best,
    )


def neighbours(examples: Sequence[Example]) -> list[int]:
    """For every sentence another one of about the same source length: its successor when sorted by length."""
    order = sorted(range(len(examples)), key=lambda i: (len(examples[i].source_tokens), i))
    other = [0] * len(order)
    for i, j in zip(order, order[1:] + order[:1], strict=True):
        other[i] = j
    return other


def _records(
    data: TranslationData,
    examples: Sequence[Example],
    chosen: Sequence[Hypothesis],
    where: Iterable[int],
    nll: Sequence[float],
    tokens: Sequence[int],
    words: Sequence[Sequence[str]],
) -> list[dict[str, Any]]:
    """One record a sentence, without its scores; words: of each hypothesis."""
    records = []
    for i, hypothesis, of_one in zip(where, chosen, words, strict=True):
        example = examples[i]
        records.append(
            {
                "id": example.id,
                "cluster": example.cluster,
                "source": example.source,
                "reference": example.target,
                "hypothesis": detokenize(of_one, data.context.target_lang),
                "source_tokens": len(example.source_tokens),
                "source_unk": data.source_vocab.encode(example.source_tokens).count(UNK),
                "reference_unk": data.target_vocab.encode(example.target_tokens).count(UNK),
                "hypothesis_tok": " ".join(of_one),
                "reference_tok": " ".join(example.target_tokens),
                "nll": nll[i],
                "target_tokens": tokens[i],
                "truncated": not hypothesis.finished,
            }
        )
    return records


def _kept(records: list[dict[str, Any]], folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """Corpus scores by name; adds every sentence's statistics to its record and writes the records."""
    text = {
        key: [record[key] for record in records]
        for key in ("hypothesis", "reference", "hypothesis_tok", "reference_tok")
    }
    moses = bleu(hypotheses=text["hypothesis_tok"], references=[text["reference_tok"]], tokenize="none")
    plain = bleu(hypotheses=text["hypothesis"], references=[text["reference"]], tokenize="13a")
    characters = chrf(hypotheses=text["hypothesis"], references=[text["reference"]])
    for key, score in (("bleu", moses), ("bleu_detok", plain), ("chrf", characters)):
        for record, statistics in zip(records, score.statistics.tolist(), strict=True):
            record[key] = statistics
    write_lines(folder / "sentences" / f"{name}.jsonl", records)
    return {f"{name}/bleu": moses.recorded, f"{name}/bleu_detok": plain.recorded, f"{name}/chrf": characters.recorded}


def _alignments(
    data: TranslationData, split: str, chosen: Sequence[Hypothesis], heatmaps: int, seed: int
) -> dict[str, list[dict[str, Any]]]:
    """Heat maps of the first finished sentences of 8 to 16 words, and the monotonicity of every sentence."""
    drawn, monotone = [], []
    for i, (example, hypothesis) in enumerate(zip(data.examples(split), chosen, strict=True)):
        if hypothesis.weights is None:
            continue
        weights = hypothesis.weights.double().cpu().numpy()[: len(hypothesis.tokens)]
        weights = distributions(weights)
        if len(weights) >= 2:
            statistic, null = monotonicity(weights, seed=(seed, i))
            monotone.append({"id": example.id, "cluster": example.cluster, "statistic": statistic, "null": null})
        if len(drawn) < heatmaps and drawable(example, hypothesis):
            drawn.append(
                {
                    "id": example.id,
                    "source": [*data.source_vocab.split(example.source_tokens), "</s>"],
                    "target": data.target_vocab.units(hypothesis.tokens),
                    "weights": np.round(weights, 4).tolist(),
                }
            )
    return {"alignments": drawn, "monotone": monotone}


def distributions(weights: np.ndarray) -> np.ndarray:
    """Rows that sum to 1: local attention leaves less (its Gaussian is not normalised), or nothing outside its window."""
    total = weights.sum(1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / weights.shape[1])
