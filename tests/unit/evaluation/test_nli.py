"""Two-way NLI and the direction of entailment on hand-made files, and LENGTH's published numbers on the real ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lightning_cse.baselines import Length
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.errors import DataError
from lightning_cse.evaluation import EIS, NLI, Direction, run_tasks

Pair = tuple[str, str, str]

DEV: list[Pair] = [
    ("p 0", "a 0.8005", "entailment"),
    ("p 0", "b 0.3", "neutral"),
    ("q 0", "c 0.4", "contradiction"),
    ("q 0", "d 0.6", "entailment"),
    ("q 0", "e 0.1", "-"),
]
TEST: list[Pair] = [
    ("p 0", "a 0.5", "entailment"),
    ("p 0", "b 0.35", "entailment"),
    ("q 0", "c 0.9", "-"),
    ("q 0", "d 0.4", "neutral"),
]


class ByTable:
    """The score of a hypothesis is the number behind its last blank, and its premise's is subtracted."""

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        self.embedded += sentences
        return PointEmbedding(torch.tensor([[float(s.split()[-1]), float(len(s.split()[0]))] for s in sentences]))

    def entailment_score(self, premise: PointEmbedding, hypothesis: PointEmbedding) -> Tensor:
        return hypothesis.vector[:, 0] - premise.vector[:, 0]


class Wide(ByTable):
    """A sentence is as wide as its first word is long."""

    def log_determinant(self, sentence: PointEmbedding) -> Tensor:
        return sentence.vector[:, 1]


def write(folder: Path, split: str, rows: list[Pair]) -> None:
    path = folder / "SNLI/snli_1.0" / f"snli_1.0_{split}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"gold_label": label, "sentence1": p, "sentence2": h}) for p, h, label in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    write(tmp_path, "dev", DEV)
    write(tmp_path, "test", TEST)
    return tmp_path


def nli(folder: Path, **options: object) -> NLI:
    return NLI(data_dir=str(folder), dev="snli/dev", test="snli/test", **options)  # type: ignore[arg-type]


def test_the_threshold_is_the_first_best_of_the_grid_on_dev_and_used_on_test(data_dir: Path) -> None:
    results = {split: run_tasks({"snli": nli(data_dir)}, ByTable(), split)["snli"] for split in ("dev", "test")}
    assert results["dev"].metrics == pytest.approx({"accuracy": 1, "auprc": 1, "threshold": 0.401})
    assert results["test"].metrics["threshold"] == pytest.approx(0.401)
    assert results["test"].metrics["accuracy"] == pytest.approx(0.5)  # 0.35 is missed, 0.9 is not entailed
    assert results["test"].predictions["label"] == [True, True, False, False]
    assert results["test"].predictions["prediction"] == [True, False, True, False]


def test_auprc_is_the_trapezoid_under_the_exact_curve(data_dir: Path) -> None:
    # Scores 0.9 (no), 0.5 (yes), 0.4 (no), 0.35 (yes): (recall, precision) = (0, 0), (1/2, 1/2), (1/2, 1/3), (1, 1/2),
    # from (0, 1): the first step has no width.
    metrics = run_tasks({"snli": nli(data_dir)}, ByTable(), "test")["snli"].metrics
    assert metrics["auprc"] == pytest.approx(0.5 * (0 + 1 / 2) / 2 + 0.5 * (1 / 3 + 1 / 2) / 2)


def test_a_score_equal_to_the_threshold_is_entailed(tmp_path: Path) -> None:
    write(tmp_path, "dev", [("p 0", "a 0.75", "entailment"), ("p 0", "b 0.499", "neutral")])
    write(tmp_path, "test", [("p 0", "c 0.5", "entailment"), ("p 0", "d 0.25", "neutral")])
    metrics = run_tasks({"snli": nli(tmp_path)}, ByTable(), "test")["snli"].metrics
    assert metrics == pytest.approx({"accuracy": 1, "auprc": 1, "threshold": 0.5})


def test_fewer_dev_pairs_are_watched_but_the_threshold_of_the_test_is_tuned_on_all(data_dir: Path) -> None:
    tasks = {"snli": nli(data_dir, dev_rows=2)}
    assert len(run_tasks(tasks, ByTable(), "dev")["snli"].predictions["row"]) == 2
    assert run_tasks(tasks, ByTable(), "test")["snli"].metrics["threshold"] == pytest.approx(0.401)


def test_an_unwatched_test_set_has_no_part_in_training_and_shares_its_sentences(data_dir: Path) -> None:
    answers = ByTable()
    tasks = {"snli": nli(data_dir), "again": nli(data_dir, watched=False)}
    assert set(run_tasks(tasks, answers, "dev")) == {"snli"}
    answers.embedded = []
    assert set(run_tasks(tasks, answers, "test")) == {"snli", "again"}
    assert sorted(answers.embedded) == sorted({s for p, h, _ in DEV + TEST for s in (p, h)})


def test_matched_mnli_says_so() -> None:
    options = {"data_dir": "", "dev": "snli/dev"}
    assert NLI(test="mnli_nyu/dev_matched", **options).suffix == "_matched"
    assert Direction(test="mnli/dev_mismatched", **options).suffix == NLI(test="snli/test", **options).suffix == ""


def direction(folder: Path, rows: list[Pair]) -> Direction:
    write(folder, "dev", DEV)
    write(folder, "test", rows)
    return Direction(data_dir=str(folder), dev="snli/dev", test="snli/test")


def test_direction_asks_entailed_pairs_alone_and_ties_are_wrong(tmp_path: Path) -> None:
    rows = [
        ("p 0.2", "a 0.9", "entailment"),  # right
        ("ppp 0.9", "b 0.2", "entailment"),  # wrong, but its premise is the wider
        ("p 0.4", "q 0.4", "entailment"),  # a tie both ways
        ("p 0.1", "n 0.9", "neutral"),
    ]
    result = run_tasks({"d": direction(tmp_path, rows)}, Wide(), "test")["d"]
    assert result.metrics == pytest.approx({"accuracy": 1 / 3, "accuracy_determinant": 1 / 3})
    assert result.predictions["correct"] == [True, False, False]
    assert result.predictions["correct_determinant"] == [False, True, False]


def test_a_symmetric_score_has_no_direction(tmp_path: Path) -> None:
    class Symmetric(ByTable):
        def entailment_score(self, premise: PointEmbedding, hypothesis: PointEmbedding) -> Tensor:
            return hypothesis.vector[:, 0] * premise.vector[:, 0]

    result = run_tasks({"d": direction(tmp_path, [("p 0.3", "a 0.7", "entailment")])}, Symmetric(), "test")["d"]
    assert result.metrics == {"accuracy": 0}


def test_length_counts_characters_strictly(tmp_path: Path) -> None:
    rows = [("ab", "a", "entailment"), ("ab", "cd", "entailment"), ("a", "b c d", "entailment")]
    result = run_tasks({"d": direction(tmp_path, rows)}, Length(), "test")["d"]
    assert result.predictions["lead"] == [1, 0, -4]
    assert result.metrics == {"accuracy": pytest.approx(1 / 3)}


def test_no_entailed_pair_is_an_error_with_the_file(tmp_path: Path) -> None:
    task = direction(tmp_path, [("p 0", "a 1", "neutral")])
    with pytest.raises(DataError, match=r"snli_1\.0_test\.jsonl: none of the pairs is entailed one way"):
        run_tasks({"d": task}, ByTable(), "test")


def test_direction_looks_at_the_entailed_among_the_first_pairs(data_dir: Path) -> None:
    task = Direction(data_dir=str(data_dir), dev="snli/dev", test="snli/test", dev_rows=3, test_rows=1)
    assert len(run_tasks({"d": task}, ByTable(), "dev")["d"].predictions["row"]) == 1  # of two in all of dev
    assert len(run_tasks({"d": task}, ByTable(), "test")["d"].predictions["row"]) == 1


def test_a_model_without_a_score_is_left_out(data_dir: Path) -> None:
    assert run_tasks({"snli": nli(data_dir)}, Length(), "test") == {}
    assert not EIS(data_dir="").suits(ByTable())


@pytest.mark.parametrize(
    ("test", "pairs", "right"), [("sick/test", 794, 549), ("snli_senteval/test", 3368, 3126)], ids=["sick", "snli"]
)
def test_length_gives_its_published_numbers(real_data: Path, test: str, pairs: int, right: int) -> None:
    task = Direction(data_dir=str(real_data), dev="snli_senteval/dev", test=test)
    result = run_tasks({"d": task}, Length(), "test")["d"]
    assert len(result.predictions["row"]) == pairs
    assert sum(result.predictions["correct"]) == right  # GaussCSE, Table 2: 69.14 on SICK; 92.81 on tokenised SNLI
    assert round(100 * result.metrics["accuracy"], 2) == {794: 69.14, 3368: 92.81}[pairs]
