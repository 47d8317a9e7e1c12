"""Positives made from a sentence's own word pieces: in another order, or with some of them left
out.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TokenShuffle:
    r"""A uniformly random permutation of a sentence's word pieces.

    .. math:: y_i = x_{\pi(i)}

    where :math:`x` are the bare ids of the sentence (no special tokens). The permutation
    :math:`\pi` depends only on the seed and the sentence: it is the same in every epoch, process
    and machine, whatever the other sentences are.

    Source: NGCSE, setting "token shuffle", and the authors' code, which stores the decoded text, as
    `ContrastiveDataModule` does; the text may give other pieces when tokenised again.  Differs: a
    repeated sentence gets the same augmentation.
    """

    seed: int = 0

    def __call__(self, ids: Sequence[int], sentence: str) -> list[int]:
        """Return the ids in another order."""
        return [ids[k] for k in _order(len(ids), "shuffle", self.seed, sentence)]


@dataclass(frozen=True)
class TokenCutoff:
    r"""A sentence's word pieces without a few random ones; the others keep their order.

    .. math:: y = (x_i)_{i \notin C}, \quad |C| = \mathrm{round}(q \, n)

    where :math:`x` is as in `TokenShuffle`, :math:`n` is the number of ids, :math:`q` is ``share``,
    in [0, 1), and :math:`C` is a uniformly random set that depends only on the seed and the
    sentence. Halves are rounded to the even neighbour, so the default share leaves a sentence of
    ten pieces or fewer unchanged. At least one piece is kept.

    Source: NGCSE, setting "token cutoff", and the authors' code.  Differs: as in `TokenShuffle`.
    """

    share: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ValueError(f"share must be in [0, 1), got {self.share}")

    def __call__(self, ids: Sequence[int], sentence: str) -> list[int]:
        """Return the ids that are kept."""
        removed = max(0, min(round(self.share * len(ids)), len(ids) - 1))
        order = _order(len(ids), "cutoff", self.seed, sentence)

        return [ids[k] for k in sorted(order[removed:])]


def _order(length: int, name: str, seed: int, sentence: str) -> list[int]:
    # Sorting by hashed keys takes a third of the time of seeding random.Random. The shuffle of
    # random.Random may also change between Python versions.
    key = f"{name}\0{seed}\0{sentence}".encode()
    keys = np.frombuffer(hashlib.shake_128(key).digest(8 * length), dtype="<u8")
    return list(keys.argsort(kind="stable").tolist())
