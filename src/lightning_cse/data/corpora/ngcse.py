"""LLM rows: a sentence and what a language model wrote of it, by how close in meaning it is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from lightning_cse.data.corpora.spec import LLM_SENTENCES, Corpus, CorpusFile, Table
from lightning_cse.data.corpora.tables import checked_sentence, parse_object
from lightning_cse.errors import DataError, did_you_mean

STS = LLM_SENTENCES
NLI = ("anchor", "positive", "negative")
LLM_SPLIT = "aigen"
"""What the authors' files call the split of LLM rows; rows of others are plain sentences."""

PLAIN = "plain sentence"


def parse_rows(text: str, path: str, *, pattern: tuple[str, ...] | None = None) -> Table:
    """Parse LLM rows, a JSON object a line: keys ``anchor``, ``positive``, ``negative``, for STS ``intermediate``.

    Other keys are left out. The authors' own layout is read as well: ``split``, ``sentence`` (the anchor), and
    sentences under numbers, of which a closer one has a higher; a number with an empty sentence is not used. Three are
    positive, intermediate and negative, two are positive and negative. Their rows of plain sentences are left out and
    counted.

    Args:
        text: The whole file.
        path: The file's path, for errors.
        pattern: The columns that every row must have, `STS` or `NLI`; by default those of the first row.

    Raises:
        DataError: At the first fault, with file and line, or if there is no LLM row.
    """
    columns: dict[str, list[str]] = {}
    lines: list[int] = []
    plain = 0
    for line, row in enumerate(text.rstrip("\r\n").split("\n"), start=1):
        where = f"{path}:{line}"
        cells = parse_object(row, where)
        if "anchor" not in cells and "sentence" in cells:
            if _split(cells, where) != LLM_SPLIT:
                plain += 1
                continue
            cells = _by_role(cells, where)
        absent = [name for name in NLI if name not in cells]
        if absent:
            hint = did_you_mean(absent[0], [name for name in cells if name not in STS])
            raise DataError(f"{where}: missing key {absent[0]!r}{hint}; keys found: {', '.join(cells) or 'none'}")
        found = STS if "intermediate" in cells else NLI
        pattern = pattern or found
        if found != pattern:
            raise DataError(
                f"{where}: an intermediate sentence, and no row of this file may have one (NLI pattern)"
                if found == STS
                else f"{where}: no intermediate sentence, and every row of this file needs one (STS pattern)"
            )
        for name in pattern:
            columns.setdefault(name, []).append(checked_sentence(cells[name], name, where))
        lines.append(line)
    if not lines:
        raise DataError(f"{path}: no LLM row, only {plain} plain sentence{'' if plain == 1 else 's'}")
    return Table(dict(columns), lines, {PLAIN: plain} if plain else {})


def _split(cells: Mapping[str, object], where: str) -> object:
    if "split" not in cells:
        raise DataError(f"{where}: missing key 'anchor', or 'split' beside 'sentence'; keys found: {', '.join(cells)}")
    return cells["split"]


def _by_role(cells: Mapping[str, object], where: str) -> dict[str, object]:
    """Return the sentences of a row in the authors' layout by role."""
    numbers = sorted((key for key in cells if key.isdecimal() and cells[key] != ""), key=int, reverse=True)
    roles = {len(pattern): pattern[1:] for pattern in (STS, NLI)}.get(len(numbers) + 1)
    if roles is None:
        raise DataError(
            f"{where}: {len(numbers)} sentences under numbers ({', '.join(numbers) or 'none'}); an LLM row has 3 "
            "(STS pattern) or 2 (NLI pattern)"
        )
    keys = {"anchor": "sentence"} | dict(zip(roles, numbers, strict=True))
    return {role: checked_sentence(cells[key], repr(key), where) for role, key in keys.items()}


NGCSE = Corpus(
    name="ngcse",
    title="NGCSE's LLM rows, 20,000 sentences a corpus and pattern (Li et al. 2024)",
    files=tuple(
        CorpusFile(
            split=split,
            path=f"ngcse/{split}.jsonl",
            rows=20_000,
            sha256=None,  # made, not released in this layout
            remote=f"{split}.jsonl",
            parse=partial(parse_rows, pattern=STS if split.endswith("sts") else NLI),
        )
        for split in ("wiki_sts", "wiki_nli", "nli_sts", "nli_nli")
    ),
    parse=parse_rows,
    licence="that of the sentences, and the terms of the language model",
    prepare="fetches nothing: put the rows there, a JSON object a line (anchor, positive, intermediate, negative), or "
    "the authors' files as they are",
)
