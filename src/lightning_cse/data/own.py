"""The layouts of a user's own files; the header of a ``.csv`` says which: quadruples, or implicit/explicit pairs."""

from __future__ import annotations

import csv
import io
from typing import Any, Final

from lightning_cse.data.parsers import PAIR_SENTENCES, listed, misspelt
from lightning_cse.errors import DataError

PREMISE: Final = "premise"
HYPOTHESES: Final = ("implied_entailment", "explicit_entailment", "neutral", "contradiction")
LAYOUTS: Final = (
    f"a file of your own has either {PREMISE} and one or more of {', '.join(HYPOTHESES)}, or all of "
    f"{', '.join(PAIR_SENTENCES)}"
)


def layout_of(name: str, text: str, path: str) -> dict[str, Any]:
    """Return the layout of a file, as `corpora.yaml` declares those of corpora.

    With ``premise`` in its header a ``.csv`` has quadruples. Each row has a premise and at least one hypothesis; a
    column of hypotheses may be missing and a cell of one may be empty, and is None then. With ``pos_implicit`` it has
    implicit/explicit pairs, and all four sentences are needed. Other columns are left out, but
    are a DataError if one looks misspelt.
    """
    if name.endswith(".txt"):
        return {"reader": "lines", "blank": "blank line", "columns": ["sentence"]}
    if name.endswith(".jsonl"):
        return {"reader": "llm"}
    try:
        header = next(csv.reader(io.StringIO(text, newline=""), strict=True), [])
    except csv.Error:
        header = []
    pairs, premise = PAIR_SENTENCES[0] in header, PREMISE in header
    if pairs and not premise:
        return {"reader": "csv", "columns": PAIR_SENTENCES}
    near = misspelt(header, [PREMISE, *HYPOTHESES, *(() if premise else PAIR_SENTENCES)])
    if header and (near or pairs or not premise or not set(HYPOTHESES).intersection(header)):
        raise DataError(f"{path}:1: these columns fit no layout{near}; {LAYOUTS}; columns found: {listed(header)}")
    columns = {PREMISE: PREMISE} | {cell: {"optional": cell} for cell in HYPOTHESES}
    return {"reader": "quadruples", "hypotheses": HYPOTHESES, "columns": columns}
