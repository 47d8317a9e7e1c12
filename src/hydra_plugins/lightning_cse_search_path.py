"""Hydra plugin: configs of one's own, from the folder that ``--config-dir`` names, beside those of
``conf/``.
"""

import os

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from lightning_cse.config.compose import CONFIG_DIR, PROVIDER


class OwnConfigs(SearchPathPlugin):
    """Append the folder in the environment variable `CONFIG_DIR` to the places where Hydra looks
    for configs.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the folder, if there is one."""
        if folder := os.environ.get(CONFIG_DIR):
            search_path.append(PROVIDER, f"file://{folder}")
