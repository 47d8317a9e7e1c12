"""The environment of all tests: no network, no uploads, no screen, few threads; set before heavy
imports.
"""

from __future__ import annotations

import os
import signal

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "offline"
os.environ["MPLBACKEND"] = "Agg"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["LIGHTNING_CSE_LOCAL"] = "none"  # do not read this machine's conf/local/default.yaml
os.environ.pop("OPENAI_API_KEY", None)  # no test sends paid requests
os.environ.pop("OPENAI_BASE_URL", None)
os.environ.pop("LIGHTNING_CSE_ASK_LLMS", None)
# Commands that tests start inherit it. A test that compares to the last bit uses `one_thread`.
os.environ.setdefault("OMP_NUM_THREADS", "2")

from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time, and no time limit, so that a busy machine causes no failure.
settings.register_profile("project", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("project")


@pytest.fixture(scope="session")
def repository():
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data():
    """The folder of the official corpora; without one, the test is skipped."""
    variable = os.environ.get("LIGHTNING_CSE_DATA")
    if not variable:
        pytest.skip("needs the official corpora, and LIGHTNING_CSE_DATA is not set")

    folder = Path(variable).expanduser().resolve()
    if not folder.is_dir():
        pytest.fail(f"LIGHTNING_CSE_DATA is {variable}, which is no folder")

    return folder


@pytest.fixture
def one_thread():
    """Torch with one thread: sums have one order, so results are equal to the last bit."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def heard_interrupts():
    """Python's handler of SIGINT: background jobs of a shell inherit that the signal is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def compose():
    """Compose the config of ``train`` from overrides, ordered as on a command line."""
    from hydra.core.global_hydra import GlobalHydra

    from lightning_cse.config.compose import complete, without_hydra
    from lightning_cse.config.compose import compose as with_hydra_and_cached
    from lightning_cse.config.launch import ordered

    def composed(*overrides, with_hydra=False):
        GlobalHydra.instance().clear()
        cfg = with_hydra_and_cached("train", *ordered(overrides))
        if with_hydra:
            return cfg

        cfg = without_hydra(cfg)
        complete(cfg, overrides)

        return cfg

    return composed


@pytest.fixture(scope="session")
def run_tiny(compose):
    """Train a point under ``+debug=tiny`` in this process, with one thread; runs are in
    ``<folder>/runs``.
    """
    import torch

    from lightning_cse.config.check import check
    from lightning_cse.engine.train import train
    from lightning_cse.runs import Run

    def run(folder, *overrides):
        cfg = compose("+debug=tiny", "paths.cache_dir=null", *overrides)
        cfg.paths.runs_dir = str(folder / "runs")
        check(cfg, "train")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)

        try:
            return Run.at(Path(train(cfg).folder))
        finally:
            torch.set_num_threads(threads)

    return run
