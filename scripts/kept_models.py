"""Train the models that come with the package: python scripts/kept_models.py [PAPER/NAME ...].

Each becomes a folder experiments/<paper>/kept/<name> with what `lightning_cse.load` reads of a run:
its record, the settings of encoder and method, the trained weights, and a card. The encoder's own
weights are not in it. The corpora are those of LIGHTNING_CSE_DATA.
"""

import argparse
import shutil
import sys
from pathlib import Path

from omegaconf import OmegaConf

import lightning_cse
from lightning_cse.analysis.card import kept_card
from lightning_cse.engine.load import CHECKPOINT, CONFIG, RECORD, read_config
from lightning_cse.paths import experiments_dir

LIMIT = 2**20
"""The largest size of the weights, in bytes."""

_LORA = ("+profile=small", "+adapter=lora")
MODELS = {
    "encoders/simcse_lora": (
        "+experiment=simcse_sup",
        *_LORA,
        "encoder.adapter.r=2",
        "method.optimizer.lr=5e-4",
    ),
    "dualcse/dualcse_lora": (
        "+experiment=dualcse_cross",
        *_LORA,
        "encoder.adapter.r=6",
        "method.optimizer.lr=1e-3",
        "data.train_rows=null",
        "trainer.max_epochs=3",
        "least_evaluations=1",  # every 125 steps: in the first steps, RTE rises and falls again
    ),
}
"""The overrides that train each model, by paper and name."""


def main() -> None:
    """Train and keep the models that the command line names, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", choices=MODELS, default=list(MODELS))
    for model in parser.parse_args().models:
        paper, name = model.split("/")
        folder = experiments_dir() / paper / "kept" / name
        run = lightning_cse.train(MODELS[model])
        assert run is not None  # noqa: S101 - without fast_dev_run
        keep(run.path, folder)
        sys.stdout.write(f"{folder}\n")


def keep(run: Path, folder: Path) -> None:
    """Replace a folder by what loading needs of a finished run, and a card."""
    size = (run / CHECKPOINT).stat().st_size
    if size > LIMIT:
        raise SystemExit(f"{run / CHECKPOINT} has {size:,} bytes, more than {LIMIT:,}")

    shutil.rmtree(folder, ignore_errors=True)
    (folder / CHECKPOINT).parent.mkdir(parents=True)
    for part in (RECORD, CHECKPOINT):
        shutil.copyfile(run / part, folder / part)

    # Without the folders of this machine.
    config = read_config(run / CONFIG)
    OmegaConf.save({key: config[key] for key in ("method", "encoder")}, folder / CONFIG)
    kept_card(lightning_cse.load(folder), folder.name).save(folder / "README.md")


if __name__ == "__main__":
    main()
