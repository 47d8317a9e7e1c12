"""Scores for users: what is read, what a model is asked, and that chunks change nothing."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from lightning_cse.analysis import scoring
from lightning_cse.analysis.scoring import Input, Row, Scorer, Tally, layout_of, score
from lightning_cse.baselines import Length
from lightning_cse.engine.load import load_model
from lightning_cse.errors import ConfigError, DataError, LightningCSEError, TaskError
from lightning_cse.models import DualModel, GaussianModel, PointModel
from lightning_cse.runs import Run
from lightning_cse.similarity import cosine

LIMITS = tuple(f"limits.{split}_{what}=8" for split in ("dev", "test") for what in ("rows", "pairs"))
SMALL = ("baselines=none", "data.train_rows=12", "diag.sentences=16", *LIMITS)
PAIRS = [
    ("A man in a hat walks his dog .", "A man walks ."),
    ("It is cold in here .", "Close the window , please ."),
    ("The show was quite something .", "The show was quite something ."),
    ("A man walks .", "A man in a hat walks his dog ."),
]


def read(text: str | bytes, **options: object) -> Input:
    data = text.encode() if isinstance(text, str) else text
    return Input(io.BytesIO(data), "in", **options)  # type: ignore[arg-type]  # as a caller gives them


def scored(
    scorer: Scorer, text: str, at_once: int = 1024, layout: str = "jsonl", **options: object
) -> list[dict[str, object]]:
    sink = io.BytesIO()
    score(read(text, **options), scorer, sink, layout=layout, at_once=at_once)
    if layout == "csv":
        return list(csv.DictReader(io.StringIO(sink.getvalue().decode())))
    return [json.loads(line) for line in sink.getvalue().splitlines()]


@pytest.fixture(scope="module")
def dual(run_tiny: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny(tmp_path_factory.mktemp("dual"), "+experiment=dualcse_bi", *SMALL).path


@pytest.fixture(scope="module")
def gauss(run_tiny: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny(tmp_path_factory.mktemp("gauss"), "+experiment=gausscse", "corpora=sample", *SMALL).path


# Reading


@pytest.mark.parametrize(
    ("text", "options", "want"),
    [
        ("one\r\n two \nthree", {}, [(1, "one"), (2, "two"), (3, "three")]),
        ("\ufeffa\tb\nc\td\n", {}, [(1, "a", "b"), (2, "c", "d")]),
        ("a\tb\tx\n", {}, [(1, "a", "b")]),
        ("no tab\n", {"layout": "text"}, [(1, "no tab")]),
        ("a\tb\n", {"layout": "text"}, [(1, "a\tb")]),
        ("n\th\tp\n1\tb\ta\n", {"columns": ("p", "h")}, [(2, "a", "b")]),
        (
            'p,h,n\n"a, a",b,1\n"two\nlines",d,2\ne,f,3\n',
            {"layout": "csv"},
            [(2, "a, a", "b"), (3, "two\nlines", "d"), (5, "e", "f")],
        ),
        ("s\na\n", {"layout": "csv"}, [(2, "a")]),
        ("n,s\n1,a\n", {"layout": "csv", "columns": ("s",)}, [(2, "a")]),
        ('{"p": "a", "h": "b", "n": 1}\n', {"layout": "jsonl"}, [(1, "a", "b")]),
        ('{"n": 1, "h": "b", "p": "a"}\n', {"layout": "jsonl", "columns": ("p", "h")}, [(1, "a", "b")]),
        ('{"s": "a"}\n', {"layout": "jsonl"}, [(1, "a")]),
    ],
)
def test_layouts(text: str, options: dict[str, object], want: list[tuple[object, ...]]) -> None:
    source = read(text, **options)
    assert [(row.line, *row.texts) for row in source] == want
    assert source.kind == ("sentence" if len(want[0]) == 2 else "pair")


def test_a_row_after_one_of_several_lines_has_its_own_line() -> None:
    assert [row.line for row in read('p,h\n"a\na",b\nc,d\n', layout="csv")] == [2, 4]


@pytest.mark.parametrize(
    ("text", "layout", "line", "why"),
    [
        ("a\n\nb\n", "auto", 2, "is empty"),
        ("a\nb\tc\n", "auto", 2, "has a tab and so several columns"),
        ("a\tb\nc\n", "auto", 2, "has 1 columns, where the first line has 2"),
        ("a\tb\nc\t \n", "auto", 2, "'column 2' is empty"),
        ("p,h\na,b\nc,d,e\n", "csv", 3, "has 3 columns, where the first line has 2"),
        ("p,h\na,b\n,d\n", "csv", 3, "'p' is empty"),
        ('p,h\na,b\n"c"x,d\n', "csv", 3, "cannot be read as CSV"),
        ('{"p": "a", "h": "b"}\n{"p": "a"}\n', "jsonl", 2, "'h' is missing"),
        ('{"p": "a", "h": "b"}\n{"p": "a", "h": 3}\n', "jsonl", 2, "'h' is 3, not text"),
        ('{"p": "a", "h": "b"}\n{"p": \n', "jsonl", 2, "is no JSON"),
        ('{"p": "a", "h": "b"}\n["a", "b"]\n', "jsonl", 2, "is no JSON object"),
    ],
)
def test_bad_rows_are_told_with_their_line_or_counted(text: str, layout: str, line: int, why: str) -> None:
    with pytest.raises(DataError, match=rf"^in:{line}: .*{why}.*--skip-bad$"):
        list(read(text, layout=layout))
    source = read(text, layout=layout, skip_bad=True)
    assert line not in [row.line for row in source]
    assert source.skipped == 1


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (b"", {}, "in: is empty, so there is nothing to score"),
        (b"a\n\xff\n", {"skip_bad": True}, r"in:2: not UTF-8 text \(byte 0xff\)"),
        (b"a\n\0\n", {"skip_bad": True}, "in:2: a zero byte"),
        (b"a,b\n1,2\n", {"layout": "csv", "columns": ("a", "c")}, r"no column 'c' \(--columns\); there are: a, b"),
        (b"a\tb\n", {"columns": ("a", "c")}, "no column 'c'"),
        (b"a\n", {"columns": ("a", "c")}, "--columns names a, c"),
        (b"\na,b\n", {"layout": "csv"}, "in:1: is no header"),
        (b"3\n", {"layout": "jsonl", "skip_bad": True}, "in:1: is no JSON object"),
    ],
)
def test_what_cannot_be_read_is_told_whatever_is_skipped(text: bytes, options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read(text, **options))


def test_a_quote_that_is_never_closed_does_not_take_the_rest_into_memory() -> None:
    before = csv.field_size_limit(2**27)  # as other readers of the same process have it
    try:
        with pytest.raises(DataError, match="in:2: cannot be read as CSV: field larger"):
            list(read('p,h\n"a,b\n' + "c,d\n" * 100_000, layout="csv"))
        assert csv.field_size_limit() == 2**27
    finally:
        csv.field_size_limit(before)


def test_rows_are_read_as_they_are_asked_for() -> None:
    class Endless(io.RawIOBase):
        asked = 0

        def readline(self, size: int | None = -1) -> bytes:
            self.asked += 1
            return b"a line\n"

    stream = Endless()
    rows = iter(Input(stream, "in"))  # type: ignore[arg-type]  # has what is needed
    assert [next(rows).line for _ in range(5)] == [1, 2, 3, 4, 5]
    assert stream.asked <= 6


def test_the_ending_says_the_layout() -> None:
    names = ("a.tsv", "a.csv", "a.jsonl", "a.jsonl.gz", "a.txt", "a", "-")
    assert [layout_of(name) for name in names] == ["tsv", "csv", "jsonl", "jsonl", "auto", "auto", "auto"]


# Scores


def test_length_of_sentences_and_pairs() -> None:
    assert scored(Scorer("length", "sentence"), "a b c\nd\n") == [
        {"line": 1, "sentence": "a b c", "implicitness": 3.0},
        {"line": 2, "sentence": "d", "implicitness": 1.0},
    ]
    scorer = Scorer("length", "pair")
    assert scorer.unanswered == ["similarity", "entailment_score"]
    assert scorer.left_out == ["length gives no similarity and no entailment_score: these columns are left out"]
    rows = scored(scorer, "abc d\tab\nab\tabc d\nab\tcd\n", layout="csv")
    assert [(row["lead"], row["direction"]) for row in rows] == [("3", "forward"), ("-3", "backward"), ("0", "tie")]
    assert next((row["implicitness_premise"], row["implicitness_hypothesis"]) for row in rows) == ("2", "1")


@pytest.mark.parametrize("layout", ["csv", "jsonl"])
def test_a_run_says_what_its_method_says(dual: Path, layout: str) -> None:
    method = load_model(str(dual)).answers
    assert isinstance(method, DualModel)
    premise, hypothesis = (method.embed([pair[side] for pair in PAIRS]) for side in (0, 1))
    there, back = method.entailment_score(premise, hypothesis), method.entailment_score(hypothesis, premise)
    want = {
        "similarity": method.similarity(premise, hypothesis),
        "entailment": there,
        "entailment_reversed": back,
        "lead": there - back,
        "implicitness_premise": method.implicitness(premise),
        "implicitness_hypothesis": method.implicitness(hypothesis),
    }
    rows = scored(Scorer(str(dual), "pair"), "".join(f"{p}\t{h}\n" for p, h in PAIRS), layout=layout)
    assert list(rows[0]) == ["line", "premise", "hypothesis", *list(want)[:4], "direction", *list(want)[4:]]
    for name, values in want.items():
        assert [float(str(row[name])) for row in rows] == pytest.approx(values.tolist(), rel=1e-4, abs=2e-6), name
    assert rows[2]["direction"] == "tie"  # a sentence and itself
    assert {rows[0]["direction"], rows[3]["direction"]} == {"forward", "backward"}  # one pair, both ways
    assert [len(str(row["similarity"]).lstrip("-0.").replace(".", "")) <= 6 for row in rows] == [True] * 4


def test_a_gaussian_gives_direction_and_no_implicitness(gauss: Path) -> None:
    method = load_model(str(gauss)).answers
    assert isinstance(method, GaussianModel)
    scorer = Scorer(str(gauss), "pair")
    assert scorer.unanswered == ["implicitness"]
    assert scorer.left_out == [f"{scorer.name} gives no implicitness: these columns are left out"]
    rows = scored(scorer, "".join(f"{p}\t{h}\n" for p, h in PAIRS))
    premise, hypothesis = (method.embed([pair[side] for pair in PAIRS]) for side in (0, 1))
    there = method.entailment_score(premise, hypothesis)
    assert [row["entailment"] for row in rows] == pytest.approx(there.tolist(), rel=1e-4)
    for row in rows:
        signs = {"forward": 1, "backward": -1, "tie": 0}
        assert signs[str(row["direction"])] == (float(str(row["lead"])) > 0) - (float(str(row["lead"])) < 0)
    with pytest.raises(TaskError, match=r"\(GaussianModel\) gives no implicitness of a sentence.*Give pairs"):
        Scorer(str(gauss), "sentence")


def test_a_score_that_is_the_same_both_ways_says_nothing_of_a_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"{p}\t{h}\n" for p, h in PAIRS)
    scorer = Scorer("tiny", "pair")
    assert list(scored(scorer, text)[0]) == ["line", "premise", "hypothesis", "similarity"]
    assert scorer.left_out == [
        "tiny gives no implicitness: these columns are left out",
        "the entailment score of tiny (PointModel) is the same both ways, and is its similarity: "
        "entailment, entailment_reversed, lead, direction are left out",
    ]
    monkeypatch.setattr(PointModel, "entailment_score", lambda self, a, b: 2 * cosine(a.vector, b.vector))
    scorer = Scorer("tiny", "pair")
    for row in scored(scorer, text):
        assert list(row) == ["line", "premise", "hypothesis", "similarity", "entailment"]
        assert row["entailment"] == pytest.approx(2 * float(str(row["similarity"])), rel=1e-4)
    assert scorer.left_out[1] == (
        "the entailment score of tiny (PointModel) is the same both ways: "
        "entailment_reversed, lead, direction are left out"
    )
    longer = {"direction": lambda self, a, b: a.vector.sum(1) - b.vector.sum(1)}
    monkeypatch.setattr(PointModel, "direction", longer["direction"], raising=False)
    assert Scorer("tiny", "pair").columns == ("similarity", "entailment", "lead", "direction")


def test_a_plain_encoder_has_no_implicitness() -> None:
    with pytest.raises(TaskError, match=r"^tiny \(PointModel\) gives no implicitness of a sentence; it answers: "):
        Scorer("tiny", "sentence")


def test_chunks_change_nothing_beyond_rounding(dual: Path) -> None:
    text = "".join(f"{p} {n}\t{h}\n" for n in range(12) for p, h in PAIRS)
    scorer = Scorer(str(dual), "pair")
    whole = scored(scorer, text)
    for at_once in (1, 7):
        for row, other in zip(whole, scored(scorer, text, at_once), strict=True):
            assert {key: row[key] for key in ("line", "premise")} == {key: other[key] for key in ("line", "premise")}
            for key in ("similarity", "entailment", "implicitness_premise"):
                assert other[key] == pytest.approx(row[key], abs=3e-6), key


def test_each_distinct_sentence_of_a_chunk_is_embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    embed = Length.embed

    def counted(self: Length, sentences: list[str]) -> object:
        asked.append(list(sentences))
        return embed(self, sentences)

    monkeypatch.setattr(Length, "embed", counted)
    scored(Scorer("length", "pair"), "a\tb\nb\ta\na\tc\n", at_once=2)
    assert asked == [["a", "b"], ["a", "c"]]


def test_sentences_that_are_cut_are_counted(dual: Path) -> None:
    scorer = Scorer(str(dual), "sentence")
    scored(scorer, f"a short one\n{'very ' * 300}long\n")
    assert (scorer.cut, scorer.embedded) == (1, 2)


def test_a_score_that_is_no_number_names_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Length, "implicitness", lambda self, sentence: sentence.vector[:, 0].log().mul(torch.inf))
    with pytest.raises(LightningCSEError, match=r"^in: line 1: the implicitness of length is no finite number$"):
        scored(Scorer("length", "sentence"), "a b\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is the device that the test wants missing")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="--device: torch finds no cuda on this machine"):
        Scorer("length", "sentence", device="cuda")


# Writing


def test_what_stands_before_a_bad_row_is_written() -> None:
    sink = io.BytesIO()
    with pytest.raises(DataError, match="in:6: is empty"):
        score(read("a\nb\nc\nd\ne\n\nf\n"), Scorer("length", "sentence"), sink, at_once=2)
    assert [line.split(",")[0] for line in sink.getvalue().decode().splitlines()] == ["line", "1", "2", "3", "4", "5"]


def test_every_chunk_is_written_and_flushed_before_the_next_is_read() -> None:
    sink = io.BytesIO()
    seen: list[int] = []

    class Watched(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            seen.append(sink.getvalue().count(b"\n"))
            return super().readline()

    source = Input(Watched(b"a\nb\nc\nd\n"), "in")
    told: list[int] = []
    assert score(source, Scorer("length", "sentence"), sink, layout="jsonl", at_once=2, told=told.append) == Tally(4, 2)
    assert seen == [0, 0, 2, 2, 4]
    assert told == [2, 2]


def test_an_interrupt_while_a_chunk_is_written_waits_for_its_end(heard_interrupts: None) -> None:
    class Interrupted(io.BytesIO):
        def write(self, data: object) -> int:
            os.kill(os.getpid(), signal.SIGINT)
            return super().write(data)  # type: ignore[arg-type]  # bytes

    sink = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        score(read("a\nb\nc\n"), Scorer("length", "sentence"), sink, at_once=2)
    assert sink.getvalue().decode() == "line,sentence,implicitness\n1,a,1\n2,b,1\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_compressed_input_and_one_that_is_cut_off(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(f"line {n} of many\n".encode() for n in range(2000)))
    for name, data in (("whole", whole), ("cut", whole[:-200])):
        (tmp_path / f"{name}.txt.gz").write_bytes(data)
    request = {
        "model": "length",
        "input_format": "auto",
        "format": "csv",
        "columns": (),
        "skip_bad": False,
        "precision": "32-true",
        "batch_size": 100,
        "device": "cpu",
    }
    output = tmp_path / "out.csv"
    scoring.run(scoring.Request(input=str(tmp_path / "whole.txt.gz"), output=str(output), **request))  # type: ignore[arg-type]
    assert len(output.read_text().splitlines()) == 2001
    with pytest.raises(DataError, match=r"cut\.txt\.gz:\d+: the compressed data is cut off or broken here"):
        scoring.run(scoring.Request(input=str(tmp_path / "cut.txt.gz"), output=str(output), **request))  # type: ignore[arg-type]
    assert len(output.read_text().splitlines()) == 2001, "what was there is as it was"
    written = (tmp_path / "out.csv.partial").read_text().splitlines()
    assert 1 < len(written) < 2001
    assert written[-1].endswith(",4")  # a whole line


def test_rows_of_an_iterator_that_ends_in_a_chunk() -> None:
    def rows() -> Iterator[Row]:
        yield Row(1, ("a",))

    assert list(scoring._chunks(rows(), 5)) == [[Row(1, ("a",))]]
