"""make bench-nmt: speed of the recurrent translation models, as ratios.

Everything is measured in one run, in turns; a share of the peak compares with a large matrix product of the same dtype.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor

import reproductions.bahdanau.model as bahdanau
from common import bench
from common.decode.beam import beam_search
from common.nn.attentive import attentive_step
from data.batch import Seq2SeqBatch
from data.vocab import BOS, EOS, SPECIALS
from reproductions import provenance
from reproductions.compose import job
from reproductions.dry_run import made_up_batch

BEAM_SENTENCES = 32


def nmt(config: DictConfig) -> None:
    torch.set_num_threads(config.threads)
    torch.manual_seed(0)
    size = config.vocabulary + len(SPECIALS)
    batch = made_up_batch(size, size, config.sentences, config.words)
    models = {"RNNsearch": build(config, attention=True), "RNNencdec": build(config, attention=False)}
    steps: dict[str, Callable[[], object]] = {}
    for name, model in models.items():
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        for precision in ("fp32", "bf16"):
            steps[f"{name} {precision}"] = update(model, optimizer, batch, precision)
    plain = build(config, attention=True)
    steps["RNNsearch fp32, plain loop"] = with_plain_loop(
        update(plain, torch.optim.Adam(plain.parameters(), fused=True), batch, "fp32")
    )
    peaks = {"fp32": bench.product(torch.float32), "bf16": bench.product(torch.bfloat16)}
    measured = bench.median_seconds(steps | {name: call for name, (call, _) in peaks.items()}, repeats=config.repeats)
    tokens = int(batch.target_tokens)
    print(
        f"{config.sentences} sentences of {config.words} words, {config.vocabulary} words a side, {config.threads} threads"
    )
    print(f"{'':30}{'tokens/s':>10}{'MFLOP/token':>13}{'share of peak':>15}{'x plain loop':>14}")
    for name, step in steps.items():
        precision = "bf16" if "bf16" in name else "fp32"
        flops = bench.count_flops(step)
        _, work = peaks[precision]
        share = flops / measured[name] / (work / measured[precision])
        ratio = measured["RNNsearch fp32, plain loop"] / measured[name]
        print(f"{name:30}{tokens / measured[name]:10.0f}{flops / tokens / 1e6:13.1f}{share:15.1%}{ratio:14.2f}")
    print(f"beam {config.beam}: {translations_per_second(models['RNNsearch'], config):.0f} sentences/s, RNNsearch")
    print(f"peak memory: {provenance.peak_memory('cpu') / 2**30:.2f} GiB")
    print(
        f"data loading: {loading_share(measured['RNNsearch bf16'], config.sentences, config.words):.2%} of an RNNsearch bf16 step"
    )


def build(config: DictConfig, *, attention: bool) -> bahdanau.RNNSearch:
    size = config.vocabulary + len(SPECIALS)
    return bahdanau.RNNSearch(
        size,
        size,
        attention=attention,
        embedding=config.embedding,
        hidden=config.hidden,
        alignment=config.hidden,
        maxout=config.maxout,
    )


def update(
    model: bahdanau.RNNSearch, optimizer: torch.optim.Optimizer, batch: Seq2SeqBatch, precision: str
) -> Callable[[], None]:
    """One training update, all of it."""

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = model(batch.source, batch.source_mask, batch.target_in, batch.target_mask)
        loss = torch.nn.functional.cross_entropy(logits.float(), batch.target_out[batch.target_mask])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return run


def plain_loop(y: Tensor, s: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
    """`attentive_scan` as autograd sees it, a step at a time: what the written-out gradient is measured against."""
    states, weights = [], []
    for step in y:
        s, alpha = attentive_step(step, s, *rest)
        states.append(s)
        weights.append(alpha)
    return torch.stack(states), torch.stack(weights)


def with_plain_loop(call: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        scan, bahdanau.attentive_scan = bahdanau.attentive_scan, plain_loop
        try:
            call()
        finally:
            bahdanau.attentive_scan = scan

    return run


def translations_per_second(model: bahdanau.RNNSearch, config: DictConfig) -> float:
    """Beam search to exactly `words` words, which an untrained model would not reach on its own."""
    size, words = config.vocabulary + len(SPECIALS), config.words
    batch = made_up_batch(size, size, BEAM_SENTENCES, words)

    def run() -> object:
        return beam_search(
            model,
            batch.source,
            batch.source_mask,
            bos=BOS,
            eos=EOS,
            beam=config.beam,
            max_len=words + 1,
            min_len=words,
        )

    return BEAM_SENTENCES / bench.median_seconds({"beam": run}, repeats=3)["beam"]


def loading_share(step: float, sentences: int, words: int, batches: int = 50) -> float:
    """Seconds of making a batch of generated sentences of so many words over seconds of a step."""
    lengths = [f"data.source.{name}={words}" for name in ("shortest", "longest")]
    lengths += [f"data.source.longest_long={words + 1}", "data.max_words=null"]
    row = ("experiment=bahdanau/rnnsearch_50", "scale=smoke", f"data.batch.size={sentences}", *lengths)
    config: dict[str, Any] = job(row, None).config
    data = instantiate(config["data"])
    data.prepare()
    stream = data.train_stream()
    next(stream)
    started = time.perf_counter()
    for _ in range(batches):
        next(stream)
    return (time.perf_counter() - started) / batches / step
