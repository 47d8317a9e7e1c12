"""The official files, where LIGHTNING_CSE_DATA has them: digests, and the counts that were
published.
"""

from collections import Counter
from pathlib import Path

import pytest

from lightning_cse.data import read_corpus
from lightning_cse.data.corpora import CORPORA, find_file

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
CLASSES = {  # their sizes, and blank lines
    "mr/all": "5331 5331 0",
    "cr/all": "2405 1366 4",
    "subj/all": "5000 5000 0",
    "mpqa/all": "3311 7292 3",
    "trec/train": "1250 1223 1162 896 835 86 0",
    "trec/test": "138 113 94 81 65 9 0",
    "mrpc/train": "2753 1323 0",
    "mrpc/test": "1147 578 0",
    "sst2/dev": "444 428 0",
    "sst2/test": "912 909 0",
}
UNSCORED = {"sts12": 0, "sts13": 0, "sts14": 0, "sts15": 8500 - 3000, "sts16": 9183 - 1186}
SPLITS = [(name, split) for name, corpus in CORPORA.items() for split in corpus.splits]


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_real_files_are_the_official_ones(real_data, name, split):
    files = CORPORA[name].split_files(split)
    absent = [file.path for file in files if find_file(real_data, file) is None]

    if absent:
        pytest.skip(f"not in the folder: {', '.join(absent)}")

    rows = read_corpus(name, split, real_data)

    assert [file.name for file in rows.files] == [file.path for file in files]
    assert len(rows) == CORPORA[name].rows(split)

    for found, file in zip(rows.files, files, strict=True):
        assert file.sha256 in (None, found.sha256), file.path


@pytest.mark.parametrize("key", LABELS)
def test_real_labels(real_data, key):
    counts = Counter(read_corpus(*key.split("/"), real_data).column("label"))
    labels = ("entailment", "neutral", "contradiction", "-")

    assert tuple(map(counts.get, labels, [0] * 4)) == LABELS[key]


@pytest.mark.parametrize("key", CLASSES)
def test_real_files_have_the_known_classes(real_data, key):
    rows = read_corpus(*key.split("/"), real_data)
    *sizes, blank = map(int, CLASSES[key].split())

    assert sorted(Counter(rows.column("label")).values()) == sorted(sizes)
    assert rows.counts.get("dropped: blank line", 0) == blank


@pytest.mark.parametrize("name", UNSCORED)
def test_real_rows_of_sts_are_in_order_and_those_without_a_score_are_counted(real_data, name):
    for split in CORPORA[name].splits:
        rows = read_corpus(name, split, real_data)
        parts = {file.part: file.rows for file in CORPORA[name].split_files(split)}

        assert Counter(rows.column("subset")) == parts
        assert list(dict.fromkeys(rows.column("subset"))) == list(parts)
        assert rows.counts.get("dropped: no gold score", 0) == UNSCORED[name]

        file, line = rows.where(len(rows) - 1).rsplit(":", 1)
        last = Path(file).read_text(encoding="utf-8").split("\n")[int(line) - 1]
        pair = [rows[-1]["sentence1"], rows[-1]["sentence2"]]

        assert [cell.strip() for cell in last.split("\t")] == pair


def test_real_scores_are_counted_as_published(real_data):
    rows = read_corpus("sts12", "train", real_data)
    dev = read_corpus("stsb", "dev", real_data).column("score")
    vid = [row["score"] for row in rows if row["subset"] == "MSRvid"]

    assert (sum(s > 4 for s in vid), sum(s < 1 for s in vid)) == (102, 242)
    assert (sum(s > 4 for s in dev), sum(s < 1 for s in dev)) == (208, 344)


def test_real_sentences_are_the_published_number(real_data):
    part = read_corpus("wiki1m_part", "train", real_data).column("sentence")

    assert (len(part), len(set(part))) == (11_914, 11_548)

    tables = [read_corpus("wiki_split", name, real_data) for name in ("train", "dev", "test")]

    assert len({sentence for rows in tables for sentence in rows.column("sentence")}) == 15_000
