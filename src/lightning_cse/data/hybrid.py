"""A corpus in which LLM rows replace some sentences: anchor, positive, perhaps intermediate, and
negative.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from lightning_cse.data.mapped import blocks, joined, row_type
from lightning_cse.data.parsers import LLM_PATTERNS as PATTERNS
from lightning_cse.data.preparation import ANOTHER_ANCHOR
from lightning_cse.data.roles import RoleRows, made_of
from lightning_cse.data.rows import Rows, constant
from lightning_cse.data.sources import read_sources
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

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return one row per row of the corpus, then the added LLM rows, which the column ``added``
        marks.
        """
        corpus = self.corpus(tables)
        llm = self._read_llm_rows()
        count = len(corpus)
        replaced, replacing = _replacements(corpus.hashes("anchor"), llm.hashes("anchor"))
        added = np.setdiff1d(np.arange(len(llm)), replacing)
        kind = row_type(count + len(llm))
        order = joined([(0, range(count)), (count, added)], kind, corpus.cache_dir)
        order[replaced] = count + replacing

        if len(added):
            message = "%d of %d LLM rows have an anchor that the corpus lacks: added"
            log.warning(message, len(added), len(llm))

        corpus_rows = corpus.values("made_of")
        anchors = corpus.renamed(anchor="anchor", made_of="made_of")

        for role in self.roles[1:]:
            anchors = anchors.with_constant(role, None)

        llm = made_of(llm, corpus.counts["read"] + np.arange(len(llm)))
        both = Rows.cat([anchors, llm])
        hybrid = both.select(order)
        gone = pc.count_distinct(pc.list_flatten(corpus_rows.take(replaced))).as_py()
        hybrid = hybrid.dropping({"replaced by an LLM row": gone})

        return hybrid.with_column("added", np.arange(len(hybrid)) >= count)

    def _read_llm_rows(self) -> Rows:
        """Return the LLM rows, or those that stand in for them; two rows of one anchor are a
        DataError.
        """
        tables = read_sources(self.llm, self.data_dir, key="data.rows.llm")
        rows = Rows.cat([as_llm_rows(table, self.pattern) for table in tables])
        first = rows.distinct("anchor")

        if len(first) < len(rows):
            again = int(np.setdiff1d(np.arange(len(rows)), first)[0])
            raise DataError(f"{rows.where(again)}: a second LLM row for its anchor")

        return rows


def _replacements(anchors: np.ndarray, llm_anchors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corpus rows where an anchor of an LLM row first appears, and the LLM rows that
    replace them; both are given by the hashes of their anchors.
    """
    order = np.argsort(llm_anchors)
    rows = [order[:0]]
    replacing = [order[:0]]

    for block in blocks(len(anchors)):
        place = np.searchsorted(llm_anchors, anchors[block], sorter=order)
        found = order[np.minimum(place, len(order) - 1)]
        equal = np.flatnonzero(llm_anchors[found] == anchors[block])
        rows.append(block.start + equal)
        replacing.append(found[equal])

    numbers, first = np.unique(np.concatenate(replacing), return_index=True)

    return np.concatenate(rows)[first], numbers


def as_llm_rows(rows: Rows, pattern: str) -> Rows:
    """Return rows with the roles of a pattern, from LLM rows or from a corpus that can stand in for
    them.

    Rows of the ``sts`` pattern also fit ``nli``, without their intermediate. From a corpus that
    stands in, the first row of each anchor is taken; the others are dropped and counted. Columns
    that fit neither are a DataError.
    """
    roles = PATTERNS[pattern]

    if set(roles) <= set(rows.names):
        return rows.renamed(**dict(zip(roles, roles, strict=True)))

    columns = _stand_ins(rows, pattern)
    if columns is None:
        raise DataError(
            f"{rows.origin}: no LLM rows of the pattern {pattern!r}: need the columns "
            f"{', '.join(roles)}; found: {', '.join(rows.names)}"
        )

    stand_ins = rows.with_columns(**dict(zip(roles, columns, strict=True)))

    return stand_ins.select(stand_ins.distinct("anchor"), reason="repeated anchor")


def _stand_ins(rows: Rows, pattern: str) -> list[Any] | None:
    """Return the columns of a corpus that can stand in for LLM rows, in the order of the pattern's
    roles.
    """
    if pattern == "sts" and "simple1" in rows.names:
        sentence, simple1, simple2 = map(rows.values, ("sentence", "simple1", "simple2"))
        both = pc.binary_join_element_wise(simple1, simple2, " ")
        return [sentence, both, simple1, constant(ANOTHER_ANCHOR, len(rows))]

    entailment = "entailment" if "entailment" in rows.names else "explicit_entailment"
    names = ("premise", entailment, "contradiction")

    if pattern == "nli" and {entailment, "contradiction"} <= set(rows.names):
        return [rows.values(name) for name in names]

    return None
