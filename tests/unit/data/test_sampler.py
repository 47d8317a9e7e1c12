"""The order of rows: resumed where it was; with weights, as often as they should."""

import contextlib
import threading
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_cse.data.sampler import BatchLoader, Draws, on_gpu
from lightning_cse.errors import DataError
from lightning_cse.tokens import Tokens


def draws(
    sizes: Sequence[int], weights: Sequence[float], *, batch_size: int = 8, seed: int = 0
) -> Draws:
    sources = np.repeat(np.arange(len(sizes)), sizes)
    return Draws(
        sources,
        weights,
        [f"corpus{k}/train" for k in range(len(sizes))],
        batch_size=batch_size,
        seed=seed,
    )


def loader(
    weighted: Draws | None, rows: int, *, batch_size: int = 8, drop_last: bool = False
) -> BatchLoader:
    return BatchLoader(
        rows,
        lambda i: {"index": i},
        batch_size=batch_size,
        drop_last=drop_last,
        seed=0,
        draws=weighted,
    )


def epoch(of: BatchLoader) -> list[list[int]]:
    return [batch["index"].tolist() for batch in of]


def generator(*seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(
        int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1)
    )


# Without weights


def test_the_order_is_a_permutation_that_seed_and_epoch_draw() -> None:
    batches = loader(None, 12, batch_size=4)
    for number in range(2):
        order = [row for rows in epoch(batches) for row in rows]
        assert order == torch.randperm(12, generator=generator(0, number)).tolist()


@pytest.mark.parametrize(
    ("rows", "drop_last", "sizes"),
    [
        (24, False, [8, 8, 8]),
        (27, False, [8, 8, 8, 3]),
        (27, True, [8, 8, 8]),
        (25, False, [8, 8, 9]),  # a row alone would have no negatives
        (5, False, [5]),
        (5, True, [5]),  # the only batch is kept
    ],
)
def test_sizes_of_batches(rows: int, drop_last: bool, sizes: list[int]) -> None:
    batches = loader(None, rows, drop_last=drop_last)
    assert [len(batch) for batch in epoch(batches)] == sizes
    assert len(batches) == len(sizes)


@pytest.mark.parametrize(("limit", "count"), [(2, 2), (9, 4), (0.5, 2), (0.8, 3), (1.0, 4), (0, 0)])
def test_an_epoch_is_cut_to_a_number_or_a_share_of_its_batches(limit: float, count: int) -> None:
    whole = loader(None, 27)
    cut = BatchLoader(
        27, lambda i: {"index": i}, batch_size=8, drop_last=False, seed=0, limit=limit
    )
    for _ in range(2 if count else 1):
        assert epoch(cut) == epoch(whole)[:count]
    assert len(cut) == count


@pytest.mark.parametrize(
    ("rows", "batch_size", "message"),
    [
        (9, 1, r"data\.batch_size: 1 leaves no negatives"),
        (1, 8, "1 training rows cannot form a batch"),
    ],
)
def test_a_batch_without_negatives(rows: int, batch_size: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        loader(None, rows, batch_size=batch_size)


@pytest.mark.parametrize("ahead", [0, 1, 2, 50])
@pytest.mark.parametrize("kind", ["plain", "weighted", "gathered"])
def test_a_loader_goes_on_where_it_was(kind: str, ahead: int) -> None:
    options: dict[str, Any] = {"draws": draws([40, 15], [1, 2.5])} if kind == "weighted" else {}
    options |= {"gathered": torch.arange(55) % 3 == 0, "together": 6} if kind == "gathered" else {}

    def made(ahead: int = ahead) -> BatchLoader:
        return BatchLoader(
            55,
            lambda i: {"index": i},
            batch_size=8,
            drop_last=False,
            seed=0,
            ahead=ahead,
            **options,
        )

    whole = made(0)
    want = [batch for _ in range(4) for batch in epoch(whole)]
    first, found = made(), []
    for _ in range(2):
        for batch in first:
            found.append(batch["index"].tolist())
            if len(found) % 5 == 3:
                state, first = first.state_dict(), made()
                first.load_state_dict(state)
                break
    while len(found) < len(want):
        found += epoch(first)
    assert found == want


def test_a_checkpoint_of_other_weights_is_an_error() -> None:
    state = loader(draws([40, 15], [1, 2]), 55).state_dict()
    with pytest.raises(DataError, match="was made with 70 training rows, now there are 55"):
        loader(None, 55).load_state_dict(state)


# With weights


def test_rows_come_as_often_as_their_weight_says_in_every_epoch_and_over_all() -> None:
    sizes, weights, epochs = [50, 30, 7], [1.0, 0.5, 2.3], 100
    batches = loader(draws(sizes, weights), sum(sizes))
    source = np.repeat(np.arange(3), sizes)
    seen = np.zeros(sum(sizes), dtype=int)
    for _ in range(epochs):
        drawn = np.bincount(np.concatenate(epoch(batches)), minlength=len(seen))
        assert np.bincount(source, drawn).tolist() == [50, 15, 16], "7 x 2.3 = 16.1"
        for k, weight in enumerate(weights):
            assert {int(weight), int(np.ceil(weight))} >= set(drawn[source == k].tolist())
        seen += drawn
    for k, exactly in enumerate((1.0, 0.5, 16 / 7)):
        assert np.abs(seen[source == k] - epochs * exactly).max() < 1, (
            "rows take turns: none is behind by one"
        )
    assert (
        draws(sizes, weights).copies(0).tolist() != draws(sizes, weights, seed=1).copies(0).tolist()
    )


def test_the_order_is_that_of_the_keys() -> None:
    weighted = draws([40, 5], [1, 3])
    within = torch.rand(45, generator=generator(0, 2), dtype=torch.float64).tolist()
    keys = [(u, row) for row, u in enumerate(within[:40])]
    keys += [((k + u) / 3, row) for row, u in enumerate(within[40:], 40) for k in range(3)]
    want = [row for _, row in sorted(keys)]
    ends = [*range(2, 56, 2), 55]
    assert weighted.order(2).tolist() == want
    assert all(len(set(want[end - 2 : end])) == 2 for end in ends), "no two copies met"


@given(
    st.lists(st.tuples(st.integers(0, 12), st.floats(0.05, 6)), min_size=1, max_size=4),
    st.integers(2, 9),
    st.integers(0, 5),
    st.booleans(),
)
@settings(max_examples=50)
def test_an_epoch_has_the_copies_of_every_row(
    sources: list[tuple[int, float]], size: int, seed: int, drop_last: bool
) -> None:
    sizes = [rows for rows, _ in sources]
    try:
        weighted = draws(sizes, [weight for _, weight in sources], batch_size=size, seed=seed)
        batches = loader(weighted, sum(sizes), batch_size=size, drop_last=drop_last)
    except DataError:
        return
    for number in range(2):
        found = epoch(batches)
        assert all(len(batch) >= 2 for batch in found)
        assert len(weighted) - sum(map(len, found)) in (range(size) if drop_last else [0])
        order = Counter(batches.permutation.tolist())
        assert order == Counter(np.repeat(np.arange(sum(sizes)), weighted.copies(number)).tolist())


@pytest.mark.parametrize(
    ("sizes", "weights", "message"),
    [
        (
            [5, 24],
            [8.2, 1],
            r"drawn 9 times an epoch, which has 8 whole batches of data\.batch_size=8",
        ),
        ([30, 4], [1, 0.1], r"0\.1 of the 4 training rows of corpus1/train is less than one row"),
    ],
)
def test_weights_that_fit_no_epoch(sizes: list[int], weights: list[float], message: str) -> None:
    with pytest.raises(DataError, match=rf"data\.weights: .*{message}"):
        draws(sizes, weights)


# No sentence twice in a batch


def distinct(
    sentences: np.ndarray, *, batch_size: int = 8, drop_last: bool = False, seed: int = 0
) -> BatchLoader:
    options = {
        "batch_size": batch_size,
        "drop_last": drop_last,
        "seed": seed,
        "sentences": sentences,
    }
    return BatchLoader(len(sentences), lambda i: {"index": i}, **options)


def shared(sentences: np.ndarray, batch: Sequence[int]) -> list[int]:
    """The sentences that two rows of a batch have."""
    counts = Counter(number for row in batch for number in {*sentences[row].tolist()} - {-1})
    return [number for number, count in counts.items() if count > 1]


@given(
    rows=st.integers(16, 90),
    groups=st.integers(8, 60),
    batch_size=st.integers(2, 9),
    drop_last=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_no_two_rows_of_a_batch_share_a_sentence(
    rows: int, groups: int, batch_size: int, drop_last: bool
) -> None:
    draw = np.random.default_rng(rows * groups)
    sentences = np.stack(
        [draw.integers(0, groups, rows), groups + draw.integers(0, 3 * groups, rows)], axis=1
    )
    sentences[draw.random(sentences.shape) < 0.2] = -1
    sentences[:, 0] = np.where(
        (sentences == -1).all(axis=1), 1000 + np.arange(rows), sentences[:, 0]
    )
    batches = distinct(sentences, batch_size=batch_size, drop_last=drop_last)
    try:
        found = epoch(batches)
    except DataError as error:
        assert "a batch has fewer than two" in str(error)  # noqa: PT017 - not always
        return
    order = [row for batch in found for row in batch]
    assert len(order) == len(set(order)) <= batches.ends[-1]
    assert not [batch for batch in found if shared(sentences, batch)]
    assert len(found) == len(batches)


@pytest.mark.parametrize("copies", [2, 3, 9])
@pytest.mark.parametrize(
    ("rows", "batch_size", "drop_last"), [(300, 32, False), (300, 32, True), (90, 8, False)]
)
def test_every_row_is_used_where_that_is_possible(
    copies: int, rows: int, batch_size: int, drop_last: bool
) -> None:
    sentences = np.stack([np.arange(rows) // copies, rows + np.arange(rows)], axis=1)
    batches = distinct(sentences, batch_size=batch_size, drop_last=drop_last)
    for _ in range(5):
        found = epoch(batches)
        assert sum(map(len, found)) == batches.ends[-1]
        assert not [batch for batch in found if shared(sentences, batch)]


def test_rows_that_share_nothing_keep_their_batches() -> None:
    sentences = np.arange(60).reshape(30, 2)
    plain, apart = epoch(loader(None, 30)), epoch(distinct(sentences))
    assert apart == plain


def test_rows_for_which_no_batch_is_left_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    sentences = np.stack(
        [np.arange(40) % 4, 4 + np.arange(40)], axis=1
    )  # five batches, four rows each
    assert [len(batch) for batch in epoch(distinct(sentences))] == [4] * 5
    left_out = "20 of 40 rows, whose sentences are in every batch, are left out of epoch 0"
    assert caplog.messages == [f"data.distinct_in_batch: {left_out}"]
    with pytest.raises(
        DataError, match=r"data\.distinct_in_batch: so many rows share .* raise data\.batch_size"
    ):
        epoch(distinct(np.zeros((40, 1), dtype=int)))


@pytest.mark.parametrize("at", [3, 14, 25])
def test_an_epoch_with_rows_apart_is_taken_up_in_its_middle(at: int) -> None:
    sentences = np.stack([np.arange(80) // 4, 100 + np.arange(80)], axis=1)
    want = [batch for _ in range(3) for batch in epoch(one)] if (one := distinct(sentences)) else []
    first, second = distinct(sentences), distinct(sentences)
    batches = (batch["index"].tolist() for _ in range(3) for batch in first)
    found = [next(batches) for _ in range(at)]
    second.load_state_dict(first.state_dict())
    while len(found) < len(want):
        found += epoch(second)
    assert found == want
    assert epoch(distinct(sentences, seed=1)) != want[:10]


# Ahead


def test_a_side_thread_makes_the_next_batches_and_fails_in_their_turn() -> None:
    threads = []

    def collate(index: torch.Tensor) -> dict[str, Any]:
        threads.append(threading.current_thread())
        if len(threads) == 3:
            raise DataError("the third")
        return {"index": index}

    batches = iter(BatchLoader(24, collate, batch_size=4, drop_last=True, seed=0, ahead=2))
    for _ in range(2):
        next(batches)
    with pytest.raises(DataError, match="the third"):
        next(batches)
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()
    assert not threads[0].is_alive()


def test_a_batch_is_copied_to_a_gpu_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    stream = SimpleNamespace(synchronize=lambda: happened.append("complete"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "steps")
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: happened.append("pinned") or self)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: happened.append(stream))
    batch = {"roles": {"anchor": Tokens.pad([[1, 2], [3]])}, "index": torch.arange(2)}
    found = on_gpu(lambda index: batch, torch.device("cpu"))(torch.arange(2))
    assert happened == ["pinned", "steps"] * 4 + ["complete"]
    assert found["roles"]["anchor"].ids.tolist() == [[1, 2], [3, 0]]
    assert found["index"].tolist() == [0, 1]
