from pathlib import Path

import pytest

from data.sources.files import Files, read_parallel, read_tsv


@pytest.fixture
def write(tmp_path):
    def make(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return make


@pytest.fixture
def source(write):
    """Blank lines everywhere: in train they go, in the test set they stay."""
    train = [write("train.en", "one\n\nthree\nfour\n"), write("train.fr", "un\ndeux\n\u00a0\nquatre\n")]
    return lambda **changes: Files({"train": train, "dev": write("dev.tsv", "a\tb\n"), "test": TEST(write)} | changes)


def TEST(write):
    return [
        write("test.en", "first\n\nthird, which is long\n\u3000\nlast"),
        write("test.fr", "un\n\ntrois\nquatre\n\n"),
    ]


def test_pairs_of_two_files_and_of_one(source, make_data):
    data = make_data(source())
    assert [(e.id, e.source, e.target) for e in data.examples("train")] == [("1", "one", "un"), ("4", "four", "quatre")]
    assert [(e.source, e.target) for e in data.examples("dev")] == [("a", "b")]
    assert data.counts["train"]["with a blank side"] == 2
    assert data.record["licence"] == "yours"


def test_a_test_set_keeps_every_line_at_its_place(source, make_data):
    data = make_data(source(), max_words=2)
    examples = data.examples("test")
    assert [e.id for e in examples] == ["1", "2", "3", "4", "5"]
    assert [len(e.source_tokens) for e in examples] == [1, 0, 5, 0, 1]  # 5 words over the limit of training
    assert [e.source for e in examples] == ["first", "", "third, which is long", "\u3000", "last"]
    found = [""] * 5
    for batch in data.eval_batches("test"):
        for row, index in enumerate(batch.index.tolist()):
            found[index] = " ".join(data.source_vocab.decode(batch.source[row][batch.source_mask[row]].tolist()[:-1]))
    assert found == ["<unk>", "", "<unk> <unk> <unk> <unk> <unk>", "", "<unk>"]


@pytest.mark.parametrize("longer", ["en", "fr"])
def test_files_of_different_lengths_are_named(write, longer):
    paths = {"en": write("a.en", "1\n2\n"), "fr": write("a.fr", "1\n2\n")}
    write(f"a.{longer}", "1\n2\n3\n4\n")
    lengths = {language: 4 if language == longer else 2 for language in paths}
    with pytest.raises(ValueError) as error:
        list(read_parallel(Path(paths["en"]), Path(paths["fr"])))
    assert f"a.en has {lengths['en']} lines and" in str(error.value)
    assert f"a.fr has {lengths['fr']}, expected as many" in str(error.value)
    assert "line 3 has no partner" in str(error.value)


def test_separators_inside_a_line_do_not_shift_the_pairs(write):
    paths = write("a.en", "one\u2028more\u0085\ntwo\f\n"), write("a.fr", "un\ndeux\n")
    assert list(read_parallel(*map(Path, paths))) == [("one\u2028more\u0085", "un"), ("two\f", "deux")]


@pytest.mark.parametrize(("line", "tabs"), [("no tab", 0), ("a\tb\tc", 2)])
def test_lines_without_exactly_one_tab_are_named(write, line, tabs):
    path = write("a.tsv", f"a\tb\n{line}\n")
    with pytest.raises(ValueError, match=rf"a\.tsv, line 2: got {tabs} tabs, expected one"):
        list(read_tsv(Path(path)))


def test_a_blank_line_of_a_tsv_file_is_a_blank_pair(write):
    assert list(read_tsv(Path(write("a.tsv", "a\tb\n\n\t\n\tb\n")))) == [("a", "b"), ("", ""), ("", ""), ("", "b")]


def test_bytes_that_are_not_utf8_stop_the_preparation(source, write, make_data, tmp_path):
    bad = [write("bad.en", "a\nb\nc\n"), write("bad.fr", "a\n\xe9\nc\n".encode("latin-1"))]
    with pytest.raises(ValueError, match=r"bad\.fr, line 2: not valid UTF-8"):
        make_data(source(train=bad))
    assert [path for path in (tmp_path / "cache").iterdir() if path.suffix != ".lock"] == []


def test_escapes_are_undone_if_asked(write, make_data):
    tsv = write("a.tsv", "it &apos;s\tR &amp;amp; D\n")
    splits = {"train": tsv, "dev": tsv, "test": tsv}
    assert make_data(Files(splits)).examples("test")[0].source == "it &apos;s"
    example = make_data(Files(splits, escaped=True)).examples("test")[0]
    assert (example.source, example.target) == ("it 's", "R &amp; D")


def test_changed_files_are_prepared_anew(source, write, make_data):
    files = source()
    first = make_data(files)
    folder = first.folder
    write("test.fr", "un\n\ntrois\nquatre\ncinq\n")
    second = make_data(files)
    assert second.folder != folder
    assert second.examples("test")[4].target == "cinq"
    assert second.checksum != first.checksum


def test_what_the_scan_of_a_test_set_found_is_counted(source, write, make_data):
    test = write("known.tsv", "one\tun\n" + "w " * 20 + "\tx\n")
    counts = make_data(source(test=test)).counts["test"]
    assert counts["source also in train (kept)"] == 1
    assert counts["implausible lengths (kept)"] == 1
    assert counts["kept"] == 2


def test_missing_files_and_splits_are_named(source, make_data, tmp_path):
    with pytest.raises(ValueError, match=r"source\.splits\.dev: there is no file .*/absent\.tsv"):
        make_data(source(dev=str(tmp_path / "absent.tsv")))
    with pytest.raises(ValueError, match=r"source\.splits\.dev: got 3 files"):
        make_data(source(dev=["a", "b", "c"]))
    with pytest.raises(ValueError, match=r"expected train, dev, test"):
        Files({"train": "a", "test": "b"})
    with pytest.raises(ValueError, match=r"got .*'valid'"):
        source(valid="c")
