import pytest

from data import code
from data.code import code_hash

FILES = {
    "pkg/__init__.py": "",
    "pkg/a.py": '"""What it is."""\nfrom pkg import b\n\n\ndef f(x):\n    """Doubles."""\n    return 2 * x  # twice\n',
    "pkg/b.py": "import pkg.c\nLIMIT = 3\n",
    "pkg/c.py": "from os.path import join\nfrom pkg.a import f\n",
    "pkg/other.py": "X = 1\n",
}


@pytest.fixture
def hashed(tmp_path, monkeypatch):
    """The hash of pkg.a with one file replaced."""
    monkeypatch.setattr(code, "ROOT", tmp_path)

    def make(**change):
        for name, text in (FILES | {f"pkg/{key}.py": value for key, value in change.items()}).items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        code_hash.cache_clear()
        return code_hash("pkg.a")

    yield make
    code_hash.cache_clear()


@pytest.mark.parametrize(
    "change",
    [
        {"a": FILES["pkg/a.py"].replace("2 * x", "3 * x")},
        {"a": FILES["pkg/a.py"].replace("2 * x", "2 * (x + 0)")},
        {"b": "import pkg.c\nLIMIT = 4\n"},
        {"c": FILES["pkg/c.py"] + "Y = 1\n"},
    ],
)
def test_code_that_is_imported_counts(hashed, change):
    assert hashed(**change) != hashed()


@pytest.mark.parametrize(
    "change",
    [
        {"a": FILES["pkg/a.py"].replace("Doubles.", "Twice as much.").replace("  # twice", "").replace("2 * x", "2*x")},
        {"a": FILES["pkg/a.py"].replace("What it is.", "Something else.")},
        {"other": "X = 2\n"},
    ],
)
def test_docstrings_comments_layout_and_other_files_do_not(hashed, change):
    assert hashed(**change) == hashed()


def test_the_code_of_a_source_includes_what_it_is_made_of():
    """Its cleaning, and the split, which lie in other files."""
    seen = []
    original = code.module_file
    code_hash.cache_clear()
    try:
        code.module_file = lambda name: seen.append(name) or original(name)
        code_hash("data.prepare", "data.sources.bible")
    finally:
        code.module_file = original
    assert {"data.sources.verses", "data.pairs", "data.tokenize", "data.text"} <= set(seen)
