"""make bench-nmt: speed of translation models, recurrent and Transformer, as ratios.

Everything is measured in one run, in turns; a share of the peak compares with a large matrix product of the same dtype.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor

import reproductions.bahdanau.model as bahdanau
from common import bench
from common.bench.update import update
from common.decode.beam import beam_search
from common.decode.types import StepModel
from common.nn.attentive import attentive_step
from common.nn.encoder_decoder import Transformer
from common.nn.no_cache import NoCache
from data.batch import made_up_batch
from data.vocab import BOS, EOS
from reproductions import provenance
from reproductions.compose import job
from reproductions.shapes import recurrent, transformer, vocabulary_size

BEAM_SENTENCES = 32


def nmt(config: DictConfig) -> None:
    torch.set_num_threads(config.threads)
    torch.manual_seed(0)
    size = vocabulary_size(config)
    batch = made_up_batch(size, size, config.sentences, config.words)
    models = {
        "RNNsearch": recurrent(config, attention=True),
        "RNNencdec": recurrent(config, attention=False),
        "Transformer": transformer(config),
    }
    steps: dict[str, Callable[[], object]] = {}
    for name, model in models.items():
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        for precision in ("fp32", "bf16"):
            steps[f"{name} {precision}"] = update(model, optimizer, batch, precision)
    plain = recurrent(config, attention=True)
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
    compare_decoding(models, config)
    print(f"peak memory: {provenance.peak_memory('cpu') / 2**30:.2f} GiB")
    print(
        f"data loading: {loading_share(measured['RNNsearch bf16'], config.sentences, config.words):.2%} of an RNNsearch bf16 step"
    )


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


def compare_decoding(models: Mapping[str, torch.nn.Module], config: DictConfig) -> None:
    """Prints sentences/s of greedy and beam search, and of the Transformer also without its cache: the decoder computed
    anew over all words at each step. Sentences are decoded to exactly `words` words, which untrained models would not
    reach by themselves."""
    size, length = vocabulary_size(config), config.words
    batch = made_up_batch(size, size, BEAM_SENTENCES, length)
    contestants: dict[str, StepModel] = {
        "RNNsearch": cast(StepModel, models["RNNsearch"].eval()),
        "Transformer": cast(StepModel, models["Transformer"].eval()),
        "Transformer, no cache": NoCache(cast(Transformer, models["Transformer"])),
    }

    def decoding(model: StepModel, beam: int) -> Callable[[], object]:
        return lambda: beam_search(
            model,
            batch.source,
            batch.source_mask,
            bos=BOS,
            eos=EOS,
            beam=beam,
            max_len=length + 1,
            min_len=length,
        )

    print(f"{'sentences/s':30}{'greedy':>10}{f'beam {config.beam}':>10}{'x no cache':>24}")
    beams = (1, config.beam)
    seconds = bench.median_seconds(
        {f"{name}/{beam}": decoding(model, beam) for name, model in contestants.items() for beam in beams},
        repeats=config.repeats,
    )
    for name in contestants:
        rates = "".join(f"{BEAM_SENTENCES / seconds[f'{name}/{beam}']:10.1f}" for beam in beams)
        slower = [seconds[f"Transformer, no cache/{beam}"] / seconds[f"{name}/{beam}"] for beam in beams]
        print(f"{name:30}{rates}" + (f"{slower[0]:12.2f}{slower[1]:12.2f}" if name == "Transformer" else ""))


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
