"""Which pairs and sentences the diagnostics look at: the held-out side, and the evaluation side beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_cse.callbacks.diagnostics import Diagnostics, Side
from lightning_cse.data import ContrastiveData, Rows, read_corpus
from lightning_cse.errors import ConfigError
from lightning_cse.methods import Method


def build_diagnostics(method: Method, data: ContrastiveData, options: Mapping[str, Any], data_dir: str) -> Diagnostics:
    """Return the diagnostics of a method on its data, as the config's ``diag`` asks.

    The held-out side is the data's held-out rows: for each view the pair of roles that the method names, and the
    sentences of the roles it spreads (all of the data, if it names none), row by row, cut to the first
    ``options["sentences"]``.

    Raises:
        ConfigError: if the evaluation side asked for is the held-out side already.
    """
    if not options["dropout"] and any(a == b for a, b in method.pairs.values()):
        raise ConfigError(
            [
                f"diag.dropout: the pairs of {type(method).__name__} are dropout passes over one sentence, so without "
                "dropout their alignment would be 0 by construction; set diag.dropout=true"
            ]
        )
    spread = method.spread or data.roles
    watched = data.watched(list(dict.fromkeys([*spread, *(role for pair in method.pairs.values() for role in pair)])))
    pairs = {view: (watched.column(a), watched.column(b)) for view, (a, b) in method.pairs.items()}
    held_out = Side(pairs, _flat(watched, spread)[: options["sentences"]])
    choice = options["evaluation"]
    if choice == "none":
        return Diagnostics(held_out, None)
    if choice == "corpus_dev":
        raise ConfigError(
            [
                "diag.evaluation: corpus_dev is already the held-out side of this data, so RFD would be 0 by "
                "construction; use stsb_dev or none"
            ]
        )
    return Diagnostics(held_out, _stsb_dev(list(method.pairs), options, data_dir))


def _stsb_dev(views: list[str], options: Mapping[str, Any], data_dir: str) -> Side:
    """Return STS-B dev as NGCSE uses it: close pairs to align, sentences of close and of far pairs to spread."""
    rows = read_corpus("stsb", "dev", data_dir)
    scores = rows.column("score")
    close = [score >= options["positive_score"] for score in scores]
    far = [score <= options["negative_score"] for score in scores]
    if not any(close):
        highest = max(scores)
        raise ConfigError(
            [f"diag.positive_score: {options['positive_score']} is more than any pair of STS-B dev has ({highest})"]
        )
    aligned = rows.select(k for k, is_close in enumerate(close) if is_close)
    spread = rows.select(k for k in range(len(rows)) if close[k] or far[k])
    pair = (aligned.column("sentence1"), aligned.column("sentence2"))
    sentences = _flat(spread, ("sentence1", "sentence2"))[: options["sentences"]]
    return Side(dict.fromkeys(views, pair), sentences, {file.name: file.sha256 for file in rows.files})


def _flat(rows: Rows, columns: Sequence[str]) -> list[str]:
    """Return the sentences row by row, as the authors of NGCSE count them."""
    return [sentence for row in zip(*(rows.column(column) for column in columns), strict=True) for sentence in row]
