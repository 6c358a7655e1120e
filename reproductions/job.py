"""One job: train one row with one seed, test it, leave result.json and everything a report reads beside it."""

import json
import os
import shutil
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from hydra.utils import instantiate
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.strategies import ModelParallelStrategy
from torch import nn

from common.callbacks.average import Average, averaged_updates
from common.callbacks.curves import Curves
from common.callbacks.last import Last
from common.callbacks.progress import Progress
from common.callbacks.spent import Spent
from common.callbacks.whole import Whole
from common.lit.training import Diverged, Trained
from data.stream import StreamData
from reproductions import provenance
from reproductions.ensemble import load_members, warm, weights_of
from reproductions.flops import flops_per_token
from reproductions.records import write_json
from reproductions.tasks.base import Task, Tested

Config = dict[str, Any]
FSDP = "fsdp"
FLOPS_FROM = 8
"""Training batches whose FLOPs are counted, evenly spread, as a later stage may have longer sequences."""
KEPT = ("previous", "log.txt", "progress.json", ".lock")
"""What stays in a job's folder when it is cleared."""


def task_of(config: Config) -> Task:
    return instantiate(config["task"])


def build(config: Config, data: StreamData) -> Trained:
    """The module of a row; its weights are a function of the seed."""
    torch.manual_seed(config["seed"])
    updates, tokens = config["budget"]["updates"], config["budget"]["target_tokens"]
    total = data.steps_for_tokens(tokens) if updates is None else updates
    return build_module(config, task_of(config).sizes(data), total=total, dev=data.size("dev"))


def build_module(config: Config, sizes: Mapping[str, int], *, total: int, dev: int) -> Trained:
    """sizes: `Task.sizes`; dev: items of the dev set."""
    return as_module(instantiate(config["model"], **sizes), config, total=total, dev=dev)


def as_module(model: nn.Module, config: Config, *, total: int, dev: int) -> Trained:
    optim = config["optim"]
    return task_of(config).module(
        model,
        optimizer=instantiate(optim["optimizer"]),
        schedule=instantiate(optim["schedule"]),
        total_updates=total,
        clip_norm=optim["clip_norm"],
        dev_items=dev,
        seed=config["seed"],
        label_smoothing=optim.get("label_smoothing", 0.0),
        penalty=instantiate(optim.get("penalty")),
    )


def run(config: Config, folder: Path, ablation: list[str]) -> None:
    """Train, test, write result.json. What a killed run had reached is used; a failure is a result as well."""
    folder.mkdir(parents=True, exist_ok=True)
    if not first_process():
        train(config, folder, {}, Spent())
        return
    head = provenance.head(config, ablation)
    spent = Spent(lambda: provenance.peak_memory(config["trainer"]["accelerator"]))
    result: dict[str, Any] = {}
    try:
        result = test_members(config, folder) if config["ensemble"] else train_and_test(config, folder, head, spent)
    except Exception as error:
        result = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
        keep_finished(folder)
        (folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        raise
    finally:
        if result:
            write_json(folder / "result.json", head | result | spent.facts())
        if config["logger"]["kind"] == "wandb":
            from reproductions.log_wandb import finish_row

            finish_row(folder, head["paper"], head["scale"])


def first_process() -> bool:
    """False in the further processes of distributed training, which train along and leave everything else to the first."""
    return os.environ.get("LOCAL_RANK", "0") == "0" and os.environ.get("NODE_RANK", "0") == "0"


def train(
    config: Config, folder: Path, identity: dict[str, str], spent: Spent
) -> tuple[Trained, StreamData, Curves, Average]:
    """Fit a row, from its last checkpoint if there is one of the same identity (and data)."""
    torch.set_num_threads(config["trainer"]["threads"])
    data: StreamData = instantiate(config["data"])
    data.prepare()
    task_of(config).check(data, config)
    module = build(config, data)
    if config["warm_start"]:
        warm(config, module.model)
    if first_process():
        resume = resumable(folder, identity | {"data_checksum": data.checksum}, fresh=config["fresh"])
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        (folder / "config.yaml").write_text(text, encoding="utf-8")
    else:  # the first process has cleared what is not to be used before it started this one
        resume = folder / "last.ckpt" if (folder / "last.ckpt").exists() else None
    curves, average = Curves(folder / "curves.csv", every=50), averaging(config, module.total_updates)
    end = Whole()
    at_end = [end] if config["trainer"]["strategy"] == FSDP else []
    trainer = make_trainer(config, folder, module, [curves, spent, average, *at_end])
    if module.total_updates:
        try:
            trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=False)
        except Diverged:
            if config["checkpoint"]["diverged"] == "fail":
                raise
    if at_end:
        module = build(config, data)  # of whole weights again
        module.load_state_dict(end.state)
    module.to(trainer.strategy.root_device)  # Lightning leaves it on the CPU
    return module, data, curves, average


def train_and_test(config: Config, folder: Path, head: dict[str, Any], spent: Spent) -> dict[str, Any]:
    members = weights_of(config)
    identity = {key: head[key] for key in ("config_hash", "source_hash")} | members
    module, data, curves, average = train(config, folder, identity, spent)
    best = load_tested_weights(config, folder, module, average)
    tested = task_of(config).evaluate(module, data, config, folder)
    facts = training_facts(data, module, curves, best)
    per_token = flops_per_token(module, over_training(data, module.total_updates))
    facts |= {"flops_per_token": per_token, "flops": per_token * facts["target_tokens"]}
    for name in ("last.ckpt", "best.ckpt"):
        (folder / name).unlink(missing_ok=True)
    result = result_of(tested, module, data) | {"members": members}
    return result | {"train": facts | result["train"]}


def over_training(data: StreamData, updates: int) -> Iterator[Any]:
    for i in range(FLOPS_FROM):
        yield next(data.train_stream(i * updates // FLOPS_FROM))


def result_of(tested: Tested, module: Trained, data: StreamData) -> dict[str, Any]:
    """What result.json tells of a row that was tested, trained or not."""
    return {
        "status": "ok",
        "data_checksum": data.checksum,
        "metrics": tested.metrics,
        "parameters": sum(p.numel() for p in module.parameters()),
        "train": {"train_nll": tested.train_nll, "dev_nll": tested.dev_nll},
        "data": data.record,
        **tested.facts,
    }


def test_members(config: Config, folder: Path) -> dict[str, Any]:
    """An ensemble of finished rows: nothing is trained."""
    torch.set_num_threads(config["trainer"]["threads"])
    members = weights_of(config)
    put_aside(folder)
    data: StreamData = instantiate(config["data"])
    data.prepare()
    module = as_module(load_members(config, data), config, total=1, dev=data.size("dev"))
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    tested = task_of(config).evaluate(module, data, config, folder)
    return result_of(tested, module, data) | {"members": members}


def make_trainer(config: Config, folder: Path, module: Trained, watching: list[pl.Callback]) -> pl.Trainer:
    """A Lightning Trainer from config: as many updates as the budget of target tokens makes, then it stops."""
    trainer, checkpoint = config["trainer"], config["checkpoint"]
    check_every = max(1, module.total_updates // checkpoint["dev_checks"])
    callbacks = [
        Progress(folder / "progress.json", module.total_updates),
        *watching,
        ModelCheckpoint(
            dirpath=folder,
            enable_version_counter=False,
            filename="best",
            monitor="dev_nll",
            mode="min",
            save_top_k=1,
            save_weights_only=True,
        ),
        Last(folder / "last.ckpt", checkpoint["every"], check_every),
    ]
    return pl.Trainer(
        accelerator=trainer["accelerator"],
        devices=trainer["devices"],
        num_nodes=trainer["num_nodes"],
        strategy=strategy_of(trainer),
        precision=trainer["precision"],
        accumulate_grad_batches=trainer["accumulate"],
        max_steps=module.total_updates,
        max_epochs=-1,
        val_check_interval=check_every * trainer["accumulate"],
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        callbacks=callbacks,
        logger=loggers(config, folder),
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=50,
    )


def strategy_of(trainer: Config) -> Any:
    """Lightning's by name; fsdp: weights, gradients and the optimiser's state in shards, one for each process."""
    if trainer["strategy"] != FSDP:
        return trainer["strategy"]
    processes = trainer["devices"] * trainer["num_nodes"]
    return ModelParallelStrategy(processes, tensor_parallel_size=1, save_distributed_checkpoint=False)


def loggers(config: Config, folder: Path) -> Any:
    if config["logger"]["kind"] != "wandb" or not first_process():
        return False
    from reproductions.log_wandb import row_logger

    return row_logger(config, folder)


def averaging(config: Config, total: int) -> Average:
    """Adds up weights where the checkpoint rule asks for their mean, else none."""
    rule, settings = config["checkpoint"]["rule"], config["checkpoint"]["average"]
    return Average(averaged_updates(total, **settings) if rule == "average" else ())


def load_tested_weights(config: Config, folder: Path, module: Trained, average: Average) -> dict[str, Any]:
    """Loads the weights that the checkpoint rule names, keeps them as tested.ckpt and returns which they are."""
    if config["checkpoint"]["rule"] == "best_dev_nll":
        best = torch.load(folder / "best.ckpt", weights_only=False)
        module.load_state_dict(best["state_dict"])
        update = best["global_step"]
    else:
        update = module.updates_made
        if config["checkpoint"]["rule"] == "average":
            average.load_mean(module)
    torch.save({"state_dict": module.state_dict()}, folder / "tested.ckpt")
    return {"rule": config["checkpoint"]["rule"], "update": update}


def training_facts(data: StreamData, module: Trained, curves: Curves, tested: dict[str, Any]) -> dict[str, Any]:
    """What Table 2 tells of a row's training."""
    return {
        "updates": module.updates_made,
        "epochs": data.epochs(module.updates_made),
        "items": data.size("train"),
        "target_tokens": curves.total_tokens,
        "seconds": curves.total_seconds,
        "tokens_per_second": curves.total_tokens / max(curves.total_seconds, 1e-9),
        "tested_update": tested["update"],
        "checkpoint_rule": tested["rule"],
        **({} if module.diverged_at is None else {"diverged_at": module.diverged_at}),
    }


def resumable(folder: Path, identity: dict[str, str], fresh: bool = False) -> Path | None:
    """The checkpoint to go on from, if it was made by the same configuration, source and data; else all is cleared."""
    mark, checkpoint = folder / "identity.json", folder / "last.ckpt"
    if not fresh and mark.exists() and json.loads(mark.read_text()) == identity and checkpoint.exists():
        return checkpoint
    put_aside(folder)
    write_json(mark, identity)
    return None


def put_aside(folder: Path) -> None:
    """Clears the folder for a new run; an earlier finished result goes to previous/."""
    keep_finished(folder)
    for path in folder.iterdir():
        if path.name in KEPT:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def keep_finished(folder: Path) -> None:
    """Moves a finished result to previous/, so that a failure of the new run loses nothing."""
    result = folder / "result.json"
    if not result.is_file() or json.loads(result.read_text())["status"] != "ok":
        return
    previous = folder / "previous"
    shutil.rmtree(previous, ignore_errors=True)
    previous.mkdir()
    for path in folder.iterdir():
        if path.name not in KEPT:
            path.rename(previous / path.name)
