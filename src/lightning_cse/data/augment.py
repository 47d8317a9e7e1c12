"""Positives made of a sentence's own word pieces: in another order, or some of them left out."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TokenShuffle:
    r"""A uniformly random permutation of a sentence's word pieces.

    .. math:: y_i = x_{\pi(i)}

    with the bare ids :math:`x` of a sentence (no special tokens) and a permutation :math:`\pi` that the seed and the
    sentence decide alone: the same in every epoch, process and machine, whatever stands beside the sentence.

    Source: NGCSE, setting "token shuffle", and the authors' code, which stores the decoded text, as `ContrastiveData`
    does; tokenised again it may give other pieces.  Differs: a repeated sentence is augmented the same way again.
    """

    seed: int = 0

    def __call__(self, ids: Sequence[int], sentence: str) -> list[int]:
        """Return the ids in another order."""
        return [ids[k] for k in _order(len(ids), "shuffle", self.seed, sentence)]


@dataclass(frozen=True)
class TokenCutoff:
    r"""A sentence's word pieces without a random few, the others in their order.

    .. math:: y = (x_i)_{i \notin C}, \quad |C| = \mathrm{round}(q \, n)

    with :math:`x` as in `TokenShuffle`, the number :math:`n` of ids, ``share`` :math:`q` in [0, 1), and a uniformly
    random set :math:`C` that the seed and the sentence decide alone. A half is rounded to the even neighbour, so that
    with the default share a sentence of ten pieces or fewer stays as it is. One piece is always left.

    Source: NGCSE, setting "token cutoff", and the authors' code.  Differs: as in `TokenShuffle`.
    """

    share: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ValueError(f"share must be in [0, 1), got {self.share}")

    def __call__(self, ids: Sequence[int], sentence: str) -> list[int]:
        """Return the ids that are left."""
        removed = min(round(self.share * len(ids)), len(ids) - 1)
        if removed < 1:
            return list(ids)
        order = _order(len(ids), "cutoff", self.seed, sentence)
        return [ids[k] for k in sorted(order[removed:])]


def _order(length: int, name: str, seed: int, sentence: str) -> list[int]:
    # A sort by hashed keys takes a third of the time of seeding random.Random, whose shuffle may also change with
    # Python's version.
    key = f"{name}\0{seed}\0{sentence}".encode()
    keys = np.frombuffer(hashlib.shake_128(key).digest(8 * length), dtype="<u8")
    return list(keys.argsort(kind="stable").tolist())
