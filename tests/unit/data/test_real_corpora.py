"""The official files, where LIGHTNING_CSE_DATA has them: digests, and the counts that were
published.
"""

from collections import Counter

import pytest

from lightning_cse.data import read_corpus
from lightning_cse.data.declarations import CORPORA, find_file
from lightning_cse.data.rows import files_of

LABELS = {  # entailment, neutral, contradiction, none
    "snli_senteval/dev": (3329, 3235, 3278, 0),
    "snli_senteval/test": (3368, 3219, 3237, 0),
    "snli_partial/dev": (433, 421, 419, 16),
    "snli_partial/test": (405, 429, 420, 23),
    "snli_sample/train": (6015, 5899, 6086, 0),
    "snli_sample/extra": (652, 663, 685, 0),
    "snli_counterfactual/original_train": (562, 554, 550, 0),
    "snli_counterfactual/original_dev": (74, 75, 51, 0),
    "snli_counterfactual/original_test": (146, 123, 131, 0),
    "snli_counterfactual/revised_train": (2208, 2224, 2232, 0),
    "snli_counterfactual/revised_dev": (252, 250, 298, 0),
    "snli_counterfactual/revised_test": (508, 554, 538, 0),
    "mnli_nyu/train": (6709, 6646, 6645, 0),
    "mnli_nyu/dev_matched": (1784, 1552, 1664, 0),
    "mnli_llmsknow/train": (3239, 3367, 3394, 0),
    "mnli_llmsknow/dev_matched": (3552, 3183, 3265, 0),
    "sick/test": (1404, 2790, 712, 0),
    "sick_semeval/test": (1414, 2793, 720, 0),
}
SPLITS = [
    (name, split)
    for name, corpus in CORPORA.items()
    for split in corpus.splits
    if not corpus.files[0].anchors  # those have the files of other corpora, too
]


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_real_files_are_the_official_ones(real_data, name, split):
    files = CORPORA[name].split_files(split)
    absent = [file.path for file in files if find_file(real_data, file) is None]

    if absent:
        pytest.skip(f"not in the folder: {', '.join(absent)}")

    rows = read_corpus(name, split, real_data)

    assert [file.name for file in files_of(rows)] == [file.path for file in files]
    assert len(rows) == CORPORA[name].rows(split)

    for source, file in zip(files_of(rows), files, strict=True):
        assert file.sha256 in (None, source.sha256), file.path


@pytest.mark.parametrize("key", LABELS)
def test_real_labels(real_data, key):
    counts = Counter(read_corpus(*key.split("/"), real_data)["label"])
    labels = ("entailment", "neutral", "contradiction", "-")

    assert tuple(map(counts.get, labels, [0] * 4)) == LABELS[key]
