"""RTE and EIS on a hand-made corpus whose answers can be counted on the fingers, and LENGTH on the real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lightning_cse.baselines import Length
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.errors import TaskError
from lightning_cse.evaluation import EIS, RTE, Embedded, run_tasks

HEADER = ",dataset,premise,implied_entailment,explicit_entailment,neutral,contradiction\n"


class ByTable:
    """Answers with a score that is written into the sentence itself: the number behind its last blank."""

    def __init__(self) -> None:
        self.embedded = 0

    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        self.embedded += len(sentences)
        return PointEmbedding(torch.tensor([[float(sentence.split()[-1])] for sentence in sentences]))

    def entailment_score(self, premise: PointEmbedding, hypothesis: PointEmbedding) -> Tensor:
        return hypothesis.vector[:, 0]

    def implicitness(self, sentence: PointEmbedding) -> Tensor:
        return sentence.vector[:, 0]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Dev is separable at 0.5; on test one implied entailment lies below it and one neutral above."""
    (tmp_path / "INLI").mkdir()
    dev = ["0,x,p 0.9,m 0.6,e 0.8,n 0.4,c 0.1", "1,x,q 0.9,mm 0.7,ee 0.9,nn 0.3,cc 0.2"]
    test = ["0,x,p 0.5,m 0.6,e 0.8,n 0.4,c 0.1", "1,x,q 0.9,mm 0.45,ee 0.9,nn 0.55,cc 0.2"]
    for split, rows in (("val", dev), ("test", test)):
        (tmp_path / "INLI" / f"{split}.csv").write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def test_rte_tunes_on_dev_and_counts_on_test(data_dir: Path) -> None:
    answers = ByTable()
    result = run_tasks({"rte": RTE(data_dir=str(data_dir))}, answers, "test")["rte"]
    assert result.metrics["threshold"] == pytest.approx(0.5)
    assert result.metrics["accuracy_explicit"] == 1
    assert result.metrics["accuracy_implied"] == 0.5
    assert result.metrics["accuracy_neutral"] == 0.5
    assert result.metrics["accuracy_contradiction"] == 1
    assert result.metrics["accuracy_all"] == 0.75
    assert result.predictions["label"].count(True) == 4
    wrong = [k for k, label in enumerate(result.predictions["label"]) if label != result.predictions["prediction"][k]]
    assert [(result.predictions["type"][k], result.predictions["row"][k]) for k in wrong] == [
        ("implied", 1),
        ("neutral", 1),
    ]


def test_rte_on_dev_uses_dev_alone(data_dir: Path) -> None:
    result = run_tasks({"rte": RTE(data_dir=str(data_dir))}, ByTable(), "dev")["rte"]
    assert result.metrics["accuracy_all"] == 1
    assert len(result.predictions["score"]) == 8


def test_each_distinct_sentence_is_embedded_once(data_dir: Path) -> None:
    answers = ByTable()
    tasks = {"rte": RTE(data_dir=str(data_dir)), "eis": EIS(data_dir=str(data_dir))}
    run_tasks(tasks, answers, "test")
    sentences = {sentence for task in tasks.values() for sentence in task.sentences("test")}
    assert answers.embedded == len(sentences)


def test_eis_counts_every_pair_and_ties_are_wrong(data_dir: Path) -> None:
    result = run_tasks({"eis": EIS(data_dir=str(data_dir))}, ByTable(), "test")["eis"]
    # p 0.5 beats n and c; q 0.9 beats m, n and c but ties with e
    assert result.metrics == {"accuracy": 5 / 8}


def test_a_task_that_needs_what_a_method_lacks_says_so(data_dir: Path) -> None:
    task = RTE(data_dir=str(data_dir))
    assert not task.suits(Length())
    embedded = Embedded(Length(), task.sentences("dev"))
    with pytest.raises(
        TaskError, match=r"rte needs 'entailment_score', which Length .* it answers: direction, implicitness"
    ):
        task.evaluate(Length(), embedded, "dev")


def test_row_limits_and_digests(data_dir: Path) -> None:
    task = RTE(data_dir=str(data_dir), dev_rows=1, test_rows=1)
    assert len(task.rows("dev")) == len(task.rows("test")) == 1
    assert set(task.digests) == {"INLI/val.csv", "INLI/test.csv"}


def test_length_gives_the_papers_number_on_inli(real_data: Path) -> None:
    """DualCSE, Table 8: 99.90 on INLI test, which fixes words (not characters) and strictness."""
    result = run_tasks({"eis": EIS(data_dir=str(real_data))}, Length(), "test")["eis"]
    assert len(result.predictions["correct"]) == 4000
    assert sum(result.predictions["correct"]) == 3996
