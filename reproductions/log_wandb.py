"""W&B as a view of what lies in runs/: one run a row and seed, and one a published row so that charts overlay."""

import json
import sys
from pathlib import Path
from typing import Any

import wandb
from pytorch_lightning.loggers import WandbLogger

from common.report.lengths import Bins
from common.report.measures import METRICS, Field, Measure
from common.report.published import Table, load_published
from common.report.render import text
from common.report.render.heatmap import heatmap
from common.report.results import Run, read_run
from common.report.sentences import Items
from reproductions.provenance import source_hash
from reproductions.report import make_report

ROOT = Path(__file__).resolve().parent.parent
SHOWN = {"sentences": ("id", "source", "reference", "hypothesis"), "items": ("id", "length", "nll", "hits", "targets")}
"""Of the first split that has such a file: the columns of its table."""
SHOWN_LINES = 50
SPLITS = ("test", "test_long", "dev")


def mode(setting: str) -> str:
    """auto: online if a key is at hand, else offline, so that nothing ever asks or waits."""
    if setting != "auto":
        return setting
    return "online" if wandb.login(prompt=False, verify=False) else "offline"


def start(project: str, setting: str, folder: Path, **settings: Any) -> Any:
    """wandb.init without questions, with a bounded wait for the network; offline where that wait is in vain."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = mode(setting)
    common: dict[str, Any] = dict(project=project, dir=str(folder), reinit="finish_previous", **settings)
    quiet: dict[str, Any] = {"console": "off", "silent": True, "disable_git": True}
    seconds = 20 if wanted == "online" else 120  # offline it waits for its own process alone
    try:
        return wandb.init(mode=wanted, settings=wandb.Settings(init_timeout=seconds, **quiet), **common)  # type: ignore[arg-type]
    except wandb.Error as error:
        print(f"W&B: {error}; the run is kept offline under {folder / 'wandb'}: `wandb sync` sends it", file=sys.stderr)
        return wandb.init(mode="offline", settings=wandb.Settings(init_timeout=120, **quiet), **common)


def row_logger(config: dict[str, Any], folder: Path) -> WandbLogger:
    """A Lightning logger: group paper/table, name row-s<seed>, tags for scale and ablation."""
    return WandbLogger(
        experiment=start(
            config["logger"]["project"],
            config["logger"]["mode"],
            folder,
            config=config,
            job_type="train",
            group=f"{config['paper']}/{config['table_id']}",
            name=f"{config['row']}-s{config['seed']}",
            tags=[config["scale"]["name"], *(["ablation"] if "+" in config["row"] else [])],
        )
    )


def finish_row(folder: Path, paper: str, scale: str) -> None:
    """Logs what testing left in folder (scores, length plot, sentences, heat maps) to the open run and finishes it.

    W&B is a view: whatever goes wrong here is said in a line and does not touch the result.
    """
    if wandb.run is None:
        return
    good = False
    try:
        if (folder / "result.json").is_file():
            result = read_run(folder, paper, scale, lambda config: "")
            good = result.ok
            if good:
                scores = {name: score["value"] for name, score in result.record["metrics"].items()}
                training = {f"train/{name}": value for name, value in result.record["train"].items()}
                training["parameters"] = result.record["parameters"]
                wandb.run.log(scores | test_views(result))
                wandb.run.summary.update(scores | training)
    except Exception as error:  # noqa: BLE001 - see above
        print(f"W&B: {type(error).__name__}: {error}: the row's view is incomplete", file=sys.stderr)
    finally:
        wandb.finish(exit_code=0 if good else 1)


def test_views(run: Run) -> dict[str, Any]:
    views: dict[str, Any] = {}
    for split in SPLITS:
        items = run.items(Measure("bleu", split))
        if items is not None:
            table = length_table(items)
            views[f"{split}/lengths"] = table
            views[f"{split}/bleu_by_length"] = wandb.plot.line(
                table, "source_words", "bleu", title=f"BLEU by source length, {split}"
            )
    for kind, keys in SHOWN.items():
        files = {split: run.folder / kind / f"{split}.jsonl" for split in SPLITS}
        split = next((split for split, file in files.items() if file.is_file()), None)
        if split:
            lines = files[split].read_text(encoding="utf-8").split("\n")[:SHOWN_LINES]
            records = [json.loads(line) for line in lines if line]
            views[f"{split}/{kind}"] = wandb.Table(columns=list(keys), data=[[r[k] for k in keys] for r in records])
    for alignment in run.alignments():
        views[f"alignments/{alignment.id}"] = wandb.Html(str(heatmap(alignment, alignment.id)), inject=False)
    return views


def length_table(items: Items) -> wandb.Table:
    """A row a bin of source words: its last length, sentences, BLEU, chrF, log-likelihood per token."""
    names = ("bleu", "chrf", "log_likelihood")
    bins = Bins(width=10, up_to=80, fewest=1)
    rows = []
    assert items.source_tokens is not None
    for low, high in bins.ranges():
        inside = (items.source_tokens >= low) & (items.source_tokens <= high)
        if inside.sum() >= bins.fewest:
            sums = [items.statistics[METRICS[n].statistic][inside].sum(0) for n in names]
            rows.append(
                [high, int(inside.sum()), *(float(METRICS[n].score(s)) for n, s in zip(names, sums, strict=True))]
            )
    return wandb.Table(columns=["source_words", "sentences", *names], data=rows)


def log_published(paper: str, scale: str, runs: Path, project: str, setting: str) -> None:
    """A pseudo-run a published row, under the keys of our own runs where both have the number; once a folder."""
    folder = runs / paper / scale
    done = folder / "wandb" / "published.done"
    if done.exists():
        return
    published = load_published(ROOT / "reproductions" / paper / "published.yaml")
    values: dict[str, dict[str, float]] = {}
    for table in published.tables:
        for row in table.rows:
            cells = {name: value for name, value in row.values.items() if isinstance(value, float)}
            values.setdefault(row.id, {}).update(like_ours(table, name, value) for name, value in cells.items())
    for row_id, numbers in values.items():
        if numbers:
            name, tags = f"published-{row_id}", [scale, "published"]
            group = f"{paper}/{published.tables[0].title}"
            run = start(project, setting, folder, job_type="published", name=name, group=group, tags=tags)
            for step in (0, 1):  # two points make a line
                run.log(numbers, step=step)
            run.summary.update(numbers)
            wandb.finish()
    done.touch()


def log_table(paper: str, scale: str, runs: Path, project: str, setting: str) -> None:
    """The report's first table and its verdicts, as a run of their own; each sweep adds one."""
    report = make_report(paper, scale, runs, source_hash)
    header, rows = text.grid(report.tables[0])
    verdicts: list[Any] = [[text.verdict_text(o), o.claim.claim, text.effect_text(o)] for o in report.outcomes]
    title = report.published.tables[0].title
    settings = {"group": f"{paper}/{title}", "name": f"{paper}-{scale}-report", "tags": [scale, "report"]}
    run = start(project, setting, runs / paper / scale, job_type="report", **settings)
    run.log(
        {
            "table": wandb.Table(columns=[*header], data=[*rows]),
            "claims": wandb.Table(columns=["verdict", "claim", "effect [95%]"], data=verdicts),
        }
    )
    wandb.finish()


def like_ours(table: Table, column: str, value: float) -> tuple[str, float]:
    """The key and the unit in which a run of ours logs what a published column holds."""
    ours = next(c.ours for c in table.columns if c.id == column)
    if isinstance(ours, Field):
        return ours.path.removeprefix("metrics.").removesuffix(".value").replace(".", "/"), value / ours.factor
    if isinstance(ours, Measure):
        return f"{ours.split}{'' if ours.subset == 'all' else '.' + ours.subset}/{ours.metric}", value
    return column, value
