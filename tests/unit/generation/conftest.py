"""Servers, and what is to be generated from them."""

import json

import pytest
from hydra.core.global_hydra import GlobalHydra

from lightning_cse.config.compose import compose_run
from lightning_cse.config.launch import ordered
from lightning_cse.generation.generating import Generation, check


@pytest.fixture
def generation(tmp_path):
    """What is to be generated for the sample corpus; runs and caches of a test are in its
    folder. Of two overrides of a key, the later one counts.
    """

    def make(server, *overrides, data="wiki"):
        words = [
            *("n=6", "encoder=tiny", "corpora=sample", "+pattern=sts", "paths=sample"),
            f"paths.runs_dir={tmp_path}/runs",
            f"paths.cache_dir={tmp_path}/cache",
            f"data={data}",
            f"llm.base_url={server.url if server else 'http://localhost:1/v1'}",
            "llm.model=m",
            *overrides,
        ]
        by_key = {word.lstrip("+").partition("=")[0]: word for word in words}
        line = list(by_key.values())
        GlobalHydra.instance().clear()
        cfg = compose_run("generate", ordered(line))
        check(cfg)

        return Generation(cfg, by_key["data"].removeprefix("data="), line)

    return make


@pytest.fixture
def lines():
    """Read a file of JSON lines."""
    return lambda path: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
