"""Describe a training set before training on it: ``python -m lightning_cse.describe data=ngcse_wiki_sts``."""

from __future__ import annotations

from lightning_cse.config.launch import launch


def main() -> None:
    """Read the command line and describe; everything heavy is imported only then."""
    launch("lightning_cse.analysis.describing:run", config_name="describe")


if __name__ == "__main__":
    main()
