"""Describe a training set before training on it: ``python -m lightning_cse.describe data=ngcse_wiki_sts``."""

import sys

from lightning_cse.config.launch import launch


def main() -> int:
    """Read the command line, describe, and return the exit code."""
    return launch("lightning_cse.analysis.describing:run", config_name="describe")


if __name__ == "__main__":
    sys.exit(main())
