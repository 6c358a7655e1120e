"""One fault."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """Every `old` in a file becomes `new`; there must be `count` of them. file: from the root of the tree.

    tests: pytest's ids of the tests of which one must fail, a function or one of its cases, each of a few seconds.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    count: int = 1

    def applied(self, root: Path) -> str:
        """The file's text with the fault. Raises ValueError where it does not apply."""
        file = root / self.file
        if not file.is_file():
            raise ValueError(f"{self.file} is no file")
        text = file.read_text(encoding="utf-8")
        found = text.count(self.old)
        if found != self.count:
            raise ValueError(f"{self.file}: got {found} of {self.old!r}, expected {self.count}")
        if self.old == self.new:
            raise ValueError(f"{self.old!r} becomes what it is")
        changed = text.replace(self.old, self.new)
        try:
            compile(changed, self.file, "exec")
        except SyntaxError as error:
            raise ValueError(f"{self.file} then is no Python: {error.msg} in line {error.lineno}") from None
        return changed
