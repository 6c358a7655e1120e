"""Stored translations scored again: the same numbers, or a refusal that names the sentence."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from common.report.tables import LADDER
from reproductions.report import make_report, run
from tests.common.report.fake_runs import QUALITIES, FakeRuns
from tests.repro.test_report_command import current

ROOT = Path(__file__).parents[2]
ROWS = ("rnnsearch_50", "rnnencdec_50")


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write(file: Path, records: list[dict]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def score_truly(file: Path) -> None:
    """sacreBLEU's own sums, in place of those that the fake runs make up; a compound and a capital for the ladder."""
    records = lines(file)
    for record in records:
        for key in ("hypothesis", "reference", "hypothesis_tok", "reference_tok"):
            name = "Eau-de-vie" if key.startswith("hypothesis") else "eau-de-vie"
            record[key] = record[key].replace("le ", f"{name} ")
    for name, key, metric in (
        ("bleu", "_tok", BLEU(tokenize="none", force=True)),
        ("bleu_detok", "", BLEU(force=True)),
        ("chrf", "", CHRF()),
    ):
        texts = ([r[f"{side}{key}"] for r in records] for side in ("hypothesis", "reference"))
        hypotheses, references = texts
        for record, sums in zip(records, metric._extract_corpus_statistics(hypotheses, [references]), strict=True):
            record[name] = list(sums)
    write(file, records)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with one paper and two rows."""
    root = tmp_path_factory.mktemp("checkout")
    folder = root / "reproductions" / "bahdanau"
    folder.mkdir(parents=True)
    for name in ("published.yaml", "claims.yaml"):
        shutil.copy(ROOT / "reproductions" / "bahdanau" / name, folder)
    qualities = {row: QUALITIES[row] for row in ROWS}
    FakeRuns(root / "runs", sizes={"test": 30, "test_long": 20}, seeds=(1,), qualities=qualities).build()
    for file in (root / "runs").glob("*/*/*/sentences/*.jsonl"):
        score_truly(file)
    return root


@pytest.fixture
def checkout(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def sentences(checkout: Path, name: str = "test") -> Path:
    return checkout / "runs" / "bahdanau" / "small" / "rnnsearch_50-s1" / "sentences" / f"{name}.jsonl"


def test_the_ladder_is_the_scorers_table_of_the_report(checkout: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["paper=bahdanau", "rescore=true"], current, checkout) == 0
    assert "scored again: 8 files of sentences" in capsys.readouterr().out
    report = make_report("bahdanau", "small", checkout / "runs", current, checkout, again=True)
    assert report.scorers is not None
    assert [metric.name for metric in report.scorers.metrics] == list(LADDER)
    [row] = [row for row in report.scorers.rows if row.id == "rnnsearch_50"]
    found = lines(sentences(checkout))
    plain = [r["hypothesis"] for r in found], [[r["reference"] for r in found]]
    intl = sacrebleu.corpus_bleu(*plain, tokenize="intl")
    lower = sacrebleu.corpus_bleu(*plain, lowercase=True)
    values = {m.name: c.ours.value for m, c in zip(report.scorers.metrics, row.cells, strict=True)}  # type: ignore[union-attr]
    assert values["bleu_intl"] == pytest.approx(intl.score) and values["bleu_lc"] == pytest.approx(lower.score)
    assert values["bleu_lc"] > values["bleu_detok"] and values["bleu_atat"] != pytest.approx(values["multi_bleu"])
    text = (checkout / "runs" / "bahdanau" / "small" / "RESULTS.md").read_text()
    assert f"tok:intl|smooth:exp|version:{sacrebleu.__version__}" in text
    assert "compounds:split" in text and f"{intl.score:.2f} [" in text


def test_without_it_the_report_is_as_it_was(checkout: Path):
    report = make_report("bahdanau", "small", checkout / "runs", current, checkout)
    again = make_report("bahdanau", "small", checkout / "runs", current, checkout, again=True)
    assert report.scorers is not None
    assert [metric.name for metric in report.scorers.metrics] == ["bleu", "bleu_detok", "chrf"]
    assert report.tables == again.tables and report.outcomes == again.outcomes and report.lengths == again.lengths


@pytest.mark.parametrize("name", ["bleu", "bleu_detok", "chrf"])
@pytest.mark.parametrize("file", ["test", "test_long.shuffled"])
def test_a_changed_statistic_is_refused_by_file_and_sentence(checkout: Path, name: str, file: str, capsys):
    records = lines(sentences(checkout, file))
    records[7][name][2] += 1
    write(sentences(checkout, file), records)
    assert run(["paper=bahdanau"], current, checkout) == 0, "no other report looks"
    shutil.rmtree(checkout / "out", ignore_errors=True)
    assert run(["paper=bahdanau", "rescore=true", f"out={checkout / 'out'}"], current, checkout) == 2
    error = capsys.readouterr().err
    assert f"{sentences(checkout, file)}: line 8.{name}: sentence {records[7]['id']}: got" in error
    assert not (checkout / "out").exists()


@pytest.mark.parametrize("key", ["hypothesis", "reference", "hypothesis_tok", "reference_tok"])
def test_a_changed_text_is_refused(checkout: Path, key: str, capsys):
    records = lines(sentences(checkout))
    records[3][key] += " encore"
    write(sentences(checkout), records)
    assert run(["paper=bahdanau", "rescore=true"], current, checkout) == 2
    assert (
        f"line 4.bleu{'' if key.endswith('tok') else '_detok'}: sentence {records[3]['id']}" in capsys.readouterr().err
    )


def test_texts_that_no_score_can_be_made_of_are_named(checkout: Path, capsys):
    records = lines(sentences(checkout))
    records[3]["hypothesis_tok"] += " en@@ core"
    write(sentences(checkout), records)
    assert run(["paper=bahdanau", "rescore=true"], current, checkout) == 2
    assert f"{sentences(checkout)}: hypothesis 3 holds the subword mark" in capsys.readouterr().err


def test_no_torch_is_loaded(checkout: Path):
    code = (
        "import sys; from pathlib import Path; from reproductions.report import run\n"
        f"code = run(['paper=bahdanau', 'rescore=true'], lambda config: '5f3a9c21', Path({str(checkout)!r}))\n"
        "print(code, sorted({'torch', 'pytorch_lightning', 'hydra', 'wandb'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "0 []"
