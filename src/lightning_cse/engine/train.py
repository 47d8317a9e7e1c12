"""A training run from its config to its record: build, train, test the best checkpoint, write the record."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import pickle
import signal
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.exceptions import SIGTERMException

from lightning_cse import runs
from lightning_cse.callbacks import (
    BestAndLast,
    Evaluation,
    RandomState,
    StepLog,
    progress,
)
from lightning_cse.config.sweeps import in_sweep
from lightning_cse.data.token_cache import tokenise
from lightning_cse.engine.build import Parts, automatic_reading, build, built, check_nodes, plain
from lightning_cse.engine.machine import device_name, forget_peak_memory, peak_memory, resolve_automatic
from lightning_cse.errors import ConfigError, TrainingError, user_error
from lightning_cse.evaluation import Split, TaskResult, run_tasks
from lightning_cse.loggers import CurvesLogger, RunView
from lightning_cse.loggers.plots import run_figures
from lightning_cse.runs.summary import summarise
from lightning_cse.runs.table import print_run

log = logging.getLogger(__name__)


def run(cfg: DictConfig) -> float:
    """Train, print the table, and return the best dev score (for Hydra's sweepers)."""
    folder = train(cfg)
    record = folder.read()
    print_run(record, folder.record_path)
    score: float = record["best"]["score"]
    return score


def train(cfg: DictConfig) -> runs.Run:
    """Train the method that a config describes, unless its record is there, and return the run's folder.

    A folder with a record is finished and left as it is (``force=true`` starts anew); one with a last checkpoint and no
    record, interrupted or failed, is resumed, to the same numbers as a run that was never stopped. In a multirun, one
    that failed is left alone unless ``retry_failed=true``. While it runs, this process holds the folder's lock.

    Raises:
        Busy: if another process is running this very point.
        FailedBeforeError: in a multirun, if the point failed before and is not to be tried again.
        LightningCSEError: for whatever is the user's to mend; once the run has a folder, its ``failed.json`` tells the
            same.
    """
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)  # tips, and what hardware there is not
    resolved = resolve_automatic(cfg)
    check_nodes(cfg)
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    forget_peak_memory()
    parts = build(cfg)
    decisive: dict[str, Any] = {
        "data": parts.digests,
        "encoder": {"name": parts.encoder.name, **parts.encoder.digests},
        "resolved": resolved | automatic_reading(cfg, parts.encoder),
    }
    identity = runs.identity(plain(cfg), **decisive)
    try:
        folder = runs.Run(Path(cfg.paths.runs_dir).expanduser(), cfg.name, identity, cfg.seed)
    except ValueError as error:
        raise ConfigError([f"name: {error}"]) from error
    if _finished(cfg, folder):
        return folder
    with folder.lock() as lock:
        if _finished(cfg, folder):  # by somebody who held the lock until now
            return folder
        if in_sweep() and folder.state == "failed" and not (cfg.retry_failed or cfg.force):
            raise runs.FailedBeforeError(folder.path, folder.reason() or "")
        if cfg.force:
            folder.clear()
        _train(cfg, parts, folder, identity, decisive, lock)
    return folder


def _finished(cfg: DictConfig, folder: runs.Run) -> bool:
    if cfg.force or folder.state != "finished":
        return False
    log.info("%s is finished; force=true runs it again", folder.path)
    _tell_lacking_baselines(cfg, folder)
    return True


def _train(
    cfg: DictConfig,
    parts: Parts,
    folder: runs.Run,
    identity: str,
    decisive: dict[str, Any],
    lock: runs.Lock,
) -> None:
    resume = (folder.checkpoints / "last.ckpt").is_file()  # of an interrupted run, or of a failed one
    folder.start(OmegaConf.to_yaml(cfg, resolve=True))
    log.info(
        "%s: %s, %d training rows, %s, %s; everything goes to %s",
        cfg.name,
        parts.encoder.name,
        len(parts.data.train),
        cfg.trainer.accelerator,
        cfg.trainer.precision,
        folder.path,
    )
    provenance = _provenance(parts)
    loggers = _loggers(cfg, folder, identity, resume=resume)
    status = "failed"
    try:
        record = _fit_and_test(cfg, parts, folder, loggers, lock, resume=resume)
        record |= {"name": cfg.name, "identity": identity, "seed": cfg.seed, "overrides": _overrides()}
        record |= {"identity_document": runs.identity_document(plain(cfg), **decisive)}
        record |= provenance
        lock.check()
        folder.finish(record)
        status = "success"
        for view in loggers:
            if isinstance(view, RunView):
                view.conclude(record)
    except SIGTERMException as ending:
        log.warning("ended by SIGTERM; the same command continues from the last checkpoint")
        raise SystemExit(TERMINATED) from ending  # Lightning's own exit code would be 0, as if all had gone well
    except runs.Busy:
        raise  # another machine thought this one dead, and the folder is its own now
    except Exception as error:
        folder.fail(user_error(error) or error, stage="training")
        raise
    finally:
        for logger in loggers:
            if isinstance(logger, RunView):
                logger.close(exit_code=0 if status == "success" else 1)
            else:
                logger.finalize(status)


def _provenance(parts: Parts) -> dict[str, Any]:
    """Return, for the record, where LLM rows come from, without secrets; nothing where no side file tells.

    It is no part of the identity: the rows themselves are.
    """
    return {"provenance": dict(parts.data.provenance)} if parts.data.provenance else {}


def _tell_lacking_baselines(cfg: DictConfig, folder: runs.Run) -> None:
    """Say which baselines a finished run was asked for and has not: they are no part of its identity."""
    lacking = [str(name) for name in cfg.baselines if name not in (folder.read().get("baselines") or {})]
    if not lacking:
        return
    alone = ""
    if "whitening" in lacking:
        alone = (
            f", or see lightning_cse.evaluate model={cfg.encoder.name} +suite=... whitening=[...] for whitening alone"
        )
    log.warning(
        "%s has no values of the baselines %s, which were not asked for when it ran: force=true runs it again with "
        "them%s",
        folder.record_path,
        ", ".join(lacking),
        alone,
    )


TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM ended, by the shell's rule."""


def _loggers(cfg: DictConfig, folder: runs.Run, identity: str, *, resume: bool) -> list[Logger]:
    loggers: list[Logger] = [CurvesLogger(runs.Curves(folder.curves))]
    if cfg.logger:
        # Completed outside Hydra, which would build everything that the settings describe.
        view = instantiate(cfg.logger, _partial_=True)
        loggers.append(
            view(
                identity=identity,
                name=cfg.name,
                seed=cfg.seed,
                group=_group(cfg),
                settings=plain(cfg),
                folder=folder.path,
                resume=resume,
                tags=_tags(),
            )
        )
    return loggers


def _tags() -> list[str]:
    """Return the profile and the debugging aid of the command line: how much of a paper's recipe a run is."""
    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    return [str(choices[group]) for group in ("profile", "debug") if choices.get(group)]


def _group(cfg: DictConfig) -> str:
    sweep = [o.split("=", 1)[1] for o in _overrides() if o.lstrip("+").startswith("sweep=")]
    return f"{cfg.name}/{sweep[0]}" if sweep else str(cfg.name)


def _overrides() -> list[str]:
    return list(map(str, HydraConfig.get().overrides.task)) if HydraConfig.initialized() else []


class _StillOurs(pl.Callback):
    """Ends a training whose folder another machine has taken over, before both write checkpoints into it for long."""

    def __init__(self, lock: runs.Lock) -> None:
        self._lock = lock

    def on_train_batch_start(self, *args: Any) -> None:
        """Ask what the lock's last sign of life found."""
        self._lock.check_known()


def _fit_and_test(
    cfg: DictConfig,
    parts: Parts,
    folder: runs.Run,
    loggers: list[Logger],
    lock: runs.Lock,
    *,
    resume: bool,
) -> dict[str, Any]:
    parts.data.setup()
    truncated = _tell_truncation(parts)
    evaluation = Evaluation(
        parts.tasks,
        parts.diagnostics,
        every=cfg.eval_every,
        least=cfg.least_evaluations,
        monitor=cfg.monitor,
        dropout=cfg.diag.dropout,
    )
    steps = StepLog()
    checkpoints = BestAndLast(folder.checkpoints, evaluation)
    trainer: pl.Trainer = built(
        cfg.trainer,
        logger=loggers,
        callbacks=[_StillOurs(lock), RandomState(), steps, evaluation, progress(evaluation), checkpoints],
        devices=_devices(cfg),
        default_root_dir=str(folder.path),
        _convert_="all",
    )
    curves = runs.Curves(folder.curves)
    last = None
    if resume:
        last = checkpoints.last
        step = _step_of(last)
        curves.cut(step)
        log.info("going on from step %d of %s", step, last)
    else:
        curves.cut(-1)
    with warnings.catch_warnings():
        # Of Lightning 2.6 itself, with torch 2.13: nothing a user could mend.
        warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
        _fit(trainer, parts, last)
    if trainer.global_step == 0:
        raise TrainingError("not one training step was made: look at trainer.limit_train_batches and trainer.max_time")
    if not checkpoints.best.is_file():
        raise TrainingError(
            f"{cfg.monitor} was never a finite number after step 0, so there is no best checkpoint; see {folder.curves}"
        )
    lock.check()
    start = time.perf_counter()
    results, baselines = _test(cfg, parts, folder, trainer, checkpoints.best)
    logged = curves.read()
    return {
        "model": parts.method.model.settings(),
        "checkpoint": {"sha256": _sha256(checkpoints.best)},
        "metrics": {f"test/{task}/{metric}": v for task, r in results.items() for metric, v in r.metrics.items()},
        "baselines": baselines,
        "left_out": {name: [why] for name, why in parts.left_out.items()},
        "best": {"step": evaluation.best_step, "score": evaluation.best_score, "monitor": cfg.monitor},
        "final": evaluation.latest,
        "summary": dataclasses.asdict(summarise(logged, cfg.monitor)),
        "steps": trainer.global_step,
        "rows": parts.data.counts | truncated,
        "data": parts.digests,
        "task_data": {name: task.digests for name, task in parts.tasks.items()},
        "encoder": {"name": parts.encoder.name, **parts.encoder.digests},
        "device": device_name(trainer.strategy.root_device),
        "precision": str(trainer.precision),
        "environment": runs.environment(),
        "seconds": {
            "training": steps.seconds,
            "evaluation": evaluation.seconds,
            "test": time.perf_counter() - start,
        },
        "evaluation_share": evaluation.seconds / max(evaluation.seconds + steps.seconds, 1e-9),
        "sentences_per_second": steps.sentences / max(steps.seconds, 1e-9),
        "peak_memory_mib": peak_memory(),
        "figures": [path.name for path in run_figures(logged, folder.figures, cfg.monitor)],
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _devices(cfg: DictConfig) -> Any:
    """Return the GPU that ``cuda`` means in this process, which Lightning would not ask; else what the config says."""
    on_cuda = cfg.trainer.accelerator in ("gpu", "cuda") and torch.cuda.is_available()
    return [torch.cuda.current_device()] if on_cuda else cfg.trainer.devices


def _step_of(checkpoint: Path) -> int:
    try:
        return int(torch.load(checkpoint, map_location="cpu", weights_only=True)["global_step"])
    except (OSError, RuntimeError, KeyError, EOFError, pickle.UnpicklingError) as error:
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise TrainingError(f"{checkpoint} is damaged ({what}): force=true starts this run anew") from error


def _fit(trainer: pl.Trainer, parts: Parts, last: Path | None) -> None:
    try:
        trainer.fit(parts.method, parts.data, ckpt_path=last, weights_only=True)
    except TrainingError as error:
        if not error.rows:
            raise
        places = ", ".join(parts.data.train.where(row) for row in error.rows[:3])
        raise TrainingError(f"{error} (the first: {places})", error.rows) from error


def _tell_truncation(parts: Parts) -> dict[str, int]:
    """Count the sentences that are cut, in training and in evaluation, and say once how many and by which limit."""
    longest = parts.encoder.max_length - max(len(template) for template in parts.method.templates)
    splits: tuple[Split, ...] = ("dev", "test")
    evaluated = {s for task in parts.tasks.values() for split in splits for s in task.sentences(split)}
    evaluated.update(parts.diagnostics.sentences())
    tokens = tokenise(sorted(evaluated), parts.encoder.tokenizer, parts.data.cache_dir, may_be_empty=True)
    cut = {
        "sentences_cut": parts.data.longer_than(longest),
        "evaluation_sentences_cut": int((tokens.lengths > longest).sum()),
    }
    training = f"{cut['sentences_cut']} of {parts.data.sentences} training sentences"
    evaluation = f"{cut['evaluation_sentences_cut']} of {len(evaluated)} evaluation sentences"
    length, most = f"encoder.max_length={parts.encoder.max_length}", parts.data.max_tokens
    if most is None or most >= longest:
        told = [f"{training} and {evaluation} are longer than {length}"] if any(cut.values()) else []
    else:
        told = [f"{training} are longer than data.max_tokens={most}"] if cut["sentences_cut"] else []
        told += [f"{evaluation} are longer than {length}"] if cut["evaluation_sentences_cut"] else []
    if told:
        log.warning("%s and are cut", "; ".join(told))
    return cut


def _test(
    cfg: DictConfig, parts: Parts, folder: runs.Run, trainer: pl.Trainer, best: Path
) -> tuple[dict[str, TaskResult], dict[str, dict[str, float]]]:
    """Run every task on the test split with the best checkpoint, and with the baselines."""
    device = trainer.strategy.root_device
    parts.method.load_state_dict(torch.load(best, map_location="cpu", weights_only=True)["state_dict"])
    parts.method.to(device).eval()
    with trainer.precision_plugin.forward_context():
        results = run_tasks(parts.tasks, parts.method.model, "test")
        _save_predictions(folder, results)
        baselines = {}
        for name, node in cfg.baselines.items():
            answers = built(node).to(device).eval()
            outcome = run_tasks(parts.tasks, answers, "test")
            _save_predictions(folder, outcome, prefix=f"{name}-")
            baselines[name] = {f"test/{t}/{m}": v for t, result in outcome.items() for m, v in result.metrics.items()}
    return results, baselines


def _save_predictions(folder: runs.Run, results: Mapping[str, TaskResult], prefix: str = "") -> None:
    for task, result in results.items():
        if result.predictions:  # a mean of other tasks has none
            runs.write_predictions(folder.predictions, f"{prefix}{task}", result.predictions)
