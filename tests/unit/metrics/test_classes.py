"""The torchmetrics classes: equal to the functions for any batches, processes and precisions."""

import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from oracles import normal
from torch import nn
from torchmetrics import MetricCollection

from lightning_cse import metrics
from lightning_cse.metrics import (
    AUPRC,
    Alignment,
    DirectionAccuracy,
    ImplicitnessAccuracy,
    RelativeFittingDifficulty,
    Spearman,
    ThresholdAccuracy,
    Uniformity,
)

N = 23


X, Y, A, B = (
    normal(N, 5),
    normal(N, 5, seed=1),
    normal(N, seed=2),
    normal(N, seed=3).round(decimals=1),
)
LABELS = A + B > 0
SUBSETS = [f"subset {row % 3}" for row in range(N)]


def of_subsets(function: Any) -> float:
    chosen = [[row for row in range(N) if SUBSETS[row] == name] for name in dict.fromkeys(SUBSETS)]
    return function([(A[rows], B[rows]) for rows in chosen])


CASES: list[tuple[type, dict[str, Any], tuple[Any, ...], float]] = [
    (Alignment, {}, (X, Y), metrics.alignment(X, Y)),
    (Alignment, {"alpha": 3}, (X, Y), metrics.alignment(X, Y, 3)),
    (Uniformity, {}, (X,), metrics.uniformity(X)),
    (Uniformity, {"t": 5}, (X,), metrics.uniformity(X, 5)),
    (RelativeFittingDifficulty, {}, (A, B), metrics.relative_fitting_difficulty(A, B)),
    (
        ThresholdAccuracy,
        {"threshold": 0.2},
        (LABELS, B),
        metrics.threshold_accuracy(LABELS, B, 0.2),
    ),
    (
        ThresholdAccuracy,
        {"strict": True},
        (LABELS, B),
        metrics.best_threshold(LABELS, B, strict=True)[1],
    ),
    (
        ThresholdAccuracy,
        {"grid": [0.0, 0.5]},
        (LABELS, B),
        metrics.best_threshold(LABELS, B, [0.0, 0.5])[1],
    ),
    (AUPRC, {}, (LABELS, B), metrics.auprc(LABELS, B)),
    (Spearman, {}, (A, B), metrics.spearman(A, B)),
    (Spearman, {"aggregation": "all"}, (A, B, SUBSETS), of_subsets(metrics.spearman_all)),
    (Spearman, {"aggregation": "mean"}, (A, B, SUBSETS), of_subsets(metrics.spearman_mean)),
    (
        Spearman,
        {"aggregation": "wmean"},
        (A, B, SUBSETS),
        of_subsets(partial(metrics.spearman_mean, weighted=True)),
    ),
    (ImplicitnessAccuracy, {}, (A, B), (A > B).double().mean().item()),
    (DirectionAccuracy, {}, (A.round(), B.round()), (A.round() > B.round()).double().mean().item()),
]


def halves(inputs: tuple[Any, ...]) -> list[list[Any]]:
    return [[side[rows] for side in inputs] for rows in (slice(11), slice(11, N))]


each_case = pytest.mark.parametrize(
    ("kind", "options", "inputs", "want"),
    CASES,
    ids=[f"{kind.__name__}-{options}" for kind, options, *_ in CASES],
)


@each_case
def test_batches_of_any_size_give_the_value_of_the_function(kind, options, inputs, want):
    metric, alone = kind(**options), kind(**options)
    for rows in (slice(1), slice(1, 3), slice(3, N)):
        metric.update(*(side[rows] for side in inputs))
    got = metric.compute()
    assert (got.dtype, got.device.type, got.ndim) == (torch.float64, "cpu", 0)
    assert got.item() == pytest.approx(want, abs=1e-12)
    metric.reset()
    first, second = halves(inputs)
    alone.update(*second)
    metric(*first)  # forward returns the value of the batch, and accumulates
    assert metric(*second).item() == pytest.approx(alone.compute().item(), abs=1e-12)
    assert metric.compute().item() == pytest.approx(want, abs=1e-12)


@each_case
def test_a_parent_of_another_precision_does_not_touch_the_rows(kind, options, inputs, want):
    parent = nn.Module()
    parent.metric, parent.layer = kind(**options), nn.Linear(2, 2)
    first, second = halves(inputs)
    parent.metric.update(*first)
    for change in (
        lambda: parent.to(torch.bfloat16),
        parent.half,
        parent.float,
        lambda: parent.to("meta"),
    ):
        change()
        parent.metric.set_dtype(torch.float16)
        states = [part for name in parent.metric.states for part in getattr(parent.metric, name)]
        assert {state.device.type for state in states} == {"cpu"}
        assert {state.dtype for state in states} <= {torch.float64, torch.int64}
    parent.metric.update(*second)
    assert parent.layer.weight.device.type == "meta"
    assert parent.metric.compute().item() == pytest.approx(want, abs=1e-12)
    parent.half()
    assert parent.metric.compute().dtype == torch.float64  # the value that is cached


def test_rows_are_copies_without_a_graph():
    x = X.clone().requires_grad_()
    metric = Uniformity()
    metric.update(x)
    x.data.zero_()
    assert metric.compute().item() == pytest.approx(metrics.uniformity(X))
    assert not metric.vectors[0].requires_grad


def test_a_batch_without_a_value_is_nan_and_keeps_what_was_accumulated():
    metric = Uniformity()
    metric(X[:5])
    assert math.isnan(metric(X[5:6]))
    assert metric.compute().item() == pytest.approx(metrics.uniformity(X[:6]))
    positives = AUPRC()
    assert math.isnan(positives([0, 0], [0.1, 0.2]))
    with pytest.raises(ValueError, match="labels must have a 1"):
        positives.compute()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
@each_case
def test_no_rows_have_no_value(kind, options, inputs, want):
    with pytest.raises(ValueError, match=f"{kind.__name__} has no rows: call update"):
        kind(**options).compute()


@pytest.mark.parametrize(
    ("metric", "inputs", "message"),
    [
        (Alignment(), (X, Y[:3]), r"got \(23, 5\) and \(3, 5\)"),
        (AUPRC(), (B, LABELS), "labels must be 0 or 1"),
        (ThresholdAccuracy(), ([0, 1], [0.5]), "labels and scores must be equally long"),
        (Spearman(), (A, B, ["one"]), "need one subset per row, got 1 for 23 rows"),
        (DirectionAccuracy(), ([math.nan], [0.5]), "first must be finite"),
    ],
)
def test_wrong_inputs_are_refused_when_they_come(metric, inputs, message):
    with pytest.raises(ValueError, match=message):
        metric.update(*inputs)


def test_a_constant_side_counts_what_the_caller_says():
    metric = Spearman("mean", constant=0.0)
    metric.update([1, 2], [0.1, 0.2], "x")
    metric.update([1, 2], [0.3, 0.3], "y")
    assert metric.compute().item() == pytest.approx(0.5)
    with pytest.raises(ValueError, match="must be one of all, mean, wmean, got 'median'"):
        Spearman("median")


def test_the_tuned_threshold_is_the_best_of_all_rows_also_in_a_collection():
    both = MetricCollection([AUPRC(), ThresholdAccuracy()])
    for labels, scores in halves((LABELS, B)):
        both.update(labels, scores)
    threshold, accuracy = metrics.best_threshold(LABELS, B)
    got = {name: value.item() for name, value in both.compute().items()}
    assert got == pytest.approx({"AUPRC": metrics.auprc(LABELS, B), "ThresholdAccuracy": accuracy})
    assert both["ThresholdAccuracy"].tuned == threshold
    assert ThresholdAccuracy(0.5).tuned == 0.5


def test_a_checkpoint_has_the_curves_of_rfd_and_no_rows():
    def make() -> nn.ModuleDict:
        return nn.ModuleDict(
            {"rfd": RelativeFittingDifficulty(), "uniformity": Uniformity(), "auprc": AUPRC()}
        )

    module, resumed = make(), make()
    module["rfd"].update(0.1, 0.3)
    module["uniformity"].update(X)
    assert set(module.state_dict()) == {"rfd.held_out", "rfd.evaluation"}
    resumed.load_state_dict(module.state_dict())
    resumed["rfd"].update([0.7], torch.tensor([0.2], dtype=torch.float64))
    assert resumed["rfd"].compute().item() == metrics.relative_fitting_difficulty(
        [0.1, 0.7], [0.3, 0.2]
    )


def evaluate_part(rank: int, store: str, out: str) -> None:
    """Evaluate one of two parts; the second process has the fewer rows, or none."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    values = []
    for cut in (16, N):
        rows = slice(cut) if rank == 0 else slice(cut, N)
        for kind, options, inputs, _ in CASES:
            metric = kind(**options)
            part = [side[rows] for side in inputs]
            if len(part[0]):
                metric.update(*part)
            values.append(metric.compute().item())
            own = sum(len(state) for state in getattr(metric, metric.states[0]))
            assert own == len(part[0]), "after the sync each process has its own rows again"
    whole = Uniformity(sync_on_compute=False)
    whole.update(X)
    assert whole.compute().item() == pytest.approx(metrics.uniformity(X))
    torch.save(values, f"{out}-{rank}")
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_two_processes_with_uneven_rows_give_the_value_of_one(tmp_path):
    mp.spawn(evaluate_part, args=(str(tmp_path / "store"), str(tmp_path / "values")), nprocs=2)
    want = [want for *_, want in CASES] * 2
    for rank in range(2):
        got = torch.load(tmp_path / f"values-{rank}")
        assert got == pytest.approx(want, abs=1e-12)
