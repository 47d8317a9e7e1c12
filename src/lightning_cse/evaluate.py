"""Evaluate one model on one suite of tasks: ``python -m lightning_cse.evaluate model=minilm_l6 +suite=sts``."""

from __future__ import annotations

from lightning_cse.config.launch import launch


def main() -> None:
    """Read the command line and evaluate; everything heavy is imported only then."""
    launch("lightning_cse.engine.evaluate:run", config_name="evaluate", free_text=("model", "prompt"))


if __name__ == "__main__":
    main()
