"""Every configuration composes; every mistake is named before anything starts."""

from pathlib import Path

import pytest
import yaml

from reproductions.compose import CONF, job, jobs_of
from reproductions.train import main
from tests.data.kinds import NAMES, kind

ROWS = ("rnnencdec_30", "rnnsearch_30", "rnnencdec_50", "rnnsearch_50", "rnnsearch_50_star")
ROW = "experiment=bahdanau/rnnsearch_50"
LM_ROW, DOCUMENT_ROW = "experiment=longformer_bigbird/lm_window", "experiment=longformer_bigbird/doc_longformer"
SEQUENCE_ROW = "experiment=performer_linformer/copy_elu"


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_every_row_of_every_table_composes(scale: str) -> None:
    tables = [table.stem for table in (CONF / "table").glob("*.yaml")]
    if scale == "paper":
        tables += [f"paper/{table.stem}" for table in (CONF / "table" / "paper").glob("*.yaml")]
    for table in tables:
        jobs = jobs_of((f"table={table}", f"scale={scale}"), None)
        assert len({j.folder for j in jobs}) == len(jobs) >= 1
        assert all(j.config["scale"]["name"] == scale and not j.ablation for j in jobs)


def test_the_rows_of_table_1() -> None:
    assert sorted(j.config["row"] for j in jobs_of(("table=bahdanau_1",), None)) == sorted(ROWS)


@pytest.mark.parametrize("ablation", sorted(path.stem for path in (CONF / "ablation").glob("*.yaml")))
def test_every_ablation_composes_and_is_a_line_of_its_own(ablation: str) -> None:
    plain, changed = job((ROW,), None), job((ROW, f"ablation={ablation}"), None)
    assert changed.config["row"] == f"rnnsearch_50+{ablation}"
    assert changed.config["label"] == f"RNNsearch-50+{ablation}" and changed.folder != plain.folder
    assert changed.config["model"] != plain.config["model"]


@pytest.mark.parametrize("data", NAMES)
def test_every_data_set_composes(data: str) -> None:
    given = [f"data.source.splits.{s}=a.tsv" for s in ("train", "dev", "test")] if data == "files" else []
    given += ["data.source_lang=en", "data.target_lang=fr"] if data == "files" else []
    stem = data.rpartition("_")[0]
    made_of = (stem, f"{stem}_bytes", f"{stem}_pixels")  # a name is that of the prepared text
    rows = {"TranslationData": ROW, "ByteData": LM_ROW, "DocumentData": DOCUMENT_ROW, "SequenceData": SEQUENCE_ROW}
    row = rows[kind(data)]
    assert job((row, f"data={data}", *given), None).config["data"]["name"] in (data, *made_of)


def test_the_paper_scale_is_the_papers() -> None:
    """Bahdanau et al. 2014, section 4, appendix B and Table 2."""
    config = job((ROW, "scale=paper"), None).config
    assert config["model"] | {"embedding": 620, "hidden": 1000, "alignment": 1000, "maxout": 500} == config["model"]
    assert config["model"]["dropout"] == 0.0 and config["model"]["init_std"] == 0.01
    adadelta = config["optim"]["optimizer"]
    assert (adadelta["_target_"], adadelta["rho"], adadelta["eps"]) == ("torch.optim.Adadelta", 0.95, 1e-6)
    assert config["optim"]["clip_norm"] == 1.0
    assert config["data"]["batch"] == {"unit": "sentences", "size": 80} and config["data"]["pool_batches"] == 20
    assert config["data"]["source_vocab_size"] == config["data"]["target_vocab_size"] == 30000
    assert config["data"]["name"] == "wmt14_enfr" and config["data"]["max_words"] == 50
    updates = {
        j.config["row"]: j.config["budget"]["updates"] for j in jobs_of(("table=bahdanau_1", "scale=paper"), None)
    }
    assert updates == dict(zip(ROWS, (846000, 471000, 600000, 288000, 667000), strict=True))


def test_both_families_get_the_same_data_and_tokens_at_small() -> None:
    search, encdec = (job((f"experiment=bahdanau/{row}",), None).config for row in ("rnnsearch_50", "rnnencdec_50"))
    for key in ("data", "optim", "budget", "trainer", "checkpoint", "decode"):
        assert search[key] == encdec[key], key


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.drpout=0.0", "model.drpout.*near: model.dropout"),
        ("+model.drpout=0.0", "model.drpout.*near: model.dropout"),
        ("++model.drpout=0.0", "model.drpout.*near: model.dropout"),
        ("hydra.ouput_subdir=null", "hydra.ouput_subdir.*near: hydra.output_subdir"),
        ("model.dropout=O.1", "model.dropout.*'O.1'.*float"),
        ("decode.beam=1e1", "decode.beam.*integer.*10.0"),
        ("trainer.threads=two", "trainer.threads.*integer"),
        ("model.hidden=wide", "model.hidden.*'wide'.*int"),
        ("model.attention=1", "model.attention.*1.*bool"),
        ("data.source_lang=false", "data.source_lang.*False.*str"),
        ("+data.source.versoins=1", "data.source.versoins"),
        ("model=transfomer", "transfomer.*luong; masked_model; pictures; rnnencdec; rnnsearch; transformer"),
        ("experiment=bahdanau/rnsearch_50", "rnsearch_50"),
        ("ablation=none", "ablation/none"),
        ("+experimnt=x", "experimnt.*known there: "),
        ("budget.updates=7", "either target_tokens or updates"),
        ("optim.schedule.warmpu=3", "warmpu.*near: .*warmup"),
        ("checkpoint.rule=best", "checkpoint.rule.*best_dev_nll"),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(override: str, message: str) -> None:
    given = (ROW, "scale=small", override) if not override.startswith("experiment") else (override,)
    with pytest.raises(ValueError, match=message):
        job(given, None)


def test_a_key_that_only_other_rows_have_names_them(tmp_path: Path) -> None:
    (tmp_path / "experiment" / "mine").mkdir(parents=True)
    text = (CONF / "experiment" / "bahdanau" / "rnnsearch_50.yaml").read_text()
    (tmp_path / "experiment" / "mine" / "row.yaml").write_text(text + "checkpoint: {every: 3}\nextra: {key: 1}\n")
    rows = "experiment=bahdanau/rnnsearch_50,mine/row"
    with pytest.raises(ValueError, match="extra.key.*rows that have it: mine/row"):
        jobs_of((rows, "extra.key=2"), str(tmp_path))


@pytest.mark.parametrize("spelling", ["1e-4", "1.0e-4", "0.0001"])
def test_a_rate_is_a_float_in_every_spelling(spelling: str) -> None:
    rate = job((ROW, f"optim.optimizer.lr={spelling}"), None).config["optim"]["optimizer"]["lr"]
    assert rate == 0.0001 and isinstance(rate, float)


def test_a_folder_outside_the_repository_adds_ablations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ablation").mkdir()
    (tmp_path / "ablation" / "mine.yaml").write_text("# @package _global_\nmodel: {alignment: 32}\n")
    found = job((ROW, "ablation=mine"), str(tmp_path))
    assert found.config["row"] == "rnnsearch_50+mine" and found.config["model"]["alignment"] == 32


def test_sweeps_multiply_and_overrides_name_the_line() -> None:
    jobs = jobs_of(("experiment=bahdanau/rnnsearch_50,bahdanau/rnnencdec_50", "seed=1,2", "model.hidden=64,128"), None)
    assert len({j.folder for j in jobs}) == len(jobs) == 8
    assert {j.config["row"] for j in jobs if j.config["model"]["hidden"] == 64} == {
        "rnnsearch_50+model.hidden=64", "rnnencdec_50+model.hidden=64",
    }  # fmt: skip


def test_a_wrong_command_ends_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "table=bahdanau_1", "model.hiden=3"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: no key 'model.hiden'; near: model.hidden") and error.count("\n") == 1


def test_every_experiment_says_what_it_is() -> None:
    for path in CONF.glob("experiment/*/*.yaml"):
        assert path.read_text().splitlines()[1].startswith("# "), f"{path}: no header comment"
        yaml.safe_load(path.read_text())


def test_rows_of_several_tables_are_each_there_once() -> None:
    """Linformer's classifiers start from masked models that two tables list."""
    tables = ("performer_linformer_f3", "performer_linformer_l2")
    of_each = [{j.folder for j in jobs_of((f"table={table}", "scale=smoke"), None)} for table in tables]
    assert of_each[0] & of_each[1]
    both = [j.folder for j in jobs_of((f"table={','.join(tables)}", "scale=smoke", "seed=1"), None)]
    assert len(both) == len(set(both)) and set(both) == of_each[0] | of_each[1]
