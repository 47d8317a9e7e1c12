"""What was made beside the pattern: which pairs are looked at, and how much of their histograms they share."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lightning_cse.analysis.histograms import Pairs as MeasuredPairs
from lightning_cse.analysis.histograms import PairSet
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import DataError
from lightning_cse.generation import Pattern, build_pattern
from lightning_cse.generation.examples import Pool
from lightning_cse.generation.made_rows import look_at, print_made

Pairs = list[tuple[str, str]]


def words(number: int, kept: int) -> tuple[str, str]:
    """Return two sentences of four words, the first words of which are the same."""
    first = [f"{letter}{number}" for letter in "abcd"]
    return " ".join(first), " ".join(first[:kept] + [f"other{place}" for place in range(4 - kept)])


def of(pairs: dict[str, Pairs], shots: int = 1) -> Pattern:
    """Return a pattern with these pairs to draw its examples from."""
    roles = [
        {
            "name": role,
            "reference": "source",
            "task": "Write a sentence.",
            "relation": "As here:",
            "fields": ["One", "Two"],
            "examples": [list(pair) for pair in some[:shots]],
            "rule": "Only that.",
        }
        for role, some in pairs.items()
    ]
    layout = {
        "prompt": "{task} {relation} {examples} {rule}",
        "example": "{number} {first_field} {first} {second_field} {second}",
    }
    node = {"name": "mine", "shots": shots, "seed": 0, "layout": layout, "roles": roles}
    built = build_pattern(node, Path())
    return Pattern(built.name, built.roles, {role: Pool(f"own, {role}", some, {}) for role, some in pairs.items()})


def written(folder: Path, pairs: dict[str, Pairs]) -> Path:
    """Write rows in which each role has these pairs with the anchor; the anchors of all roles are the same."""
    path = folder / "mine.jsonl"
    several = zip(*([(role, pair) for pair in some] for role, some in pairs.items()), strict=True)
    rows = [{"anchor": row[0][1][0], **{role: pair[1] for role, pair in row}} for row in several]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


KEPT = {"positive": 3, "intermediate": 2, "joke": 1, "negative": 0}
PATTERN = {role: [words(number, kept) for number in range(40)] for role, kept in KEPT.items()}
MER = {"positive": 0.25, "intermediate": 0.5, "joke": 0.75, "negative": 1.0}


def test_rows_as_the_pattern_has_them_share_everything(tmp_path: Path) -> None:
    rows = written(tmp_path, {role: [words(n + 100, kept) for n in range(30)] for role, kept in KEPT.items()})
    summary = look_at(of(PATTERN), rows, None, looked_at=20, seed=0, folder=tmp_path / "out")
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (tmp_path / "out" / "histograms.png").read_bytes().startswith(b"\x89PNG")
    assert list(summary["roles"]) == list(KEPT)
    for role, found in summary["roles"].items():
        kind = {"joke": None, "negative": "negative"}.get(role, "positive")
        assert found["kind"] == found["made"]["kind"] == found["pattern"]["kind"] == kind
        assert found["made"]["label"] == f"anchor - {role}"
        assert found["pattern"]["label"] == f"{role}: own, {role}"
        assert (found["made"]["pairs"], found["made"]["looked_at"]) == (30, 20)
        assert (found["pattern"]["pairs"], found["pattern"]["looked_at"]) == (40, 20)
        assert found["made"]["mer"] == found["pattern"]["mer"]
        assert found["made"]["mer"]["mean"] == MER[role]
        assert found["overlap"] == {"mer": pytest.approx(1), "cosine": None}
        assert found["alike"] == {"mer": pytest.approx(1), "cosine": None}
    assert summary["encoder"] is None
    assert list(summary["bins"]) == ["mer"]


def test_half_of_the_rows_are_as_the_pattern_has_them_and_none(tmp_path: Path) -> None:
    half = [words(n, 3) for n in range(10)] + [words(n, 0) for n in range(10, 20)]
    none = [words(n, 3) for n in range(20)]
    pattern = of({role: PATTERN[role] for role in ("positive", "negative")})
    summary = look_at(
        pattern, written(tmp_path, {"positive": half, "negative": none}), None, looked_at=99, seed=0, folder=tmp_path
    )
    found = {role: each["overlap"]["mer"] for role, each in summary["roles"].items()}
    assert found == {"positive": pytest.approx(0.5), "negative": 0.0}
    assert summary["roles"]["positive"]["made"]["mer"]["mean"] == pytest.approx((0.25 + 1) / 2)


def test_what_as_many_pairs_of_the_pattern_share(tmp_path: Path) -> None:
    both = [words(n, 3) for n in range(20)] + [words(n, 0) for n in range(20)]
    rows = written(tmp_path, {"positive": [words(0, 3)]})
    summary = look_at(of({"positive": both}), rows, None, looked_at=99, seed=0, folder=tmp_path)
    found = summary["roles"]["positive"]
    # One pair that was made shares the half of the pattern in whose bin it is, and so would each of the pattern's.
    assert found["overlap"]["mer"] == pytest.approx(0.5)
    assert found["alike"]["mer"] == pytest.approx(0.5, abs=0.01)
    rows = written(tmp_path, {"positive": [words(n, 3) for n in range(400)]})
    larger = look_at(of({"positive": both * 10}), rows, None, looked_at=999, seed=0, folder=tmp_path)
    found = larger["roles"]["positive"]
    assert found["overlap"]["mer"] == pytest.approx(0.5)
    assert 0.95 < found["alike"]["mer"] < 1


def drawn(monkeypatch: pytest.MonkeyPatch, pattern: Pattern, rows: Path, folder: Path) -> tuple[Any, list[PairSet]]:
    """Look at rows, and return the summary and what would be drawn."""
    kept: list[PairSet] = []
    monkeypatch.setattr("lightning_cse.generation.made_rows.draw_histograms", lambda sets, path: kept.extend(sets))
    return look_at(pattern, rows, None, looked_at=99, seed=0, folder=folder), kept


def labels(pairs: Sequence[MeasuredPairs]) -> dict[str, int]:
    """Return how many pairs there are by label."""
    return {each.label: len(each.mer) for each in pairs}


@pytest.mark.parametrize(("count", "enough"), [(2, False), (29, False), (30, True)])
def test_few_pairs_of_the_pattern_are_not_compared(
    count: int, enough: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    roles = ("positive", "negative")
    few = {role: PATTERN[role][:count] for role in roles}
    rows = written(tmp_path, {role: PATTERN[role] for role in roles})
    summary, sets = drawn(monkeypatch, of(few), rows, tmp_path)
    assert [each.name for each in sets] == (["made", "pattern"] if enough else ["made"])
    for found in summary["roles"].values():
        assert found["pattern"]["pairs"] == found["pattern"]["looked_at"] == count
        assert found["pattern"]["mer"]["mean"] == found["made"]["mer"]["mean"]
        wanted = pytest.approx(1) if enough else None
        assert (found["overlap"]["mer"], found["alike"]["mer"]) == (wanted, wanted)
    # The histogram of the roles that have enough pairs is drawn, and those of the others leave their places.
    summary, sets = drawn(monkeypatch, of(few | {"negative": PATTERN["negative"]}), rows, tmp_path / "one")
    assert (summary["roles"]["positive"]["overlap"]["mer"] is None) == (not enough)
    assert summary["roles"]["negative"]["overlap"]["mer"] == pytest.approx(1)
    assert labels(sets[1].positive) == {"positive: own, positive": count if enough else 0}
    assert labels(sets[1].negative) == {"negative: own, negative": 40}


def test_roles_that_no_method_knows_are_neither(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, (made, shown) = drawn(monkeypatch, of(PATTERN), written(tmp_path, PATTERN), tmp_path)
    assert labels(made.positive) == {"anchor - positive": 40, "anchor - intermediate": 40}
    assert labels(made.neither) == {"anchor - joke": 40}
    assert labels(shown.neither) == {"joke: own, joke": 40}
    assert labels(shown.negative) == {"negative: own, negative": 40}
    known = {role: PATTERN[role] for role in ("positive", "negative")}
    _, sets = drawn(monkeypatch, of(known), written(tmp_path, known), tmp_path)
    assert [each.neither for each in sets] == [[], []]


def test_a_summary_of_another_rule_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"positive": PATTERN["positive"][:29]}
    rows = written(tmp_path, few)
    monkeypatch.setattr("lightning_cse.generation.made_rows._FEWEST", 2)
    first = look_at(of(few), rows, None, looked_at=9, seed=0, folder=tmp_path)
    assert first["roles"]["positive"]["overlap"]["mer"] == pytest.approx(1)
    monkeypatch.undo()
    again = look_at(of(few), rows, None, looked_at=9, seed=0, folder=tmp_path)
    assert again["roles"]["positive"]["overlap"]["mer"] is None


def test_cosines_of_an_encoder_and_their_bins(tmp_path: Path) -> None:
    equal = {"positive": [(first, first) for first, _ in PATTERN["positive"]]}
    rows = written(tmp_path, equal)
    summary = look_at(of(equal), rows, tiny_encoder(), looked_at=30, seed=0, folder=tmp_path)
    found = summary["roles"]["positive"]
    assert found["made"]["cosine"]["mean"] == pytest.approx(1)
    assert found["overlap"] == {"mer": pytest.approx(1), "cosine": pytest.approx(1)}
    assert summary["bins"]["cosine"] == {"from": 0.5, "to": 1.0, "count": 25}
    assert summary["encoder"]["name"] == "tiny"
    assert summary["device"] == "cpu" or summary["device"].startswith("cuda")


def test_a_summary_of_the_same_is_read_and_another_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, pattern = written(tmp_path, PATTERN), of(PATTERN)
    first = look_at(pattern, rows, None, looked_at=30, seed=0, folder=tmp_path)
    told: list[str] = []
    monkeypatch.setattr(
        "lightning_cse.generation.made_rows.draw_histograms", lambda sets, path: told.append(path.name) or path
    )

    def again(**options: Any) -> dict[str, Any]:
        return look_at(
            **{"pattern": pattern, "encoder": None, "looked_at": 30, "seed": 0, "rows": rows, "folder": tmp_path}
            | options
        )

    assert again() == first
    assert told == []
    assert again(seed=1)["seed"] == 1
    assert again(seed=1, looked_at=20)["roles"]["joke"]["made"]["looked_at"] == 20
    assert again()["seed"] == 0  # the one of seed 1 has taken its place
    assert again(pattern=of(PATTERN, shots=2))["pattern"] != first["pattern"]
    assert again(encoder=tiny_encoder())["encoder"]["name"] == "tiny"
    assert len(told) == 5
    (tmp_path / "summary.json").write_text('{"seed": ')
    assert again() == first | {"environment": again()["environment"]}
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:7]))
    assert again()["roles"]["joke"]["made"]["pairs"] == 7
    assert len(told) == 7


def test_without_an_encoder_cosines_that_are_there_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def drawing(sets: Any, path: Path) -> None:
        drawn.append(len(sets))
        path.touch()

    monkeypatch.setattr("lightning_cse.generation.made_rows.draw_histograms", drawing)
    pairs = {"positive": PATTERN["positive"]}
    rows, pattern = written(tmp_path, pairs), of(pairs)
    made = look_at(pattern, rows, tiny_encoder(), looked_at=30, seed=0, folder=tmp_path)
    text = (tmp_path / "summary.json").read_bytes()
    assert look_at(pattern, rows, None, looked_at=30, seed=0, folder=tmp_path) == made
    assert (tmp_path / "summary.json").read_bytes() == text
    assert len(drawn) == 1
    # Of other rows, or of another draw of them, they would tell something else than what is asked for.
    other = look_at(pattern, rows, None, looked_at=20, seed=0, folder=tmp_path)
    assert (other["encoder"], other["looked_at"]) == (None, 20)
    look_at(pattern, rows, tiny_encoder(), looked_at=30, seed=0, folder=tmp_path)
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:7]))
    assert look_at(pattern, rows, None, looked_at=30, seed=0, folder=tmp_path)["encoder"] is None


def test_an_encoder_adds_its_cosines(tmp_path: Path) -> None:
    pairs = {"positive": PATTERN["positive"]}
    rows, pattern = written(tmp_path, pairs), of(pairs)
    assert look_at(pattern, rows, None, looked_at=30, seed=0, folder=tmp_path)["encoder"] is None
    made = look_at(pattern, rows, tiny_encoder(), looked_at=30, seed=0, folder=tmp_path)
    assert made["roles"]["positive"]["overlap"]["cosine"] is not None


ROW = b'{"anchor": "a b", "positive": "a c"}'


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (ROW, 1),
        (ROW + b"\n", 1),
        (ROW + b"\r\n\n\r\r\n", 1),
        (ROW + b"\n" + ROW, 2),
        (ROW + b"\r\n" + ROW + b"\r\n", 2),
        (b"", "no row"),
        (b" \r\n\t\n ", "no row"),
        (ROW + b"\n\n" + ROW + b"\n", "mine.jsonl{}:2: not valid JSON"),
        (b"\n" + ROW, "mine.jsonl{}:1: not valid JSON"),
        (ROW + b"\n \n", "mine.jsonl{}:2: not valid JSON"),
        (ROW + b"\n" + ROW + b"\n\xff\n", "mine.jsonl{}:3: not valid UTF-8 at byte 1"),
    ],
)
def test_lines_are_those_between_line_breaks(
    content: bytes, found: int | str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightning_cse.generation.made_rows.draw_histograms", lambda sets, path: path)
    rows = tmp_path / f"mine.jsonl{ending}"
    rows.write_bytes(gzip.compress(content) if ending else content)
    pattern = of({"positive": PATTERN["positive"]})
    if isinstance(found, str):
        with pytest.raises(DataError, match=found.format(ending)):
            look_at(pattern, rows, None, looked_at=9, seed=0, folder=tmp_path)
        return
    summary = look_at(pattern, rows, None, looked_at=9, seed=0, folder=tmp_path)
    assert summary["rows"] == {"file": rows.name, "sha256": hashlib.sha256(content).hexdigest()}
    made = summary["roles"]["positive"]["made"]
    assert (made["pairs"], made["looked_at"], made["mer"]["mean"]) == (found, found, 0.5)


def test_rows_are_drawn_by_the_seed(tmp_path: Path) -> None:
    mixed = {"positive": [words(n, n % 5) for n in range(40)]}
    rows, pattern = written(tmp_path, mixed), of(mixed)
    means = [
        look_at(pattern, rows, None, looked_at=5, seed=seed, folder=tmp_path)["roles"]["positive"]["made"]["mer"][
            "mean"
        ]
        for seed in (0, 1, 2, 0)
    ]
    assert means[0] == means[3]
    assert len(set(means)) > 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"anchor": "a", "positive": "b"}\n{"anchor": "c"}\n', r"mine.jsonl:2: missing key 'positive'"),
        ('{"anchor": "a", "positive": " "}\n', r"mine.jsonl:1: positive is empty"),
        ('{"anchor": "a", "positive": "b"}\n[1]\n', r"mine.jsonl:2: a JSON object is needed"),
        ('{"anchor": "a", \n', r"mine.jsonl:1: not valid JSON"),
        ("\n", r"mine.jsonl: no row"),
    ],
)
def test_rows_that_are_none_are_told_by_line(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "mine.jsonl").write_text(text)
    pattern = of({"positive": PATTERN["positive"]})
    with pytest.raises(DataError, match=fault):
        look_at(pattern, tmp_path / "mine.jsonl", None, looked_at=9, seed=0, folder=tmp_path)
    (tmp_path / "mine.jsonl").write_bytes(b'{"anchor": "\xff", "positive": "b"}\n')
    with pytest.raises(DataError, match=r"mine.jsonl:1: not valid UTF-8 at byte 13"):
        look_at(pattern, tmp_path / "mine.jsonl", None, looked_at=9, seed=0, folder=tmp_path)
    assert not (tmp_path / "summary.json").exists()


def printed(tmp_path: Path, encoder: Any = None, shown: int = 40, **changes: Any) -> str:
    """Print what is told of rows as the pattern has them, and of how they came to be, on a narrow console."""
    rows = written(tmp_path, {role: PATTERN[role] for role in ("positive", "negative")})
    pattern = of({"positive": PATTERN["positive"][:shown], "negative": PATTERN["negative"]})
    summary = look_at(pattern, rows, encoder, looked_at=30, seed=0, folder=tmp_path)
    provenance = {
        "acceptance": {
            "sources": {"complete": 40, "given_up": 2},
            "roles": {
                "positive": {
                    "asked": 1260,
                    "accepted": 42,
                    "rejected": {"refused": 3, "several sentences": 1000, "echo of the source": 100, "too long": 115},
                },
                "negative": {"asked": 0, "accepted": 0, "rejected": {}},
            },
        },
        "tokens": {"prompt": 123456, "completion": 7890, "unmetered": 0},
        "cost": 0.0735,
        "price": {"input": 0.5, "output": 1.5},
    }
    file = io.StringIO()
    print_made(summary, provenance | changes, Console(file=file, width=60, highlight=False))
    return file.getvalue()


def test_the_tables_tell_acceptance_and_pattern(tmp_path: Path) -> None:
    told = printed(tmp_path, tiny_encoder())
    lines = [line.split("   ") for line in told.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert ["positive", "1,260", "42", "3.3 %", "several sentences 1,000, too long 115,"] in cells
    assert ["echo of the source 100, refused 3"] in cells
    assert ["negative", "0", "0", "-"] in cells
    (pattern,) = (line for line in cells if line[:2] == ["positive", "30"])
    assert pattern[2:6] == ["30", "0.250", "0.250", "1.00 (1.00)"]
    assert len(pattern) == 9
    assert "…" not in told
    assert "cosine: tiny" in told
    assert told.splitlines()[-1] == "rows: 40, 2 given up; tokens: 123,456 sent, 7,890 received; cost: $0.0735"


def test_what_is_not_known_is_told(tmp_path: Path) -> None:
    told = printed(tmp_path, cost=None, price=None)
    assert told.splitlines()[-1].endswith("; cost: unknown (llm.price was not set)")
    assert "no cosines" in told
    assert "no overlap" not in told
    (row,) = (line.split() for line in told.splitlines() if line.startswith("negative   ") and "1.000" in line)
    assert row == ["negative", "30", "30", "1.000", "1.000", "1.00", "(1.00)", "-", "-", "-"]
    tokens = {"prompt": 0, "completion": 0, "unmetered": 5}
    told = printed(tmp_path, cost=None, tokens=tokens)
    assert told.splitlines()[-1].endswith(
        "0 received (5 replies told none); cost: unknown (the endpoint told no tokens)"
    )


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        (0.0, "$0.00"),
        (0.0000042, "$0.0000042"),
        (0.00042, "$0.00042"),
        (0.0042, "$0.0042"),
        (0.001, "$0.0010"),
        (1234.5, "$1,234.5000"),
    ],
)
def test_a_small_cost_has_two_digits_that_count(cost: float, told: str, tmp_path: Path) -> None:
    assert printed(tmp_path, cost=cost).splitlines()[-1].endswith(f"; cost: {told}")


def test_why_there_is_no_overlap_is_told(tmp_path: Path) -> None:
    told = printed(tmp_path, shown=2)
    (row,) = (line.split() for line in told.splitlines() if line.startswith("positive   ") and "0.250" in line)
    assert row == ["positive", "30", "2", "0.250", "0.250", "-", "-", "-", "-"]
    (note,) = (line for line in told.splitlines() if line.startswith("no overlap: "))
    assert note.startswith("no overlap: positive, since fewer than 30 pairs of the pattern make no histogram; ")
    assert "1.00 (1.00)" in told  # the other role's
