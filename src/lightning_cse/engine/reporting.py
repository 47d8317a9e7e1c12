"""What a run reports while it lasts: its config, log and loggers, and what it failed with."""

from __future__ import annotations

import contextlib
import logging
import math
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from hydra.core.hydra_config import HydraConfig

from lightning_cse import runs
from lightning_cse.data import ContrastiveDataModule
from lightning_cse.engine.build import Parts
from lightning_cse.errors import Interrupted, TrainingError

if TYPE_CHECKING:
    from lightning_cse.loggers import Guard

log = logging.getLogger(__name__)


@contextlib.contextmanager
def reported(folder: runs.Run, config: str, key: str) -> Iterator[None]:
    """Write config and log of a run, and what it failed with; count its peak memory from here."""
    _report_other_data(folder, key)
    folder.start(config, key)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # else, in a sweep, that of the previous point

    with _logging_to(folder.log_path):
        try:
            yield
        except Exception as error:
            folder.fail(error, stage="training")
            raise


def _report_other_data(folder: runs.Run, key: str) -> None:
    """Report interrupted runs of the same settings and seed, whose data or encoder were others."""
    for path in folder.path.parent.glob(f"*-s{folder.seed}"):
        run = runs.Run.at(path)
        if path != folder.path and run.key == key and run.status == "interrupted":
            log.warning("an interrupted run of these settings with other data is in %s", path)


@contextlib.contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Also write logs, warnings and the traceback of an error to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)

    try:
        yield
    except BaseException as error:
        with path.open("a", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)

        raise
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        handler.close()


@contextlib.contextmanager
def run_loggers(
    config: Mapping[str, Any], folder: runs.Run, resumed_at: int | None
) -> Iterator[list[Guard]]:
    """Yield the loggers that a config names, which log it without secrets, and end them."""
    loggers: list[Guard] = []
    if config.get("logger"):
        from lightning_cse.loggers import build_loggers  # imports W&B

        choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
        sweep = choices.get("sweep")
        settings = runs.public(config)
        loggers = build_loggers(
            settings["logger"],
            folder,
            settings,
            group=f"{folder.name}/{sweep}" if sweep else folder.name,
            tags=[str(choices[name]) for name in ("profile", "debug") if choices.get(name)],
            resumed_at=resumed_at,
        )

    exit_code = 1
    try:
        yield loggers
        exit_code = 0
    except Interrupted as interrupted:
        exit_code = 128 + interrupted.signum
        raise
    finally:
        for logger in loggers:
            logger.close(exit_code)


@contextlib.contextmanager
def training_errors(data: ContrastiveDataModule) -> Iterator[None]:
    """Name the rows of a failed step, and raise Ctrl-C where Lightning exits."""
    try:
        with warnings.catch_warnings():
            # Lightning 2.6 itself causes it with torch 2.13.
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
            # A run that is resumed has checkpoints; our loaders have no workers.
            warnings.filterwarnings("ignore", message=r"Checkpoint directory .* exists")
            yield
    except SystemExit as ending:  # Lightning turns a KeyboardInterrupt into this
        if isinstance(ending.__context__, KeyboardInterrupt):
            raise ending.__context__ from None

        raise
    except TrainingError as error:
        if not error.rows:
            raise

        rows = ", ".join(data.where(row) for row in error.rows[:3])
        raise TrainingError(f"{error} (the first: {rows})", error.rows) from error


def report_start(parts: Parts, folder: runs.Run, details: str, resumed_at: int | None) -> None:
    """Log what is trained, with ``details`` of the config, from where, and what is cut."""
    encoder = parts.encoder
    log.info(
        "%s: %s, %s, %s; everything is written to %s",
        folder.name,
        parts.data.size,
        encoder.name,
        details,
        folder.path,
    )

    count = parts.parameter_counts
    if count["trainable"] < count["total"]:
        share = 100 * count["trainable"] / count["total"]
        adapter = f": {encoder.adapter}" if encoder.adapter else ""
        log.info("trains %.2g %% of %s parameters%s", share, f"{count['total']:,}", adapter)

    if resumed_at is not None:
        log.info("resuming from step %d of %s", resumed_at, folder.checkpoints / "last.ckpt")

    report_cut_sentences(parts)


def report_cut_sentences(parts: Parts) -> None:
    """Count the sentences that are cut, in training by role, and warn of them."""
    longest = parts.encoder.max_length - max(map(len, parts.method.templates))
    by_role = parts.data.cut_to(longest)
    in_training = sum(by_role.values())
    in_evaluation = int((parts.data.evaluation_tokens.lengths > longest).sum())
    cut = {"sentences_cut": in_training, "evaluation_sentences_cut": in_evaluation}
    parts.data.counts |= cut | by_role
    if not any(cut.values()):
        return

    limit = f"{longest} tokens"
    override = "encoder.max_length=NUMBER (auto: the encoder's own maximum)"
    most = parts.data.max_tokens
    if most is not None and most < longest:
        limit = f"{most} tokens in training"
        override = "data.max_tokens=null"

    log.warning(
        "%d training sentences and %d evaluation sentences are longer than %s, and are cut; to "
        "change this, override %s",
        in_training,
        in_evaluation,
        limit,
        override,
    )


def log_results(loggers: Sequence[Guard], record: Mapping[str, Any]) -> None:
    """Log the final values of a run."""
    if loggers:
        from lightning_cse.loggers import log_final  # imports W&B

        for logger in loggers:
            log_final(logger, final_values(record), record["steps"])


def final_values(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a record for a table of runs: ``test/...``, ``best/score``,
    ``summary/...``.
    """
    best = {f"best/{key}": record["best"][key] for key in ("score", "step")}
    summary = {f"summary/{key}": value for key, value in (record.get("summary") or {}).items()}
    values = {**record["metrics"], **best, **summary}

    return {
        key: value for key, value in values.items() if value is not None and math.isfinite(value)
    }


def draw_figures(folder: runs.Run, monitor: str) -> None:
    """Draw the curves of a run; a failure is only logged."""
    from lightning_cse.loggers.plots import run_figures  # matplotlib

    try:
        run_figures(runs.Curves(folder.curves_path).read(), folder.figures, monitor)
    except Exception as error:  # noqa: BLE001 - figures must not fail a run
        log.warning("no figures: %s", error)
