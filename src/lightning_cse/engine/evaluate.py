"""An evaluation from its config to its record: load a model, run the tasks one by one, write each
result.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lightning_cse import llm, runs
from lightning_cse.baselines import FewShot, Length, Whitening
from lightning_cse.config import kept_models
from lightning_cse.config.compose import in_sweep, parse, task_overrides
from lightning_cse.engine.build import build_tasks, plain, resolve_automatic, unsuited
from lightning_cse.engine.inference import SentenceModel
from lightning_cse.engine.load import LENGTH, LLM, WITHOUT_ENCODER, load
from lightning_cse.errors import ConfigError, DataError, TaskError
from lightning_cse.evaluation import (
    RTE,
    Average,
    Embedded,
    Task,
    TaskResult,
    keyed,
    summarize_tasks,
)
from lightning_cse.runs.hashing import evaluation_key, portable
from lightning_cse.runs.machine import device_name, peak_memory
from lightning_cse.runs.table import print_run

log = logging.getLogger(__name__)

Tasks = Mapping[str, Task]


class LanguageModel(FewShot):
    """A language model at an endpoint, shown a few examples and asked about every pair."""

    def __init__(self, cfg: DictConfig) -> None:
        self.llm = llm.LLM(plain(cfg.llm), cfg.paths.cache_dir)
        self.label = ""
        self.sentences = 0
        self._pairs = 0
        super().__init__(
            lambda requests: self.llm.ask(requests, self.label, self._pairs),
            data_dir=cfg.paths.data_dir,
            parameters=self.llm.parameters,
            **plain(cfg.few_shot),
        )

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[str]:
        """Return the type of every hypothesis, in order; raise LLMError if replies are missing."""
        self.sentences = len({*premises, *hypotheses})
        self._pairs = len(premises)

        return super().judge(premises, hypotheses)


AnyModel = SentenceModel | Length | LanguageModel


@dataclass
class About:
    """What a record says about a model; ``options``, ``encoder`` and ``data`` determine its
    answers.

    ``root`` is the folder of its evaluations, ``record`` that of the run that trained it, if any.
    """

    name: str
    root: Path
    options: dict[str, Any]
    encoder: dict[str, str]
    data: dict[str, str] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    precision: str | None = None


def run(cfg: DictConfig) -> runs.Outcome:
    """Evaluate a model and print the table; the command calls this once per point of a sweep."""
    overrides = task_overrides()
    # Hydra's choices lack lists such as +suite=[sts,own].
    parsed = map(parse, overrides)
    values: dict[str, Any] = {override.key_or_group: override.value() for override in parsed}
    suite = values.get("suite") or HydraConfig.get().runtime.choices["suite"]
    outcome = evaluate(cfg, "+".join([suite] if isinstance(suite, str) else suite), overrides)
    folder = runs.Run.at(Path(outcome.folder))
    print_run(folder.read(), folder.record_path)

    return outcome


def evaluate(cfg: DictConfig, suite: str, overrides: Sequence[str] = ()) -> runs.Outcome:
    """Evaluate a model on the suite in the config, unless this is done; the overrides go into the
    record.

    Each result is written before the next task begins, so an interrupted evaluation continues with
    the first missing task (``force=true`` starts again). Raises the same errors as `train`.
    """
    requested = plain(cfg)
    resolved = _resolved(cfg, overrides)
    model = open_model(cfg)
    about = _about(cfg, model)
    tasks, averages, left_out = _plan(cfg.suite, model, about.name)
    hashed = _hashed(cfg, about, tasks, resolved)
    key = evaluation_key(requested, about.record.get("key"))
    seed = int(about.record.get("seed", 0))
    folder = runs.Run(about.root, suite, runs.config_hash(**hashed), seed)
    leave_failed = in_sweep() and not cfg.retry_failed
    with folder.claim(force=cfg.force, leave_failed=leave_failed) as unfinished:
        if not unfinished:
            log.info("%s is finished; force=true evaluates it again", folder.path)
            return runs.Outcome("skipped", str(folder.path))

        folder.start(OmegaConf.to_yaml(cfg, resolve=True), key)
        results = _results(folder, tasks, model, about)
        folder.finish(
            {
                "name": about.name,
                "suite": suite,
                "config_hash": folder.config_hash,
                "seed": seed,
                "key": key,
                **_model_entries(cfg, model, about),
                **_measured(results, averages, left_out),
                "task_data": {name: task.digests for name, task in tasks.items()},
                "data": hashed["data"],
                "environment": runs.environment(),
                "peak_memory_mib": peak_memory(),
                "overrides": portable(overrides),
                "decisive": runs.decisive(**hashed),
            }
        )

    return runs.Outcome("finished", str(folder.path))


def _hashed(
    cfg: DictConfig, about: About, tasks: Tasks, resolved: dict[str, Any]
) -> dict[str, Any]:
    """Return what decides the results, as the arguments of `runs.config_hash`."""
    data = dict(about.data)
    for task in tasks.values():
        data |= task.digests

    return {
        "config": {"suite": plain(cfg.suite), "model": about.options},
        "data": data,
        "encoder": about.encoder,
        "resolved": resolved,
    }


def _resolved(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, Any]:
    """Check a config, and replace ``auto`` in it; return the values that affect a result.

    A model without an encoder computes on the CPU, in float32.
    """
    if faults := list(_mistakes(cfg, overrides)):
        raise ConfigError(faults)

    if cfg.model in WITHOUT_ENCODER:
        cfg.accelerator = "cpu"
        cfg.precision = "32-true"

    return resolve_automatic(cfg, under="")


def _model_entries(cfg: DictConfig, model: AnyModel, about: About) -> dict[str, Any]:
    """Return the part of the record that comes from the model."""
    record = about.record
    qualified = f"{type(model).__module__}.{type(model).__qualname__}"
    entries: dict[str, Any] = {
        "model": {
            "given": Path(cfg.model).name if Path(cfg.model).is_absolute() else cfg.model,
            "run": {key: record[key] for key in ("name", "config_hash", "seed")}
            if record
            else None,
            "prompt": cfg.prompt,
            **about.options,
            "method": model.method if isinstance(model, SentenceModel) else qualified,
        },
        "encoder": about.encoder,
        "device": about.device,
        "precision": about.precision,
    }
    if record:
        entries["checkpoint"] = record["checkpoint"]

    return entries


def _results(
    folder: runs.Run, tasks: Tasks, model: AnyModel, about: About
) -> dict[str, dict[str, Any]]:
    """Return the metrics and costs of each task: those on disk, or new ones, which are written."""
    log.info("%s: %d tasks; everything is written to %s", about.name, len(tasks), folder.path)
    results = {}
    for number, (name, task) in enumerate(tasks.items(), start=1):
        label = f"{number}/{len(tasks)} {name}"
        path = folder.path / "tasks" / f"{name}.json"
        done = _measured_before(path)
        if done and done.get("precision") == about.precision:
            label += ": done before"
        else:
            done = _evaluate_task(name, task, model, folder, label)
            done["precision"] = about.precision
            runs.write_json(path, done)

        metrics = ", ".join(f"{key} {value:.4f}" for key, value in done["metrics"].items())
        log.info("%s: %s", label, metrics or done["reason"])
        results[name] = done

    return results


def _measured_before(path: Path) -> dict[str, Any]:
    """Return the result in the file of a task; empty if there is none, or if it is damaged."""
    try:
        return runs.read_result(path)
    except FileNotFoundError:
        return {}
    except DataError as error:
        log.warning("%s", error)
        return {}


def _evaluate_task(
    name: str, task: Task, model: AnyModel, folder: runs.Run, label: str
) -> dict[str, Any]:
    """Run a task on its test split, write its predictions, and return its metrics and costs."""
    start = time.perf_counter()
    try:
        result, costs = _measure(task, model, label)
        if result.predictions:
            runs.write_predictions(folder.predictions, name, result.predictions)
    except Exception as error:
        folder.fail(error, stage=name)
        raise

    if costs["cut"]:
        cut = f"{costs['cut']} of {costs['sentences']}"
        log.warning("%s: %s sentences are too long and are cut", name, cut)

    return {
        "metrics": result.metrics,
        "reason": result.reason,
        "seconds": time.perf_counter() - start,
        **costs,
    }


def _measure(task: Task, model: AnyModel, label: str) -> tuple[TaskResult, dict[str, Any]]:
    """Return the result of a task, and the sentences read or the tokens paid for it."""
    if isinstance(model, LanguageModel):
        model.label = label
        result = cast(RTE, task).judged(model, "test")  # the only task that asks for ``judge``
        return result, {"sentences": model.sentences, "cut": 0, "account": model.llm.taken()}

    answers: Any = model
    embed = model.embed
    if isinstance(model, SentenceModel):
        model.truncated = 0
        answers = model.answers
        embed = partial(model.embed, show_progress_bar=None, label=label)

    embedded = Embedded(answers, task.sentences("test"), embed)
    result = task.evaluate(embedded, "test")

    return result, {"sentences": len(embedded.embedding), "cut": getattr(model, "truncated", 0)}


def _measured(
    results: Mapping[str, dict[str, Any]],
    averages: Mapping[str, Average],
    left_out: Mapping[str, str],
) -> dict[str, Any]:
    """Return the part of the record that comes from the tasks and the averages over them."""

    def each(key: str) -> dict[str, Any]:
        return {name: result[key] for name, result in results.items() if key in result}

    metrics = each("metrics")
    averaged = summarize_tasks(averages, metrics, "test")
    metrics |= {name: average.metrics for name, average in averaged.items()}
    reasons = {name: reason for name, reason in each("reason").items() if reason}
    incomplete = {
        name: f"not all of its tasks were measured: {', '.join(average.parts)}"
        for name, average in averages.items()
        if name not in metrics
    }
    seconds = each("seconds")
    entries = {
        "metrics": keyed(metrics, "test/"),
        "baselines": {},
        "left_out": {**left_out, **reasons, **incomplete},
        "sentences": each("sentences"),
        "sentences_cut": each("cut"),
        "seconds": {"evaluation": sum(seconds.values())},
        "task_seconds": seconds,
    }
    accounts = each("account")

    return {**entries, "account": accounts} if accounts else entries


def _mistakes(cfg: DictConfig, overrides: Sequence[str]) -> Iterator[str]:
    """Yield a fault for each setting that does not fit the model."""
    if OmegaConf.is_missing(cfg, "model"):
        yield (
            "model: must be the folder of a run, a model that comes with the package "
            f"({', '.join(sorted(kept_models()))}), an encoder of conf/encoder, a local folder, "
            "or a name on the hub"
        )
        return

    if cfg.model in WITHOUT_ENCODER:
        for key in ("pooling", "prompt", "max_length", "whitening", "precision", "accelerator"):
            if cfg[key] not in ("auto", None, "32-true", "cpu"):
                yield f"{key}: model={cfg.model} has no encoder; leave it out"

    if cfg.max_length != "auto" and (not isinstance(cfg.max_length, int) or cfg.max_length < 1):
        yield f"max_length: must be auto or an integer >= 1, got {cfg.max_length!r}"

    if cfg.model == LLM:
        yield from llm.wrong_settings(plain(cfg.llm), cfg.paths.cache_dir)
    elif any(one.lstrip("+").startswith(("llm.", "few_shot.")) for one in overrides):
        yield f"llm, few_shot: only model={LLM} reads them; leave them out"


def open_model(cfg: DictConfig) -> AnyModel:
    """Load the model that a config of ``evaluate`` names."""
    if cfg.model == LENGTH:
        return Length()
    if cfg.model == LLM:
        return LanguageModel(cfg)

    reading = {key: cfg[key] for key in ("pooling", "prompt", "max_length")}
    model = load(cfg.model, cfg.accelerator, cfg.precision, **reading)
    if not cfg.whitening:
        return model

    if model.run is not None:
        fault = "is a run, which is evaluated as it was trained; leave it out"
        raise ConfigError([f"whitening: {model.name} {fault}"])

    answers = Whitening(model.encoder, sources=cfg.whitening, data_dir=cfg.paths.data_dir)
    fitted_on = hashlib.sha256("\n".join(answers.sentences).encode()).hexdigest()

    return replace(model, answers=answers, digests={**model.digests, "whitening": fitted_on})


def _about(cfg: DictConfig, model: AnyModel) -> About:
    """Return what the record says about a model.

    The method is named without its module, so that moving a class does not change the hash.
    """
    root = Path(cfg.paths.runs_dir).expanduser() / "evaluate"
    options: dict[str, Any] = {"pooling": None, "max_length": None}
    if isinstance(model, Length):
        options["method"] = "Length"
        return About(LENGTH, root / LENGTH, options, {"name": LENGTH})

    if isinstance(model, LanguageModel):
        name = model.llm.endpoint.model
        options |= {
            "method": "FewShot",
            "few_shot": plain(cfg.few_shot),
            "prompt_digest": model.prompt_digest,
            "llm": {"model": name, "parameters": dict(model.llm.parameters)},
        }
        root = root / LLM / re.sub(r"[^\w-]+", "_", name)

        return About(name, root, options, {"name": name}, model.digests, device="endpoint")

    options = {
        "method": model.method_name,
        "pooling": model.encoder.pooling,
        "max_length": model.encoder.max_length,
        "templates": [[template.prefix, template.suffix] for template in model.templates],
    }
    name = model.name
    if isinstance(model.answers, Whitening):
        options["whitening"] = model.answers.fitted_on
        name += f", whitened on {options['whitening']}"

    is_kept = model.run in kept_models().values()

    return About(
        name,
        root / model.name if model.run is None or is_kept else model.run / "evaluate",
        options,
        {"name": model.encoder.name, **model.digests},
        record=model.record,
        device=device_name(model.device),
        precision=cfg.precision,
    )


def _plan(
    suite: DictConfig, model: AnyModel, name: str
) -> tuple[Tasks, dict[str, Average], dict[str, str]]:
    """Return the tasks of a suite that suit the model, the averages over them, and why each other
    task is left out; raise TaskError if no task suits.
    """
    every, left_out = build_tasks(suite)
    answers = model.answers if isinstance(model, SentenceModel) else model
    kind = type(answers).__name__
    left_out |= unsuited(every, answers, kind)
    suited = {key: task for key, task in every.items() if key not in left_out}
    averages = {key: task for key, task in suited.items() if isinstance(task, Average)}
    tasks = {
        key: task for key, task in suited.items() if key not in averages and "test" in task.splits
    }

    if not tasks:
        raise TaskError(f"no task of the suite suits {name}: {kind} does not give what they need")

    return tasks, averages, left_out
