"""The tables of a page. Each scrolls in a frame of its own, so that the page never does."""

from __future__ import annotations

from collections.abc import Sequence

from common.report.measures import Quantity
from common.report.published import Column
from common.report.render import text
from common.report.render.markup import Markup, join, tag
from common.report.stats import Estimate
from common.report.views import AblationsView, Cell, ElsewhereView, Report, ScorersView, TableView


def framed(label: str, *parts: Markup | Sequence[Markup]) -> Markup:
    """A table in a frame that scrolls sideways, reachable by keyboard."""
    return tag("div", tag("table", *parts), class_="scroll", tabindex=0, role="region", aria_label=label)


def head(*rows: Sequence[Markup]) -> Markup:
    """Header rows."""
    return tag("thead", [tag("tr", row) for row in rows])


def published_table(view: TableView) -> Markup:
    """A published table: per column ours, published and, for scores, ours - published."""
    groups = [tag("th", "", class_="words"), tag("th", "")]
    what, runs = ("Method", "runs") if view.measured else ("Model", "seeds")
    names = [tag("th", what, scope="col", class_="words"), tag("th", runs, scope="col")]
    for i, column in enumerate(view.columns):
        parts = _parts(view, i, column)
        count = f" (n = {view.counts[column.id]})" if column.id in view.counts else ""
        count += text.column_unit(view, column.id)
        groups.append(tag("th", column.label + count, colspan=len(parts), scope="colgroup", class_="group start"))
        names += [tag("th", name, scope="col", class_="start" if j == 0 else None) for j, name in enumerate(parts)]
    rows = []
    for row in view.rows:
        cells = [part for i, column in enumerate(view.columns) for part in _cells(view, i, column, row.cells[i])]
        label = row.label + (" †" if row.note else "")
        rows.append(tag("tr", tag("th", label, scope="row"), tag("td", text.runs_text(view, row.seeds) or "–"), cells))
    table = view.table
    return join(
        tag("h3", f"{text.title_with_unit(view)}: {table.metric}"),
        tag("p", table.caption, class_="caption"),
        framed(table.title, head(groups, names), tag("tbody", rows)),
        tag("p", text.sentences(table.protocol, table.comparable, table.notes), class_="caption"),
        tag("p", text.MEASURED, class_="caption") if view.measured else "",
        [tag("p", f"† {note}", class_="caption") for note in text.row_notes(view)],
    )


def _parts(view: TableView, index: int, column: Column) -> list[str]:
    parts = ["ours"] if column.ours is not None else []
    parts += ["published"] if view.has_published(index) else []
    return parts + (["difference"] if view.has_difference(index) else [])


def _cells(view: TableView, index: int, column: Column, cell: Cell) -> list[Markup]:
    cells = [_ours(cell, column.digits)] if column.ours is not None else []
    if view.has_published(index):
        words = isinstance(cell.published, str) and not view.measured  # a column per point has room for "OOM" alone
        class_ = "words" if words else None if cells else "start"
        cells.append(tag("td", text.published_text(view, index, cell), class_=class_))
    if view.has_difference(index):
        within = {None: "", True: "within tolerance", False: "outside tolerance"}[cell.within]
        class_ = None if view.comparable else "apart"
        if cell.unlike:
            cells.append(tag("td", text.difference_text(cell, column.digits), class_="words"))
        else:
            cells.append(_value(cell.difference, column.digits, class_, sign=True, remark=within))
    return cells


def _ours(cell: Cell, digits: text.Digits) -> Markup:
    if cell.refused:
        return tag("td", text.refused_text(cell), class_="words start")
    return _value(cell.ours, digits, "start")


def _value(
    value: Estimate | float | str | None,
    digits: text.Digits,
    class_: str | None = None,
    *,
    sign: bool = False,
    remark: str = "",
) -> Markup:
    """A value with its interval below."""
    show = text.signed if sign else text.number
    if isinstance(value, str):
        return tag("td", value, class_="words start")
    if isinstance(value, Estimate):
        spread = text.interval(value, digits)
        parts = [show(value.value, digits), tag("span", spread, class_="interval") if spread else ""]
    else:
        parts = [] if value is None else [show(value, digits)]
    return tag("td", parts, [tag("span", remark, class_="interval")] if remark else "", class_=class_)


def elsewhere(view: ElsewhereView) -> Markup:
    """What another machine measured, beside the published figures."""
    header, rows = text.elsewhere_grid(view)
    names = [tag("th", name, scope="col", class_=None if i else "words") for i, name in enumerate(header)]
    lines = [tag("tr", tag("th", label, scope="row"), [tag("td", cell) for cell in cells]) for label, *cells in rows]
    return join(
        tag("h3", view.title),
        tag("p", text.elsewhere_facts(view), class_="caption"),
        framed(view.title, head(names), tag("tbody", lines)),
    )


def scorers(view: ScorersView) -> Markup:
    """The same hypotheses under each scorer."""
    names = [tag("th", "Model", scope="col", class_="words"), *(tag("th", m.label, scope="col") for m in view.metrics)]
    rows = [
        tag(
            "tr",
            tag("th", r.label, scope="row"),
            [_value(c.ours, 2) for c in r.cells],
            tag("td", str(view.truncated[r.label])),
        )
        for r in view.rows
    ]
    signatures = [
        tag("div", f"{m.label}: ", tag("code", s)) for m, s in zip(view.metrics, view.signatures, strict=True)
    ]
    return join(
        tag("h3", "The same hypotheses under each scorer"),
        framed("Scorers", head([*names, tag("th", "cut at the length limit", scope="col")]), tag("tbody", rows)),
        tag("div", signatures, class_="caption"),
    )


def ablations(view: AblationsView) -> Markup:
    """The user's own lines, apart from the published rows."""
    names = [tag("th", "Line", scope="col", class_="words"), tag("th", "overrides", scope="col", class_="words")]
    for column in view.columns:
        names += [tag("th", column.label, scope="col"), tag("th", "against its base", scope="col")]
    rows = []
    for line in view.lines:
        cells = [tag("td", tag("code", line.overrides), class_="words")]
        for column, cell, difference in zip(view.columns, line.row.cells, line.differences, strict=True):
            digits = column.digits if isinstance(column.ours, Quantity) else 2
            cells += [_value(cell.ours, digits), _value(difference, digits, sign=True)]
        label = tag("th", line.row.label, tag("div", f"base {line.base}", class_="soft"), scope="row")
        rows.append(tag("tr", label, cells, tag("td", line.row.note, class_="words soft")))
    return join(
        tag("h3", "Ablations"),
        tag("p", text.EXPLORATORY, class_="caption"),
        framed("Ablations", head([*names, tag("th", "")]), tag("tbody", rows)),
    )


def not_run(items: Sequence[tuple[str, str]]) -> Markup:
    """What has no value of ours, and why."""
    if not items:
        return tag("p", "Everything was run.")
    return facts(items)


def facts(items: Sequence[tuple[str, str]]) -> Markup:
    """Names and what stands behind them."""
    return tag("dl", [join(tag("dt", name), tag("dd", value)) for name, value in items])


def provenance(report: Report) -> Markup:
    """Facts that all runs share; then each run with its own facts and the command that makes it again."""
    if not report.runs:
        return tag("p", "No run.")
    shared = facts(list(report.shared_facts.items()))
    rows = [
        tag(
            "tr",
            tag("th", run.name, scope="row"),
            tag("td", run.status, class_="words"),
            tag("td", "; ".join(f"{title} {value}" for title, value in run.facts.items()), class_="words wide"),
            tag("td", tag("code", run.command), class_="words wide"),
        )
        for run in report.runs
    ]
    names = [tag("th", name, scope="col", class_="words") for name in ("run", "status", "its own facts", "command")]
    return join(shared, framed("Runs", head(names), tag("tbody", rows)))
