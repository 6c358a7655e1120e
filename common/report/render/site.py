"""Pages of the static site: one that leads to all papers and their claims, and one a paper."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from markdown_it import MarkdownIt

from common.report.render.markup import Markup, tag
from common.report.render.page import document
from common.report.render.tables_html import framed
from common.report.render.text import SIGNS
from common.report.render.verdicts_html import badge
from common.report.stored import Stored, StoredResults

TITLE = "Attention, reproduced"


def index(results: Sequence[StoredResults], further: Mapping[str, Mapping[str, str]]) -> str:
    """All papers and claims, with their verdicts. further: paper -> title -> address of what it has besides its report."""
    header = tag(
        "header",
        tag("h1", TITLE),
        tag(
            "p",
            "What papers claim about attention, and what running them gave: each claim with its verdict.",
            class_="soft",
        ),
        tag(
            "ul",
            [tag("li", badge(v, f"{n} {v}")) for v in SIGNS if (n := sum(of.count(v) for of in results))],
            class_="tally",
        ),
    )
    return document(
        TITLE,
        header,
        tag("section", tag("h2", "Papers and verdicts", id="papers"), _matrix(results)),
        [_claims(of, further.get(of.paper, {})) for of in results],
    )


def _matrix(results: Sequence[StoredResults]) -> Markup:
    shown = [verdict for verdict in SIGNS if any(of.count(verdict) for of in results)]
    head = tag(
        "tr", [tag("th", title, scope="col") for title in ("Paper", "scale", *(f"{SIGNS[v]} {v}" for v in shown))]
    )
    rows = [
        tag(
            "tr",
            tag("th", tag("a", of.paper.replace("_", " "), href=f"#{of.paper}"), scope="row"),
            tag("td", of.scale),
            [tag("td", str(of.count(verdict) or "")) for verdict in shown],
        )
        for of in results
    ]
    return framed("Papers and verdicts", tag("thead", head), tag("tbody", rows))


def _claims(of: StoredResults, further: Mapping[str, str]) -> Markup:
    head = tag(
        "tr",
        [
            tag("th", title, scope="col", class_="words")
            for title in ("verdict", "claim", "effect [95%]", "held against")
        ],
    )
    table = framed(f"Claims: {of.title}", tag("thead", head), tag("tbody", [_claim(one) for one in of.verdicts]))
    summary = tag("summary", f"{len(of.verdicts)} claims")
    pages = {"Tables, figures and provenance": f"{of.paper}.html", **further}
    links = tag("nav", [tag("a", title, href=address) for title, address in pages.items()], aria_label=of.title)
    return tag(
        "section",
        tag("h2", of.title, id=of.paper),
        links,
        tag("details", summary, table, open=None if len(of.verdicts) > 60 else "open"),
    )


def _claim(one: Stored) -> Markup:
    verdict = tag(
        "td",
        badge(one.verdict, one.verdict),
        tag("div", one.seeds, class_="place") if one.seeds else "",
        class_="words",
    )
    return tag("tr", verdict, [tag("td", text, class_="words") for text in (one.claim, one.effect, one.held_against)])


def rendered(markdown: str, title: str, pages: Mapping[str, str]) -> str:
    """A RESULTS.md, or another page of Markdown, as a page of the site.

    pages: file -> address on the site; links to other files of the project become plain text.
    """
    html = MarkdownIt("commonmark", {"html": False, "xhtmlOut": True}).enable("table").render(markdown)
    html = html.replace("<th>", '<th scope="col">')
    places = iter(range(1, 1 + html.count("<table>")))
    html = re.sub(
        "<table>(.*?)</table>",
        lambda found: framed(f"Table {next(places)}", Markup(found[1])),
        html,
        flags=re.DOTALL,
    )
    html = re.sub('<a href="(.*?)">(.*?)</a>', lambda found: _link(found[1], found[2], found[0], pages), html)
    return document(title, tag("header", home()), tag("section", Markup(html), class_="prose"))


def _link(address: str, words: str, link: str, pages: Mapping[str, str]) -> str:
    if address.startswith(("https://", "#")):
        return link
    return f'<a href="{pages[address]}">{words}</a>' if address in pages else words


def home() -> Markup:
    """The way back."""
    return tag("p", tag("a", TITLE, href="index.html"), class_="kicker")
