"""python -m reproductions.field_guide.contested [scale=small] [runs=runs] > reproductions/field_guide/CONTESTED.md

Statements that evidence limits or contradicts, each with its test, what came out, and where the test ends: contested.yaml joined
with the verdicts of the report."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from common.report.compare import Outcome
from common.report.render import text
from common.report.render.markdown import table
from reproductions.report import make_report, parse

PACKAGE = Path(__file__).parent
HEAD = """# Contested

Made by `python -m reproductions.field_guide.contested`; verdicts and effects are those of [`RESULTS.md`](RESULTS.md), scale {scale}.
"""


def entries() -> list[dict[str, object]]:
    return yaml.safe_load((PACKAGE / "contested.yaml").read_text(encoding="utf-8"))


def page(scale: str, outcomes: Sequence[Outcome]) -> str:
    """Raises KeyError for a claim that there is none of."""
    found = {outcome.claim.id: outcome for outcome in outcomes}
    return "\n".join([HEAD.format(scale=scale), *(line for entry in entries() for line in section(entry, found))])


def section(entry: Mapping[str, object], found: Mapping[str, Outcome]) -> Iterator[str]:
    yield f"## {entry['title']}\n"
    yield f"**Said:** {entry['said']}\n"
    yield f"**Tested:** {str(entry['test']).strip()}\n"
    claims = entry["claims"]
    assert isinstance(claims, list)
    rows = [
        [
            text.verdict_text(outcome),
            f"{outcome.claim.claim} ({outcome.claim.place})",
            text.effect_text(outcome) or outcome.reason,
            text.expected_text(outcome),
        ]
        for outcome in (found[claim] for claim in claims)
    ]
    yield table(["verdict", "claim", "effect [95%]", "held against"], rows)
    yield f"\n**Limit:** {str(entry['limit']).strip()}\n"


def main(argv: Sequence[str]) -> int:
    from reproductions.provenance import source_hash

    try:
        given = parse(["paper=field_guide", *argv])
        report = make_report(given.paper, given.scale, given.runs, source_hash)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(page(given.scale, report.outcomes), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
