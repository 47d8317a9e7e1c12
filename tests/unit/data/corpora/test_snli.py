"""SNLI and the public files that hold parts of it: layouts, faults with their line, the sample, the official counts."""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.readers import read_corpus, sample_dir
from lightning_cse.data.rows import Rows
from lightning_cse.errors import DataError

NAMES = ("snli", "snli_senteval", "snli_partial", "snli_sample", "snli_counterfactual")
NATIVE_KEYS = [
    "annotator_labels",
    "captionID",
    "gold_label",
    "pairID",
    "sentence1",
    "sentence1_binary_parse",
    "sentence1_parse",
    "sentence2",
    "sentence2_binary_parse",
    "sentence2_parse",
]
HEADER = "sentence1\tsentence2\tgold_label\n"
ROW = {"premise": "A dog naps.", "hypothesis": "None", "label": "neutral"}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


Put = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write the files of a split, in order, each with its text."""

    def put(name: str, split: str, *texts: str) -> None:
        for file, text in zip(CORPORA[name].split_files(split), texts, strict=True):
            path = tmp_path / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())

    return put


def line(label: object = "neutral", premise: object = "A dog naps.", hypothesis: object = "None", **more: str) -> str:
    return json.dumps({"gold_label": label, "sentence1": premise, "sentence2": hypothesis, **more}) + "\n"


def fault(name: str, split: str, folder: Path, file: int = 0) -> str:
    """Read a split with a fault and return the message after the path of its n-th file, which it must start with."""
    with pytest.raises(DataError) as caught:
        read_corpus(name, split, folder)
    path = folder / CORPORA[name].split_files(split)[file].path
    message = str(caught.value)
    assert message.startswith(f"{path}:"), message
    return message.removeprefix(str(path))


# The official layout of SNLI


@pytest.mark.parametrize(("name", "split"), [("snli", "train"), ("snli", "test"), ("snli_partial", "dev")])
def test_json_lines(put: Put, tmp_path: Path, name: str, split: str) -> None:
    put(name, split, line(pairID="1n", sentence1_parse="(ROOT)") + line("-", ' He said "no", twice. ', "n/a").strip())
    rows = read_corpus(name, split, tmp_path)
    assert list(rows) == [ROW, {"premise": 'He said "no", twice.', "hypothesis": "n/a", "label": "-"}]
    assert rows.where(1) == f"{tmp_path}/{CORPORA[name].split_files(split)[0].path}:2"
    assert rows.counts == {"read": 2}


def test_faults_of_json_lines(put: Put, tmp_path: Path) -> None:
    put("snli", "dev", line() + line("maybe"))
    assert fault("snli", "dev", tmp_path).startswith(":2: label 'maybe' is not one of entailment, neutral")
    put("snli", "dev", line() + line(hypothesis=" "))
    assert fault("snli", "dev", tmp_path) == ":2: sentence2 is empty (white space only)"
    put("snli", "dev", line() * 2 + '{"gold_label": "neutral"')
    assert fault("snli", "dev", tmp_path).startswith(":3: not valid JSON: Expecting ',' delimiter")
    put("snli", "dev", line() + '{"gold_label": "neutral", "sentence1": "A dog."}\n')
    assert fault("snli", "dev", tmp_path) == ":2: missing key 'sentence2'; keys found: gold_label, sentence1"


# The hub's copy


def give_hub(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, object]]) -> list[tuple[str, str, str]]:
    """Put a hub client in place that gives these rows; returns what it was asked."""
    asked: list[tuple[str, str, str]] = []

    def load_dataset(name: str, *, split: str, revision: str) -> list[dict[str, object]]:
        asked.append((name, split, revision))
        return rows

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_labels_of_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    premise = "Ein gr\u00fcner Hut.\nNeu."
    hub = [{"premise": premise, "hypothesis": f"{number}", "label": number} for number in (0, 1, 2, -1)]
    asked = give_hub(monkeypatch, hub)
    rows = read_corpus("snli", "dev", tmp_path)
    assert rows.column("label") == ["entailment", "neutral", "contradiction", "-"]
    assert rows.column("hypothesis") == ["0", "1", "2", "-1"]
    assert set(rows.column("premise")) == {premise}
    assert asked == [("stanfordnlp/snli", "validation", "cdb5c3d5eed6ead6e5a341c8e56e669bb666725b")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"premise": "A.", "hypothesis": "B.", "label": 3}, "label 3 is not one of 0, 1, 2, -1"),
        ({"premise": "A.", "hypothesis": "B.", "label": "entailment"}, "label 'entailment' is not one of 0, 1, 2, -1"),
        ({"premise": "A.", "hypothesis": None, "label": 0}, "hypothesis is no text but NoneType (None)"),
        ({"premise": "A.", "label": 0}, "missing column 'hypothesis'; columns found: premise, label"),
    ],
)
def test_faults_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, row: dict[str, object], message: str
) -> None:
    give_hub(monkeypatch, [{"premise": "A.", "hypothesis": "B.", "label": 0}, row])
    with pytest.raises(DataError) as caught:
        read_corpus("snli", "train", tmp_path)
    assert str(caught.value) == f"hf://datasets/stanfordnlp/snli@cdb5c3d5eed6/train:2: {message}"


# Three files side by side


def test_senteval(put: Put, tmp_path: Path) -> None:
    put(
        "snli_senteval",
        "dev",
        "A dog naps . \nHe said `` no . '' \n",
        "None \r\nIt 's late \r\n",
        "neutral\nentailment\n",
    )
    rows = read_corpus("snli_senteval", "dev", tmp_path)
    assert list(rows) == [
        {"premise": "A dog naps .", "hypothesis": "None", "label": "neutral"},
        {"premise": "He said `` no . ''", "hypothesis": "It 's late", "label": "entailment"},
    ]
    assert [file.name for file in rows.files] == [f"SNLI/senteval/{name}.dev" for name in ("s1", "s2", "labels")]
    assert rows.where(1) == f"{tmp_path}/SNLI/senteval/s1.dev:2"


def test_faults_of_senteval(put: Put, tmp_path: Path) -> None:
    put("snli_senteval", "test", "A . \n \nC . \n", "a\nb\nc\n", "neutral\n" * 3)
    assert fault("snli_senteval", "test", tmp_path) == ":2: premise is empty (white space only)"
    put("snli_senteval", "test", "A . \nB . \n", "a\n\nb\n", "neutral\n" * 2)
    assert fault("snli_senteval", "test", tmp_path, file=1) == ":2: hypothesis is empty"
    put("snli_senteval", "test", "A . \nB . \n", "a\nb\n", "neutral\nentailmen\n")
    assert ":2: label 'entailmen' is not one of" in fault("snli_senteval", "test", tmp_path, file=2)
    put("snli_senteval", "test", "A . \nB . \n", "a\nb\n", "neutral\n")
    with pytest.raises(DataError, match=r"differ in length: .*s1\.test: 2 rows, .*labels\.test: 1 rows"):
        read_corpus("snli_senteval", "test", tmp_path)


# Tabs with quoted cells


def test_cat(put: Put, tmp_path: Path) -> None:
    put("snli_sample", "extra", '3\t3\t"A sign, ""No dogs""."\tN/A\n1\t1\tA dog\'s nap.\tIt snores\n2\t2\tOne.\tTwo.')
    rows = read_corpus("snli_sample", "extra", tmp_path)
    assert list(rows) == [
        {"premise": 'A sign, "No dogs".', "hypothesis": "N/A", "label": "entailment"},
        {"premise": "A dog's nap.", "hypothesis": "It snores", "label": "neutral"},
        {"premise": "One.", "hypothesis": "Two.", "label": "contradiction"},
    ]
    assert rows.where(2).endswith("SNLI/cat/test.csv:3")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("0\t0\tA.\tB.", "label '0' is not one of 1, 2, 3"),
        ("1\t2\tA.\tB.", "the two labels differ: '1' and '2'"),
        ("1\t1\tA.\t", "hypothesis is empty"),
        ("1\t1\t \tB.", "premise is empty (white space only)"),
        ("1\t1\tA.", "3 cells between tabs, 4 are needed"),
        ("", "0 cells between tabs, 4 are needed"),
        ('1\t1\t"A.\tB.', "the row that starts here is not valid: unexpected end of data"),
        ('1\t1\t"A" b.\tB.', "the row that starts here is not valid: '\t' expected after '\"'"),
    ],
)
def test_faults_of_cat(put: Put, tmp_path: Path, bad: str, message: str) -> None:
    tail = "" if "end of data" in message else "\n1\t1\tC.\tD.\n"
    put("snli_sample", "train", f'1\t1\t"Two\nlines."\tD.\n{bad}{tail}')  # the first row takes two lines
    assert fault("snli_sample", "train", tmp_path) == f":3: {message}"


def test_cat_without_rows(put: Put, tmp_path: Path) -> None:
    put("snli_sample", "train", "\n\n")
    assert fault("snli_sample", "train", tmp_path) == ": no rows"


def test_counterfactual(put: Put, tmp_path: Path) -> None:
    put("snli_counterfactual", "revised_dev", HEADER + 'A dog naps.\tNone\tneutral\n"A ""big"" one"\tNA\tentailment\n')
    rows = read_corpus("snli_counterfactual", "revised_dev", tmp_path)
    assert list(rows) == [ROW, {"premise": 'A "big" one', "hypothesis": "NA", "label": "entailment"}]
    assert rows.where(1).endswith("SNLI/counterfactually-augmented/revised_combined/dev.tsv:3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A dog.\tNone\tneutral\n", ":1: the header is ['A dog.', 'None', 'neutral'], expected ['sentence1',"),
        ("\n", ":1: the header is [], expected"),
        (HEADER, ": a header but no rows"),
        (HEADER + "A.\tB.\tneutral\nA.\tB.\t-\n", ":3: label '-' is not one of entailment, neutral, contradiction"),
        (HEADER + "A.\tB.\tneutral\nA.\tB.\n", ":3: 2 cells between tabs, 3 are needed"),
        (HEADER + "A.\t\tneutral\n", ":2: sentence2 is empty"),
        (HEADER + "\tB.\tneutral\n", ":2: sentence1 is empty"),
    ],
)
def test_faults_of_counterfactual(put: Put, tmp_path: Path, text: str, message: str) -> None:
    put("snli_counterfactual", "original_test", text)
    assert fault("snli_counterfactual", "original_test", tmp_path).startswith(message)


# The sample


def sample(name: str, split: str) -> Rows:
    return read_corpus(name, split, sample_dir())


def pairs(name: str, split: str) -> set[tuple[str, str]]:
    """The pairs of a split of the sample by their letters, so that a tokenised pair is the same pair."""
    letters = [
        "".join(filter(str.isalnum, str(sentence).lower())) for sentence in sample(name, split).column("premise")
    ]
    others = [
        "".join(filter(str.isalnum, str(sentence).lower())) for sentence in sample(name, split).column("hypothesis")
    ]
    return set(zip(letters, others, strict=True))


@pytest.mark.parametrize(
    ("name", "split", "labels"),
    [
        ("snli", "train", (23, 14, 23, 0)),
        ("snli", "dev", (20, 18, 20, 2)),
        ("snli", "test", (20, 18, 20, 2)),
        ("snli_senteval", "dev", (20, 18, 20, 0)),
        ("snli_senteval", "test", (20, 18, 20, 0)),
        ("snli_partial", "dev", (7, 6, 6, 1)),
        ("snli_partial", "test", (7, 6, 6, 1)),
        ("snli_sample", "train", (14, 13, 13, 0)),
        ("snli_sample", "extra", (7, 6, 7, 0)),
        ("snli_counterfactual", "original_train", (9, 6, 5, 0)),
        ("snli_counterfactual", "original_dev", (7, 8, 5, 0)),
        ("snli_counterfactual", "original_test", (7, 6, 7, 0)),
        ("snli_counterfactual", "revised_train", (8, 2, 10, 0)),
        ("snli_counterfactual", "revised_dev", (11, 1, 8, 0)),
        ("snli_counterfactual", "revised_test", (11, 2, 7, 0)),
    ],
)
def test_labels_of_the_sample(name: str, split: str, labels: tuple[int, ...]) -> None:
    counts = Counter(sample(name, split).column("label"))
    assert tuple(counts[label] for label in ("entailment", "neutral", "contradiction", "-")) == labels


@pytest.mark.parametrize("path", [file.path for name in ("snli", "snli_partial") for file in CORPORA[name].files])
def test_native_rows_of_the_sample(path: str) -> None:
    text = (sample_dir() / path).read_text(encoding="ascii")
    rows = [json.loads(row) for row in text.removesuffix("\n").split("\n")]
    assert text == "".join(f"{json.dumps(row)}\n" for row in rows).removesuffix("" if text[-1] == "\n" else "\n")
    assert len({row["pairID"] for row in rows}) == len(rows)
    for row in rows:
        assert list(row) == NATIVE_KEYS
        assert row["pairID"].startswith(row["captionID"])
        label, votes = Counter(row["annotator_labels"]).most_common(1)[0]
        assert row["gold_label"] == (label if 2 * votes > len(row["annotator_labels"]) else "-")
        assert len(row["annotator_labels"]) == (1 if "train" in path else 5)


def test_splits_of_the_sample_share_no_pair() -> None:
    parts = {(name, split): pairs(name, split) for name in NAMES for split in CORPORA[name].splits}
    training = {key for key in parts if key[1] in {"train", "extra", "original_train", "revised_train"}}
    kinds = {key: "train" if key in training else "dev" if key[1].endswith("dev") else "test" for key in parts}
    for one, other in itertools.combinations(parts, 2):
        if one[0] == other[0] or kinds[one] != kinds[other]:
            assert not parts[one] & parts[other], (one, other)
    for key, found in parts.items():
        assert len(found) == len(sample(*key)), f"{key} has a pair twice"


@pytest.mark.parametrize("split", ["dev", "test"])
def test_parts_of_the_sample_are_parts_of_snli(split: str) -> None:
    whole = sample("snli", split)
    agreed = [row for row in range(len(whole)) if whole[row]["label"] != "-"]
    assert sample("snli_senteval", split).column("label") == whole.select(agreed).column("label")
    assert pairs("snli_senteval", split) < pairs("snli", split)
    assert list(sample("snli_partial", split)) == list(whole[:20])
    assert pairs("snli_counterfactual", f"original_{split}") < pairs("snli", split)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_revised_rows_of_the_sample_differ_in_one_sentence_and_in_label(split: str) -> None:
    original = sample("snli_counterfactual", f"original_{split}")
    for old, new in zip(original, sample("snli_counterfactual", f"revised_{split}"), strict=True):
        assert old["label"] != new["label"]
        assert (old["premise"] == new["premise"]) != (old["hypothesis"] == new["hypothesis"])


def test_premises_of_the_sample_have_both_labels_that_a_triplet_needs() -> None:
    def complete(*parts: Rows) -> int:
        labels: dict[str, set[str]] = defaultdict(set)
        for row in itertools.chain.from_iterable(parts):
            labels[str(row["premise"])].add(str(row["label"]))
        return sum({"entailment", "contradiction"} <= found for found in labels.values())

    assert complete(sample("snli", "train")) == 21
    revised = [sample("snli_counterfactual", f"{kind}_train") for kind in ("original", "revised")]
    assert complete(*revised) == 10


@pytest.mark.parametrize(("name", "split"), [(name, split) for name in NAMES for split in CORPORA[name].splits])
def test_what_the_sample_entails_is_shorter_than_its_premise(name: str, split: str) -> None:
    for row in sample(name, split):
        if row["label"] == "entailment":
            assert len(str(row["hypothesis"]).split()) < len(str(row["premise"]).split()), row


# The official files


@pytest.mark.parametrize(
    ("name", "split", "labels"),
    [
        ("snli_senteval", "dev", (3329, 3235, 3278, 0)),
        ("snli_senteval", "test", (3368, 3219, 3237, 0)),
        ("snli_partial", "dev", (433, 421, 419, 16)),
        ("snli_partial", "test", (405, 429, 420, 23)),
        ("snli_sample", "train", (6015, 5899, 6086, 0)),
        ("snli_sample", "extra", (652, 663, 685, 0)),
        ("snli_counterfactual", "original_train", (562, 554, 550, 0)),
        ("snli_counterfactual", "original_dev", (74, 75, 51, 0)),
        ("snli_counterfactual", "original_test", (146, 123, 131, 0)),
        ("snli_counterfactual", "revised_train", (2208, 2224, 2232, 0)),
        ("snli_counterfactual", "revised_dev", (252, 250, 298, 0)),
        ("snli_counterfactual", "revised_test", (508, 554, 538, 0)),
    ],
)
def test_official_counts(real_data: Path, name: str, split: str, labels: tuple[int, ...]) -> None:
    rows = read_corpus(name, split, real_data)
    counts = Counter(rows.column("label"))
    assert tuple(counts[label] for label in ("entailment", "neutral", "contradiction", "-")) == labels
    assert {file.name: file.sha256 for file in rows.files} == {
        file.path: file.sha256 for file in CORPORA[name].split_files(split)
    }


def test_labels_of_cat_are_those_of_the_pairs_that_stand_elsewhere(real_data: Path) -> None:
    elsewhere = {
        (row["premise"], row["hypothesis"]): row["label"]
        for row in read_corpus("snli_counterfactual", "original_train", real_data)
    }
    shared = [
        (row["label"], elsewhere[row["premise"], row["hypothesis"]])
        for split in ("train", "extra")
        for row in read_corpus("snli_sample", split, real_data)
        if (row["premise"], row["hypothesis"]) in elsewhere
    ]
    assert len(shared) >= 50
    assert all(cat == other for cat, other in shared)


def test_both_partial_files_are_dev(real_data: Path) -> None:
    def letters(name: str, split: str) -> set[tuple[str, str]]:
        rows = read_corpus(name, split, real_data)
        columns = [["".join(filter(str.isalnum, cell)) for cell in rows.column(c)] for c in ("premise", "hypothesis")]
        return {
            pair for pair, label in zip(zip(*columns, strict=True), rows.column("label"), strict=True) if label != "-"
        }

    dev, test = letters("snli_senteval", "dev"), letters("snli_senteval", "test")
    for split, count in (("dev", 1273), ("test", 1254)):
        found = letters("snli_partial", split)
        assert len(found & dev) == len(found) == count
        assert not found & test
