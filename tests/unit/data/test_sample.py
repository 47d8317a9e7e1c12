"""The sample corpus of the package: the official layout, sizes, and no pair trained on that is
evaluated on.
"""

import itertools

import numpy as np
import pytest
from omegaconf import OmegaConf

from lightning_cse.data.corpora import read_corpus, read_sources
from lightning_cse.data.declarations import CORPORA, sample_dir
from lightning_cse.data.leaks import all_pairs
from lightning_cse.data.rows import files_of
from lightning_cse.paths import conf_dir

# Rows enough to learn from; the others have 20 to 60 a split.
LARGER = {"inli", "stsb", "wiki1m", "sts12", "sts14", "sts15", "sts16", "impscore", "ngcse"}
OFFICIAL = {name: corpus for name, corpus in CORPORA.items() if not corpus.files[0].anchors}
"""The corpora with files in a data directory, not those that a paper's folder keeps."""
SPLITS = [(name, split) for name, corpus in OFFICIAL.items() for split in corpus.splits]
PATHS = list(dict.fromkeys(file.path for corpus in OFFICIAL.values() for file in corpus.files))
TRAINING = {
    "train",
    "extra",
    "original_train",
    "revised_train",
    *CORPORA["ngcse"].splits,
    *CORPORA["dino"].splits,
    *CORPORA["clhaif"].splits,
}
"""Splits to train on; every other is evaluated on."""

MIXTURES = sorted(path.stem for path in (conf_dir() / "corpora").glob("*.yaml"))


def sample(name, split):
    return read_corpus(name, split, sample_dir())


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_every_corpus_has_every_split_in_the_official_place(name, split):
    rows = sample(name, split)
    files = [str(sample_dir() / file.path) for file in CORPORA[name].split_files(split)]

    assert [file.path for file in files_of(rows)] == files
    assert 10 <= len(rows) <= (600 if name in LARGER else 60)


def test_the_folder_has_these_files_alone_under_a_free_licence():
    paths = [path for path in sample_dir().rglob("*") if path.is_file()]
    names = {path.relative_to(sample_dir()).as_posix() for path in paths}

    assert names == {"LICENSE", "SAMPLE", *PATHS}
    assert "SPDX-License-Identifier: CC0-1.0" in (sample_dir() / "LICENSE").read_text()


# What is trained on, and what is evaluated


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

    assert len(trained)
    assert not np.isin(trained, evaluated).any()
