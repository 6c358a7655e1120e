import ast
from typing import Any

import pytest

from data import code
from data.code import code_hash

FILES = {
    "pkg/__init__.py": "",
    "pkg/a.py": '"""What it is."""\nfrom pkg import b\n\n\ndef f(x):\n    """Doubles."""\n    return 2 * x  # twice\n',
    "pkg/b.py": "import pkg.c\nLIMIT = 3\n",
    "pkg/c.py": "from os.path import join\nfrom pkg.a import f\n\n\ndef g(name):\n    return import_module(f'pkg.chosen.{name}')\n",
    "pkg/chosen/__init__.py": "",
    "pkg/chosen/one.py": "X = 1\n",
    "pkg/other.py": "X = 1\n",
}


@pytest.fixture
def hashed(tmp_path, monkeypatch):
    """The hash of pkg.a with one file replaced."""
    monkeypatch.setattr(code, "ROOT", tmp_path)

    def make(**change):
        for name, text in (FILES | {f"pkg/{key}.py": value for key, value in change.items()}).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        forget()
        return code_hash(["pkg.a"])

    yield make
    forget()


def forget():
    code.closure.cache_clear()
    code.statements.cache_clear()
    code.imports.cache_clear()


@pytest.mark.parametrize(
    "change",
    [
        {"a": FILES["pkg/a.py"].replace("2 * x", "3 * x")},
        {"a": FILES["pkg/a.py"].replace("2 * x", "2 * (x + 0)")},
        {"b": "import pkg.c\nLIMIT = 4\n"},
        {"c": FILES["pkg/c.py"] + "Y = 1\n"},
        {"chosen/one": "X = 2\n"},
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


def test_a_package_counts_with_its_modules(hashed, tmp_path):
    before = hashed()
    (tmp_path / "pkg/__init__.py").write_text("X = 1\n")
    forget()
    assert code_hash(["pkg.a"]) != before


def test_what_is_left_out_counts_neither_itself_nor_by_what_only_it_imports(hashed):
    hashed()
    assert code.closure(frozenset({"pkg.a"}), "pkg.b") == {"pkg", "pkg.a"}


def test_fields_that_only_some_releases_of_python_have_do_not_count():
    """3.12 gave every function and class a list of type parameters, empty but for new syntax."""
    tree: Any = ast.parse("def f(x):\n    return x\nclass C: pass\n")
    older = code.plain(tree)
    for node in tree.body:
        node.type_params = []
        node._fields = (*(name for name in type(node)._fields if name != "type_params"), "type_params")
    newer = code.plain(tree)
    assert (
        older
        == newer
        == (
            "Module",
            (
                "body",
                (
                    (
                        "FunctionDef",
                        ("name", "f"),
                        ("args", ("arguments", ("args", (("arg", ("arg", "x")),)))),
                        ("body", (("Return", ("value", ("Name", ("id", "x"), ("ctx", ("Load",))))),)),
                    ),
                    ("ClassDef", ("name", "C"), ("body", (("Pass",),))),
                ),
            ),
        )
    )


def test_the_code_of_a_source_includes_what_it_is_made_of():
    """Its cleaning, and the split, which lie in other files."""
    modules = code.closure(frozenset({"data.prepare", "data.sources.bible"}))
    assert {"data.sources.verses", "data.pairs", "data.tokenize", "data.text"} <= modules
