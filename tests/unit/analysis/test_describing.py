"""What is told of a training set: counted by hand, measured by loops, and drawn by the seed
alone.
"""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import instantiate
from omegaconf import OmegaConf

from lightning_cse.analysis.describing import describe, pair_sets
from lightning_cse.config import conf_dir
from lightning_cse.config.check import check
from lightning_cse.config.compose import register
from lightning_cse.config.launch import ordered
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.engine.build import check_nodes
from lightning_cse.errors import ConfigError

Describe = Callable[..., tuple[dict[str, Any], Path]]

NAMES = sorted(
    path.stem for path in (conf_dir() / "data").glob("*.yaml") if not path.stem.startswith("_")
)


def composed(*overrides):
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return hydra_compose("describe", ordered(overrides))


@pytest.fixture
def described(tmp_path):
    """Describe a data set with the tiny encoder; sentences of the sample corpus, unless the
    overrides say others.
    """

    def run(name, *overrides):
        places = ("paths=sample", f"paths.runs_dir={tmp_path}/runs", "paths.cache_dir=null")
        cfg = composed(
            f"data={name}",
            "encoder=tiny",
            "corpora=sample",
            *places,
            *overrides,
        )
        folder = describe(cfg, name)
        return json.loads((folder / "summary.json").read_text()), folder

    return run


@pytest.fixture
def own(tmp_path):
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


def test_a_hybrid_s_roles_pairs_and_match_error_rates(described, own):
    summary, folder = described("ngcse_wiki_sts", *own)
    mine, stsb = summary["sets"]
    assert (mine["name"], mine["rows"]) == ("ngcse_wiki_sts", 36)  # a tenth is held out
    llm = mine["roles"]["positive"]
    assert 16 <= llm <= 20
    assert mine["roles"] == {
        "anchor": 36,
        "positive": llm,
        "intermediate": llm,
        "negative": llm,
    }
    roles = (
        ("positive", "positive", 1 / 4),
        ("positive", "intermediate", 2 / 4),
        ("negative", "negative", 1.0),
    )
    for pairs, (kind, role, rate) in zip(
        mine["pairs"],
        roles,
        strict=True,
    ):
        assert (pairs["kind"], pairs["label"], pairs["pairs"]) == (kind, f"anchor - {role}", llm)
        assert not pairs["dropout"]
        assert pairs["mer"] == {
            "mean": rate,
            "lower_quartile": rate,
            "median": rate,
            "upper_quartile": rate,
        }
    assert stsb["name"] == "STS-B dev"
    assert (folder / summary["figure"]).read_bytes().startswith(b"\x89PNG")
    assert OmegaConf.load(folder / "config.yaml").rows == 1000


def test_stsb_s_pairs_by_score_and_their_cosines_by_a_loop(described, own):
    summary, _ = described(
        "ngcse_wiki",
        *own,
        "beside.split=train",
    )
    rows = list(
        read_corpus(
            "stsb",
            "train",
            sample_dir(),
        )
    )
    close = [row for row in rows if row["score"] > 4]
    far = [row for row in rows if row["score"] < 1]
    positive, negative = summary["sets"][1]["pairs"]
    assert (positive["pairs"], negative["pairs"]) == (len(close), len(far))
    assert min(len(close), len(far)) > 5
    encoder = instantiate(composed("data=inli", "encoder=tiny").encoder).eval()

    def vector(sentence):
        inputs = encoder.tokenizer.tokenizer(sentence, return_tensors="pt")
        return encoder.backbone(**inputs).last_hidden_state[0, 0].double()

    with torch.no_grad():
        for pairs, chosen in ((positive, close), (negative, far)):
            cosines = [
                float(
                    torch.cosine_similarity(
                        vector(row["sentence1"]),
                        vector(row["sentence2"]),
                        dim=0,
                    )
                )
                for row in chosen
            ]
            assert pairs["cosine"]["mean"] == pytest.approx(statistics.fmean(cosines), abs=1e-5)
            assert pairs["cosine"]["median"] == pytest.approx(statistics.median(cosines), abs=1e-5)


def test_plain_sentences_have_dropout_pairs(described, own):
    state = torch.get_rng_state()
    summary, _ = described("ngcse_wiki", *own)
    pairs, random = summary["sets"][0]["pairs"]
    assert (pairs["kind"], pairs["label"], pairs["dropout"]) == (
        "positive",
        "anchor, two dropout passes",
        True,
    )
    assert (random["kind"], random["label"], random["pairs"]) == (
        "negative",
        "anchor - random other anchor",
        36,
    )
    assert random["mer"]["mean"] == 1, "no two rows have a word in common"
    assert set(pairs["mer"].values()) == {0.0}
    assert 0 < pairs["cosine"]["mean"] < 0.999
    assert described("ngcse_wiki", *own)[0]["sets"] == summary["sets"]
    assert torch.equal(torch.get_rng_state(), state)
    same, _ = described(
        "ngcse_wiki",
        *own,
        "encoder.dropout=0",
    )[0]["sets"][0]["pairs"]
    assert same["cosine"]["mean"] == pytest.approx(1)


def test_the_roles_asked_for(described, own):
    summary, _ = described(
        "ngcse_wiki_sts",
        *own,
        "positive=anchor",
        "negative=intermediate",
    )
    labels = [(pairs["kind"], pairs["label"]) for pairs in summary["sets"][0]["pairs"]]
    assert labels == [
        ("positive", "anchor, two dropout passes"),
        ("negative", "anchor - intermediate"),
    ]
    with pytest.raises(
        ConfigError,
        match=r"positive: data=ngcse_wiki_sts has no positive 'positiv' - did you mean 'positive'\?",
    ):
        described(
            "ngcse_wiki_sts",
            *own,
            "positive=positiv",
        )
    with pytest.raises(ConfigError, match="negative: data=ngcse_wiki has no negative 'anchor'"):
        described(
            "ngcse_wiki",
            *own,
            "negative=anchor",
        )


def test_an_augmented_sentence_is_compared_word_piece_by_word_piece(described, tmp_path):
    (tmp_path / "corpus.txt").write_text(
        "".join(f"The Dog, at {hour}, sat.\n" for hour in range(30))
    )
    mine = [f"corpora.ngcse_wiki=[{tmp_path}/corpus.txt]"]
    cut, _ = described("ngcse_wiki_token_cutoff", *mine)[0]["sets"][0]["pairs"]
    assert set(cut["mer"].values()) == {
        0.0
    }  # nothing is removed below 11 word pieces; case and commas are no errors
    assert not cut["dropout"]
    shuffled, _ = described("ngcse_wiki_token_shuffle", *mine)[0]["sets"][0]["pairs"]
    assert shuffled["mer"]["mean"] > 0.5


def test_the_folder_is_named_by_what_decides_the_numbers(described, own):
    first, folder = described(
        "ngcse_wiki",
        *own,
        "rows=5",
    )
    assert folder.name == f"ngcse_wiki-{first['config_hash']}"
    assert first["sets"][0]["pairs"][0]["measured"] == 5
    assert (
        described(
            "ngcse_wiki",
            *own,
            "rows=5",
            "data.batch_size=64",
        )[1]
        == folder
    )
    others = {
        described(
            "ngcse_wiki",
            *own,
            *each,
        )[1]
        for each in (["rows=6"], ["rows=5", "seed=1"])
    }
    assert len(others | {folder}) == 3


@pytest.mark.parametrize("name", NAMES)
def test_a_data_set_can_be_described(name):
    cfg = composed(f"data={name}", "+profile=laptop")
    check(cfg, "describe")
    check_nodes(cfg)


def test_the_pairs_of_a_figure(own):
    places = (
        "encoder=tiny",
        "corpora=sample",
        "paths=sample",
        "paths.cache_dir=null",
        *own,
    )
    sets = pair_sets(
        {name: composed(f"data={name}", *places) for name in ("ngcse_wiki_sts", "ngcse_wiki")}
    )
    assert list(sets) == ["ngcse_wiki_sts", "ngcse_wiki", "STS-B dev"]
    assert [(pairs.kind, pairs.label) for pairs in sets["ngcse_wiki"]] == [
        ("positive", "anchor, two dropout passes"),
        ("negative", "anchor - random other anchor"),
    ]
    assert set(sets["ngcse_wiki_sts"][0].mer) == {0.25}
