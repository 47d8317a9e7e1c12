"""Which rows are trained on and which are held out; what is drawn is the same for all seeds."""

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import Dataset

from lightning_cse.data.order import shuffled
from lightning_cse.data.rows import (
    ADDED,
    MADE_OF,
    Account,
    concatenate,
    count_corpus_rows,
    count_dropped,
    first_appearance,
    has,
    hashes,
    values,
    with_columns,
)
from lightning_cse.data.written import RANDOM_PAIR
from lightning_cse.errors import ConfigError, DataError

SEED = 0
# A negative that `with_another_anchor` replaces after the hold-out.
ANOTHER_ANCHOR = "\0another anchor"


def keep(rows: Dataset, is_kept: np.ndarray, reason: str, account: Account) -> Dataset:
    """Return the rows to keep; corpus rows that are no longer used count as dropped."""
    train = rows.select(np.flatnonzero(is_kept))
    if len(train) < len(rows):
        count_dropped(account, {reason: count_corpus_rows(rows) - count_corpus_rows(train)})

    return train


def hold_out(rows: Dataset, share: float, *, of: str, account: Account) -> tuple[Dataset, Dataset]:
    """Split rows into those to train on and those held out: a share of a role's sentences, with all
    their rows.

    Both sides keep the order of the corpus. The same share of the added rows is held out too. At
    least two sentences are held out if the share is above 0. Fewer than two sentences to train on
    are a DataError.
    """
    corpus, added = _units(rows, hashes(rows, of))
    total = _count(corpus)
    number = max(2, round(share * total)) if share else 0

    if number > total - 2:
        problem = f"{share} of {total} sentences leaves too few on one side"
        raise DataError(f"data.held_out_share: {problem}")

    is_held_out = _drawn(corpus, number) | _drawn(added, round(share * _count(added)))
    held_out = rows.select(np.flatnonzero(is_held_out))

    return keep(rows, ~is_held_out, "held out", account), held_out


def subset(rows: Dataset, count: int, account: Account) -> Dataset:
    """Return ``count`` rows, those of the corpus and added ones in proportion; rows made of the
    same corpus rows count as one.
    """
    numbers = pc.list_element(values(rows, MADE_OF), 0).to_numpy()
    corpus, added = _units(rows, numbers.astype(np.uint64) + 1)
    total = _count(corpus) + _count(added)

    if count > total:
        return rows

    of_corpus = round(count * _count(corpus) / total)
    is_kept = _drawn(corpus, of_corpus) | _drawn(added, count - of_corpus)

    return keep(rows, is_kept, "data.train_rows", account)


def fewer_llm_rows(rows: Dataset, count: int, roles: Sequence[str], account: Account) -> Dataset:
    """Keep ``count`` LLM rows, which have all of these roles; of the others, only the corpus's own
    anchors stay.
    """
    if "negative" not in roles:
        only = "must be null, except for a corpus with LLM rows (data=ngcse_...)"
        raise ConfigError([f"data.llm_rows: {only}"])

    is_removed = has(rows, *roles)
    numbers = np.flatnonzero(is_removed)
    is_removed[numbers[seeded_order(len(numbers), SEED)[:count]]] = False
    is_kept = ~(is_removed & _is_added(rows))

    # A row that loses its roles is a row of the same table without them.
    both = concatenate([rows, rows.remove_columns(list(roles[1:]))], fill=True)
    chosen = both.select(np.arange(len(rows)) + len(rows) * is_removed)

    return keep(chosen, is_kept, "data.llm_rows", account)


def with_another_anchor(rows: Dataset) -> Dataset:
    """Return the rows with the anchor of another row in place of each `ANOTHER_ANCHOR`.

    Call it separately for each side of a hold-out: negatives drawn over both would train on
    held-out sentences.
    """
    if "negative" not in rows.column_names:
        return rows

    negatives = values(rows, "negative")
    is_waiting = pc.fill_null(pc.equal(negatives, ANOTHER_ANCHOR), False)
    numbers = np.flatnonzero(is_waiting.to_numpy())

    if not len(numbers):
        return rows

    order = numbers[seeded_order(len(numbers), SEED)]
    anchor_of = np.arange(len(rows))
    anchor_of[order] = np.roll(order, -1)
    anchors = values(rows.select(anchor_of), "anchor")

    return with_columns(rows, negative=pc.if_else(is_waiting, anchors, negatives))


def with_random_seconds(rows: Dataset) -> Dataset:
    """Return the rows with the second sentence of a random pair in place of each one that is still
    to be drawn (`WrittenPairs`), of another first sentence.

    Call it separately for each side of a hold-out, as `with_another_anchor`.
    """
    if RANDOM_PAIR not in rows.column_names:
        return rows

    is_waiting = values(rows, RANDOM_PAIR).to_numpy()
    waiting, written = np.flatnonzero(is_waiting), np.flatnonzero(~is_waiting)
    firsts = hashes(rows, "sentence1")
    if len(np.unique(firsts)) < 2:
        return rows.select(written)

    generator = torch.Generator().manual_seed(SEED)
    numbers = torch.randint(len(written), (len(waiting),), generator=generator).numpy()
    while (is_same := firsts[waiting] == firsts[written[numbers]]).any():
        numbers[is_same] = (numbers[is_same] + 1) % len(written)

    second_of = np.arange(len(rows))
    second_of[waiting] = written[numbers]

    return with_columns(rows, sentence2=values(rows.select(second_of), "sentence2"))


def seeded_order(count: int, seed: int) -> np.ndarray:
    """Return the numbers below ``count`` in a random order that depends only on the seed."""
    return np.asarray(shuffled(count, torch.Generator().manual_seed(seed)).numpy())


def _is_added(rows: Dataset) -> np.ndarray:
    if ADDED not in rows.column_names:
        return np.zeros(len(rows), dtype=bool)

    return np.asarray(values(rows, ADDED).to_numpy())


def _units(rows: Dataset, hashed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number distinct values by first appearance, separately for rows of the corpus and added ones;
    -1 marks the other rows.
    """
    is_added = _is_added(rows)
    sides = (hashed * ~is_added, hashed * is_added)

    return first_appearance(sides[0]), first_appearance(sides[1])


def _count(units: np.ndarray) -> int:
    return int(units.max(initial=-1)) + 1


def _drawn(units: np.ndarray, count: int) -> np.ndarray:
    """Return whether each row belongs to one of ``count`` units, drawn at random: (rows,)."""
    is_drawn = np.zeros(_count(units) + 1, dtype=bool)  # the last is that of -1
    is_drawn[seeded_order(_count(units), SEED)[:count]] = True

    return np.asarray(is_drawn[units])
