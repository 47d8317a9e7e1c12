"""Write finished runs as TensorBoard event files, by the logger that training uses."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from lightning_cse.engine.reporting import final_values
from lightning_cse.errors import reported
from lightning_cse.loggers import build_loggers, log_final
from lightning_cse.runs import Run
from lightning_cse.tables.records import FinishedRun, read_runs

NODES = {"tensorboard": {"_target_": "pytorch_lightning.loggers.TensorBoardLogger"}}


@reported
def main(arguments: Sequence[str]) -> int:
    """Write each run below ``<folder>/<name>``, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what `tensorboard --logdir` gets")
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        help="runs, folders of runs, or runs that a paper keeps: experiments/ngcse/results/ngcse_nli_*",
    )
    args = parser.parse_args(arguments)
    for run in read_runs(args.runs):
        if run.curves and run.evaluates is None:
            _write(run, args.folder)

    return 0


def _write(finished: FinishedRun, folder: Path) -> None:
    record = finished.record
    run = Run(folder, record["name"], record["config_hash"], record["seed"])
    settings = {**record["decisive"]["config"], "monitor": record["best"]["monitor"]}
    loggers = build_loggers(NODES, run, settings, group=run.name, tags=(), resumed_at=None)
    for logger in loggers:
        for step, values in sorted(_by_step(finished.curves).items()):
            logger.log_metrics(values, step)

        log_final(logger, final_values(record), record["steps"])
        logger.close()


def _by_step(curves: Mapping[str, Sequence[tuple[int, float]]]) -> Mapping[int, dict[str, float]]:
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for key, points in curves.items():
        for step, value in points:
            steps[step][key] = value

    return steps


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
