"""Embeddings without an encoder: numbered sentences around seeded centres."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_cse.embeddings import DualEmbedding
from lightning_cse.index import IndexFolder, SentenceFile, build_index

WIDTH = 16
MakeIndex = Callable[..., IndexFolder]


@pytest.fixture(scope="session")
def model() -> dict[str, Any]:
    """What the indices here are said to be made with."""
    return {"name": "made up", "decides": {"weights": "ab" * 32, "precision": "32-true"}}


@pytest.fixture(scope="session")
def embed() -> Callable[[Sequence[str]], DualEmbedding]:
    """What embeds numbered sentences."""
    return made_up


def made_up(sentences: Sequence[str]) -> DualEmbedding:
    """Return the vectors of sentences that end in a number: around one of 40 centres, and not far from it another."""
    centres = torch.randn(40, WIDTH, generator=torch.Generator().manual_seed(0))
    explicit, implicit = [], []
    for sentence in sentences:
        number = int(sentence.split()[-1])
        noise = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(number))
        explicit.append(3 * (centres[number % 40] + 0.5 * noise[0]))
        implicit.append(explicit[-1] + 0.5 * noise[1])
    return DualEmbedding(torch.stack(explicit), torch.stack(implicit))


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[[int], SentenceFile]:
    """Write so many numbered sentences."""

    def write(count: int) -> SentenceFile:
        path = tmp_path / f"{count}.txt"
        path.write_text("".join(f"Sentence {number}\n" for number in range(count)))
        return SentenceFile(path)

    return write


@pytest.fixture
def make_index(tmp_path: Path, corpus: Callable[[int], SentenceFile], model: dict[str, Any]) -> MakeIndex:
    """Build an index of so many numbered sentences."""

    def make(count: int, name: str = "index") -> IndexFolder:
        return build_index(tmp_path / name, corpus(count), made_up, model=model)

    return make
