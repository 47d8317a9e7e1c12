"""The sample corpus of the package: the official layout, sizes, and no pair trained on that is
evaluated on.
"""

import itertools
import re
from collections import Counter

import pytest
from omegaconf import OmegaConf

from lightning_cse.config import conf_dir
from lightning_cse.data.corpora import CORPORA, read_corpus, sample_dir
from lightning_cse.data.sources import all_pairs, read_sources

# Rows enough to learn from; the others have 20 to 60 a split.
LARGER = {"inli", "stsb", "wiki1m", "sts12", "sts14", "sts15", "sts16", "impscore", "ngcse"}
SPLITS = [(name, split) for name, corpus in CORPORA.items() for split in corpus.splits]
PATHS = list(dict.fromkeys(file.path for corpus in CORPORA.values() for file in corpus.files))
TRAINING = {"train", "extra", "original_train", "revised_train", *CORPORA["ngcse"].splits}
"""Splits to train on; every other is evaluated on."""

MIXTURES = sorted(path.stem for path in (conf_dir() / "corpora").glob("*.yaml"))


def sample(name, split):
    return read_corpus(name, split, sample_dir())


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_every_corpus_has_every_split_in_the_official_place(name, split):
    rows = sample(name, split)
    files = [str(sample_dir() / file.path) for file in CORPORA[name].split_files(split)]

    assert [file.path for file in rows.files] == files
    assert 10 <= len(rows) <= (600 if name in LARGER else 60)


def test_the_folder_has_these_files_alone_in_plain_signs_under_a_free_licence():
    paths = [path for path in sample_dir().rglob("*") if path.is_file()]
    found = {path.relative_to(sample_dir()).as_posix() for path in paths}

    assert found == {"LICENSE", "SAMPLE", *PATHS}

    for path in PATHS:
        text = (sample_dir() / path).read_text(encoding="utf-8")
        assert not re.findall("[\u2010-\u2015\u2018-\u201f\u2026\u00a0\ufffd]", text), path

    licence = (sample_dir() / "LICENSE").read_text(encoding="utf-8")

    assert "SPDX-License-Identifier: CC0-1.0" in licence
    assert all(f"{path.split('/')[0]}/" in licence for path in PATHS)


@pytest.mark.parametrize("names", ["snli", "mnli"])
def test_kinds_of_splits_share_no_pair(names):
    parts = {}
    for name, split in SPLITS:
        if name.startswith(names):
            kinds = [kind for kind in ("mismatched", "dev", "test", "") if kind in split]
            pairs = all_pairs([sample(name, split)])
            parts[name, split, kinds[0]] = pairs
            assert len(pairs) == len(sample(name, split)), "no pair appears twice"

    for one, other in itertools.combinations(parts, 2):
        assert one[2] == other[2] or not parts[one] & parts[other], (one, other)


@pytest.mark.parametrize("name", ["sts12", "sts13", "sts14", "sts15", "sts16"])
def test_every_subset_of_sts_has_low_and_high_scores(name):
    for split in CORPORA[name].splits:
        rows = sample(name, split)
        subsets = {file.part for file in CORPORA[name].split_files(split)}

        assert Counter(rows.column("subset")) == dict.fromkeys(subsets, 20)

        for subset in subsets:
            scores = [row["score"] for row in rows if row["subset"] == subset]
            assert min(scores) < 1.5 < 3.5 < max(scores)


# What is trained on, and what is evaluated


def test_no_pair_of_a_dev_or_test_split_is_trained_on():
    trained = all_pairs([sample(*split) for split in SPLITS if split[1] in TRAINING])
    evaluated = all_pairs([sample(*split) for split in SPLITS if split[1] not in TRAINING])

    assert min(len(trained), len(evaluated)) > 1000
    assert trained.isdisjoint(evaluated)


@pytest.mark.parametrize("name", MIXTURES)
def test_mixture_trains_on_nothing_that_it_evaluates(name, compose):
    cfg = compose("+experiment=ngcse_wiki_sts", f"corpora={name}")
    sources = {}

    for key, value in OmegaConf.to_container(cfg.corpora, resolve=True).items():
        sources[key] = {value} if isinstance(value, str) else {*value}

    stsb = {"stsb/dev", "stsb/test"}
    tested = [sources[key] for key in ("snli_dev", "snli_test", "mnli_test", "sick_test")]
    tasks = [(task.get("dev"), task.get("test")) for task in cfg.suite.values()]

    assert set().union(*tested) | stsb == sources["evaluated"]
    assert {*itertools.chain(*tasks)} - {None} | stsb == sources["evaluated_sts"]

    train = sources["nli_train"] | sources["wiki"]

    assert {source.split("/")[1] for source in train} <= TRAINING

    trained = all_pairs(read_sources(train, sample_dir(), key="corpora"))
    evaluated = all_pairs(read_sources(sources["evaluated"], sample_dir(), key="corpora"))

    assert trained.isdisjoint(evaluated)
