"""python -m reproductions.site [out=site]: one static site from the stored results, without network or script.

A page leads to all papers and claims; each paper has its report. Where the runs behind RESULTS.md are stored
(reproductions/archive.py) it is the whole report with its figures, else RESULTS.md.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.report.render.page import page
from common.report.render.site import home, index, rendered
from common.report.results import SourceHash
from common.report.stored import StoredResults
from reproductions.archive import archive_file, unpack
from reproductions.report import ROOT, make_report, stored_results

PAGES = {
    "MAP.md": "Map of all kinds",
    "CONTESTED.md": "Contested statements",
    "TRACE.md": "Online softmax, step by step",
}
"""Further pages that a package may have, and what leads to them."""


def build(out: Path, source_hash: SourceHash, root: Path = ROOT) -> list[Path]:
    """Write the site and return its files."""
    out.mkdir(parents=True, exist_ok=True)
    results, pages, further = stored_results(root), dict[str, str](), dict[str, dict[str, str]]()
    for of in results:
        folder = root / "reproductions" / of.paper
        others = {name: f"{of.paper}-{name[:-3].lower()}.html" for name in PAGES if (folder / name).is_file()}
        addresses = {"RESULTS.md": f"{of.paper}.html", **others}
        pages[addresses["RESULTS.md"]] = _report(of, addresses, source_hash, root)
        for name, address in others.items():
            pages[address] = rendered((folder / name).read_text(encoding="utf-8"), PAGES[name], addresses)
        further[of.paper] = {PAGES[name]: address for name, address in others.items()}
    pages = {"index.html": index(results, further), **pages}
    for name, text in pages.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in pages]


def _report(of: StoredResults, addresses: Mapping[str, str], source_hash: SourceHash, root: Path) -> str:
    stored = archive_file(root, of.paper, of.scale)
    if not stored.is_file():
        file = root / "reproductions" / of.paper / "RESULTS.md"
        return rendered(file.read_text(encoding="utf-8"), of.title, addresses)
    with tempfile.TemporaryDirectory() as runs:
        unpack(stored, Path(runs))
        return page(make_report(of.paper, of.scale, Path(runs), source_hash, root), home())


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    from reproductions.provenance import source_hash

    given = dict(argument.split("=", 1) for argument in argv if "=" in argument)
    if len(given) < len(argv) or given.keys() - {"out"}:
        print(f"error: got {' '.join(argv)!r}, expected out=FOLDER or nothing", file=sys.stderr)
        return 2
    files = build(Path(given.get("out", "site")), source_hash, root)
    print(f"wrote {len(files)} pages: open {files[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
