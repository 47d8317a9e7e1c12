"""The sample of each corpus: no duplicates, corpora of one origin agree, labels and scores vary."""

import itertools
from collections import Counter

import pytest

from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.sources import all_pairs

SNLI = ("snli", "snli_senteval", "snli_partial", "snli_sample", "snli_counterfactual")
MNLI = ("mnli", "mnli_glue", "mnli_nyu", "mnli_llmsknow")


def sample(name, split):
    return read_corpus(
        name,
        split,
        sample_dir(),
    )


def splits(name):
    return {split: sample(name, split) for split in CORPORA[name].splits}


# SNLI, MNLI, SICK


def kind(split):
    kinds = [kind for kind in ("mismatched", "dev", "test") if kind in split]
    return kinds[0] if kinds else "train"


@pytest.mark.parametrize("names", [SNLI, MNLI])
def test_kinds_of_splits_share_no_pair(names):
    parts = {}
    for name in names:
        for split, rows in splits(name).items():
            parts[name, split] = all_pairs([rows])
            assert len(parts[name, split]) == len(rows), "no pair appears twice"

    for one, other in itertools.combinations(parts, 2):
        if kind(one[1]) != kind(other[1]):
            assert not parts[one] & parts[other], (one, other)


# STS


@pytest.mark.parametrize("name", ["sts12", "sts13", "sts14", "sts15", "sts16"])
def test_every_subset_of_sts_has_low_and_high_scores(name):
    for split, rows in splits(name).items():
        subsets = {file.part for file in CORPORA[name].split_files(split)}

        assert Counter(rows.column("subset")) == dict.fromkeys(subsets, 20)

        unscored = 5 * len(subsets) if name in {"sts15", "sts16"} else 0

        assert rows.counts["read"] - len(rows) == unscored

        for subset in subsets:
            scores = [row["score"] for row in rows if row["subset"] == subset]

            assert min(scores) < 1.5
            assert max(scores) > 3.5
