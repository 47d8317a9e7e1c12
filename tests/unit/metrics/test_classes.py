"""The torchmetrics classes equal the functions for any batches, processes and precisions."""

import math
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from oracles import normal
from torch import nn

from lightning_cse import metrics
from lightning_cse.metrics import Alignment, RelativeFittingDifficulty, Uniformity

N = 23
X = normal(N, 5)
Y = normal(N, 5, seed=1)
A = normal(N, seed=2)
B = normal(N, seed=3)
CASES: list[tuple[type, dict[str, Any], tuple[Any, ...], float]] = [
    (Alignment, {}, (X, Y), metrics.alignment(X, Y)),
    (Alignment, {"alpha": 3}, (X, Y), metrics.alignment(X, Y, 3)),
    (Uniformity, {}, (X,), metrics.uniformity(X)),
    (Uniformity, {"t": 5}, (X,), metrics.uniformity(X, 5)),
    (RelativeFittingDifficulty, {}, (A, B), metrics.relative_fitting_difficulty(A, B)),
]
each_case = pytest.mark.parametrize(("kind", "options", "inputs", "want"), CASES)


@each_case
def test_batches_of_any_size_give_the_value_of_the_function(
    kind,
    options,
    inputs,
    want,
):
    metric = kind(**options)
    for rows in (slice(1), slice(1, 3), slice(3, N)):
        metric.update(*(side[rows] for side in inputs))
    got = metric.compute()
    assert (got.dtype, got.device.type, got.ndim) == (torch.float64, "cpu", 0)
    assert got.item() == pytest.approx(want, abs=1e-12)

    metric.reset()
    alone = kind(**options)
    alone.update(*(side[11:] for side in inputs))
    metric(*(side[:11] for side in inputs))
    batch = metric(*(side[11:] for side in inputs))  # the value of the batch, which is also added
    assert batch.item() == pytest.approx(alone.compute().item(), abs=1e-12)
    assert metric.compute().item() == pytest.approx(want, abs=1e-12)


@each_case
def test_precision_and_device_of_a_parent_do_not_change_the_rows(
    kind,
    options,
    inputs,
    want,
):
    parent = nn.Module()
    parent.metric = kind(**options)
    parent.layer = nn.Linear(2, 2)
    parent.metric.update(*(side[:11] for side in inputs))
    for change in (torch.bfloat16, torch.float16, torch.float32, "meta"):
        parent.to(change)
        parent.metric.set_dtype(torch.float16)
    parent.metric.update(*(side[11:] for side in inputs))
    assert parent.layer.weight.device.type == "meta"
    assert parent.metric.compute().item() == pytest.approx(want, abs=1e-12)
    parent.half()
    assert parent.metric.compute().dtype == torch.float64  # the value that is cached


def test_rows_are_detached_copies():
    x = X.clone().requires_grad_()
    metric = Uniformity()
    metric.update(x)
    x.data.zero_()
    assert metric.compute().item() == pytest.approx(metrics.uniformity(X))
    assert not metric.vectors[0].requires_grad


def test_batch_without_a_value_is_nan_and_is_still_added():
    metric = Uniformity()
    metric(X[:5])
    assert math.isnan(metric(X[5:6]))
    assert metric.compute().item() == pytest.approx(metrics.uniformity(X[:6]))


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
@each_case
def test_no_rows_are_an_error(
    kind,
    options,
    inputs,
    want,
):
    with pytest.raises(ValueError, match=f"{kind.__name__} has no rows: call update"):
        kind(**options).compute()


def test_checkpoint_has_the_curves_of_rfd_alone():
    def make():
        return nn.ModuleDict({"rfd": RelativeFittingDifficulty(), "uniformity": Uniformity()})

    module = make()
    module["rfd"].update(0.1, 0.3)
    module["uniformity"].update(X)
    assert set(module.state_dict()) == {"rfd.held_out", "rfd.evaluation"}
    resumed = make()
    resumed.load_state_dict(module.state_dict())
    resumed["rfd"].update(0.7, torch.tensor([0.2], dtype=torch.float64))
    want = metrics.relative_fitting_difficulty([0.1, 0.7], [0.3, 0.2])
    assert resumed["rfd"].compute().item() == want


def evaluate_part(rank, store, out):
    """Evaluate one of two parts; the second process has fewer rows, or none."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
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
    torch.save(values, f"{out}-{rank}")
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_two_processes_with_uneven_rows_give_the_value_of_one(tmp_path):
    mp.spawn(
        evaluate_part,
        args=(str(tmp_path / "store"), str(tmp_path / "values")),
        nprocs=2,
    )
    want = [want for *_, want in CASES] * 2
    for rank in range(2):
        got = torch.load(tmp_path / f"values-{rank}")
        assert got == pytest.approx(want, abs=1e-12)
