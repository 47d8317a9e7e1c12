"""Tokenise once: bare ids of sentences, kept on disk under a key of everything that decides them."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lightning_cse.errors import DataError
from lightning_cse.tokens import Tokenize

log = logging.getLogger(__name__)

VERSION = 1
"""Of the file's layout; part of the key."""


@dataclass(frozen=True)
class TokenisedSentences:
    """Ids of many sentences, flat: sentence k is ``ids[offsets[k] : offsets[k + 1]]``."""

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, k: int) -> list[int]:
        ids: list[int] = self.ids[self.offsets[k] : self.offsets[k + 1]].tolist()
        return ids

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each sentence."""
        return np.diff(self.offsets)


def tokenise(
    sentences: Sequence[str], tokenize: Tokenize, cache_dir: Path | None, *, may_be_empty: bool = False
) -> TokenisedSentences:
    """Return the bare ids of sentences, from the cache where it has them.

    The key is a digest of the sentences (and so of the file's content), the tokenizer's digest and this layout's
    version. A cache that cannot be read or written costs time, never the run.

    Args:
        sentences: in the order in which their ids are wanted.
        tokenize: sentences to bare token ids.
        cache_dir: where token ids are kept; nowhere if None.
        may_be_empty: whether a sentence may have no token at all.

    Raises:
        DataError: if a sentence that may not has no token at all, such as one of control characters only.
    """
    key = hashlib.sha256(f"{VERSION}\0{tokenize.digest}\0{len(sentences)}".encode())
    for sentence in sentences:
        key.update(b"\0" + sentence.encode())
    path = None if cache_dir is None else cache_dir / "tokens" / f"{key.hexdigest()[:32]}.npz"
    if path is not None and path.is_file():
        try:
            return _checked(_load(path, len(sentences)), sentences, may_be_empty)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            log.warning("the token cache %s cannot be read (%s); it is made again", path, error)
    ragged = tokenize(sentences)
    flat = np.fromiter((token for ids in ragged for token in ids), dtype=np.int32)
    made = _checked(TokenisedSentences(flat, np.cumsum([0, *map(len, ragged)])), sentences, may_be_empty)
    if path is not None:
        _save(path, made)
    return made


def _checked(tokens: TokenisedSentences, sentences: Sequence[str], may_be_empty: bool) -> TokenisedSentences:
    if not may_be_empty and (empty := np.flatnonzero(tokens.lengths == 0)).size:
        raise DataError(f"the sentence {sentences[int(empty[0])]!r} has no tokens in this encoder's vocabulary")
    return tokens


def _load(path: Path, count: int) -> TokenisedSentences:
    with np.load(path, allow_pickle=False) as file:
        tokens = TokenisedSentences(file["ids"], file["offsets"])
    if len(tokens) != count or tokens.offsets[-1] != len(tokens.ids):
        raise ValueError(f"{len(tokens)} sentences, {len(tokens.ids)} tokens")
    return tokens


def _save(path: Path, tokens: TokenisedSentences) -> None:
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            temporary = Path(file.name)
            np.savez(file, ids=tokens.ids, offsets=tokens.offsets)
        temporary.replace(path)
    except OSError as error:
        log.warning("the token cache %s cannot be written (%s); going on without", path, error)
        if temporary is not None:
            temporary.unlink(missing_ok=True)
