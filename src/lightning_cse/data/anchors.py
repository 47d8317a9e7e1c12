"""LLM rows that are kept without their anchors, which belong to the corpora."""

import hashlib
import logging
from collections.abc import Iterable

import numpy as np
from datasets import Dataset

from lightning_cse.data.rows import (
    Account,
    count_dropped,
    files_of,
    names_of,
    with_columns,
    with_files,
)

log = logging.getLogger(__name__)


def digest(sentence: str) -> str:
    """Return the first 16 hexadecimal digits of the sha256 of a sentence in UTF-8."""
    return hashlib.sha256(sentence.encode()).hexdigest()[:16]


def with_anchors(rows: Dataset, corpora: Iterable[Dataset], account: Account) -> Dataset:
    """Replace the digests in the column ``anchor`` by the sentences of corpora that have them.

    Rows whose anchor is in none of the corpora are dropped, and counted.
    """
    digests = rows["anchor"][:]
    requested = set(digests)
    anchors: dict[str, str] = {}
    files = files_of(rows)
    for table in corpora:
        files += files_of(table)
        for name in names_of(table):
            for sentence in table[name][:]:
                if (key := digest(sentence)) in requested:
                    anchors[key] = sentence

    is_known = np.array([key in anchors for key in digests])
    missing = int((~is_known).sum())
    if missing:
        log.warning("%s: %d of %d anchors are missing", files[0].name, missing, len(digests))
        count_dropped(account, {"anchor not in the corpora": missing})

    matched = rows.select(np.flatnonzero(is_known))
    sentences = [anchors[key] for key in digests if key in anchors]

    return with_files(with_columns(matched, anchor=sentences), files)
