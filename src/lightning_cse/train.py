"""Train one method on one corpus: ``python -m lightning_cse.train +experiment=dualcse_cross``."""

from __future__ import annotations

from lightning_cse.config.launch import launch


def main() -> None:
    """Read the command line and train; everything heavy is imported only then."""
    launch("lightning_cse.engine.train:run", config_name="train")


if __name__ == "__main__":
    main()
