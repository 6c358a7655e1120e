"""Lines of text: what ends a line, what is blank, and how blank lines keep their place."""

import codecs
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, without their ends and without a byte order mark before the first.

    Only LF and CRLF end a line. A lone CR, U+2028, U+2029, U+0085, VT, FF and U+001C to U+001E stay inside it:
    `str.splitlines` would cut there, and two parallel files would no longer match line by line.
    Raises ValueError naming file and line where the bytes are not UTF-8.
    """
    with open(path, "rb") as file:
        for number, raw in enumerate(file, start=1):
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            if raw.endswith(b"\n"):
                raw = raw[:-1].removesuffix(b"\r")
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number}: not valid UTF-8 (byte {raw[error.start]:#04x} at column "
                    f"{error.start + 1}). Convert the file first, for instance with iconv -f latin1 -t utf-8."
                ) from None


def is_blank(text: str) -> bool:
    """True if nothing in `text` can be seen: white space (U+00A0 and U+3000 too), control and format characters
    (U+200B, the byte order mark)."""
    return all(char.isspace() or unicodedata.category(char) in ("Cc", "Cf") for char in text)


def map_nonblank(lines: Sequence[str], fn: Callable[[list[str]], Sequence[Result]], *, blank: Result) -> list[Result]:
    """`fn` applied to the list of lines that are not blank; a blank line gives `blank` at its own place.

    `fn` never sees a blank line (an encoder would make up a sentence for it) and must return one result a line.
    """
    places = [i for i, line in enumerate(lines) if not is_blank(line)]
    results = fn([lines[i] for i in places]) if places else []
    if len(results) != len(places):
        raise ValueError(f"got {len(results)} results for {len(places)} lines: the function must return one a line")
    out = [blank] * len(lines)
    for place, result in zip(places, results, strict=True):
        out[place] = result
    return out
