"""An evaluation from its config to its record: load a model, run the tasks one by one, write each result."""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig, OmegaConf

from lightning_cse import llm, runs
from lightning_cse.baselines import FewShot, Length
from lightning_cse.config.compose import in_sweep, parse, portable
from lightning_cse.embeddings import Embedding
from lightning_cse.engine.build import build_tasks, check_nodes, plain, resolve_automatic
from lightning_cse.engine.load import LENGTH, LLM, WITHOUT_ENCODER, LoadedModel, load_model
from lightning_cse.engine.mteb_suite import MTEBTask
from lightning_cse.errors import ConfigError, TaskError
from lightning_cse.evaluation import RTE, Average, Embedded, Task, TaskResult, summarize_tasks
from lightning_cse.progress import progress
from lightning_cse.runs.machine import device_name, device_of, peak_memory
from lightning_cse.runs.table import print_run
from lightning_cse.tokens import TokenTable

log = logging.getLogger(__name__)

SENTENCES_AT_ONCE = 1024  # between two updates of the progress bar


def run(cfg: DictConfig) -> runs.Outcome:
    """Evaluate a model and print the table; the command calls this once per point of a sweep."""
    overrides = list(map(str, HydraConfig.get().overrides.task))
    chosen = [
        one.value() for one in map(parse, overrides) if one.key_or_group == "suite"
    ]  # Hydra's choices lack lists
    choice = chosen[-1] if chosen else HydraConfig.get().runtime.choices["suite"]
    outcome = evaluate(
        cfg, "+".join(choice) if isinstance(choice, list) else str(choice), overrides
    )
    folder = runs.Run.at(Path(outcome.folder))
    print_run(folder.read(), folder.record_path)
    return outcome


def evaluate(cfg: DictConfig, suite: str, overrides: Sequence[str] = ()) -> runs.Outcome:
    """Evaluate a model on the suite in the config, unless this is done; the overrides go into the record.

    Each result is written before the next task begins, so an interrupted evaluation continues with the first missing
    task (``force=true`` starts again). Raises the same errors as `train`.
    """
    if faults := list(_mistakes(cfg, overrides)):
        raise ConfigError(faults)
    if cfg.model in WITHOUT_ENCODER:
        cfg.accelerator, cfg.precision = "cpu", "32-true"
    resolved = resolve_automatic(cfg, under="")
    check_nodes(cfg)
    model = open_model(cfg)
    tasks, averages, left_out = _tasks(cfg.suite, model)
    options = {"suite": plain(cfg.suite), "model": model.options}
    decides: dict[str, Any] = {
        "data": {name: digest for task in tasks.values() for name, digest in task.digests.items()}
        | model.data,
        "encoder": model.encoder,
        "resolved": resolved,
    }
    seed = int(model.run["seed"]) if model.run else 0
    folder = runs.Run(model.root, suite, runs.config_hash(options, **decides), seed)
    with folder.claim(
        force=cfg.force, leave_failed=in_sweep() and not cfg.retry_failed
    ) as unfinished:
        if not unfinished:
            log.info("%s is finished; force=true evaluates it again", folder.path)
            return runs.Outcome("skipped", str(folder.path))
        read = [str(key) for key in cfg if key not in ("llm", "few_shot") or cfg.model == LLM]
        folder.start(OmegaConf.to_yaml(OmegaConf.masked_copy(cfg, read), resolve=True))
        log.info("%s: %d tasks; everything is written to %s", model.name, len(tasks), folder.path)
        results = {
            name: _result(folder, name, task, model, f"{number}/{len(tasks)}")
            for number, (name, task) in enumerate(tasks.items(), start=1)
        }
        metrics = {name: result["metrics"] for name, result in results.items()}
        metrics |= {
            name: whole.metrics
            for name, whole in summarize_tasks(averages, metrics, "test").items()
        }
        given = Path(cfg.model).name if Path(cfg.model).is_absolute() else cfg.model
        accounts = {
            name: result["account"] for name, result in results.items() if "account" in result
        }
        folder.finish(
            {
                "name": model.name,
                "suite": suite,
                "config_hash": folder.config_hash,
                "seed": folder.seed,
                "model": {"given": given, "run": model.run, "prompt": cfg.prompt, **model.options},
                "metrics": {
                    f"test/{name}/{key}": v
                    for name, found in metrics.items()
                    for key, v in found.items()
                },
                "baselines": {},
                "left_out": left_out
                | {
                    name: (result["reason"],)
                    for name, result in results.items()
                    if result.get("reason")
                }
                | {n: t.parts for n, t in averages.items() if n not in metrics},
                "sentences": {name: result["sentences"] for name, result in results.items()},
                "sentences_cut": {name: result["cut"] for name, result in results.items()},
                "data": decides["data"],
                "task_data": {name: task.digests for name, task in tasks.items()},
                "encoder": model.encoder,
                "device": model.device,
                "precision": model.precision,
                "environment": runs.environment(),
                "seconds": {"evaluation": sum(result["seconds"] for result in results.values())},
                "task_seconds": {name: result["seconds"] for name, result in results.items()},
                "peak_memory_mib": peak_memory(),
                **({"account": accounts} if accounts else {}),
                "overrides": portable(overrides),
                "decisive": runs.decisive(options, **decides),
            }
        )
    return runs.Outcome("finished", str(folder.path))


def _mistakes(cfg: DictConfig, overrides: Sequence[str]) -> Iterator[str]:
    """Yield a fault for each setting that does not fit the model."""
    if OmegaConf.is_missing(cfg, "model"):
        yield "model: must be the folder of a run, an encoder of conf/encoder, a local folder, or a name on the hub"
        return
    if cfg.model in WITHOUT_ENCODER:
        for key in ("pooling", "prompt", "max_length", "whitening", "precision", "accelerator"):
            if cfg[key] not in ("auto", None, "32-true", "cpu"):
                yield f"{key}: model={cfg.model} has no encoder; leave it out"
    if cfg.max_length != "auto" and (not isinstance(cfg.max_length, int) or cfg.max_length < 1):
        yield f"max_length: must be auto or an integer >= 1, got {cfg.max_length!r}"
    if cfg.model == LLM:
        yield from llm.wrong_settings(plain(cfg.llm))
    elif cfg.llm.model or any(
        one.lstrip("+").startswith(("llm.", "few_shot.")) for one in overrides
    ):
        yield f"llm, few_shot: only model={LLM} reads them"


def _tasks(
    suite: DictConfig, model: Evaluated
) -> tuple[Mapping[str, Task | MTEBTask], dict[str, Average], dict[str, Sequence[str]]]:
    """Return the tasks of a suite that suit the model, its averages, and what each task that is left out needs."""
    if any(isinstance(node, ListConfig) for node in suite.values()):
        if "tasks" not in suite or len(suite) > 1:
            raise ConfigError(["suite: mteb is evaluated alone, without other suites"])
        if model.loaded is None:
            raise TaskError(f"the suite needs vectors, which {model.name} does not have")
        return {name: MTEBTask(name) for name in suite.tasks}, {}, {}
    every, lacking = build_tasks(suite)
    kind = type(model.model).__name__
    left_out: dict[str, Sequence[str]] = {
        n: task.needs for n, task in every.items() if not task.suits(model.model)
    }
    for name, needs in left_out.items():
        log.info(
            "the task %s is left out: it needs %s, which %s does not have",
            name,
            " and ".join(needs),
            kind,
        )
    averages = {name: task for name, task in every.items() if isinstance(task, Average)}
    others = {*left_out, *averages}
    tasks = {
        name: task for name, task in every.items() if "test" in task.splits and name not in others
    }
    if not tasks:
        raise TaskError(
            f"no task of the suite suits {model.name}: {kind} does not give what they need"
        )
    return tasks, averages, left_out | {name: (reason,) for name, reason in lacking.items()}


def _result(
    folder: runs.Run, name: str, task: Task | MTEBTask, model: Evaluated, place: str
) -> dict[str, Any]:
    """Return the metrics and costs of a task: those on disk, or new ones, written with the predictions."""
    path = folder.path / "tasks" / f"{name}.json"
    done: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not (finished := bool(done) and done.get("precision") == model.precision):
        start = time.perf_counter()
        try:
            result, costs = model.do(task, folder, f"{place} {name}")
            if result.predictions:
                runs.write_predictions(folder.predictions, name, result.predictions)
        except Exception as error:
            folder.fail(error, stage=name)
            raise
        done = {
            "metrics": result.metrics,
            "reason": result.reason,
            "precision": model.precision,
            **costs,
        }
        done["seconds"] = time.perf_counter() - start
        runs.write_atomic(path, json.dumps(done, indent=2, allow_nan=False) + "\n")
        if done["cut"]:
            log.warning(
                "%s: %d of %d sentences are too long and are cut",
                name,
                done["cut"],
                done["sentences"],
            )
    metrics = ", ".join(f"{key} {value:.4f}" for key, value in done["metrics"].items())
    log.info(
        "%s %s: %s%s", place, name, "done before, " if finished else "", metrics or done["reason"]
    )
    return done


@dataclass
class Evaluated:
    """A model under evaluation; ``options``, ``encoder`` and ``data`` determine its answers."""

    model: Any  # answers the questions that tasks ask
    name: str  # shown in tables
    root: Path  # the folder of its evaluations
    options: dict[str, Any]  # how it reads sentences
    encoder: dict[str, str]  # its name, and the sha256 of its files
    data: dict[str, str] = field(
        default_factory=dict
    )  # the sha256 of the corpus files that it reads
    run: dict[str, Any] | None = None  # name, config_hash and seed of the run that trained it
    device: str = "cpu"
    loaded: LoadedModel | None = None  # the model with its encoder, if it has one
    precision: str | None = None  # None without an encoder
    label: str = ""  # the task in the progress bar
    counts: Counter[str] = field(default_factory=Counter)

    def do(
        self, task: Task | MTEBTask, run: runs.Run, label: str
    ) -> tuple[TaskResult, dict[str, Any]]:
        """Run a task on its test split; return its result and its costs: sentences, sentences cut, an LLM's account."""
        self.label, self.counts = label, Counter(sentences=0, cut=0)
        if isinstance(task, MTEBTask):
            return task.evaluate(self, run), dict(self.counts)
        if isinstance(self.model, LanguageModel):
            self.model.label = label
            result = cast(RTE, task).judged(
                self.model, "test"
            )  # the only task that asks for ``judge``
            return result, {
                "sentences": self.model.sentences,
                "cut": 0,
                "account": self.model.llm.taken(),
            }
        embedded = Embedded(self, task.sentences("test"))
        if not embedded.embedding.is_finite:
            raise TaskError(
                f"{label}: some embeddings of {self.name} are not finite numbers in {self.precision}"
            )
        return task.evaluate(self.model, embedded, "test"), dict(self.counts)

    def embed(self, sentences: Sequence[str]) -> Embedding:
        """Embed sentences, with a progress bar on a terminal; count the sentences and those that are cut."""
        self.counts["sentences"] += len(sentences)
        kind = "cpu"
        if self.loaded is not None:
            kind = self.loaded.answers.device.type
            table = TokenTable.of(sentences, self.loaded.encoder.tokenizer)
            self.counts["cut"] += int((table.lengths > self.loaded.room).sum())
            self.model.table = table  # saves tokenising them again
        with (
            progress() as bar,
            torch.autocast(kind, torch.bfloat16, enabled=self.precision == "bf16-mixed"),
        ):
            starts = range(0, len(sentences), SENTENCES_AT_ONCE)
            shown = bar.track(starts, description=f"{self.label}: {len(sentences):,} sentences")
            return Embedding.cat(
                [self.model.embed(sentences[start : start + SENTENCES_AT_ONCE]) for start in shown]
            )


class LanguageModel(FewShot):
    """A language model at an endpoint, shown a few examples and asked about every pair."""

    def __init__(self, cfg: DictConfig) -> None:
        self.llm = llm.LLM(plain(cfg.llm), cfg.paths.cache_dir)
        self.label = ""
        self.sentences = self._pairs = 0
        shown = {
            "data_dir": cfg.paths.data_dir,
            "parameters": self.llm.parameters,
            **plain(cfg.few_shot),
        }
        super().__init__(lambda requests: self.llm.ask(requests, self.label, self._pairs), **shown)

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[str]:
        """Return the type of every hypothesis, in order; raise LLMError if replies are missing."""
        self.sentences = len({*premises, *hypotheses})
        self._pairs = self.llm.announce(self.label, self.requests(premises, hypotheses))
        return super().judge(premises, hypotheses)


def open_model(cfg: DictConfig) -> Evaluated:
    """Load the model that a config of ``evaluate`` names."""
    root = Path(cfg.paths.runs_dir).expanduser() / "evaluate"
    options: dict[str, Any] = {"pooling": None, "max_length": None}
    if cfg.model == LENGTH:
        return Evaluated(
            Length(), LENGTH, root / LENGTH, {"method": "Length", **options}, {"name": LENGTH}
        )
    if cfg.model == LLM:
        model = LanguageModel(cfg)
        name = model.llm.endpoint.model
        options |= {
            "method": "FewShot",
            "few_shot": plain(cfg.few_shot),
            "prompt_digest": model.prompt_digest,
        }
        options["llm"] = {"model": name, "parameters": dict(model.llm.parameters)}
        folder = root / "llm" / re.sub(r"[^\w-]+", "_", name)
        return Evaluated(
            model, name, folder, options, {"name": name}, model.digests, device="endpoint"
        )
    loaded = load_model(
        cfg.model, pooling=cfg.pooling, prompt=cfg.prompt, max_length=cfg.max_length
    )
    name = loaded.name
    if cfg.whitening:
        loaded = loaded.whitened(cfg.whitening, cfg.paths.data_dir)
        options["whitening"] = loaded.answers.fitted_on
        name += f", whitened on {options['whitening']}"
    device, encoder = device_of(cfg.accelerator), loaded.encoder
    loaded.answers.to(device)
    options |= {
        "method": loaded.method,
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
    }
    options["templates"] = [[template.prefix, template.suffix] for template in loaded.templates]
    return Evaluated(
        loaded.answers,
        name,
        (loaded.run / "evaluate") if loaded.run else root / loaded.name,
        options,
        {"name": encoder.name, **loaded.digests},
        run={key: loaded.record[key] for key in ("name", "config_hash", "seed")}
        if loaded.run
        else None,
        device=device_name(device),
        loaded=loaded,
        precision=cfg.precision,
    )
