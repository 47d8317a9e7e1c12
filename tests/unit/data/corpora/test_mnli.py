"""MNLI and its derived corpora: the layouts, their quirks, every fault with its line, the sample, the real files."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.readers import read_corpus, sample_dir
from lightning_cse.data.rows import Rows
from lightning_cse.errors import DataError

GLUE_SENTENCES = ["sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
GLUE_HEADER = ["index", "promptID", "pairID", "genre", *GLUE_SENTENCES, "sentence1", "sentence2"]
SIZES = {
    ("mnli", "train"): (60, 392702),
    ("mnli", "dev_matched"): (30, 10000),
    ("mnli", "dev_mismatched"): (60, 10000),
    ("mnli_glue", "train"): (60, 392702),
    ("mnli_glue", "dev_matched"): (28, 9815),
    ("mnli_glue", "dev_mismatched"): (58, 9832),
    ("mnli_nyu", "train"): (30, 20000),
    ("mnli_nyu", "dev_matched"): (30, 5000),
    ("mnli_llmsknow", "train"): (20, 10000),
    ("mnli_llmsknow", "dev_matched"): (20, 10000),
}
NAMES = ("mnli", "mnli_glue", "mnli_nyu", "mnli_llmsknow")
MATCHED = {"fiction", "government", "slate", "telephone", "travel"}
MISMATCHED = {"facetoface", "letters", "nineeleven", "oup", "verbatim"}


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def put_pairs(folder: Path, corpus: str, *pairs: tuple[str, str, str]) -> Path:
    """Write pairs with a label as the train file of a corpus."""
    path = {
        "mnli": "MNLI/multinli_1.0/multinli_1.0_train.jsonl",
        "mnli_glue": "MNLI/glue/train.tsv",
        "mnli_nyu": "MNLI/nyu_hw2/mnli_train.tsv",
    }[corpus]
    lines = []
    for premise, hypothesis, label in pairs:
        if corpus == "mnli":
            lines.append(
                json.dumps({"genre": "oup", "gold_label": label, "sentence1": premise, "sentence2": hypothesis})
            )
        elif corpus == "mnli_glue":
            cells = [*(f"{i}" for i in range(8)), premise, hypothesis, "neutral", label]
            lines.append("\t".join(cells))
        else:
            lines.append("\t".join([premise, hypothesis, label, "travel"]))
    header = {
        "mnli": [],
        "mnli_glue": ["\t".join([*GLUE_HEADER, "label1", "gold_label"])],
        "mnli_nyu": ["sentence1\tsentence2\tlabel\tgenre"],
    }[corpus]
    return put(folder, path, "".join(f"{line}\n" for line in [*header, *lines]))


def question(premise: str, hypothesis: str) -> str:
    return (
        f'For the statement, "{premise}", does the hypothesis "{hypothesis}" '
        "represent entailment, contradiction, or neutrality?"
    )


def put_questions(folder: Path, *rows: tuple[str, str]) -> Path:
    """Write questions and answers as the train file of LLMsKnow."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([("Question", "Answer", "Origin"), *((*row, "mnli") for row in rows)])
    return put(folder, "MNLI/llmsknow/mnli_train.csv", stream.getvalue())


def fault(folder: Path, corpus: str, path: Path) -> str:
    """Read a bad train file and return the message after its path; it must be one line."""
    with pytest.raises(DataError) as caught:
        read_corpus(corpus, "train", folder)
    message = str(caught.value)
    assert message.startswith(f"{path}:")
    assert "\n" not in message
    return message.removeprefix(str(path))


# The layouts


@pytest.mark.parametrize("corpus", ["mnli", "mnli_glue", "mnli_nyu"])
def test_pairs_and_labels(tmp_path: Path, corpus: str) -> None:
    first = 1 if corpus == "mnli" else 2
    pairs = [
        (' He said "no.', "None", "entailment"),
        ("Tea, or coffee?", "n/a ", "contradiction"),
        ("A", "B", "neutral"),
    ]
    path = put_pairs(tmp_path, corpus, *pairs)
    rows = read_corpus(corpus, "train", tmp_path)
    assert list(rows) == [
        {"premise": premise.strip(), "hypothesis": hypothesis.strip(), "label": label}
        for premise, hypothesis, label in pairs
    ]
    assert [rows.where(i) for i in range(3)] == [f"{path}:{first + i}" for i in range(3)]
    assert rows.counts == {"read": 3}


def test_pairs_without_gold_label_are_kept(tmp_path: Path) -> None:
    put_pairs(tmp_path, "mnli", ("A", "B", "-"), ("A", "C", "neutral"))
    assert read_corpus("mnli", "train", tmp_path).column("label") == ["-", "neutral"]


@pytest.mark.parametrize("votes", [1, 5])
def test_glue_label_is_the_gold_one_whatever_the_annotators_said(tmp_path: Path, votes: int) -> None:
    header = "\t".join([*GLUE_HEADER, *(f"label{i + 1}" for i in range(votes)), "gold_label"])
    row = "\t".join([*"01234567", "It rains.", "It is wet.", *["neutral"] * votes, "entailment"])
    put(tmp_path, "MNLI/glue/dev_matched.tsv", f"{header}\n{row}\n")
    assert list(read_corpus("mnli_glue", "dev_matched", tmp_path)) == [
        {"premise": "It rains.", "hypothesis": "It is wet.", "label": "entailment"}
    ]


@pytest.mark.parametrize("corpus", ["mnli_glue", "mnli_nyu"])
def test_quotes_are_no_csv_quotes_in_tab_separated_files(tmp_path: Path, corpus: str) -> None:
    put_pairs(tmp_path, corpus, ('"Stay', 'said "he', "neutral"), ('"Go"', "No\u2028w", "neutral"))
    rows = read_corpus(corpus, "train", tmp_path)
    assert rows.column("premise") == ['"Stay', '"Go"']
    assert rows.column("hypothesis") == ['said "he', "No\u2028w"]


@pytest.mark.parametrize("corpus", ["mnli", "mnli_glue", "mnli_nyu"])
def test_line_ends_and_byte_order_mark_do_not_matter(tmp_path: Path, corpus: str) -> None:
    path = put_pairs(tmp_path, corpus, ("A", "B", "neutral"), ("C", "D", "entailment"))
    plain = list(read_corpus(corpus, "train", tmp_path))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert list(read_corpus(corpus, "train", tmp_path)) == plain


def test_questions_give_back_their_pair(tmp_path: Path) -> None:
    pairs = [
        ("One, two ", "None"),
        ('"Leave it," he said', 'a "quoted" one '),
        ('"All of it"', '"Nothing"'),
        ("does the hypothesis hold", 'in the statement, "yes", it does'),
    ]
    path = put_questions(tmp_path, *((question(*pair), "neutral") for pair in pairs))
    rows = read_corpus("mnli_llmsknow", "train", tmp_path)
    assert [(row["premise"], row["hypothesis"]) for row in rows] == [(a.strip(), b.strip()) for a, b in pairs]
    assert rows.names == ("premise", "hypothesis", "label")
    assert rows.where(3) == f"{path}:5"


def test_questions_that_come_twice_are_kept(tmp_path: Path) -> None:
    put_questions(tmp_path, *[(question("A", "B"), "entailment"), (question("A", "C"), "neutral")] * 2)
    rows = read_corpus("mnli_llmsknow", "train", tmp_path)
    assert rows.column("hypothesis") == ["B", "C", "B", "C"]
    assert rows.counts == {"read": 4}


# Faults


@pytest.mark.parametrize("corpus", ["mnli", "mnli_glue", "mnli_nyu"])
def test_bad_label_and_empty_sentence_are_told_with_their_line(tmp_path: Path, corpus: str) -> None:
    line = 2 if corpus == "mnli" else 3
    good = ("A", "B", "neutral")
    path = put_pairs(tmp_path, corpus, good, ("A", "B", "neutrale"))
    assert fault(tmp_path, corpus, path).startswith(f":{line}: label 'neutrale' is not one of entailment")
    put_pairs(tmp_path, corpus, good, (" ", "B", "neutral"))
    assert fault(tmp_path, corpus, path) == f":{line}: sentence1 is empty (white space only)"
    put_pairs(tmp_path, corpus, good, ("A", "", "neutral"))
    assert fault(tmp_path, corpus, path) == f":{line}: sentence2 is empty"


@pytest.mark.parametrize(("corpus", "cells", "columns"), [("mnli_glue", 13, 12), ("mnli_nyu", 5, 4)])
def test_tab_in_a_sentence_is_told(tmp_path: Path, corpus: str, cells: int, columns: int) -> None:
    path = put_pairs(tmp_path, corpus, ("A", "B", "neutral"), ("A", "B\tC", "neutral"))
    assert fault(tmp_path, corpus, path) == f":3: {cells} cells between tabs, the header has {columns} columns"


@pytest.mark.parametrize(("corpus", "name"), [("mnli_glue", "gold_label"), ("mnli_nyu", "label")])
def test_missing_column_is_told(tmp_path: Path, corpus: str, name: str) -> None:
    path = put_pairs(tmp_path, corpus, ("A", "B", "neutral"))
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(rf"(?<=\t){name}(?=[\t\n])", "verdict", text, count=1), encoding="utf-8")
    assert fault(tmp_path, corpus, path).startswith(f":1: missing column '{name}'")


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (question("A", "B").replace("statement", "sentence"), "is not worded as all of this file are"),
        (question("A", "B") + " Answer briefly.", "is not worded as all of this file are"),
        (question("A", "B").replace("does the hypothesis", "does it"), "is not worded as all of this file are"),
        (question('A", does the hypothesis "C', "B"), "is not worded as all of this file are"),
        (question(" ", "B"), "the premise in the Question is empty"),
        (question("A", ""), "the hypothesis in the Question is empty"),
        ("", "Question is empty"),
    ],
    ids=["start", "end", "middle", "middle twice", "no premise", "no hypothesis", "nothing"],
)
def test_question_that_does_not_fit_is_told_with_its_line(tmp_path: Path, bad: str, told: str) -> None:
    good = (question("A\nand more", "B"), "neutral")
    path = put_questions(tmp_path, good, (bad, "neutral"))
    message = fault(tmp_path, "mnli_llmsknow", path)
    assert message.startswith(":4: ")
    assert told in message


@pytest.mark.parametrize("answer", ["-", "Neutral", "yes"])
def test_answer_that_is_no_label_is_told_with_its_line(tmp_path: Path, answer: str) -> None:
    path = put_questions(tmp_path, (question("A", "B"), "neutral"), (question("A", "C"), answer))
    message = fault(tmp_path, "mnli_llmsknow", path)
    assert message.startswith(f":3: label {answer!r} is not one of entailment, neutral, contradiction")


# The sample


@pytest.fixture(scope="module")
def sample() -> dict[tuple[str, str], Rows]:
    return {key: read_corpus(*key, sample_dir()) for key in SIZES}


def pairs_of(rows: Rows) -> set[tuple[str, str]]:
    return set(zip(rows.column("premise"), rows.column("hypothesis"), strict=True))


def jsonl(split: str) -> list[dict[str, str]]:
    text = (sample_dir() / f"MNLI/multinli_1.0/multinli_1.0_{split}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_every_split_is_known_and_has_its_sample(sample: dict[tuple[str, str], Rows]) -> None:
    assert {(name, split) for name in NAMES for split in CORPORA[name].splits} == set(SIZES)
    assert {key: len(rows) for key, rows in sample.items()} == {key: size for key, (size, _) in SIZES.items()}
    official = {(name, file.split): file.rows for name in NAMES for file in CORPORA[name].files}
    assert official == {key: rows for key, (_, rows) in SIZES.items()}


def test_sample_labels(sample: dict[tuple[str, str], Rows]) -> None:
    for (name, split), rows in sample.items():
        count = Counter(rows.column("label"))
        assert count["-"] == (2 if name == "mnli" and split != "train" else 0)
        assert min(count[label] for label in ("entailment", "neutral", "contradiction")) >= 0.25 * len(rows)


def test_sample_pairs_are_in_one_split_once(sample: dict[tuple[str, str], Rows]) -> None:
    splits = {
        part: [pairs_of(rows) for (_, split), rows in sample.items() if split == part]
        for part in ("train", "dev_matched", "dev_mismatched")
    }
    for first, second in itertools.combinations(splits.values(), 2):
        assert not set.union(*first) & set.union(*second)
    assert all(len(pairs_of(rows)) == len(rows) for rows in sample.values())
    premises = {key: set(rows.column("premise")) for key, rows in sample.items() if key[0] == "mnli"}
    assert len(set.union(*premises.values())) == sum(map(len, premises.values())) == 50


def test_sample_of_glue_is_the_labelled_part(sample: dict[tuple[str, str], Rows]) -> None:
    for split in ("train", "dev_matched", "dev_mismatched"):
        labelled = [row for row in sample["mnli", split] if row["label"] != "-"]
        assert list(sample["mnli_glue", split]) == labelled


def test_sample_votes_agree_with_the_gold_label() -> None:
    for split in ("train", "dev_matched", "dev_mismatched"):
        rows = jsonl(split)
        assert {row["genre"] for row in rows} == (MISMATCHED if split == "dev_mismatched" else MATCHED)
        assert len({row["pairID"] for row in rows}) == len(rows)
        for row in rows:
            votes = Counter(row["annotator_labels"])
            assert sum(votes.values()) == (1 if split == "train" else 5)
            label, count = votes.most_common(1)[0]
            majority = label if 2 * count > sum(votes.values()) else "-"
            assert row["gold_label"] == majority


def test_sample_has_the_quirks(sample: dict[tuple[str, str], Rows]) -> None:
    for name in ("mnli", "mnli_glue", "mnli_nyu"):
        assert "None" in sample[name, "train"].column("hypothesis")
        quote = "``" if name == "mnli_nyu" else '"'
        assert any(quote in premise for premise in sample[name, "train"].column("premise"))
    assert any(premise.startswith('"') for premise in sample["mnli_llmsknow", "train"].column("premise"))
    text = (sample_dir() / "MNLI/llmsknow/mnli_train.csv").read_text(encoding="utf-8")
    assert ' "" represent' in text
    assert not any(re.search(r'\."*$', str(row[name])) for row in sample["mnli_llmsknow", "train"] for name in row)


def test_sample_of_the_exercise_is_tokenised(sample: dict[tuple[str, str], Rows]) -> None:
    for split in ("train", "dev_matched"):
        for row in sample["mnli_nyu", split]:
            assert not re.search(r"\w[.,!?;](\s|$)|\w'(s|ll|d|re)\b|\wn't|\"", f"{row['premise']}\n{row['hypothesis']}")


def test_sample_has_triplets_and_longer_premises(sample: dict[tuple[str, str], Rows]) -> None:
    rows = sample["mnli", "train"]
    labels: dict[object, list[object]] = {}
    for row in rows:
        labels.setdefault(row["premise"], []).append(row["label"])
    assert all({"entailment", "contradiction"} <= set(found) for found in labels.values())
    for key in (("mnli", "train"), ("mnli", "dev_matched"), ("mnli", "dev_mismatched")):
        longer = [len(str(row["premise"])) > len(str(row["hypothesis"])) for row in sample[key]]
        assert 0.9 <= sum(longer) / len(longer) < 1


# The real files


def real(folder: Path, name: str, split: str) -> Rows:
    (file,) = CORPORA[name].split_files(split)
    if not any((folder / path).is_file() for path in (file.path, f"{file.path}.gz")):
        pytest.skip(f"{folder} does not hold {file.path}")
    return read_corpus(name, split, folder)


@pytest.mark.parametrize(("name", "split"), SIZES)
def test_real_rows(real_data: Path, name: str, split: str) -> None:
    rows = real(real_data, name, split)
    (file,) = CORPORA[name].split_files(split)
    assert len(rows) == SIZES[name, split][1]
    assert file.sha256 in {None, rows.files[0].sha256}


@pytest.mark.parametrize(
    ("name", "split", "entailment", "neutral", "contradiction", "distinct"),
    [
        ("mnli_nyu", "train", 6709, 6646, 6645, None),
        ("mnli_nyu", "dev_matched", 1784, 1552, 1664, None),
        ("mnli_llmsknow", "train", 3239, 3367, 3394, 9888),
        ("mnli_llmsknow", "dev_matched", 3552, 3183, 3265, 6238),
    ],
)
def test_real_labels(
    real_data: Path, name: str, split: str, entailment: int, neutral: int, contradiction: int, distinct: int | None
) -> None:
    rows = real(real_data, name, split)
    assert Counter(rows.column("label")) == {
        "entailment": entailment,
        "neutral": neutral,
        "contradiction": contradiction,
    }
    assert distinct in {None, len(pairs_of(rows))}
