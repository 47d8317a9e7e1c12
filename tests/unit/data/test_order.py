"""The order of rows: by seed and epoch, resumed at any batch, gathered."""

import functools
from itertools import chain, islice

import numpy as np
import pytest
import torch

from lightning_cse.data.order import BatchLoader, Gathering, permutation
from lightning_cse.errors import DataError


def loader(rows, seed=0, **options):
    options = {"batch_size": 8, "drop_last": False} | options
    order_of = functools.partial(permutation, rows, seed)

    return BatchLoader(order_of, lambda index: index.tolist(), **options)


def generator(*seed):
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> 1))


# Order and resume


def test_order_is_permutation_drawn_from_seed_and_epoch():
    batches = loader(12, batch_size=4)
    for number in range(2):
        want = torch.randperm(12, generator=generator(0, number)).tolist()
        assert list(chain(*batches)) == want


@pytest.mark.parametrize(
    ("rows", "drop_last", "sizes"),
    [
        (27, False, [8, 8, 8, 3]),
        (27, True, [8, 8, 8]),
        (25, False, [8, 8, 9]),  # a single row would have no negatives
        (5, False, [5]),
        (5, True, [5]),  # the only batch is kept
    ],
)
def test_batch_sizes(rows, drop_last, sizes):
    batches = loader(rows, drop_last=drop_last)
    assert [len(batch) for batch in batches] == sizes
    assert len(batches) == len(sizes)


@pytest.mark.parametrize(("limit", "count"), [(2, 2), (0.8, 3), (9, 4), (1.0, 4)])
def test_limited_passes_are_the_starts_of_all_epochs(limit, count):
    """The Trainer takes that many batches of a pass, of which the loader only knows."""
    epoch = loader(27)
    epochs = [list(epoch) for _ in range(3)]
    limited = loader(27, limit=limit)
    assert len(limited) == 4
    assert [list(islice(limited, count)) for _ in range(3)] == [e[:count] for e in epochs]

    resumed = loader(27, limit=limit)
    before = list(islice(resumed, count)) + list(islice(resumed, 1))
    after = loader(27, limit=limit)
    after.load_state_dict(resumed.state_dict())
    assert [*before, *islice(after, count - 1)] == [*epochs[0][:count], *epochs[1][:count]]
    assert list(islice(after, count)) == epochs[2][:count]


def test_repeated_epochs_have_the_order_of_the_first():
    first = list(loader(27))
    repeated = loader(27, repeats=True)
    assert [list(repeated) for _ in range(3)] == [first] * 3


KINDS = {"plain": {}, "gathered": {"gathering": Gathering(torch.arange(56) % 3 == 0, 6)}}


@pytest.mark.parametrize("order", KINDS)
def test_resumed_loader_yields_same_batches(order):
    uninterrupted = loader(56, **KINDS[order])
    want = [batch for _ in range(3) for batch in uninterrupted]

    for stop in range(1, 2 * len(uninterrupted)):
        first = loader(56, **KINDS[order])
        batches = (batch for _ in range(3) for batch in first)
        resumed = [next(batches) for _ in range(stop)]
        second = loader(56, **KINDS[order])
        second.load_state_dict(first.state_dict())

        while len(resumed) < len(want):
            resumed += second

        assert resumed == want


def test_state_of_other_rows_is_refused():
    state = loader(70).state_dict()
    with pytest.raises(DataError, match="was made with 70 training rows, now there are 55"):
        loader(55).load_state_dict(state)


# Gathered rows


@pytest.mark.parametrize("threshold", [1, 5, 48])
def test_gathered_rows_join_once_enough_wait(threshold):
    gathered = loader(64, gathering=Gathering(torch.arange(64) % 4 == 0, threshold))
    plain = loader(64)
    waiting = []

    for _ in range(3):  # rows that wait are carried over to the next epoch
        for batch, plain_batch in zip(gathered, plain, strict=True):
            waiting += [row for row in plain_batch if row % 4 == 0]
            want = [row for row in plain_batch if row % 4]

            if len(waiting) >= min(threshold, 16):
                want += waiting
                waiting = []

            assert batch == want
