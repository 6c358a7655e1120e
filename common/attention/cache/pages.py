"""Which pages of a pool are whose."""

from collections.abc import Sequence


class Pages:
    """Pages 0 to count - 1 of `size` tokens each, and for each sequence a table of those that hold its tokens in order. A
    page may stand in several tables; before one of them writes to it, that one gets a copy. Free ones are used again."""

    def __init__(self, count: int, size: int, sequences: int) -> None:
        self.size = size
        self.tables: list[list[int]] = [[] for _ in range(sequences)]
        self.users = [0] * count
        self.free = list(reversed(range(count)))

    def reserve(self, lengths: Sequence[int], counts: Sequence[int]) -> dict[int, int]:
        """Pages for so many more tokens of sequences that have such lengths. Returns which pages are to be copied and to
        where, new page -> old page. Raises ValueError, with nothing changed, if too few are free."""
        users: dict[int, int] = {}  # of pages that are written to, when those before have their copies
        copies, new = [], []
        for n, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            table = self.tables[n]
            new.append(self.needed(length + count) - len(table) if count else 0)
            if count and length % self.size:
                left = users.setdefault(table[-1], self.users[table[-1]])
                if left > 1:
                    copies.append(n)
                    users[table[-1]] -= 1
        if sum(new) + len(copies) > len(self.free):
            raise ValueError(
                f"append: got tokens for {sum(new) + len(copies)} more pages of {self.size}, expected at most "
                f"{len(self.free)}, as many as are free of {len(self.users)}"
            )
        copied = {}
        for n in copies:
            old, fresh = self.tables[n].pop(), self._take()
            self.users[old] -= 1
            self.tables[n].append(fresh)
            copied[fresh] = old
        for table, more in zip(self.tables, new, strict=True):
            table.extend(self._take() for _ in range(more))
        return copied

    def cut(self, sequence: int, length: int) -> None:
        """Pages behind the first `length` tokens are given back."""
        table = self.tables[sequence]
        while len(table) > self.needed(length):
            self._give_back(table.pop())

    def keep(self, index: Sequence[int]) -> None:
        """Sequence n gets the table of sequence index[n]: no page is copied."""
        before, self.tables = self.tables, [list(self.tables[n]) for n in index]
        for page in (page for table in self.tables for page in table):
            self.users[page] += 1
        for page in (page for table in before for page in table):
            self._give_back(page)

    def own(self, sequence: int, length: int) -> int:
        """How many of a sequence's pages behind the first `length` tokens are in no other table."""
        return sum(self.users[page] == 1 for page in self.tables[sequence][self.needed(length) :])

    def shared(self, sequence: int, length: int) -> bool:
        """Whether token number `length` would be written to a page that stands in another table too."""
        return length % self.size > 0 and self.users[self.tables[sequence][length // self.size]] > 1

    def needed(self, length: int) -> int:
        """Pages of so many tokens."""
        return -(-length // self.size)

    def _take(self) -> int:
        page = self.free.pop()
        assert not self.users[page], page
        self.users[page] = 1
        return page

    def _give_back(self, page: int) -> None:
        self.users[page] -= 1
        if not self.users[page]:
            self.free.append(page)
