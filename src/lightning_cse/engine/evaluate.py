"""An evaluation from its config to its record: load a model, run the tasks one by one, write each
result.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lightning_cse import runs
from lightning_cse.config.compose import in_sweep, parse, task_overrides
from lightning_cse.engine.automatic import machine_values
from lightning_cse.engine.build import build_tasks, plain, unsuited
from lightning_cse.engine.load import WITHOUT_ENCODER
from lightning_cse.engine.subjects import Subject, open_subject, setting_faults
from lightning_cse.errors import ConfigError, DataError, TaskError
from lightning_cse.evaluation import Average, Task, keyed, summarize_tasks
from lightning_cse.runs.keys import evaluation_key
from lightning_cse.runs.machine import peak_memory
from lightning_cse.runs.redaction import portable
from lightning_cse.runs.table import print_run

log = logging.getLogger(__name__)

Tasks = Mapping[str, Task]


def run(cfg: DictConfig) -> runs.Outcome:
    """Evaluate a model and print the table; the command calls this once per point of a sweep."""
    overrides = task_overrides()
    # Hydra's choices lack lists such as +suite=[sts,own].
    parsed = map(parse, overrides)
    values: dict[str, Any] = {override.key_or_group: override.value() for override in parsed}
    suite = values.get("suite") or HydraConfig.get().runtime.choices.get("suite") or []
    names = [suite] if isinstance(suite, str) else [*suite]
    if "own" not in names and any("own" in task for task in cfg.suite.values()):
        names.append("own")

    outcome = evaluate(cfg, "+".join(names), overrides)
    folder = runs.Run.at(Path(outcome.folder))
    print_run(folder.read(), folder.record_path)

    return outcome


def evaluate(cfg: DictConfig, suite: str, overrides: Sequence[str] = ()) -> runs.Outcome:
    """Evaluate a model on the suite in the config, unless this is done; the overrides go into the
    record.

    Each result is written before the next task begins, so an interrupted evaluation continues with
    the first missing task (``force=true`` starts again). Raises the same errors as `train`.
    """
    if faults := list(setting_faults(cfg, overrides)):
        raise ConfigError(faults)

    requested = plain(cfg)
    cfg = copy.deepcopy(cfg)
    if cfg.model in WITHOUT_ENCODER:
        cfg.accelerator, cfg.precision = "cpu", "32-true"

    cfg.update(machine_values(cfg))
    subject = open_subject(cfg)
    tasks, averages, left_out = _plan(cfg.suite, subject)
    data = dict(subject.data)
    for task in tasks.values():
        data |= task.digests

    settings = {"suite": plain(cfg.suite), "model": subject.options, "accelerator": cfg.accelerator}
    decisive = runs.decisive(settings, data=data, encoder=subject.encoder)
    key = evaluation_key(requested, subject.record.get("key"))
    seed = int(subject.record.get("seed", 0))
    folder = runs.Run(subject.root, suite, runs.config_hash(decisive), seed)
    leave_failed = in_sweep() and not cfg.retry_failed
    with folder.claim(force=cfg.force, leave_failed=leave_failed) as unfinished:
        if not unfinished:
            log.info("%s is finished; force=true evaluates it again", folder.path)
            return runs.Outcome("skipped", str(folder.path))

        folder.start(OmegaConf.to_yaml(cfg, resolve=True), key)
        log.info("%s: %d tasks; everything is written to %s", subject.name, len(tasks), folder.path)
        results: dict[str, dict[str, Any]] = {}
        for number, (name, task) in enumerate(tasks.items(), start=1):
            results[name] = _result(name, task, subject, folder, f"{number}/{len(tasks)} {name}")

        folder.finish(
            {
                "name": subject.name,
                "suite": suite,
                "config_hash": folder.config_hash,
                "seed": seed,
                "key": key,
                **_of_model(cfg, subject),
                **_of_tasks(results, averages, left_out),
                "task_data": {name: task.digests for name, task in tasks.items()},
                "data": data,
                "environment": runs.environment(),
                "peak_memory_mib": peak_memory(),
                "overrides": portable(overrides),
                "decisive": decisive,
            }
        )

    return runs.Outcome("finished", str(folder.path))


def _result(
    name: str, task: Task, subject: Subject, folder: runs.Run, label: str
) -> dict[str, Any]:
    """Return the metrics and costs of a task: those on disk, or new ones, which are written."""
    path = folder.path / "tasks" / f"{name}.json"
    result = _measured_before(path)
    if result and result.get("precision") == subject.precision:
        label += ": done before"
    else:
        start = time.perf_counter()
        try:
            measured, costs = subject.measure(task, label)
            if measured.predictions:
                runs.write_predictions(folder.predictions, name, measured.predictions)
        except Exception as error:
            folder.fail(error, stage=name)
            raise

        if costs["cut"]:
            cut = f"{costs['cut']} of {costs['sentences']}"
            log.warning("%s: %s sentences are too long and are cut: max_length=NUMBER", name, cut)

        result = {
            "metrics": measured.metrics,
            "reason": measured.reason,
            "seconds": time.perf_counter() - start,
            **costs,
            "precision": subject.precision,
        }
        runs.write_json(path, result)

    metrics = ", ".join(f"{key} {value:.4f}" for key, value in result["metrics"].items())
    log.info("%s: %s", label, metrics or result["reason"])

    return result


def _measured_before(path: Path) -> dict[str, Any]:
    """Return the result in the file of a task; empty if there is none, or if it is damaged."""
    try:
        return runs.read_result(path)
    except FileNotFoundError:
        return {}
    except DataError as error:
        log.warning("%s", error)
        return {}


def _of_model(cfg: DictConfig, subject: Subject) -> dict[str, Any]:
    """Return the part of the record that comes from the model."""
    record = subject.record
    run = {key: record[key] for key in ("name", "config_hash", "seed")} if record else None

    return {
        "model": {
            "given": Path(cfg.model).name if Path(cfg.model).is_absolute() else cfg.model,
            "run": run,
            "prompt": cfg.prompt,
            **subject.options,
            "method": subject.method,
        },
        "encoder": subject.encoder,
        "device": subject.device,
        "precision": subject.precision,
        **({"checkpoint": record["checkpoint"]} if record else {}),
    }


def _of_tasks(
    results: Mapping[str, dict[str, Any]],
    averages: Mapping[str, Average],
    left_out: Mapping[str, str],
) -> dict[str, Any]:
    """Return the part of the record that comes from the tasks and the averages over them."""
    entries: dict[str, dict[str, Any]] = {}
    for name, result in results.items():
        for key, value in result.items():
            entries.setdefault(key, {})[name] = value

    averaged = summarize_tasks(averages, entries["metrics"], "test")
    metrics = entries["metrics"] | {name: result.metrics for name, result in averaged.items()}
    reasons = {name: reason for name, reason in entries["reason"].items() if reason}
    for name, average in averages.items():
        if name not in metrics:
            reasons[name] = f"not all of its tasks were measured: {', '.join(average.parts)}"

    return {
        "metrics": keyed(metrics, "test/"),
        "baselines": {},
        "left_out": {**left_out, **reasons},
        "sentences": entries["sentences"],
        "sentences_cut": entries["cut"],
        "seconds": {"evaluation": sum(entries["seconds"].values())},
        "task_seconds": entries["seconds"],
        **({"account": entries["account"]} if "account" in entries else {}),
    }


def _plan(suite: DictConfig, subject: Subject) -> tuple[Tasks, dict[str, Average], dict[str, str]]:
    """Return the tasks of a suite that suit the model, the averages over them, and why each other
    task is left out; raise TaskError if no task suits.
    """
    every, left_out = build_tasks(suite)
    model = type(subject.answers).__name__
    left_out |= unsuited(every, subject.answers, model)
    suited = {key: task for key, task in every.items() if key not in left_out}
    averages = {key: task for key, task in suited.items() if isinstance(task, Average)}
    tasks = {
        key: task for key, task in suited.items() if key not in averages and "test" in task.splits
    }

    if not tasks:
        fault = f"{model} does not give what they need"
        raise TaskError(f"no task of the suite suits {subject.name}: {fault}")

    return tasks, averages, left_out
