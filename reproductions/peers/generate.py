"""Greedy and beam search of the transformers library's Marian, a Transformer that translates, beside ours of equal shape."""

import statistics
from collections.abc import Callable

import torch

from common import bench
from common.bench.ratios import ratio
from common.decode import beam_search
from common.nn.encoder_decoder import Transformer

WORDS, SIZE, LAYERS, HEADS, INNER = 8000, 256, 3, 8, 1024
SENTENCES, LENGTH, THREADS, REPEATS = 32, 128, 2, 5
BOS, EOS, PAD = 1, 2, 0
BEAMS = (1, 4)


def theirs(source: torch.Tensor, beam: int) -> Callable[[], object]:
    from transformers import MarianConfig, MarianMTModel  # type: ignore[import-not-found]

    config = MarianConfig(
        vocab_size=WORDS,
        d_model=SIZE,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        max_position_embeddings=2 * LENGTH,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS,
    )
    model, mask = MarianMTModel(config).eval(), torch.ones_like(source)
    length = {"max_new_tokens": LENGTH, "min_new_tokens": LENGTH}

    def search() -> None:
        found = model.generate(source, attention_mask=mask, do_sample=False, num_beams=beam, **length)
        assert found.shape == (SENTENCES, 1 + LENGTH), found.shape

    return search


def ours(source: torch.Tensor, beam: int) -> Callable[[], object]:
    model = Transformer(
        WORDS, WORDS, layers=LAYERS, d_model=SIZE, d_ff=INNER, heads=HEADS, backend="sdpa", linear_bias=True
    ).eval()
    mask = torch.ones_like(source, dtype=torch.bool)

    def search() -> None:
        found = beam_search(
            model, source, mask, bos=BOS, eos=EOS, pad=PAD, beam=beam, max_len=LENGTH + 1, min_len=LENGTH
        )
        assert all(len(best[0].tokens) >= LENGTH for best in found)

    return search


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    source = torch.randint(3, WORDS, (SENTENCES, LENGTH))
    searches = {f"{who.__name__}, beam {beam}": who(source, beam) for beam in BEAMS for who in (theirs, ours)}
    timers = {name: lambda search=search: bench.seconds_of(search) for name, search in searches.items()}
    times = bench.interleaved(timers, repeats=REPEATS)
    print(
        f"{SENTENCES} sentences of {LENGTH} words to as many, {LAYERS} + {LAYERS} layers of {SIZE}, {HEADS} heads, {WORDS} words, "
        f"{THREADS} threads, medians of {REPEATS} turns"
    )
    print(f"{'':28}{'tokens/s':>10}{'x theirs':>11}{'from':>8}{'to':>8}")
    for name, seconds in times.items():
        faster = ratio(times[f"theirs, {name.split(', ')[1]}"], seconds)
        rate = SENTENCES * LENGTH / statistics.median(seconds)
        print(f"{name:28}{rate:10.0f}{faster.median:11.2f}{faster.low:8.2f}{faster.high:8.2f}")
