"""Building HTML and SVG: text is escaped unless it is Markup already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = ("meta", "br", "line", "rect", "circle", "path", "polyline", "polygon", "col")


class Markup(str):
    """Text that is safe to put into a page as it stands."""


def tag(name: str, /, *children: str | Iterable[str], **attributes: object) -> Markup:
    """One element. `class_` loses its underscore, other underscores become dashes; None and False are left out."""
    parts = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{escape(str(value))}"')
    inner = join(*children)
    opening = " ".join(parts)
    return Markup(f"<{opening}/>" if name in VOID and not inner else f"<{opening}>{inner}</{name}>")


def join(*children: str | Iterable[str]) -> Markup:
    """Children side by side, plain text escaped."""
    flat: list[str] = []
    for child in children:
        flat += [child] if isinstance(child, str) else list(child)
    return Markup("".join(child if isinstance(child, Markup) else escape(child, quote=False) for child in flat))
