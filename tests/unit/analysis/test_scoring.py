"""Scores against the model's own answers, the layouts that are read, and what is written."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lightning_cse.analysis.scoring import columns_of
from lightning_cse.baselines import Length
from lightning_cse.engine.load import load_model
from lightning_cse.errors import TaskError
from lightning_cse.models import PointModel
from lightning_cse.score import main
from lightning_cse.similarity import cosine

LIMITS = tuple(
    f"limits.{split}_{what}=8" for split in ("dev", "test") for what in ("rows", "pairs")
)
SMALL = ("baselines=none", "data.train_rows=12", "diag.sentences=16", *LIMITS)
PAIRS = [
    ("The kettle is on.", "Would you like to stay?"),
    ("It is cold in here.", "Please close the window."),
    ("Nobody laughed.", "Nobody laughed."),
    ("Would you like to stay?", "The kettle is on."),
]
TSV = "".join(f"{premise}\t{hypothesis}\n" for premise, hypothesis in PAIRS)

Score = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def score(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Score:
    """Score a text with the command, and return the rows that it prints; a failure is an AssertionError."""

    def run(
        text: str | bytes, *options: str, model: str = "length", name: str = "in.txt"
    ) -> list[dict[str, Any]]:
        path = tmp_path / name
        data = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        code = main(["--model", model, "--input", str(path), *options])
        out, err = (each.decode() for each in capfdbinary.readouterr())
        assert code == 0, err
        if "jsonl" in options:
            return [json.loads(line) for line in out.splitlines()]
        return list(csv.DictReader(io.StringIO(out)))

    return run


@pytest.mark.parametrize(
    ("name", "text", "options", "want"),
    [
        ("a.txt", "one\r\n two \nthree", (), [("1", "one"), ("2", "two"), ("3", "three")]),
        ("a.txt", "\ufeffa\tb\nc\td\n", (), [("1", "a", "b"), ("2", "c", "d")]),
        ("a.tsv", 'a "x"\tb\tx\nNA\tnull\ty\n', (), [("1", 'a "x"', "b"), ("2", "NA", "null")]),
        ("a.txt", "a\tb\n", ("--input-format", "text"), [("1", "a\tb")]),
        ("a.tsv", "n\th\tp\n1\tb\ta\n", ("--columns", "p,h"), [("2", "a", "b")]),
        ("a.csv", 'p,h,n\n"a, a",b,1\ne,f,3\n', (), [("2", "a, a", "b"), ("3", "e", "f")]),
        ("a.csv", "s\na\n", (), [("2", "a")]),
        ("a.csv.gz", "n,s\n1,a\n", ("--columns", "s"), [("2", "a")]),
        (
            "a.jsonl",
            '{"n": 1, "h": "2020-01-01", "p": "3"}\n',
            ("--columns", "p,h"),
            [("1", "3", "2020-01-01")],
        ),
        ("a.jsonl", '{"s": "a"}\n', (), [("1", "a")]),
        ("a.txt", "a\n\nb\n", (), [("1", "a"), ("3", "b")]),
        ("a.tsv", "a\tb\nc\nd\t \ne\tf\n", (), [("1", "a", "b"), ("4", "e", "f")]),
        (
            "a.jsonl",
            '{"p": "a", "h": "b"}\n{"p": "a", "h": 3}\n{"p": "a"}\n',
            (),
            [("1", "a", "b")],
        ),
    ],
)
def test_layouts(
    name: str, text: str, options: tuple[str, ...], want: list[tuple[str, ...]], score: Score
) -> None:
    sides = ("sentence",) if len(want[0]) == 2 else ("premise", "hypothesis")
    for chunk in ("1", "100"):
        rows = score(text, *options, "--batch-size", chunk, name=name)
        assert [tuple(row[column] for column in ("line", *sides)) for row in rows] == want


def test_length_of_sentences_and_pairs(score: Score) -> None:
    assert score("a b c\nd\n", "--format", "jsonl") == [
        {"line": 1, "sentence": "a b c", "implicitness": 3.0},
        {"line": 2, "sentence": "d", "implicitness": 1.0},
    ]
    rows = score("abc d\tab\nab\tabc d\nab\tcd\n")
    assert list(rows[0])[3:] == [
        "lead",
        "direction",
        "implicitness_premise",
        "implicitness_hypothesis",
    ]
    assert [(row["lead"], row["direction"]) for row in rows] == [
        ("3", "forward"),
        ("-3", "backward"),
        ("0", "tie"),
    ]
    assert (rows[0]["implicitness_premise"], rows[0]["implicitness_hypothesis"]) == ("2", "1")


@pytest.mark.parametrize("experiment", ["dualcse_bi", "gausscse"])
def test_a_run_says_what_its_model_says(
    experiment: str, run_tiny: Callable[..., Any], tmp_path: Path, score: Score
) -> None:
    run = str(run_tiny(tmp_path, f"+experiment={experiment}", *SMALL).path)
    model: Any = load_model(run).answers
    premise, hypothesis = (model.embed([pair[side] for pair in PAIRS]) for side in (0, 1))
    there, back = (
        model.entailment_score(premise, hypothesis),
        model.entailment_score(hypothesis, premise),
    )
    want = {
        "similarity": model.similarity(premise, hypothesis),
        "entailment": there,
        "entailment_reversed": back,
        "lead": there - back,
    }
    if experiment == "dualcse_bi":
        want["implicitness_premise"] = model.implicitness(premise)
        want["implicitness_hypothesis"] = model.implicitness(hypothesis)
    for layout in ("csv", "jsonl"):
        rows = score(TSV, "--format", layout, model=run)
        assert list(rows[0]) == [
            "line",
            "premise",
            "hypothesis",
            *list(want)[:4],
            "direction",
            *list(want)[4:],
        ]
        for name, values in want.items():
            assert [float(row[name]) for row in rows] == pytest.approx(
                values.tolist(), rel=1e-4, abs=2e-6
            ), name
        assert rows[2]["direction"] == "tie", "a sentence and itself"
        assert {rows[0]["direction"], rows[3]["direction"]} == {"forward", "backward"}, (
            "one pair, both ways"
        )


def test_a_score_that_is_the_same_both_ways(monkeypatch: pytest.MonkeyPatch, score: Score) -> None:
    assert list(score(TSV, model="tiny")[0]) == ["line", "premise", "hypothesis", "similarity"]
    monkeypatch.setattr(
        PointModel, "entailment_score", lambda self, a, b: 2 * cosine(a.vector, b.vector)
    )
    model = load_model("tiny").answers
    assert columns_of(model, 2)[0] == ["similarity", "entailment"]
    monkeypatch.setattr(
        PointModel, "direction", lambda self, a, b: a.vector.sum(1) - b.vector.sum(1), raising=False
    )
    assert columns_of(model, 2)[0] == ["similarity", "entailment", "lead", "direction"]
    with pytest.raises(TaskError, match="PointModel gives no implicitness; give pairs"):
        columns_of(model, 1)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (b"", (), "cannot be read as tsv: No columns"),
        (b"a\n\xff\n", (), "'utf-8' codec can't decode byte 0xff"),
        (b"a\nb\tc\n", (), "Expected 1 fields in line 2, saw 2"),
        (
            b"a,b\n1,2\n",
            ("--input-format", "csv", "--columns", "a,c"),
            r"no column 'c' (found: a, b)",
        ),
        (
            b"a,b\n1,2,3\n",
            ("--input-format", "csv"),
            "the first row has more cells than the header",
        ),
        (b'a,b\n"1,2\n', ("--input-format", "csv"), "EOF inside string"),
        (b"3 \n{", ("--input-format", "jsonl"), "cannot be read as jsonl"),
        (b"", ("--input-format", "jsonl"), "in.txt: the file is empty"),
        (b"a\t\n\tb\n", (), "no row can be scored"),
        (b"a\n", ("--columns", "a,b,c"), "takes one name, or two"),
        (b"a\n", ("--model", "tiny"), "gives no implicitness; give pairs, or another model"),
    ],
)
def test_one_clear_error_and_no_file(
    text: bytes,
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "in.txt").write_bytes(text)
    (tmp_path / "out.csv").write_text("mine\n")
    try:
        code: Any = main(
            [
                "--model",
                "length",
                "--input",
                str(tmp_path / "in.txt"),
                "--output",
                str(tmp_path / "out.csv"),
                *options,
            ]
        )
    except SystemExit as error:  # of argparse
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "out.csv").read_text() == "mine\n"
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.csv"}


def test_a_score_that_is_not_finite_names_its_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Length, "implicitness", lambda self, sentence: sentence.vector[:, 0] / 0)
    (tmp_path / "in.txt").write_text("\na b\n")
    assert (
        main(["--model", "length", "--input", str(tmp_path / "in.txt"), "--input-format", "text"])
        == 2
    )
    assert "in.txt:2: a score of the model is not finite" in capsys.readouterr().err
