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


def tokenise(sentences: Sequence[str], tokenize: Tokenize, cache_dir: Path | None) -> TokenisedSentences:
    """Return the bare ids of sentences, from the cache where it has them.

    The key is a digest of the sentences (and so of the file's content), the tokenizer's digest and this layout's
    version. A cache that cannot be read or written costs time, never the run.

    Raises:
        DataError: if a sentence has no token at all, such as one of control characters only.
    """
    key = hashlib.sha256(f"{VERSION}\0{tokenize.digest}\0{len(sentences)}".encode())
    for sentence in sentences:
        key.update(b"\0" + sentence.encode())
    path = None if cache_dir is None else cache_dir / "tokens" / f"{key.hexdigest()[:32]}.npz"
    if path is not None and path.is_file():
        try:
            return _load(path, len(sentences))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            log.warning("the token cache %s cannot be read (%s); it is made again", path, error)
    ragged = tokenize(sentences)
    for sentence, ids in zip(sentences, ragged, strict=True):
        if not ids:
            raise DataError(f"the sentence {sentence!r} has no tokens in this encoder's vocabulary")
    flat = np.fromiter((token for ids in ragged for token in ids), dtype=np.int32)
    made = TokenisedSentences(flat, np.cumsum([0, *(len(ids) for ids in ragged)]))
    if path is not None:
        _save(path, made)
    return made


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
