"""published.yaml: what is read from it, and every error names file, key and what is expected."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.report.measures import Field, Measure
from common.report.published import Published, load_published
from tests.common.report.planted import PUBLISHED

Edit = Callable[[dict[str, Any]], object]


def load(tmp_path: Path, edit: Edit = lambda table: None) -> Published:
    """Load PUBLISHED after an edit of its table."""
    data = copy.deepcopy(PUBLISHED)
    edit(data["tables"][0])
    file = tmp_path / "published.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return load_published(file)


def test_a_table_is_read(tmp_path: Path):
    table = load(tmp_path).table("table_1")
    assert [row.id for row in table.rows] == ["good", "fair", "poor"]
    assert table.columns[0].ours == Measure("bleu")
    assert table.columns[0].digits == 2
    assert table.tolerance == 1.0


def test_a_table_of_speeds_and_texts_fits(tmp_path: Path):
    def speeds(table: dict[str, Any]) -> None:
        table["columns"] = {
            "step_ms": {"label": "ms", "ours": {"field": "metrics.step.value", "factor": 1000}, "digits": 1},
            "params": {"label": "parameters"},
        }
        table["rows"] = {"good": {"label": "Good", "step_ms": 3, "params": "41M"}}

    table = load(tmp_path, speeds).table("table_1")
    assert table.columns[0].ours == Field("metrics.step.value", 1000)
    assert table.rows[0].values == {"step_ms": 3.0, "params": "41M"}


def test_a_value_is_looked_up(tmp_path: Path):
    assert load(tmp_path).value("table_1", "fair", "bleu") == 24.0


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (("table_2", "good", "bleu"), "table_2: no such table, did you mean table_1?"),
        (("table_1", "god", "bleu"), "table_1.god.bleu: no such row, did you mean good?"),
        (("table_1", "good", "blue"), "table_1.good.blue: expected a number, got None; numbers of this row: bleu"),
    ],
)
def test_a_value_that_is_not_there(tmp_path: Path, place: tuple[str, str, str], message: str):
    with pytest.raises(ValueError) as error:
        load(tmp_path).value(*place)
    assert str(error.value) == f"{tmp_path}/published.yaml: {message}"


@pytest.mark.parametrize(("evidence", "target"), [("read", True), ("quoted", True), ("recalled", False)])
def test_only_evidence_makes_a_target(tmp_path: Path, evidence: str, target: bool):
    published = load(tmp_path, lambda table: table.update(evidence=evidence))
    if target:
        assert published.value("table_1", "good", "bleu") == 30.0
    else:
        with pytest.raises(ValueError, match="evidence 'recalled': a target needs read or quoted"):
            published.value("table_1", "good", "bleu")


def delete(key: str) -> Edit:
    return lambda table: table.pop(key)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (delete("caption"), "tables[0].caption: missing, expected text"),
        (delete("rows"), "tables[0].rows: missing, expected a mapping"),
        (
            lambda t: t.update(evidence="rumour"),
            "tables[0].evidence: got 'rumour', expected one of quoted, read, recalled",
        ),
        (lambda t: t.update(captoin="x"), "tables[0].captoin: unknown key, did you mean caption"),
        (lambda t: t.update(tolerance="1"), "tables[0].tolerance: expected a number, got str '1'"),
        (lambda t: t.update(tolerance=True), "tables[0].tolerance: expected a number, got bool True"),
        (lambda t: t.update(comparable_at=["papr"]), "tables[0].comparable_at: got 'papr', did you mean paper"),
        (lambda t: t.update(rows=[1]), "tables[0].rows: expected a mapping, got list [1]"),
        (lambda t: t["rows"]["good"].update(blue=1), "tables[0].rows.good.blue: unknown key, did you mean bleu"),
        (lambda t: t["rows"]["good"].update(bleu=[1]), "tables[0].rows.good.bleu: expected a number, got list [1]"),
        (lambda t: t["rows"]["good"].pop("label"), "tables[0].rows.good.label: missing, expected text"),
        (
            lambda t: t["columns"]["bleu"]["ours"].update(metric="blue"),
            "tables[0].columns.bleu.ours.metric: got 'blue', did you mean bleu",
        ),
        (
            lambda t: t["columns"]["bleu"].pop("ours"),
            "tables[0].not_run: missing: a table without a column of ours and without a plot must say why",
        ),
        (lambda t: t.update({None: 0}), "tables[0]: key None must be text: quote it"),
    ],
)
def test_errors_name_file_and_key(tmp_path: Path, edit: Edit, message: str):
    with pytest.raises(ValueError) as error:
        load(tmp_path, edit)
    assert str(error.value).startswith(f"{tmp_path}/published.yaml: {message}")


def test_a_missing_file_and_broken_yaml_are_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"none\.yaml: no such file"):
        load_published(tmp_path / "none.yaml")
    (tmp_path / "broken.yaml").write_text("a: [1")
    with pytest.raises(ValueError, match=r"broken\.yaml: not valid YAML"):
        load_published(tmp_path / "broken.yaml")


def test_two_tables_of_one_id_are_refused(tmp_path: Path):
    data = {**PUBLISHED, "tables": PUBLISHED["tables"] * 2}
    (tmp_path / "published.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(ValueError, match="tables: ids must differ, got table_1, table_1"):
        load_published(tmp_path / "published.yaml")
