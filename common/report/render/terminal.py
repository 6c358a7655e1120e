"""What the report command prints: the first table and those measured here beside the published, a line per verdict."""

from __future__ import annotations

from collections.abc import Sequence

from common.report.render import text
from common.report.views import Report


def terminal(report: Report) -> str:
    """Tables, verdicts, and what was not run."""
    parts = [f"{report.published.title} ({report.published.paper}, scale {report.scale})", text.data_note(report)]
    parts += [f"warning: {warning}" for warning in report.warnings]
    measured = [view for view in report.tables[1:] if view.measured and any(row.seeds for row in view.rows)]
    for view in [*report.tables[:1], *measured]:
        # A column per point leaves no room for intervals.
        parts += [aligned(*text.grid(view, intervals=not view.measured)), "\n".join(text.row_notes(view))]
    parts += [f"{view.title}\n{aligned(*text.elsewhere_grid(view, intervals=False))}" for view in report.elsewhere]
    if report.ablations:
        parts.append(aligned(*text.ablation_grid(report.ablations)))
    parts.append("\n".join(verdict_lines(report)))
    parts += [f"failed: {run.folder.name}: {run.error}" for run in report.results.runs if not run.ok]
    return "\n\n".join(part for part in parts if part)


def verdict_lines(report: Report) -> list[str]:
    """Verdict, claim, effect."""
    width = max((len(text.verdict_text(outcome)) for outcome in report.outcomes), default=0)
    lines = []
    for outcome in report.outcomes:
        lines.append(f"{text.verdict_text(outcome):<{width}}  {outcome.claim.claim}")
        detail = "; ".join(
            part for part in (text.effect_text(outcome), text.expected_text(outcome), outcome.reason) if part
        )
        lines.append(" " * (width + 2) + detail)
    return lines


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell: the first one to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.ljust(widths[0]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(cells)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *map(line, rows)])
