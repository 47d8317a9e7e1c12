"""Train one method on one corpus: ``python -m lightning_cse.train +experiment=dualcse_cross``."""

from __future__ import annotations

import sys

from lightning_cse.config.launch import launch


def main() -> int:
    """Read the command line, train, and return the exit code."""
    return launch("lightning_cse.engine.train:run", config_name="train")


if __name__ == "__main__":
    sys.exit(main())
