"""A corpus in which LLM rows replace some sentences: anchor, positive, perhaps intermediate, and negative."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lightning_cse.data.drawing import ANOTHER_ANCHOR
from lightning_cse.data.parsers import LLM_PATTERNS as PATTERNS
from lightning_cse.data.roles import RoleRows, made_of
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hybrid:
    """A corpus in which rows of an LLM (``llm``: splits or JSON-lines files) replace the sentences they were made from.

    All other rows of the corpus, including repeats of such a sentence, have only one sentence, the anchor. An LLM row
    takes the place of its sentence, so the anchors, and any draw from them, are those of the plain corpus. LLM rows
    whose anchor the corpus lacks are added at the end, with a warning.

    Sources with other columns can stand in for LLM rows, so that a method can be tried without an LLM:

    - WikiSplit for ``sts``: the anchor is a sentence, the positive its two simpler sentences, the intermediate the
      first of them, and the negative the sentence of another row, drawn after the hold-out.
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
        """Return one row per row of the corpus, then the added LLM rows, which the column ``added`` marks."""
        corpus, llm = self.corpus(tables), self._llm()
        count, anchors = len(corpus), corpus.values("anchor")
        found = pc.fill_null(pc.index_in(anchors, value_set=llm.values("anchor")), -1).to_numpy()
        rows = np.flatnonzero(found >= 0)
        replaced = rows[
            np.unique(found[rows], return_index=True)[1]
        ]  # where each anchor first appears
        order = np.arange(count)
        order[replaced] = count + found[replaced]
        added = np.setdiff1d(np.arange(count, count + len(llm)), order)
        if len(added):
            foreign = f"{len(added)} of {len(llm)} LLM rows were made from sentences that the corpus does not have"
            then = "they replace no row and are added, and a share of them is held out with the corpus's own"
            log.warning("%s (the first: %s): %s", foreign, llm.where(int(added[0]) - count), then)
        parts = corpus.values("made_of")
        empty = dict.fromkeys(self.roles, pa.nulls(count, pa.string()))
        plain = corpus.with_columns(**empty | {"anchor": anchors, "made_of": parts})
        first = max(pc.list_flatten(parts).to_pylist(), default=-1) + 1
        stacked = Rows.cat([plain, made_of(llm, np.arange(first, first + len(llm)))])
        hybrid = stacked.select(np.concatenate([order, added]))
        gone = set(pc.list_flatten(parts.take(pa.array(replaced))).to_pylist())
        hybrid = hybrid.recounted({**hybrid.counts, "dropped: an LLM row stands for it": len(gone)})
        return hybrid.with_column("added", np.arange(len(hybrid)) >= count)

    def _llm(self) -> Rows:
        read = read_sources(self.llm, Path(self.data_dir), key="data.rows.llm")
        foreign = [file.name for rows in read if "anchor" not in rows.names for file in rows.files]
        if foreign:
            log.warning(
                "no LLM wrote %s: used as LLM rows of the pattern %s",
                ", ".join(foreign),
                self.pattern,
            )
        rows = Rows.cat([as_llm_rows(rows, self.pattern) for rows in read])
        seen: dict[str, int] = {}
        for row, anchor in enumerate(rows.column("anchor")):
            if seen.setdefault(anchor, row) != row:
                raise DataError(
                    f"{rows.where(row)}: a second LLM row for the anchor of {rows.where(seen[anchor])}"
                )
        return rows


def as_llm_rows(rows: Rows, pattern: str) -> Rows:
    """Return rows with the roles of a pattern, from LLM rows or from a corpus that can stand in for them.

    Rows of the ``sts`` pattern also fit ``nli``, without their intermediate. From a corpus that stands in, the first
    row of each anchor is taken; the others are dropped and counted. Columns that fit neither are a DataError.
    """
    roles = PATTERNS[pattern]
    if all(role in rows.names for role in roles):
        return rows.with_columns(**{role: rows.values(role) for role in roles})
    entailment = next(
        (name for name in ("entailment", "explicit_entailment") if name in rows.names), None
    )
    if pattern == "sts" and "simple1" in rows.names:
        simple1, simple2 = rows.column("simple1"), rows.column("simple2")
        both = [f"{a} {b}" for a, b in zip(simple1, simple2, strict=True)]
        columns = (rows.values("sentence"), both, simple1, [ANOTHER_ANCHOR] * len(rows))
    elif pattern == "nli" and entailment is not None and "contradiction" in rows.names:
        columns = tuple(rows.values(name) for name in ("premise", entailment, "contradiction"))
    else:
        raise DataError(
            f"{rows.files[0].path if rows.files else 'rows'}: no LLM rows of the pattern {pattern!r}: the columns "
            f"{', '.join(roles)} are needed, found: {', '.join(rows.names)}"
        )
    stand_ins = rows.with_columns(**dict(zip(roles, columns, strict=True)))
    anchors = stand_ins.values("anchor").combine_chunks().dictionary_encode().indices.to_numpy()
    first = np.unique(anchors, return_index=True)[1]  # numbered in order of appearance
    return stand_ins.select(first).dropping({"repeated anchor": len(rows) - len(first)})
