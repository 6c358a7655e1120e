"""A finished run's weights for fewer heads of keys and values: what is written, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from torch import nn

from common.nn.fewer_heads import converted, grouped_attentions
from common.nn.latent import Latent
from common.nn.long import LanguageModel
from reproductions import dry_run
from reproductions.compose import Job, job
from reproductions.config import requested
from reproductions.convert import Request, convert, load, main, refuse, with_kv_heads
from reproductions.job import run


@pytest.fixture(scope="module")
def tested(tiny: Callable[..., Job]) -> Job:
    """Four heads."""
    made = tiny("data.subword.size=90", "model.heads=4", paper="transformer", row="base")
    run(made.config, made.folder, [])
    return made


def state_of(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "tested.ckpt", weights_only=False)["state_dict"]


@pytest.mark.parametrize(("kv_heads", "how"), [(2, "mean"), (1, "first")])
def test_the_file_holds_what_the_conversion_gives(
    tested: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], kv_heads: int, how: Any
) -> None:
    out = tmp_path / "new" / "fewer.ckpt"
    assert main([f"run={tested.folder}", f"kv_heads={kv_heads}", f"how={how}", f"out={out}"]) == 0
    stored = torch.load(out, weights_only=False)
    assert stored["config"]["model"]["kv_heads"] == kv_heads and stored["config"]["row"] == tested.config["row"]
    run_itself, data, _ = load(tested.folder)
    module = dry_run.build(stored["config"], data)
    module.load_state_dict(stored["state_dict"])
    assert {part.kv_heads for part in grouped_attentions(module.model).values()} == {kv_heads}
    given = {name.removeprefix("model."): t for name, t in state_of(tested.folder).items()}
    wanted = converted(given, module.model, how)
    assert all(torch.equal(stored["state_dict"][f"model.{name}"], t) for name, t in wanted.items())
    before, after = (sum(p.numel() for p in m.model.parameters()) for m in (run_itself, module))
    said = capsys.readouterr().out
    assert said.startswith(
        f"wrote {out}: {after:,} weights, {before - after:,} fewer than {tested.folder}; 6 tensors of "
    )
    assert before - after == 3 * 2 * 32 * 8 * (4 - kv_heads), "three attentions, keys and values of heads of 8"
    assert list(out.parent.iterdir()) == [out]


def test_as_many_heads_are_the_run_itself(tested: Job) -> None:
    module, data, config = load(tested.folder)
    again = convert(module, data, with_kv_heads(config, 4), "mean")
    assert again.state_dict().keys() == module.state_dict().keys()
    assert all(torch.equal(again.state_dict()[name], t) for name, t in module.state_dict().items())


def test_random_heads_are_drawn_by_the_runs_seed(tested: Job) -> None:
    module, data, config = load(tested.folder)
    torch.manual_seed(5)
    first = convert(module, data, with_kv_heads(config, 2), "random").state_dict()
    torch.manual_seed(6)
    second = convert(module, data, with_kv_heads(config, 2), "random").state_dict()
    mean = convert(module, data, with_kv_heads(config, 2), "mean").state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    differ = {name.split(".")[-2] for name in first if not torch.equal(first[name], mean[name])}
    assert differ == {"w_k", "w_v"}


def test_only_the_attentions_that_are_named(tested: Job) -> None:
    """As in Ainslie et al. 2023, section 3.1: none of the encoder."""
    module, data, config = load(tested.folder)
    made = convert(module, data, with_kv_heads(config, 1, ["decoder", "cross"]), "mean")
    heads = {name.split(".")[0]: part.kv_heads for name, part in grouped_attentions(made.model).items()}
    assert heads == {"encoder": 4, "decoder": 1}


def test_a_language_models_layers_take_them_too() -> None:
    config = job(("experiment=performer_linformer/uni_transformer", "scale=smoke"), None).config
    changed = with_kv_heads(config, 1)
    assert "kv_heads" not in config["model"]["attention"] and changed["model"]["attention"]["kv_heads"] == 1
    data = instantiate(config["data"])
    many, few = (dry_run.build(one, data) for one in (config, changed))
    assert {part.kv_heads for part in grouped_attentions(few.model).values()} == {1}
    few.model.load_state_dict(converted(many.model.state_dict(), few.model, "mean"))


def test_feed_forward_layers_are_no_wider_for_it() -> None:
    config = job(("experiment=performer_linformer/uni_transformer", "scale=smoke", "+model.match=params"), None).config
    assert with_kv_heads(config, 1)["model"]["match"] == "none"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_heads": "4"}, "kv_heads: got 4, expected a divisor of the 4 that"),
        ({"kv_heads": "8"}, "kv_heads: got 8, expected a divisor of the 4 that"),
        ({"kv_heads": "3"}, "kv_heads: got 3, expected a divisor of the 4 that"),
        ({"kv_heads": "0"}, "kv_heads: Input should be greater than 0, got '0'"),
        ({"how": "last"}, "how: Input should be 'mean', 'first' or 'random', got 'last'"),
        ({"grouped": "middle"}, "grouped: Input should be 'encoder', 'decoder' or 'cross', got 'middle'"),
        ({"kv_head": "2"}, "no key 'kv_head'; near: kv_heads"),
        ({"run": "runs/none"}, "runs/none has no config.yaml: expected the folder of a finished run"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_written(
    tested: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], message: str
) -> None:
    out = tmp_path / "fewer.ckpt"
    given = {"run": str(tested.folder), "kv_heads": "2", "how": "mean", "out": str(out)} | changes
    assert main([f"{key}={value}" for key, value in given.items()]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}") and not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_left_alone(tested: Job, capsys: pytest.CaptureFixture[str]) -> None:
    out = tested.folder / "tested.ckpt"
    before = out.read_bytes()
    assert main([f"run={tested.folder}", "kv_heads=2", "how=mean", f"out={out}"]) == 2
    assert "which is there already, expected a new file" in capsys.readouterr().err and out.read_bytes() == before


def test_runs_without_such_attention_are_refused(tested: Job, tmp_path: Path) -> None:
    latent = LanguageModel(9, 1, 8, 2, 8, attention=Latent(backend="reference", causal=True, latent=4, rotary_dim=2))
    for model in (nn.LSTM(2, 2), latent):
        with pytest.raises(ValueError, match="somewhere has no attention whose keys and values could have fewer heads"):
            refuse(SimpleNamespace(model=model), Path("somewhere"), 1)  # type: ignore[arg-type]
    recurrent = job(("experiment=bahdanau/rnnsearch_50", "scale=smoke"), None).config
    with pytest.raises(ValueError, match="RNNSearch takes none in this run"):
        with_kv_heads(recurrent, 1)
    (tmp_path / "config.yaml").write_text("ensemble: [a]\n")
    (tmp_path / "result.json").write_text(json.dumps({}))
    with pytest.raises(ValueError, match="is an ensemble, expected a run with weights of its own"):
        load(tmp_path)


def test_the_command_line_is_four_choices() -> None:
    request = requested(Request, ["run=a", "kv_heads=2", "how=mean", "out=b"])
    assert request == Request(run=Path("a"), kv_heads=2, how="mean", out=Path("b"))
    with pytest.raises(ValueError, match="out: Field required, got 'nothing'"):
        requested(Request, ["run=a", "kv_heads=2", "how=mean"])
