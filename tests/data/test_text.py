import pytest

from data.text import is_blank, map_nonblank, read_lines


@pytest.mark.parametrize(
    "char", ["\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\x1d", "\x1e", "\r", "\u00a0", "\u200b"]
)
def test_only_line_feeds_end_a_line(tmp_path, char):
    content = f"before{char}after\nsecond{char}\n\n".encode()
    (tmp_path / "f").write_bytes(content)
    lines = list(read_lines(tmp_path / "f"))
    if char == "\r":  # at the end of a line it belongs to the line's end
        assert lines == ["before\rafter", "second", ""]
    else:
        assert lines == [f"before{char}after", f"second{char}", ""]
        assert "".join(line + "\n" for line in lines).encode() == content


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\r", ["a\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    ],
)
def test_line_ends(tmp_path, content, expected):
    (tmp_path / "f").write_bytes(content)
    assert list(read_lines(tmp_path / "f")) == expected


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    (tmp_path / "latin.txt").write_bytes("bon\nd\u00e9j\u00e0 vu\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt, line 2: not valid UTF-8 \(byte 0xe9 at column 2\)"):
        list(read_lines(tmp_path / "latin.txt"))


BLANK = ["", " ", "\t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\u2028", "\x00", " \u200b\u00a0\t"]


@pytest.mark.parametrize("text", BLANK)
def test_blank(text):
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", " .", "\u200bx", "0", "\u0301"])
def test_not_blank(text):
    assert not is_blank(text)


def test_blank_lines_keep_their_place_and_are_never_translated():
    calls = []

    def upper(lines):
        calls.append(lines)
        return [line.upper() for line in lines]

    assert map_nonblank(["a", *BLANK, "b", ""], upper, blank="") == ["A", *[""] * len(BLANK), "B", ""]
    assert calls == [["a", "b"]]


def test_nothing_is_called_for_blank_lines_alone():
    assert map_nonblank(["", " "], lambda lines: pytest.fail("called"), blank="") == ["", ""]


def test_a_function_that_loses_a_line_is_refused():
    with pytest.raises(ValueError, match="got 1 results for 2 lines"):
        map_nonblank(["a", "", "b"], lambda lines: lines[:1], blank="")
