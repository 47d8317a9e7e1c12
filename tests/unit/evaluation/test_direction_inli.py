"""The direction of INLI's entailed pairs, on rows whose answers can be counted on the fingers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lightning_cse.baselines import Length
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.evaluation import INLIDirection, run_tasks

HEADER = ",dataset,premise,implied_entailment,explicit_entailment,neutral,contradiction\n"


class Wider:
    """A sentence's number is how wide it is; the wider one entails the narrower one, and ties are wrong."""

    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        return PointEmbedding(torch.tensor([[float(sentence.split()[-1])] for sentence in sentences]))

    def entailment_score(self, premise: PointEmbedding, hypothesis: PointEmbedding) -> Tensor:
        return (premise.vector - hypothesis.vector)[:, 0]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "INLI").mkdir()
    rows = ["0,x,p 5,m 4,e 6,n 9,c 0", "1,x,q 5,mm 5,ee 1,nn 9,cc 0", "2,x,r 7,mmm 2,eee 3,nnn 9,ccc 0"]
    for split in ("val", "test"):
        (tmp_path / "INLI" / f"{split}.csv").write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def test_both_entailments_of_a_premise_are_compared_with_it(data_dir: Path) -> None:
    task = INLIDirection(data_dir=str(data_dir))
    result = run_tasks({"inli_direction": task}, Wider(), "test")["inli_direction"]
    assert result.metrics == pytest.approx({"accuracy": 4 / 6, "accuracy_explicit": 2 / 3, "accuracy_implied": 2 / 3})
    assert result.predictions["type"] == ["explicit"] * 3 + ["implied"] * 3
    assert result.predictions["correct"] == [False, True, True, True, False, True]
    assert set(result.metrics) == set(task.metrics)


def test_limits_and_length(data_dir: Path) -> None:
    task = INLIDirection(data_dir=str(data_dir), dev_rows=2)
    assert [row["hypothesis"] for row in task.rows("dev")] == ["e 6", "ee 1", "m 4", "mm 5"]
    assert run_tasks({"t": task}, Length(), "dev")["t"].metrics["accuracy"] == 0  # never longer, by construction


def test_length_tells_the_direction_of_inli(real_data: Path) -> None:
    metrics = run_tasks({"t": INLIDirection(data_dir=str(real_data))}, Length(), "test")["t"].metrics
    assert metrics["accuracy"] > 0.99
