"""What is told of a training set: counted by hand, measured by loops, and drawn by the seed
alone.
"""

import json

import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from lightning_cse.analysis.describing import describe
from lightning_cse.config.compose import compose_run
from lightning_cse.config.launch import ordered
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.errors import DataError, EncoderError


@pytest.fixture
def described(tmp_path):
    """Describe a data set with the tiny encoder, by default of the sample corpus."""

    def run(name, *overrides):
        folders = ("paths=sample", f"paths.runs_dir={tmp_path}/runs", "paths.cache_dir=null")
        words = [f"data={name}", "encoder=tiny", "corpora=sample", *folders, *overrides]
        GlobalHydra.instance().clear()
        folder = describe(compose_run("describe", ordered(words)), name)

        return json.loads((folder / "summary.json").read_text()), folder

    return run


@pytest.fixture
def overrides(tmp_path):
    """Forty sentences of four words; for twenty, rows that keep three, two and none of them."""
    anchors = [f"alpha{k} beta{k} gamma{k} delta{k}" for k in range(40)]
    (tmp_path / "corpus.txt").write_text("\n".join(anchors) + "\n")
    rows = [
        {
            "anchor": anchor,
            "positive": f"{' '.join(anchor.split()[:3])} other",
            "intermediate": f"{' '.join(anchor.split()[:2])} some other",
            "negative": "no word of it is kept",
        }
        for anchor in anchors[:20]
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    return [
        f"corpora.ngcse_wiki=[{tmp_path}/corpus.txt]",
        f"corpora.llm_wiki_sts=[{tmp_path}/rows.jsonl]",
    ]


@pytest.mark.slow
def test_a_hybrid_s_roles_pairs_and_match_error_rates(described, overrides):
    summary, folder = described("ngcse_wiki_sts", *overrides)
    mine, stsb = summary["sets"]
    assert (mine["name"], mine["rows"]) == ("ngcse_wiki_sts", 36)  # a tenth is held out
    llm = mine["roles"]["positive"]
    assert 16 <= llm <= 20
    summaries = [
        (pairs["label"], pairs["pairs"], pairs["mer"]["median"]) for pairs in mine["pairs"]
    ]
    rates = {"positive": 1 / 4, "intermediate": 2 / 4, "negative": 1.0}
    assert summaries == [(f"anchor - {role}", llm, rate) for role, rate in rates.items()]
    assert stsb["name"] == "STS-B dev, sample of 100 pairs"
    assert (folder / summary["figure"]).read_bytes().startswith(b"\x89PNG")
    assert OmegaConf.load(folder / "config.yaml").rows == 1000


@pytest.mark.slow
def test_plain_sentences_have_dropout_pairs_beside_those_of_stsb(described, overrides):
    summary, _ = described("ngcse_wiki", *overrides)
    pairs, random = summary["sets"][0]["pairs"]
    assert (pairs["kind"], pairs["label"]) == ("positive", "anchor, two dropout passes")
    assert (random["kind"], random["label"]) == ("negative", "anchor - random other anchor")
    assert random["pairs"] == 36
    assert random["mer"]["mean"] == 1, "no two rows have a word in common"
    assert set(pairs["mer"].values()) == {0.0}
    assert 0 < pairs["cosine"]["mean"] < 0.999
    assert described("ngcse_wiki", *overrides)[0]["sets"] == summary["sets"]
    scores = read_corpus("stsb", "dev", sample_dir())["score"]
    positive, negative = summary["sets"][1]["pairs"]
    assert positive["pairs"] == sum(score > 4 for score in scores)
    assert negative["pairs"] == sum(score < 1 for score in scores)


@pytest.mark.slow
def test_the_roles_asked_for(described, overrides):
    roles = ("positive=anchor", "negative=intermediate")
    summary, _ = described("ngcse_wiki_sts", *overrides, *roles)
    labels = [pairs["label"] for pairs in summary["sets"][0]["pairs"]]
    assert labels == ["anchor, two dropout passes", "anchor - intermediate"]
    with pytest.raises(DataError, match=r"no column 'positiv'; found: anchor, positive"):
        described("ngcse_wiki_sts", *overrides, "positive=positiv")


@pytest.mark.slow
def test_an_augmented_sentence_is_compared_word_piece_by_word_piece(described, tmp_path):
    sentences = [f"The Dog, at {hour}, sat.\n" for hour in range(30)]
    (tmp_path / "corpus.txt").write_text("".join(sentences))
    mine = [f"corpora.ngcse_wiki=[{tmp_path}/corpus.txt]"]
    cut, _ = described("ngcse_wiki_token_cutoff", *mine)[0]["sets"][0]["pairs"]
    # Nothing is removed below 11 word pieces; case and commas are no errors.
    assert set(cut["mer"].values()) == {0.0}
    assert not cut["dropout"]
    shuffled, _ = described("ngcse_wiki_token_shuffle", *mine)[0]["sets"][0]["pairs"]
    assert shuffled["mer"]["mean"] > 0.5


@pytest.mark.slow
def test_the_folder_is_named_by_what_decides_the_numbers(described, overrides):
    first, folder = described("ngcse_wiki", *overrides, "rows=5")
    assert folder.name == f"ngcse_wiki-{first['config_hash']}"
    assert first["sets"][0]["pairs"][0]["measured"] == 5
    assert described("ngcse_wiki", *overrides, "rows=5")[1] == folder
    assert described("ngcse_wiki", *overrides, "rows=5", "seed=1")[1] != folder


def test_a_wrong_file_is_reported_before_an_encoder_is_looked_for(described, tmp_path):
    path = tmp_path / "wrong.csv"
    path.write_text("anchor,positive\na cat,\n")
    nowhere = ("encoder=custom", f"encoder.source={tmp_path}/no_such_encoder")
    with pytest.raises(DataError, match=r"wrong\.csv:2"):
        described("file", f"data.train={path}", *nowhere)

    path.write_text("anchor,positive\na cat,a tom\n")
    with pytest.raises(EncoderError, match="no_such_encoder"):
        described("file", f"data.train={path}", *nowhere)


def test_a_file_is_read_once(described, overrides, caplog):
    path = overrides[0].partition("[")[2].rstrip("]")
    with caplog.at_level("INFO", "lightning_cse.data.read"):
        described("file", f"data.train={path}")

    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: columns: text; used: text"
    ]
