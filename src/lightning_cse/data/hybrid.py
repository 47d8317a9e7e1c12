"""A corpus in which LLM rows replace some sentences: anchor, positive, perhaps intermediate, and
negative.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from datasets import Dataset

from lightning_cse.data.columns import LLM_PATTERNS as PATTERNS
from lightning_cse.data.corpora import read_sources
from lightning_cse.data.roles import RoleRows
from lightning_cse.data.rows import (
    Account,
    concatenate,
    count_corpus_rows,
    count_dropped,
    distinct,
    hashes,
    made_of,
    names_of,
    origin_of,
    renamed,
    values,
    where,
    with_columns,
    with_constant,
)
from lightning_cse.data.split import ANOTHER_ANCHOR
from lightning_cse.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hybrid:
    """A corpus in which rows of an LLM (``llm``: splits or JSON-lines files) replace the sentences
    they were made from.

    All other rows of the corpus, including repeats of such a sentence, have only one sentence, the
    anchor. An LLM row takes the place of its sentence, so the anchors, and any draw from them, are
    those of the plain corpus. LLM rows whose anchor the corpus lacks are added at the end, with a
    warning.

    Sources with other columns can stand in for LLM rows, so that a method can be tried without an
    LLM:

    - WikiSplit for ``sts``: the anchor is a sentence, the positive its two simpler sentences, the
      intermediate the first of them, and the negative the sentence of another row, drawn after the
      hold-out.
    - NLI triplets for ``nli``: premise, entailment (INLI's explicit one) and contradiction.

    Source: NGCSE, hybrid data: 20,000 sentences of each corpus are replaced.
    """

    corpus: RoleRows
    llm: Sequence[str]
    pattern: Literal["sts", "nli"]
    data_dir: str

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of an LLM row; the other rows have only an anchor."""
        return PATTERNS[self.pattern]

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return one row per row of the corpus, then the added LLM rows, which the column ``added``
        marks.
        """
        corpus = self.corpus(tables, account)
        llm = self._read_llm_rows(account)
        count = len(corpus)
        replaced, replacing = _replacements(hashes(corpus, "anchor"), hashes(llm, "anchor"))
        is_added = np.ones(len(llm), dtype=bool)
        is_added[replacing] = False
        order = np.concatenate([np.arange(count), count + np.flatnonzero(is_added)])
        order[replaced] = count + replacing

        if is_added.any():
            message = "%d of %d LLM rows have an anchor that the corpus lacks: added"
            log.warning(message, is_added.sum(), len(llm))

        count_dropped(
            account, {"replaced by an LLM row": count_corpus_rows(corpus.select(replaced))}
        )
        numbers = sum(map(len, tables)) + np.arange(len(llm))
        parts = [
            with_columns(renamed(corpus, anchor="anchor"), added=np.zeros(count, dtype=bool)),
            with_columns(llm, added=is_added, made_of=made_of(numbers[:, None])),
        ]

        return concatenate(parts, fill=True).select(order)

    def _read_llm_rows(self, account: Account) -> Dataset:
        """Return the LLM rows, or those that stand in for them; two rows of one anchor are a
        DataError.
        """
        tables = read_sources(self.llm, self.data_dir, key="data.rows.llm", account=account)
        rows = concatenate([as_llm_rows(table, self.pattern, account) for table in tables])
        first = distinct(rows, "anchor")

        if len(first) < len(rows):
            repeated = int(np.setdiff1d(np.arange(len(rows)), first)[0])
            raise DataError(f"{where(rows, repeated)}: a second LLM row for its anchor")

        return rows


def _replacements(anchors: np.ndarray, llm_anchors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corpus rows where an anchor of an LLM row first appears, and the LLM rows that
    replace them; both are given by the hashes of their anchors.
    """
    llm_row = pd.Index(llm_anchors).get_indexer(anchors)
    rows = np.flatnonzero(llm_row >= 0)
    replacing, first = np.unique(llm_row[rows], return_index=True)

    return rows[first], replacing


def as_llm_rows(rows: Dataset, pattern: str, account: Account) -> Dataset:
    """Return rows with the roles of a pattern, from LLM rows or from a corpus that can stand in for
    them.

    Rows of the ``sts`` pattern also fit ``nli``, without their intermediate. From a corpus that
    stands in, the first row of each anchor is taken; the others are dropped and counted. Columns
    that fit neither are a DataError.
    """
    roles = PATTERNS[pattern]
    columns = rows.column_names
    entailment = "entailment" if "entailment" in columns else "explicit_entailment"

    if {*roles} <= {*columns}:
        return renamed(rows, **dict(zip(roles, roles, strict=True)))

    if pattern == "sts" and "simple1" in columns:
        simple = [values(rows, name) for name in ("simple1", "simple2")]
        stand_ins = renamed(rows, anchor="sentence", intermediate="simple1")
        stand_ins = with_constant(stand_ins, "negative", ANOTHER_ANCHOR)
        joined = pc.binary_join_element_wise(*simple, " ")
        stand_ins = with_columns(stand_ins, positive=joined)
    elif pattern == "nli" and {"premise", entailment, "contradiction"} <= {*columns}:
        stand_ins = renamed(rows, anchor="premise", positive=entailment, negative="contradiction")
    else:
        raise DataError(
            f"{origin_of(rows)}: no LLM rows of the pattern {pattern!r}: need the columns "
            f"{', '.join(roles)}; found: {', '.join(names_of(rows))}"
        )

    first = distinct(stand_ins, "anchor")
    count_dropped(account, {"repeated anchor": len(rows) - len(first)})

    return stand_ins.select(first)
