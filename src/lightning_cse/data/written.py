"""Rows that a language model wrote or scored, as Dino, CLAIF and CLHAIF train on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from datasets import Dataset

from lightning_cse.data.roles import TARGET, TRAINED, NLITriplets, ScoredPairs, targets_of
from lightning_cse.data.rows import (
    Account,
    concatenate,
    count_dropped,
    distinct,
    hashes,
    origin_of,
    values,
    with_columns,
)
from lightning_cse.errors import ConfigError, DataError

# The column that marks pairs whose second sentence is drawn after the hold-out.
RANDOM_PAIR = "random_pair"


@dataclass(frozen=True)
class WrittenPairs:
    r"""Sentence pairs that a language model wrote or scored, with Dino's processing.

    .. math:: y' = (1 - s) y + s / 2

    with the score :math:`y` of a pair and ``smoothing`` :math:`s`. Pairs of equal sentences,
    repeated pairs, and those after the first ``most`` of a first sentence and score are dropped and
    counted. Each first sentence gets ``random_pairs`` more pairs with the score 0, which is not
    smoothed: their second sentences are those of pairs with another first one, on the same side of
    the hold-out. Alignment is measured over pairs with :math:`y` of at least ``similar``.

    Source: Dino (Schick and Schütze 2021), authors' code, ``postprocess_dataset.py``; CLAIF (Cheng
    et al. 2023) has a copy.  Differs: the first pairs are kept, not drawn ones; the authors draw
    before their hold-out, and any second sentence.
    """

    roles: ClassVar[tuple[str, ...]] = ScoredPairs.roles
    similar: float = 0.8
    smoothing: float = 0.2
    most: int = 2
    random_pairs: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise ConfigError([f"data.rows.smoothing: must be in [0, 1), got {self.smoothing}"])

        if self.most < 1 or self.random_pairs < 0:
            raise ConfigError(
                [
                    "data.rows: needs most >= 1 and random_pairs >= 0, got "
                    f"{self.most} and {self.random_pairs}"
                ]
            )

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return the pairs, then the random ones; a table without scores is a DataError."""
        rows = self._kept(ScoredPairs(similar=self.similar)(tables, account), account)
        smoothed = values(rows, TARGET).to_numpy() * (1 - self.smoothing) + self.smoothing / 2
        pairs = with_columns(
            rows, target=smoothed.astype(np.float32), random_pair=np.zeros(len(rows), dtype=bool)
        )
        if not self.random_pairs:
            return pairs.remove_columns(RANDOM_PAIR)

        first = pairs.select(np.repeat(distinct(pairs, "sentence1"), self.random_pairs))
        missing = pa.nulls(len(first), pa.string())
        random_pairs = with_columns(
            first,
            sentence2=missing,
            positive=missing,
            target=np.zeros(len(first), np.float32),
            random_pair=np.ones(len(first), dtype=bool),
        )

        return concatenate([pairs, random_pairs])

    def _kept(self, rows: Dataset, account: Account) -> Dataset:
        """Return the pairs that are trained on."""
        pairs = pd.DataFrame(
            {
                "first": hashes(rows, "sentence1"),
                "second": hashes(rows, "sentence2"),
                "score": values(rows, TARGET).to_numpy(),
            }
        )
        numbers = pairs.groupby(list(pairs), sort=False).ngroup()  # the same for the same pair
        is_equal = pairs["first"] == pairs["second"]
        new = pairs[~(is_equal | numbers.duplicated())]
        chosen = new[new.groupby(["first", "score"]).cumcount() < self.most].index
        is_kept = numbers.isin(numbers[chosen])
        dropped = {
            "equal sentences": is_equal.sum(),
            "repeated pair": is_kept.sum() - len(chosen),
            f"more than {self.most} of a sentence and score": (~(is_equal | is_kept)).sum(),
        }
        count_dropped(account, dropped)

        return rows.select(chosen.to_numpy())


@dataclass(frozen=True)
class ScoredTriplets:
    """Triplets with a score, from 0 to 1, of how similar anchor and positive are, as CLHAIF has
    them.

    The target of a row is its score. A row may lack the negative, or have several.
    """

    roles: ClassVar[tuple[str, ...]] = TRAINED

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return one row per triplet; a table without scores or ready triplets is a DataError."""
        for table in tables:
            if "hypothesis" in table.column_names:
                raise DataError(
                    f"{origin_of(table)}: needs triplets, anchor, positive and negative"
                )

        triplets = NLITriplets()(tables, account)

        return with_columns(triplets, target=targets_of(concatenate(tables), (0.0, 1.0)))
