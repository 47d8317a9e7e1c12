"""Comma-separated files of a user's own: quadruples in INLI's layout, or implicit/explicit pairs."""

from __future__ import annotations

import csv
import io

from lightning_cse.data.corpora import impscore, inli
from lightning_cse.data.corpora.spec import Table
from lightning_cse.data.corpora.tables import parse_csv
from lightning_cse.errors import DataError, did_you_mean

PREMISE, *HYPOTHESES = inli.SENTENCES

LAYOUTS = (
    f"a file of your own has either {PREMISE} and one or more of {', '.join(HYPOTHESES)}, or all of "
    f"{', '.join(impscore.SENTENCES)}"
)


def parse_own(text: str, path: str) -> Table:
    """Parse comma-separated text with a header, which tells the layout; columns that are in neither are left out.

    With ``premise`` the rows are quadruples in INLI's layout. Each has a premise and at least one hypothesis; a column
    of hypotheses may be missing and a cell of one may be empty, and is None then. With ``pos_implicit`` they are
    implicit/explicit pairs, and all four sentences are needed.

    Raises:
        DataError: At the first fault, with file and line. Also where a column that would be left out looks like a
            misspelt one.
    """
    header = _header(text)
    if not header:
        return parse_csv(text, path, sentences=[PREMISE])  # which says what is wrong with the first line
    quadruples, pairs = PREMISE in header, impscore.SENTENCES[0] in header
    found = f"columns found: {', '.join(name or '(unnamed)' for name in header)}"
    if quadruples and pairs:
        raise DataError(f"{path}:1: both {PREMISE!r} and {impscore.SENTENCES[0]!r} are there; {LAYOUTS}; {found}")
    if pairs:
        return impscore.parse_pairs(text, path)
    known = [*inli.SENTENCES, *impscore.SENTENCES]
    if not quadruples:
        near = _near(header, known)
        raise DataError(
            f"{path}:1: neither {PREMISE!r} nor {impscore.SENTENCES[0]!r} is there{near}; {LAYOUTS}; {found}"
        )
    near = _near(header, HYPOTHESES)
    if near:
        raise DataError(f"{path}:1: a column that is not known{near} Or give it another name, to leave it out; {found}")
    if not set(HYPOTHESES).intersection(header):
        raise DataError(f"{path}:1: no column of hypotheses; {LAYOUTS}; {found}")
    return _quadruples(text, path, header)


def _header(text: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), strict=True), [])
    except csv.Error:
        return []


def _near(header: list[str], known: list[str]) -> str:
    """Return which columns look like known ones that are not there, or an empty string."""
    absent = [name for name in known if name not in header]
    hints = [f"found {name!r}{did_you_mean(name, absent)}" for name in header if name not in known]
    return "".join(f"; {hint}" for hint in hints if "did you mean" in hint)


def _quadruples(text: str, path: str, header: list[str]) -> Table:
    there = [name for name in HYPOTHESES if name in header]
    table = parse_csv(text, path, sentences=[PREMISE], others=there)
    sentences: dict[str, list[str | None]] = {
        name: [str(cell).strip() or None for cell in table.columns[name]]
        if name in there
        else [None] * len(table.lines)
        for name in HYPOTHESES
    }
    for line, row in zip(table.lines, zip(*sentences.values(), strict=True), strict=True):
        if not any(row):
            raise DataError(
                f"{path}:{line}: no hypothesis: {', '.join(there)} {'is' if len(there) == 1 else 'are'} empty"
            )
    return table._replace(columns={PREMISE: table.columns[PREMISE], **sentences})
