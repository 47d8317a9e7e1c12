"""The sample corpus of the package: the official layout, sizes, and no pair trained on that is
evaluated on.
"""

import re
from typing import Any

import pytest
from omegaconf import OmegaConf

from lightning_cse.config import conf_dir
from lightning_cse.data.corpora import CORPORA, read_corpus, sample_dir
from lightning_cse.data.sources import all_pairs, read_sources

# Rows enough to learn from; the others have 20 to 60 a split.
SIZES = {
    "inli": {
        "train": 595,
        "val": 120,
        "test": 180,
    },
    "stsb": {
        "train": 120,
        "dev": 100,
        "test": 100,
    },
    "wiki1m": {"train": 410},
    "sts12": {
        "train": 60,
        "test": 100,
    },
    "sts13": {"test": 60},
    "sts14": {"test": 120},
    "sts15": {"test": 100},
    "sts16": {"test": 100},
    "impscore": {
        "train": 180,
        "dev": 10,
        "test": 10,
    },
    "ngcse": {
        "wiki_sts": 210,
        "wiki_nli": 60,
        "nli_sts": 50,
        "nli_nli": 50,
    },
}
SPLITS = [(name, split) for name, corpus in CORPORA.items() for split in corpus.splits]
PATHS = list(dict.fromkeys(file.path for corpus in CORPORA.values() for file in corpus.files))
TRAINING = {
    "train",
    "extra",
    "original_train",
    "revised_train",
    *CORPORA["ngcse"].splits,
}
"""Splits to train on; every other is evaluated on."""

MIXTURES = sorted(path.stem for path in (conf_dir() / "corpora").glob("*.yaml"))
TESTED = ("snli_dev", "snli_test", "mnli_test", "sick_test")


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_every_corpus_has_every_split_in_the_official_place(name, split):
    rows = read_corpus(
        name,
        split,
        sample_dir(),
    )
    files = [str(sample_dir() / file.path) for file in CORPORA[name].split_files(split)]

    assert [file.path for file in rows.files] == files

    if name in SIZES:
        assert len(rows) == SIZES[name][split]
    else:
        assert 20 <= len(rows) <= 60


def test_the_folder_has_these_files_alone_in_plain_signs_under_a_free_licence():
    found = {
        path.relative_to(sample_dir()).as_posix()
        for path in sample_dir().rglob("*")
        if path.is_file()
    }

    assert found == {
        "LICENSE",
        "SAMPLE",
        *PATHS,
    }

    for path in PATHS:
        text = (sample_dir() / path).read_text(encoding="utf-8")
        assert not re.findall("[\u2010-\u2015\u2018-\u201f\u2026\u00a0\ufffd]", text), path

    licence = (sample_dir() / "LICENSE").read_text(encoding="utf-8")

    assert "SPDX-License-Identifier: CC0-1.0" in licence
    assert [path for path in PATHS if f"{path.split('/')[0]}/" not in licence] == []


# What is trained on, and what is evaluated


def test_no_pair_of_a_dev_or_test_split_is_trained_on():
    named = {split for name, split in SPLITS if "train" in split or name == "ngcse"}

    assert named | {"extra"} == TRAINING

    pairs: dict[bool, set[str]] = {}

    for trained in (True, False):
        splits = [split for split in SPLITS if (split[1] in TRAINING) is trained]
        pairs[trained] = all_pairs([read_corpus(*split, sample_dir()) for split in splits])

    assert min(map(len, pairs.values())) > 1000
    assert pairs[True].isdisjoint(pairs[False])


@pytest.fixture(params=MIXTURES)
def mixture(request, compose):
    """Return the config of an experiment with each mixture of corpora."""
    return compose("+experiment=ngcse_wiki_sts", f"corpora={request.param}")


def sources_of(cfg):
    corpora: Any = OmegaConf.to_container(cfg.corpora, resolve=True)
    return {key: [value] if isinstance(value, str) else value for key, value in corpora.items()}


def test_mixture_trains_on_nothing_that_it_evaluates(mixture):
    sources = sources_of(mixture)
    stsb = {"stsb/dev", "stsb/test"}
    tested = {name for key in TESTED for name in sources[key]}

    assert tested | stsb == set(sources["evaluated"])

    of_suite = set()

    for task in mixture.suite.values():
        of_suite |= {task[split] for split in ("dev", "test") if split in task}

    assert of_suite | stsb == set(sources["evaluated_sts"])

    train = [*sources["nli_train"], *sources["wiki"]]

    assert {name.split("/")[1] for name in train} <= TRAINING

    trained = all_pairs(
        read_sources(
            train,
            sample_dir(),
            key="corpora",
        )
    )
    evaluated = all_pairs(
        read_sources(
            sources["evaluated"],
            sample_dir(),
            key="corpora",
        )
    )

    assert trained.isdisjoint(evaluated)
