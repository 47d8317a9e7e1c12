"""The torchmetrics classes equal the functions for any batches and processes."""

import pytest
import torch
import torch.multiprocessing as mp
from oracles import normal

from lightning_cse import metrics
from lightning_cse.metrics import Alignment, RelativeFittingDifficulty, Uniformity

N = 23
X = normal(N, 5)
Y = normal(N, 5, seed=1)
A = normal(N, seed=2)
B = normal(N, seed=3)
CASES = [
    (Alignment, {"alpha": 3}, (X, Y), metrics.alignment(X, Y, 3)),
    (Uniformity, {"t": 5}, (X,), metrics.uniformity(X, 5)),
    (RelativeFittingDifficulty, {}, (A, B), metrics.relative_fitting_difficulty(A, B)),
]


@pytest.mark.parametrize(("metric_class", "options", "inputs", "want"), CASES)
def test_batches_of_any_size_give_the_value_of_the_function(metric_class, options, inputs, want):
    metric = metric_class(**options)
    for rows in (slice(2), slice(2, N)):
        metric(*(side[rows] for side in inputs))  # also computes the value of the batch

    got = metric.compute()
    assert (got.dtype, got.ndim) == (torch.float64, 0)
    assert got.item() == pytest.approx(want, abs=1e-12)


def evaluate_part(rank, store, out):
    """Evaluate one of two parts; the second process has fewer rows."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    rows = slice(16) if rank == 0 else slice(16, N)
    values = []
    for metric_class, options, inputs, _ in CASES:
        metric = metric_class(**options)
        metric.update(*(side[rows] for side in inputs))
        values.append(metric.compute().item())

    torch.save(values, f"{out}-{rank}")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_with_uneven_rows_give_the_value_of_one(tmp_path):
    mp.spawn(evaluate_part, args=(str(tmp_path / "store"), str(tmp_path / "values")), nprocs=2)
    for rank in range(2):
        got = torch.load(tmp_path / f"values-{rank}")
        assert got == pytest.approx([want for *_, want in CASES], abs=1e-12)
