"""Sentence pairs of dev and test sets, which must not be trained on."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from lightning_cse.data.columns import LLM_SENTENCES, PAIR_SENTENCES
from lightning_cse.data.rows import hashes_of, names_of, values

SECOND_SENTENCES = (
    "hypothesis",
    "entailment",
    "explicit_entailment",
    "implied_entailment",
    "neutral",
    "contradiction",
)
"""Columns that make a sentence pair together with ``premise``."""

REASON = "pair of a dev or test set"

_PAIRS = (
    *(("premise", name) for name in SECOND_SENTENCES),
    ("sentence1", "sentence2"),
    *(("anchor", name) for name in LLM_SENTENCES[1:]),
    PAIR_SENTENCES[:2],
    PAIR_SENTENCES[2:],
)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # mixes the hashes of two sentences


def free_of(rows: Dataset, excluded: np.ndarray) -> np.ndarray:
    """Return whether each row has none of these pairs, given by hashes: (rows,)."""
    clean = np.ones(len(rows), dtype=bool)
    if len(excluded):
        for pair in _pair_hashes(rows):
            clean &= ~np.isin(pair, excluded)

    return clean


def all_pairs(tables: Sequence[Dataset]) -> np.ndarray:
    """Return the hashes of all sentence pairs of several tables, each once: (pairs,)."""
    pairs = [pair for rows in tables for pair in _pair_hashes(rows)]
    hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *pairs]))

    return np.asarray(hashes[hashes != 0])


def _pair_hashes(rows: Dataset) -> list[np.ndarray]:
    """Return the hashes of the pairs of two columns, for each two columns that make pairs."""
    names = names_of(rows)
    pairs = [pair for pair in _PAIRS if {*pair} <= {*names}]

    if "premise" in names:  # triplets also have the names of contrastive learning
        pairs = [pair for pair in pairs if pair[0] == "premise"]

    if pairs:
        pairs += [(pairs[0][0], name) for name in names if name.startswith("negative_")]

    return [pair_hashes(*(values(rows, name) for name in pair)) for pair in pairs]


def pair_hashes(first: pa.ChunkedArray, second: pa.ChunkedArray) -> np.ndarray:
    """Return a hash of each sentence pair, 0 for one that lacks a sentence: (pairs,).

    Two pairs have the same hash if they differ only in case, white space, punctuation and order, as
    in a tokenised and a raw edition of one corpus.
    """
    hashed = np.sort([hashes_of(column, _letters) for column in (first, second)], axis=0)
    return np.where(hashed.all(axis=0), np.maximum(hashed[0] * _ODD + hashed[1], 1), 0)


def _letters(sentences: pa.Array) -> pa.Array:
    """Return the letters and digits of sentences, without their case."""
    folded = [None if text is None else text.casefold() for text in sentences.to_pylist()]
    return pc.replace_substring_regex(pa.array(folded, pa.string()), r"[^\pL\pN]+", "")
