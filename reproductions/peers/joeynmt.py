"""Training updates of joeynmt 2.3.0 (Kreutzer et al. 2019) beside ours, at equal shapes, in turns.

Both sides get the same random sentences, the same clipping and Adam; shapes are those of `make bench-nmt`.
"""

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from common import bench
from common.bench.ratios import ratio
from common.bench.update import update
from data.batch import made_up_batch
from data.vocab import BOS, EOS, PAD, SPECIALS, UNK
from reproductions.shapes import Shapes, recurrent, transformer, vocabulary_size

SHAPES = Path(__file__).parents[2] / "conf" / "bench" / "nmt.yaml"


def joeynmt(shapes: Shapes, kind: str) -> nn.Module:
    """Its model of the same shape: kind recurrent (bidirectional GRU, additive attention, input feeding) or transformer."""
    from joeynmt.model import build_model  # type: ignore[import-not-found]
    from joeynmt.vocabulary import Vocabulary  # type: ignore[import-not-found]

    # The order that it wants; the sentences have no padding, and which id ends them costs nothing.
    order = (UNK, PAD, BOS, EOS)
    names = ("unk", "pad", "bos", "eos")
    tokens = {f"{name}_token": SPECIALS[i] for name, i in zip(names, order, strict=True)}
    ids = {f"{name}_id": place for place, name in enumerate(names)}
    specials = SimpleNamespace(**tokens, **ids, lang_tags=[], sep_token=None, sep_id=None)
    vocabularies = [Vocabulary([f"{side}{i}" for i in range(shapes["vocabulary"])], specials) for side in "st"]
    part = recurrent_part(shapes) if kind == "recurrent" else transformer_part(shapes["transformer"])
    settings = {"initializer": "xavier_uniform", "tied_embeddings": False, "tied_softmax": kind == "transformer"}
    model = build_model(settings | {"encoder": part["encoder"], "decoder": part["decoder"]}, *vocabularies)
    model.loss_function = ("crossentropy", 0.0)
    return model


def recurrent_part(shapes: Shapes) -> dict[str, Any]:
    both = {
        "type": "recurrent",
        "rnn_type": "gru",
        "num_layers": 1,
        "hidden_size": shapes["hidden"],
        "embeddings": {"embedding_dim": shapes["embedding"], "scale": False, "dropout": 0.0},
        "dropout": 0.0,
    }
    decoder = {"hidden_dropout": 0.0, "input_feeding": True, "init_hidden": "bridge", "attention": "bahdanau"}
    return {"encoder": both | {"bidirectional": True}, "decoder": both | decoder}


def transformer_part(shape: Mapping[str, int]) -> dict[str, Any]:
    both = {
        "type": "transformer",
        "num_layers": shape["layers"],
        "num_heads": shape["heads"],
        "hidden_size": shape["d_model"],
        "ff_size": shape["d_ff"],
        "embeddings": {"embedding_dim": shape["d_model"], "scale": True, "dropout": 0.0},
        "dropout": 0.0,
        "layer_norm": "post",
    }
    return {"encoder": both, "decoder": both}


def joeynmt_update(model: nn.Module, source: Tensor, target: Tensor, target_in: Tensor) -> Callable[[], None]:
    """One training update as its trainer makes it, without its logging."""
    optimizer = torch.optim.Adam(model.parameters())
    mask = torch.ones(len(source), 1, source.shape[1], dtype=torch.bool)
    given = {
        "src": source,
        "src_mask": mask,
        "src_length": torch.full((len(source),), source.shape[1]),
        "trg_input": target_in,
        "trg": target,
        "trg_mask": torch.ones(len(target), 1, target.shape[1], dtype=torch.bool),
    }

    def run() -> None:
        loss, *_ = model(return_type="loss", **given)
        optimizer.zero_grad()
        (loss.sum() / target.numel()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return run


def main() -> None:
    shapes: Shapes = yaml.safe_load(SHAPES.read_text(encoding="utf-8"))
    torch.set_num_threads(shapes["threads"])
    torch.manual_seed(0)
    size = vocabulary_size(shapes)
    batch = made_up_batch(size, size, shapes["sentences"], shapes["words"])
    ours = {"recurrent": recurrent(shapes, attention=True), "transformer": transformer(shapes)}
    steps: dict[str, Callable[[], object]] = {}
    parameters: dict[str, int] = {}
    for kind, model in ours.items():
        theirs = joeynmt(shapes, kind).train()
        steps[f"{kind}: joeynmt"] = joeynmt_update(theirs, batch.source, batch.target_out, batch.target_in)
        parameters[f"{kind}: joeynmt"] = count(theirs)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        for precision in ("fp32", "bf16"):
            steps[f"{kind}: ours, {precision}"] = update(model, optimizer, batch, precision)
            parameters[f"{kind}: ours, {precision}"] = count(model)
    timers = {name: lambda step=step: bench.seconds_of(step) for name, step in steps.items()}
    times = bench.interleaved(timers, repeats=shapes["repeats"])
    tokens = int(batch.target_tokens)
    print(
        f"{shapes['sentences']} sentences of {shapes['words']} words, {shapes['vocabulary']} words a side, "
        f"{shapes['threads']} threads, medians of {shapes['repeats']} turns"
    )
    print(f"{'':28}{'parameters':>12}{'tokens/s':>10}{'x joeynmt':>11}{'from':>8}{'to':>8}")
    for name in steps:
        peer = times[f"{name.partition(':')[0]}: joeynmt"]
        faster = ratio(peer, times[name])
        print(
            f"{name:28}{parameters[name]:12,}{tokens / statistics.median(times[name]):10.0f}"
            f"{faster.median:11.2f}{faster.low:8.2f}{faster.high:8.2f}"
        )


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
