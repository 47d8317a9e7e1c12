"""What every test may rely on: no network, no uploads, no screen, few threads; set before heavy imports."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "offline"
os.environ["MPLBACKEND"] = "Agg"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Commands started by tests inherit it. Where a test compares to the last bit, it asks for `one_thread`.
os.environ.setdefault("OMP_NUM_THREADS", "2")

from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the official corpora; the test is skipped where there is none."""
    given = os.environ.get("LIGHTNING_CSE_DATA")
    if not given:
        pytest.skip("needs the official corpora, and LIGHTNING_CSE_DATA is not set")
    folder = Path(given).expanduser().resolve()
    if not folder.is_dir():
        pytest.fail(f"LIGHTNING_CSE_DATA is {given}, which is no folder")
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch with one thread: sums come in one order, so that results are equal to the last bit."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
