"""Servers, and what is to be generated from them."""

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from lightning_cse.config.compose import register
from lightning_cse.config.launch import ordered
from lightning_cse.generation.generating import Generation, check
from lightning_cse.paths import conf_dir


@pytest.fixture
def generation(tmp_path):
    """What is to be generated for the sample corpus; runs and caches of a test are in its
    folder.
    """

    def made(server, *overrides, data="wiki"):
        line = [
            *("n=6", "encoder=tiny", "corpora=sample", "+pattern=sts", "paths=sample"),
            f"paths.runs_dir={tmp_path}/runs",
            f"paths.cache_dir={tmp_path}/cache",
            f"data={data}",
            f"llm.base_url={server.url if server else 'http://localhost:1/v1'}",
            "llm.model=m",
        ]
        replaced = {override.lstrip("+").partition("=")[0] for override in overrides}
        line = [
            override for override in line if override.lstrip("+").partition("=")[0] not in replaced
        ]
        line += overrides
        register()
        GlobalHydra.instance().clear()

        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            cfg = hydra_compose("generate", ordered(line))

        check(cfg)

        return Generation(cfg, data, line)

    return made
