"""An evaluation from its config to its record: load a model, run the tasks one by one, write each
result.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig, OmegaConf

from lightning_cse import llm, runs
from lightning_cse.baselines import FewShot, Length, Whitening
from lightning_cse.config.compose import in_sweep, parse, portable
from lightning_cse.config.key import evaluation_key
from lightning_cse.engine.build import build_tasks, check_nodes, plain, resolve_automatic
from lightning_cse.engine.inference import SentenceModel
from lightning_cse.engine.load import LENGTH, LLM, WITHOUT_ENCODER, load
from lightning_cse.engine.mteb_suite import MTEBTask
from lightning_cse.errors import ConfigError, TaskError
from lightning_cse.evaluation import RTE, Average, Embedded, Task, TaskResult, summarize_tasks
from lightning_cse.runs.machine import device_name, peak_memory
from lightning_cse.runs.table import print_run

log = logging.getLogger(__name__)

Tasks = Mapping[str, Task | MTEBTask]


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

    def judge(
        self,
        premises: Sequence[str],
        hypotheses: Sequence[str],
    ) -> list[str]:
        """Return the type of every hypothesis, in order; raise LLMError if replies are missing."""
        self.sentences = len({*premises, *hypotheses})
        self._pairs = len(premises)
        return super().judge(premises, hypotheses)


AnyModel = SentenceModel | Length | LanguageModel


@dataclass(frozen=True)
class About:
    """What a record says about a model; ``options``, ``encoder`` and ``data`` determine its
    answers.

    ``root`` is the folder of its evaluations, ``run`` names the run that trained it, ``training``
    is the key of that run, and ``checkpoint`` is the sha256 of its weights.
    """

    name: str
    method: str
    root: Path
    options: dict[str, Any]
    encoder: dict[str, str]
    data: dict[str, str] = field(default_factory=dict)
    run: dict[str, Any] | None = None
    training: str | None = None
    checkpoint: str | None = None
    device: str = "cpu"
    precision: str | None = None


@dataclass(frozen=True)
class Plan:
    """The tasks of a suite that suit a model, the averages over them, and what each task that is
    left out needs.
    """

    tasks: Tasks
    averages: dict[str, Average] = field(default_factory=dict)
    left_out: dict[str, Sequence[str]] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that the tasks read."""
        return {name: sha for task in self.tasks.values() for name, sha in task.digests.items()}


def run(cfg: DictConfig) -> runs.Outcome:
    """Evaluate a model and print the table; the command calls this once per point of a sweep."""
    overrides = [str(override) for override in HydraConfig.get().overrides.task]
    # Hydra's choices lack lists such as +suite=[sts,own].
    chosen = [one.value() for one in map(parse, overrides) if one.key_or_group == "suite"]
    suite = chosen[-1] if chosen else HydraConfig.get().runtime.choices["suite"]
    name = "+".join(suite) if isinstance(suite, list) else str(suite)
    outcome = evaluate(cfg, name, overrides)
    folder = runs.Run.at(Path(outcome.folder))
    print_run(folder.read(), folder.record_path)
    return outcome


def evaluate(
    cfg: DictConfig,
    suite: str,
    overrides: Sequence[str] = (),
) -> runs.Outcome:
    """Evaluate a model on the suite in the config, unless this is done; the overrides go into the
    record.

    Each result is written before the next task begins, so an interrupted evaluation continues with
    the first missing task (``force=true`` starts again). Raises the same errors as `train`.
    """
    if faults := list(_mistakes(cfg, overrides)):
        raise ConfigError(faults)
    requested = plain(cfg)
    _without_encoder(cfg)
    resolved = resolve_automatic(cfg, under="")
    check_nodes(cfg)
    model = open_model(cfg)
    about = _about(cfg, model)
    plan = _plan(cfg.suite, model, about.name)
    options = {"suite": plain(cfg.suite), "model": about.options}
    decides: dict[str, Any] = {
        "data": plan.digests | about.data,
        "encoder": about.encoder,
        "resolved": resolved,
    }
    seed = int(about.run["seed"]) if about.run else 0
    key = evaluation_key(requested, about.training)
    folder = runs.Run(
        about.root,
        suite,
        runs.config_hash(options, **decides),
        seed,
    )
    leave_failed = in_sweep() and not cfg.retry_failed
    with folder.claim(
        force=cfg.force,
        leave_failed=leave_failed,
    ) as unfinished:
        if not unfinished:
            log.info("%s is finished; force=true evaluates it again", folder.path)
            return runs.Outcome("skipped", str(folder.path))
        folder.start(_yaml(cfg), key)
        results = _results(
            folder,
            plan.tasks,
            model,
            about,
        )
        identity = _identity(folder, about.name, suite, key)
        record = {
            **identity,
            **_model_entries(cfg, about),
            **_measured(plan, results),
            "data": decides["data"],
            "environment": runs.environment(),
            "peak_memory_mib": peak_memory(),
            "overrides": portable(overrides),
            "decisive": runs.decisive(options, **decides),
        }
        folder.finish(record)
    return runs.Outcome("finished", str(folder.path))


def _without_encoder(cfg: DictConfig) -> None:
    """Compute a model without an encoder on the CPU, in float32."""
    if cfg.model in WITHOUT_ENCODER:
        cfg.accelerator = "cpu"
        cfg.precision = "32-true"


def _identity(
    folder: runs.Run,
    name: str,
    suite: str,
    key: str,
) -> dict[str, Any]:
    """Return the part of the record by which an evaluation is found."""
    return {
        "name": name,
        "suite": suite,
        "config_hash": folder.config_hash,
        "seed": folder.seed,
        "key": key,
    }


def _yaml(cfg: DictConfig) -> str:
    """Return the resolved config as YAML, without the settings of language models if another model
    is evaluated.
    """
    unread = set() if cfg.model == LLM else {"llm", "few_shot"}
    read = [str(key) for key in cfg if key not in unread]
    return OmegaConf.to_yaml(OmegaConf.masked_copy(cfg, read), resolve=True)


def _model_entries(cfg: DictConfig, about: About) -> dict[str, Any]:
    """Return the part of the record that comes from the model."""
    given = Path(cfg.model).name if Path(cfg.model).is_absolute() else cfg.model
    model = {
        "given": given,
        "run": about.run,
        "prompt": cfg.prompt,
    }
    entries: dict[str, Any] = {
        "model": {
            **model,
            **about.options,
            "method": about.method,
        },
        "encoder": about.encoder,
        "device": about.device,
        "precision": about.precision,
    }
    if about.checkpoint is not None:
        entries["checkpoint"] = {"sha256": about.checkpoint}
    return entries


def _results(
    folder: runs.Run,
    tasks: Tasks,
    model: AnyModel,
    about: About,
) -> dict[str, dict[str, Any]]:
    """Return the metrics and costs of each task: those on disk, or new ones, which are written."""
    log.info(
        "%s: %d tasks; everything is written to %s",
        about.name,
        len(tasks),
        folder.path,
    )
    results = {}
    for number, (name, task) in enumerate(tasks.items(), start=1):
        label = f"{number}/{len(tasks)} {name}"
        path = folder.path / "tasks" / f"{name}.json"
        done = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if done and done.get("precision") == about.precision:
            log.info("%s: done before", label)
        else:
            done = _evaluate_task(
                name,
                task,
                model,
                folder,
                label,
            )
            done["precision"] = about.precision
            runs.write_atomic(path, json.dumps(done, indent=2, allow_nan=False) + "\n")
        metrics = ", ".join(f"{key} {value:.4f}" for key, value in done["metrics"].items())
        log.info(
            "%s: %s",
            label,
            metrics or done["reason"],
        )
        results[name] = done
    return results


def _evaluate_task(
    name: str,
    task: Task | MTEBTask,
    model: AnyModel,
    folder: runs.Run,
    label: str,
) -> dict[str, Any]:
    """Run a task on its test split, write its predictions, and return its metrics and costs."""
    start = time.perf_counter()
    costs: dict[str, Any] = {"sentences": 0, "cut": 0}
    try:
        if isinstance(model, LanguageModel):
            model.label = label
            result = cast(RTE, task).judged(model, "test")  # the only task that asks for ``judge``
            costs = {
                "sentences": model.sentences,
                "cut": 0,
                "account": model.llm.taken(),
            }
        elif isinstance(model, Length):
            result, costs["sentences"] = _asked(cast(Task, task), model, model)
        else:
            model.embedded = model.truncated = 0
            if isinstance(task, MTEBTask):
                result = task.evaluate(model, folder)
            else:
                embed = partial(
                    model.embed,
                    show_progress=None,
                    label=label,
                )
                result, _ = _asked(
                    task,
                    model.answers,
                    SimpleNamespace(embed=embed),
                )
            costs = {"sentences": model.embedded, "cut": model.truncated}
        if result.predictions:
            runs.write_predictions(
                folder.predictions,
                name,
                result.predictions,
            )
    except Exception as error:
        folder.fail(error, stage=name)
        raise
    if costs["cut"]:
        log.warning(
            "%s: %d of %d sentences are too long and are cut",
            name,
            costs["cut"],
            costs["sentences"],
        )
    seconds = time.perf_counter() - start
    return {
        "metrics": result.metrics,
        "reason": result.reason,
        "seconds": seconds,
        **costs,
    }


def _asked(
    task: Task,
    answers: Any,
    embedder: Any,
) -> tuple[TaskResult, int]:
    embedded = Embedded(embedder, task.sentences("test"))
    return task.evaluate(answers, embedded, "test"), len(embedded.embedding)


def _measured(plan: Plan, results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the part of the record that comes from the tasks."""

    def each(key: str) -> dict[str, Any]:
        return {name: result[key] for name, result in results.items() if key in result}

    metrics = each("metrics")
    averages = summarize_tasks(plan.averages, metrics, "test")
    metrics |= {name: average.metrics for name, average in averages.items()}
    left_out = dict(plan.left_out)
    left_out |= {name: (reason,) for name, reason in each("reason").items() if reason}
    for name, average in plan.averages.items():
        if name not in metrics:
            left_out[name] = average.parts
    flat: dict[str, float] = {}
    for name, values in metrics.items():
        flat |= {f"test/{name}/{key}": value for key, value in values.items()}
    seconds = each("seconds")
    entries = {
        "metrics": flat,
        "baselines": {},
        "left_out": left_out,
        "sentences": each("sentences"),
        "sentences_cut": each("cut"),
        "task_data": {name: task.digests for name, task in plan.tasks.items()},
        "seconds": {"evaluation": sum(seconds.values())},
        "task_seconds": seconds,
    }
    accounts = each("account")
    return {**entries, "account": accounts} if accounts else entries


def _mistakes(cfg: DictConfig, overrides: Sequence[str]) -> Iterator[str]:
    """Yield a fault for each setting that does not fit the model."""
    if OmegaConf.is_missing(cfg, "model"):
        yield (
            "model: must be the folder of a run, an encoder of conf/encoder, a local folder, "
            "or a name on the hub"
        )
        return
    if cfg.model in WITHOUT_ENCODER:
        for key in (
            "pooling",
            "prompt",
            "max_length",
            "whitening",
            "precision",
            "accelerator",
        ):
            if cfg[key] not in (
                "auto",
                None,
                "32-true",
                "cpu",
            ):
                yield f"{key}: model={cfg.model} has no encoder; leave it out"
    if cfg.max_length != "auto" and (not isinstance(cfg.max_length, int) or cfg.max_length < 1):
        yield f"max_length: must be auto or an integer >= 1, got {cfg.max_length!r}"
    if cfg.model == LLM:
        yield from llm.wrong_settings(plain(cfg.llm), cfg.paths.cache_dir)
        return
    names = [override.lstrip("+") for override in overrides]
    if cfg.llm.model or any(name.startswith(("llm.", "few_shot.")) for name in names):
        yield f"llm, few_shot: only model={LLM} reads them"


def open_model(cfg: DictConfig) -> AnyModel:
    """Load the model that a config of ``evaluate`` names."""
    if cfg.model == LENGTH:
        return Length()
    if cfg.model == LLM:
        return LanguageModel(cfg)
    model = load(
        cfg.model,
        cfg.accelerator,
        cfg.precision,
        pooling=cfg.pooling,
        prompt=cfg.prompt,
        max_length=cfg.max_length,
    )
    if not cfg.whitening:
        return model
    if model.run is not None:
        raise ConfigError(
            [
                f"whitening: {model.name} is a run, which is evaluated as it was trained; leave it out"
            ]
        )
    answers = Whitening(
        model.encoder,
        sources=cfg.whitening,
        data_dir=cfg.paths.data_dir,
    )
    fitted_on = hashlib.sha256("\n".join(answers.sentences).encode()).hexdigest()
    return replace(
        model,
        answers=answers,
        digests={**model.digests, "whitening": fitted_on},
    )


def _about(cfg: DictConfig, model: AnyModel) -> About:
    root = Path(cfg.paths.runs_dir).expanduser() / "evaluate"
    options: dict[str, Any] = {"pooling": None, "max_length": None}
    if isinstance(model, SentenceModel):
        return _about_encoder(model, root, cfg.precision)
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    if isinstance(model, Length):
        options["method"] = "Length"
        return About(
            LENGTH,
            kind,
            root / LENGTH,
            options,
            {"name": LENGTH},
        )
    name = model.llm.endpoint.model
    options |= {
        "method": "FewShot",
        "few_shot": plain(cfg.few_shot),
        "prompt_digest": model.prompt_digest,
        "llm": {"model": name, "parameters": dict(model.llm.parameters)},
    }
    folder = root / "llm" / re.sub(r"[^\w-]+", "_", name)
    return About(
        name,
        kind,
        folder,
        options,
        {"name": name},
        model.digests,
        device="endpoint",
    )


def _about_encoder(
    model: SentenceModel,
    root: Path,
    precision: str,
) -> About:
    options: dict[str, Any] = {
        # Without its module, so that moving a class does not change the hash.
        "method": model.method_name,
        "pooling": model.encoder.pooling,
        "max_length": model.encoder.max_length,
        "templates": [[template.prefix, template.suffix] for template in model.templates],
    }
    about = About(
        model.name,
        model.method,
        root / model.name,
        options,
        {"name": model.encoder.name, **model.digests},
        device=device_name(model.device),
        precision=precision,
    )
    if isinstance(model.answers, Whitening):
        options["whitening"] = model.answers.fitted_on
        return replace(about, name=f"{model.name}, whitened on {options['whitening']}")
    if model.run is None:
        return about
    run = {key: model.record[key] for key in ("name", "config_hash", "seed")}
    checkpoint = model.digests["weights"]
    return replace(
        about,
        root=model.run / "evaluate",
        run=run,
        training=model.record.get("key"),
        checkpoint=checkpoint,
    )


def _plan(
    suite: DictConfig,
    model: AnyModel,
    name: str,
) -> Plan:
    """Return the tasks of a suite that suit the model; raise TaskError if none does."""
    if any(isinstance(node, ListConfig) for node in suite.values()):
        if "tasks" not in suite or len(suite) > 1:
            raise ConfigError(["suite: mteb is evaluated alone, without other suites"])
        if not isinstance(model, SentenceModel):
            raise TaskError(f"the suite needs vectors, which {name} does not have")
        return Plan({task: MTEBTask(task) for task in suite.tasks})
    every, lacking = build_tasks(suite)
    answers = model.answers if isinstance(model, SentenceModel) else model
    kind = type(answers).__name__
    tasks: dict[str, Task | MTEBTask] = {}
    averages: dict[str, Average] = {}
    left_out: dict[str, Sequence[str]] = {}
    for key, task in every.items():
        if not task.suits(answers):
            left_out[key] = task.needs
            needs = " and ".join(task.needs)
            log.info(
                "the task %s is left out: it needs %s, which %s does not have",
                key,
                needs,
                kind,
            )
        elif isinstance(task, Average):
            averages[key] = task
        elif "test" in task.splits:
            tasks[key] = task
    if not tasks:
        raise TaskError(f"no task of the suite suits {name}: {kind} does not give what they need")
    left_out |= {key: (reason,) for key, reason in lacking.items()}
    return Plan(tasks, averages, left_out)
