"""python -m reproductions.dashboard [papers=bahdanau,luong] [entity=NAME] [project=attention-reproductions] [out=dashboard]

A W&B workspace and report of each paper with stored results, as code: our runs beside the published ones, which are runs under
the same keys; BLEU by source length, or what is measured by its points; the claims with their verdicts. With a key they are
published in the entity's project; without one their specifications are written to `out`, and what to do is said.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.report.measures import Quantity
from common.report.published import Published, load_published
from common.report.render.markdown import table
from common.report.stored import StoredResults
from reproductions.log_wandb import like_ours
from reproductions.report import ROOT, stored_results

PROJECT = "attention-reproductions"
PLACEHOLDER = "your-entity"
Panels = list[Any]


def shared_keys(published: Published) -> list[str]:
    """Those under which our runs and the published ones both log, in the order of the tables."""
    keys: dict[str, None] = {}
    for of in published.tables:
        for column in of.columns:
            printed = any(isinstance(row.values.get(column.id), float) for row in of.rows)
            if printed and column.ours is not None and not isinstance(column.ours, Quantity):
                keys[like_ours(of, column.id, 0.0)[0]] = None
    return list(keys)


def quantities(published: Published) -> list[str]:
    """What is measured over points: a chart each of the run `measured-s1`."""
    return list(dict.fromkeys(reading.name for of in published.tables for _, reading in of.quantities))


def claims(of: StoredResults) -> str:
    """Markdown."""
    return table(["verdict", "claim", "effect [95%]"], [[one.shown, one.claim, one.effect] for one in of.verdicts])


def beside_published(published: Published) -> Panels:
    import wandb_workspaces.reports.v2.interface as wr

    return [wr.BarPlot(title=key, metrics=[key]) for key in shared_keys(published)]


def by_length(published: Published) -> Panels:
    """What `log_wandb` logs of each row that translates."""

    drawn = any(of.plot and of.plot.kind == "length" for of in published.tables)
    fields = {"x": "source_words", "y": "bleu"}
    return [
        _chart("wandb/line/v0", f"{split}/lengths", fields, f"BLEU by source length, {split}")
        for split in (("test", "test_long") if drawn else ())
    ]


def over_points(published: Published) -> Panels:
    """What `log_measured` logs of a paper's measurements."""
    fields = {name: name for name in ("step", "lineKey", "lineVal")}
    return [_chart("wandb/lineseries/v0", f"{name}_table", fields, name) for name in quantities(published)]


def _chart(kind: str, table_key: str, fields: dict[str, str], title: str) -> Any:
    """One of W&B's own charts over a table that runs have logged."""
    import wandb_workspaces.reports.v2.interface as wr

    query = {"summaryTable": {"tableKey": table_key}}
    return wr.CustomChart(query=query, chart_name=kind, chart_fields=fields, chart_strings={"title": title})


def sections(published: Published) -> dict[str, Panels]:
    """Title -> panels, of what the paper has."""
    found = {
        "Ours beside published": beside_published(published),
        "BLEU by source length": by_length(published),
        "Measured, by point": over_points(published),
    }
    return {title: panels for title, panels in found.items() if panels}


def workspace(of: StoredResults, published: Published, entity: str, project: str) -> Any:
    """A view of the project with this paper's runs alone."""
    import wandb_workspaces.reports.v2.interface as wr
    import wandb_workspaces.workspaces as ws

    text = ws.Section(name="Claims", panels=[wr.MarkdownPanel(markdown=claims(of))], is_open=True)
    shown = [ws.Section(name=title, panels=panels, is_open=True) for title, panels in sections(published).items()]
    rows = ws.RunsetSettings(filters=f"Config('paper') = '{of.paper}'")
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"{of.paper} beside the paper",
        sections=[text, *shown],
        runset_settings=rows,
    )


def report(of: StoredResults, published: Published, entity: str, project: str) -> Any:
    """The same as a page with text."""
    import wandb_workspaces.reports.v2.interface as wr

    runs = wr.Runset(name=of.paper, filters=f"Config('paper') = '{of.paper}'")
    blocks: list[Any] = [wr.H1("Claims"), wr.MarkdownBlock(claims(of))]
    for title, panels in sections(published).items():
        blocks += [wr.H1(title), wr.PanelGrid(runsets=[runs], panels=panels)]
    about = f"{', '.join(published.authors)} ({published.year}), scale {of.scale}."
    return wr.Report(project=project, entity=entity, title=of.title[:128], description=about, blocks=blocks)


def specification(view: Any) -> dict[str, Any]:
    """What is sent: the package has no public name for it."""
    return view._to_model().model_dump(by_alias=True, exclude_none=True, mode="json")


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    import wandb

    given = dict(argument.split("=", 1) for argument in argv if "=" in argument)
    results = {of.paper: of for of in stored_results(root)}
    papers = given["papers"].split(",") if "papers" in given else list(results)
    if len(given) < len(argv) or given.keys() - {"papers", "entity", "project", "out"} or set(papers) - set(results):
        print(
            f"error: got {' '.join(argv)!r}, expected papers= of {', '.join(results)}, entity=, project=, out=",
            file=sys.stderr,
        )
        return 2
    online = wandb.login(prompt=False, verify=False)
    entity = given.get("entity") or (wandb.Api().default_entity if online else None) or PLACEHOLDER
    out, project = Path(given.get("out", "dashboard")), given.get("project", PROJECT)
    for paper in papers:
        published = load_published(root / "reproductions" / paper / "published.yaml")
        views = {
            kind: make(results[paper], published, entity, project)
            for kind, make in (("workspace", workspace), ("report", report))
        }
        for kind, view in views.items():
            if online:
                view.save()
                print(f"{paper}: {kind}: {view.url}")
            else:
                out.mkdir(parents=True, exist_ok=True)
                file = out / f"{paper}.{kind}.json"
                file.write_text(json.dumps(specification(view), indent=1) + "\n", encoding="utf-8")
    if not online:
        print(
            f"no W&B key: wrote {2 * len(papers)} specifications to {out}. To publish: `wandb login`, `wandb sync` for the runs, "
            "then this again (make dashboard ARGS=entity=NAME)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
