"""How far the vectors of an exported folder are from the model's own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # heavy, and what is wrong with a command line is told without
    from torch import Tensor

__all__ = ["check_sentences", "compared_by", "differences"]

_SENTENCES: Final = 54  # of the sample corpus, beside those that are written here
_MOST_WORDS: Final = 4096  # of the sentence that is longer than most models read
_ODD: Final = (
    "",
    " ",
    "?",
    "Hi",
    "  outer   and inner\twhite space \n",
    "Ça alors, naïve façade, Zoë: 20 €, ½ and “quotes” …",
    "これは文です。 Это предложение. هذه جملة.",
    "Nobody laughed 🙃, nobody 👩‍👩‍👧.",
    "special tokens as text: [CLS] [SEP] [MASK] <s> </s> <mask> [UNK]",
)


def check_sentences(max_length: int) -> list[str]:
    """Return sentences to compare by: ordinary ones, and what may be read in two ways."""
    from lightning_cse.data import read_corpus, sample_dir

    plain = list(dict.fromkeys(read_corpus("inli", "train", sample_dir()).column("premise")))[:_SENTENCES]
    words = itertools.islice(itertools.cycle(" ".join(plain).split()), min(2 * max_length, _MOST_WORDS))
    return [*plain, *_ODD, " ".join(words)]


def compared_by(answers: Any, embedding: Any, vectors: Tensor) -> str | None:
    """Return the function of the vectors that is the model's own similarity, asked and not known by its name."""
    import torch

    from lightning_cse.similarity import cosine

    a, b = vectors[:-1].double(), vectors[1:].double()
    with torch.no_grad():
        want = answers.similarity(embedding[:-1], embedding[1:]).double()
    for name, got in (("cosine", cosine(a, b)), ("euclidean", -torch.linalg.vector_norm(a - b, dim=-1))):
        if torch.allclose(got, want, rtol=1e-4, atol=1e-5):
            return name
    return None


def differences(got: Tensor, want: Tensor) -> tuple[float, float]:
    """Return how far vectors are from those wanted, relative to the length of these, and how far their cosines are."""
    from lightning_cse.similarity import cosine_matrix

    got, want = got.double(), want.double()
    if got.shape != want.shape:
        return float("inf"), float("inf")
    apart = (got - want).norm(dim=1) / want.norm(dim=1).clamp(min=1e-12)
    return float(apart.max()), float((cosine_matrix(got, got) - cosine_matrix(want, want)).abs().max())
