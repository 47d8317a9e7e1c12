"""A corpus some of whose sentences have become LLM rows: anchor, positive, perhaps intermediate, and negative."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightning_cse.data.parsers import LLM_PATTERNS
from lightning_cse.data.roles import ANOTHER_ANCHOR, RoleRows, TrainingRows
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import ConfigError, DataError, did_you_mean

log = logging.getLogger(__name__)

PATTERNS = LLM_PATTERNS
"""The roles of an LLM row, by the similarity pattern that the LLM was shown."""


@dataclass(frozen=True)
class Hybrid:
    r"""A corpus in which LLM rows stand in place of the sentences that they were made from.

    All other rows of the corpus, repeats of such a sentence included, stay rows of one sentence, whose positive is
    another dropout pass. An LLM row has the place of its sentence, so that anchors, and what is drawn of them, are
    those of the plain corpus. LLM rows whose anchor the corpus lacks are added behind it, and told.

    Sources with other columns than an LLM row's are taken as stand-ins, so that a method can be tried without an LLM:

    - WikiSplit for ``sts``: a sentence; its two simpler sentences; the first of them; another row's sentence, drawn
      once it is known which rows are held out.
    - NLI triplets for ``nli``: premise, entailment (INLI's explicit one), contradiction.

    Source: NGCSE, hybrid data: 20,000 sentences of each corpus are replaced.

    Args:
        corpus: how rows of the corpus become training rows; of these only the anchor is used.
        llm: the sources of the LLM rows, ``corpus/split`` or JSON-lines files.
        pattern: ``sts`` or ``nli``.
        data_dir: where the corpora are.

    Raises:
        ConfigError: for another pattern.
    """

    corpus: RoleRows
    llm: Sequence[str]
    pattern: str
    data_dir: str

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            near = did_you_mean(self.pattern, PATTERNS)
            raise ConfigError([f"data.rows.pattern: {self.pattern!r} is not one of {', '.join(PATTERNS)}{near}"])

    @property
    def roles(self) -> tuple[str, ...]:
        """Those of an LLM row; the other rows have an anchor only."""
        return PATTERNS[self.pattern]

    def __call__(self, tables: Sequence[Rows]) -> TrainingRows:
        """Return one row a sentence of the corpus or of the LLM.

        Raises:
            DataError: if two LLM rows have one anchor, or as `read_sources`.
        """
        corpus = self.corpus(tables)
        llm = self._llm()
        anchors = corpus.rows.column("anchor")
        count = len(anchors)
        generated = {anchor: count + number for number, anchor in enumerate(llm.column("anchor"))}
        order: list[int] = []
        placed: set[str] = set()
        for row, anchor in enumerate(anchors):
            replaces = anchor in generated and anchor not in placed
            order.append(generated[anchor] if replaces else row)
            if replaces:
                placed.add(anchor)
        added = [row for anchor, row in generated.items() if anchor not in placed]
        if added:
            log.warning(
                "%d of %d LLM rows were made from sentences that the corpus does not have (the first: %s): they "
                "replace none and are added, and a share of them is held out beside the corpus's own",
                len(added),
                len(llm),
                llm.where(added[0] - count),
            )
        nothing = [None] * count
        plain = corpus.rows.with_columns(**{role: anchors if role == "anchor" else nothing for role in self.roles})
        stacked = Rows.cat([plain, llm]).select([*order, *added])
        first = max((row for source in corpus.sources for row in source), default=-1) + 1
        sources = [*corpus.sources, *((first + row,) for row in range(len(llm)))]
        kept = set(order)
        replaced = {number for row in range(count) if row not in kept for number in corpus.sources[row]}
        counts = {**stacked.counts, "dropped: an LLM row stands for it": len(replaced)}
        return TrainingRows(stacked.recounted(counts), [sources[row] for row in (*order, *added)], own=len(order))

    def _llm(self) -> Rows:
        read = read_sources(self.llm, Path(self.data_dir), key="data.rows.llm")
        foreign = [file.name for rows in read if "anchor" not in rows.names for file in rows.files]
        if foreign:
            log.warning("no LLM wrote %s: stand-ins for LLM rows of the pattern %s", ", ".join(foreign), self.pattern)
        rows = Rows.cat([as_llm_rows(rows, self.pattern) for rows in read])
        seen: dict[str, int] = {}
        for row, anchor in enumerate(rows.column("anchor")):
            if anchor in seen:
                raise DataError(
                    f"{rows.where(row)}: a second LLM row for one anchor, which {rows.where(seen[anchor])} has too"
                )
            seen[anchor] = row
        return rows


def as_llm_rows(rows: Rows, pattern: str) -> Rows:
    """Return rows with the roles of a pattern, from LLM rows or from a corpus that can stand in for them.

    Rows of the ``sts`` pattern do for ``nli`` too, without their intermediate. Of a corpus that stands in, the first
    row a sentence is taken; others are dropped and counted.

    Raises:
        DataError: if the columns fit neither.
    """
    roles = PATTERNS[pattern]
    if all(role in rows.names for role in roles):
        return rows.with_columns(**{role: rows.column(role) for role in roles})
    stands_in = _STAND_INS[pattern](rows)
    if stands_in is None:
        raise DataError(
            f"{rows.files[0].path if rows.files else 'rows'}: no LLM rows of the pattern {pattern!r}: the columns "
            f"{', '.join(roles)} are needed, there are {', '.join(rows.names)}"
        )
    first: dict[str, int] = {}
    for row, anchor in enumerate(stands_in.column("anchor")):
        first.setdefault(anchor, row)
    return stands_in if len(first) == len(stands_in) else stands_in.select(first.values(), reason="repeated anchor")


def _wiki_split(rows: Rows) -> Rows | None:
    if "simple1" not in rows.names:
        return None
    sentences, simple1, simple2 = (rows.column(name) for name in ("sentence", "simple1", "simple2"))
    return rows.with_columns(
        anchor=sentences,
        positive=[f"{a} {b}" for a, b in zip(simple1, simple2, strict=True)],
        intermediate=simple1,
        negative=[ANOTHER_ANCHOR] * len(rows),
    )


def _nli_triplets(rows: Rows) -> Rows | None:
    entailment = next((name for name in ("entailment", "explicit_entailment") if name in rows.names), None)
    if entailment is None or "contradiction" not in rows.names:
        return None
    premise, positive, negative = (rows.column(name) for name in ("premise", entailment, "contradiction"))
    return rows.with_columns(anchor=premise, positive=positive, negative=negative)


_STAND_INS = {"sts": _wiki_split, "nli": _nli_triplets}
