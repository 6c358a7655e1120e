"""Caches for decoding: one fault at least in each operation, found by the test of random operations."""

from tests.mutants.fault import Fault

FOLDER = "common/attention/cache/"
INTERFACE, POSITIONS, STORAGE = FOLDER + "interface.py", FOLDER + "positions.py", FOLDER + "storage.py"
REMEMBERED = FOLDER + "remembered.py"
CONTIGUOUS, PAGED, PAGES = FOLDER + "contiguous.py", FOLDER + "paged.py", FOLDER + "pages.py"

T = "tests/common/attention/"
GROWING, STATIC, SLIDING, IN_PAGES = (
    (f"{T}test_cache_properties.py::test_a_cache_holds_what_a_list_of_tokens_would[{kind}]",)
    for kind in ("growing", "static", "sliding", "paged")
)

DECODER = "tests/common/nn/test_decoder.py::"

FAULTS = (
    Fault(
        "cache: two texts write to the one that they have in common",
        REMEMBERED,
        "if full or cache.lengths[0] > self.held:",
        "if full:",
        (f"{T}test_cache_step.py::test_two_texts_with_one_beginning",),
    ),
    Fault(
        "cache: the window is one wider",
        REMEMBERED,
        "keys, values = keys[:, :, -window:], values[:, :, -window:]",
        "keys, values = keys[:, :, -window - 1 :], values[:, :, -window - 1 :]",
        (f"{DECODER}test_each_step_is_as_recomputed[local-alone]", f"{DECODER}test_what_is_kept"),
    ),
    Fault(
        "cache: what is out of the window is kept",
        REMEMBERED,
        "self.held >= 2 * self.window",
        "False",
        (f"{DECODER}test_positions_out_of_the_window_are_given_back",),
    ),
    Fault(
        "cache: positions are counted by what is kept",
        REMEMBERED,
        "self.seen + keys.shape[2]",
        "cache.lengths[0]",
        (f"{DECODER}test_what_is_kept",),
    ),
    Fault(
        "cache: hypotheses keep the place that they had",
        REMEMBERED,
        "self.keys.index_select(0, index)",
        "self.keys.index_select(0, index.sort().values)",
        (f"{DECODER}test_a_search_is_as_without_a_cache[as published-4]",),
    ),
    Fault(
        "cache: padding is kept",
        INTERFACE,
        "if real is None and self._alike:",
        "if self._alike:",
        GROWING,
    ),
    Fault(
        "cache: padding takes room",
        INTERFACE,
        "[:, None] + real.cumsum(1) - 1",
        "[:, None] + (real | True).cumsum(1) - 1",
        STATIC,
    ),
    Fault(
        "cache: padding has a position",
        INTERFACE,
        "(real.cumsum(1) - 1).clamp(min=0)",
        "((real | True).cumsum(1) - 1)",
        GROWING,
    ),
    Fault(
        "cache: all beams of a sentence apart",
        INTERFACE,
        "for n in range(self.sequences) for _ in range(copies)]",
        "for _ in range(copies) for n in range(self.sequences)]",
        GROWING,
    ),
    Fault(
        "cache: positions of the first serve all",
        INTERFACE,
        "alike = self._alike",
        "alike = len(set(self.lengths)) == 1",
        GROWING,
    ),
    Fault(
        "cache: the next sequence counts on",
        INTERFACE,
        "self.held[sequence] = Positions()",
        "self.held[sequence] = Positions(held.seen)",
        SLIDING,
    ),
    Fault(
        "cache: beams in another order",
        CONTIGUOUS,
        "old.index_select(0, index)",
        "old.index_select(0, index.sort()[0])",
        STATIC,
    ),
    Fault(
        "cache: lengths stay where they were",
        CONTIGUOUS,
        "[self.held[n] for n in index]",
        "[self.held[0] for _ in index]",
        GROWING,
    ),
    Fault(
        "cache: growing forgets the last",
        CONTIGUOUS,
        "        used = self._used()\n",
        "        used = max(0, self._used() - 1)\n",
        GROWING,
    ),
    Fault(
        "cache: one more than there is room for",
        CONTIGUOUS,
        "if length + count > self.capacity:",
        "if length + count > self.capacity + 1:",
        STATIC,
    ),
    Fault(
        "cache: evicting closes no gap",
        CONTIGUOUS,
        "plane[sequence][:, places]",
        "plane[sequence][:, to : to + len(places)]",
        STATIC,
    ),
    Fault(
        "cache: the window is one too wide",
        CONTIGUOUS,
        "held.since(held.seen - self.capacity)",
        "held.since(held.seen - self.capacity - 1)",
        SLIDING,
    ),
    Fault(
        "cache: the first of a long text stay",
        CONTIGUOUS,
        "part[:, :, part.shape[2] - len(slots) :]",
        "part[:, :, : len(slots)]",
        SLIDING,
    ),
    Fault(
        "cache: back to what has slid out",
        CONTIGUOUS,
        "held.seen if held.seen <= self.capacity else 0",
        "held.seen",
        SLIDING,
    ),
    Fault(
        "cache: rejected tokens are counted",
        POSITIONS,
        "return Positions(seen, _",
        "return Positions(self.seen, _",
        GROWING,
    ),
    Fault(
        "cache: one token too many is rejected",
        POSITIONS,
        "min(run.stop, seen)",
        "min(run.stop, max(run.start, seen - 1))",
        IN_PAGES,
    ),
    Fault("cache: evicting takes the next one too", POSITIONS, "start = position + 1", "start = position + 2", SLIDING),
    Fault("cache: no copy of a page that two share", PAGES, "if left > 1:", "if left > 2:", IN_PAGES),
    Fault("cache: a page of two is the last one's", PAGES, "self.users[page] += 1", "self.users[page] = 1", IN_PAGES),
    Fault(
        "cache: a page is kept for nothing",
        PAGES,
        "while len(table) > self.needed(length):",
        "while len(table) > self.needed(length) + 1:",
        IN_PAGES,
    ),
    Fault(
        "cache: a page in use is free",
        PAGES,
        "        if not self.users[page]:\n",
        "        if self.users[page] < 2:\n",
        IN_PAGES,
    ),
    Fault(
        "cache: the shared page is written over",
        PAGED,
        "plane[to] = plane[source]",
        "plane[source] = plane[to]",
        IN_PAGES,
    ),
    Fault(
        "cache: the copy of a page is not counted",
        PAGED,
        " + (bool(places) and pages.shared(sequence, to))",
        "",
        (T + "test_cache.py::test_evicting_from_shared_pages_leaves_the_others_alone",),
    ),
    Fault(
        "cache: pages in another order",
        PAGED,
        "[:, table].flatten(2, 3)",
        "[:, table].flip(2).flatten(2, 3)",
        IN_PAGES,
    ),
    Fault(
        "cache: steps are of one at least",
        STORAGE,
        "amax(-1, keepdim=True) / LEVELS",
        "amax(-1, keepdim=True).clamp(min=LEVELS) / LEVELS",
        GROWING,
    ),
    Fault(
        "cache: one scale for all heads",
        STORAGE,
        "amax(-1, keepdim=True) / LEVELS",
        "amax((1, 3), keepdim=True).expand(-1, x.shape[1], -1, -1) / LEVELS",
        STATIC,
    ),
    Fault(
        "cache: bytes of one layer",
        FOLDER + "plan.py",
        "self.layers * self.shape",
        "self.shape",
        (T + "test_cache_plan.py::test_bytes_of_a_token_by_hand",),
    ),
)
