"""python -m reproductions.field_guide.contested > reproductions/field_guide/CONTESTED.md

Statements that evidence limits or contradicts, each with its test, what came out, and where the test ends: contested.yaml joined
with the verdicts of RESULTS.md."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from common.report.claims import load_claims
from common.report.published import load_published
from common.report.render.markdown import table
from common.report.stored import Stored, read_stored

PACKAGE = Path(__file__).parent
HEAD = """# Contested

Made by `python -m reproductions.field_guide.contested`; verdicts and effects are those of [`RESULTS.md`](RESULTS.md).
"""


def entries() -> list[dict[str, object]]:
    return yaml.safe_load((PACKAGE / "contested.yaml").read_text(encoding="utf-8"))


def verdicts(file: Path = PACKAGE / "RESULTS.md") -> dict[str, Stored]:
    """Of the package's claims by id, as far as the results have them."""
    claims = load_claims(PACKAGE / "claims.yaml", load_published(PACKAGE / "published.yaml")).claims
    found = {one.claim: one for one in read_stored(file, PACKAGE.name).verdicts}
    said = {claim.id: f"{claim.claim} ({claim.place})" for claim in claims}
    return {name: found[words] for name, words in said.items() if words in found}


def page(found: Mapping[str, Stored]) -> str:
    """Raises KeyError for a claim that there is none of."""
    return "\n".join([HEAD, *(line for entry in entries() for line in section(entry, found))])


def section(entry: Mapping[str, object], found: Mapping[str, Stored]) -> Iterator[str]:
    yield f"## {entry['title']}\n"
    yield f"**Said:** {entry['said']}\n"
    yield f"**Tested:** {str(entry['test']).strip()}\n"
    claims = entry["claims"]
    assert isinstance(claims, list)
    rows = [
        [one.shown, one.claim, one.effect or one.basis, one.held_against] for one in (found[claim] for claim in claims)
    ]
    yield table(["verdict", "claim", "effect [95%]", "held against"], rows)
    yield f"\n**Limit:** {str(entry['limit']).strip()}\n"


if __name__ == "__main__":
    print(page(verdicts()), end="")
