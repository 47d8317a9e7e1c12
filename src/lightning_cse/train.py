"""Train one method on one corpus: ``python -m lightning_cse.train +experiment=dualcse_cross``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_cse.config.launch import call, launch

if TYPE_CHECKING:
    from lightning_cse.runs import Run


def main() -> int:
    """Read the command line, train, and return the exit code."""
    return launch("lightning_cse.engine.train:run", config_name="train")


def train(overrides: Sequence[str]) -> Run | None:
    """Train one run, and return it; like the command, resume it or skip it if it is finished.
    ``trainer.fast_dev_run`` leaves no run, and returns None.

    ``overrides`` are the words of a command line, such as ``["+experiment=simcse_sup",
    "+profile=laptop", "seed=1"]``. Training takes place in this process, or in separate ones if the
    run uses several devices. Relative paths start at the working directory. If the program has not
    set up logging, the progress is printed. Raises LightningCSEError with the text that the command
    prints, and Interrupted for Ctrl-C.
    """
    from lightning_cse.runs import Run

    folder = call("lightning_cse.engine.train:train", "train", overrides).folder

    return Run.at(Path(folder)) if folder else None


if __name__ == "__main__":
    sys.exit(main())
