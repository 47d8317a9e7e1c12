"""An evaluation from its config to its record: load a model, run the tasks one by one, write what each of them gave."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lightning_cse import records
from lightning_cse.baselines import Whitening
from lightning_cse.config import outcomes
from lightning_cse.config.causes import user_error
from lightning_cse.config.check import check_evaluation, resolve_automatic
from lightning_cse.embeddings import Embedding
from lightning_cse.encoders.pooling import POOLINGS
from lightning_cse.errors import TaskError, did_you_mean
from lightning_cse.evaluation import Embedded, Summary, Task, check_parts, summarize_tasks
from lightning_cse.reproduction.tables import print_run
from lightning_cse.running.building import build_tasks, plain
from lightning_cse.running.loading import LoadedModel, load_model
from lightning_cse.running.machine import device_name, device_of, peak_memory
from lightning_cse.running.mteb_suite import MTEBTask

log = logging.getLogger(__name__)

SENTENCES_AT_ONCE = 1024
"""Sentences embedded between two movements of the progress bar."""


def run(cfg: DictConfig) -> None:
    """Evaluate what the command line asks for, and print the table."""
    choice = HydraConfig.get().runtime.choices["suite"]
    suite = choice if isinstance(choice, str) else "+".join(choice)
    folder = evaluate(cfg, suite, list(HydraConfig.get().overrides.task))
    print_run(folder.read(), folder.record_path)


def evaluate(cfg: DictConfig, suite: str, overrides: Sequence[str] = ()) -> EvaluationFolder:
    """Evaluate a model on a suite, unless its record is there, and return the evaluation's folder.

    Tasks are done one at a time, and what a task gave is on the disk before the next begins: an evaluation that was
    stopped goes on with the first task that is missing (``force=true`` starts anew). In a multirun, one that failed is
    left alone unless ``retry_failed=true``. Meanwhile this process holds the folder's lock.

    Args:
        cfg: the config of ``evaluate``, with a suite in it.
        suite: the suite's name.
        overrides: the command line, for the record.

    Raises:
        Busy: if another process is at this very evaluation.
        FailedBeforeError: in a multirun, if it failed before and is not to be tried again.
        LightningCSEError: for whatever is the user's to mend; once there is a folder, its ``failed.json`` tells the
            same.
    """
    resolved = resolve_automatic(cfg, under="")
    check_evaluation(cfg, _wrong_model(cfg))
    model = load_model(cfg.model, pooling=cfg.pooling, prompt=cfg.prompt, max_length=cfg.max_length)
    if cfg.whitening:
        model = model.whitened(cfg.whitening, cfg.paths.data_dir)
    model.to(device_of(cfg.accelerator))
    session = _Session(model, cfg.precision, cfg.accelerator)
    tasks, summaries, left_out = _build(cfg.suite, model)
    decisive: dict[str, Any] = {
        "data": {name: digest for task in tasks.values() for name, digest in task.digests.items()},
        "encoder": {"name": model.encoder.name, **model.digests},
        "resolved": resolved,
    }
    options = {"suite": plain(cfg.suite), "model": session.options()}
    identity = records.identity(options, **decisive)
    folder = _folder(cfg, model, suite, identity)
    outcomes.tell(folder.path)
    if _finished(cfg, folder):
        return folder
    with folder.lock() as lock:
        if _finished(cfg, folder):  # by somebody who held the lock until now
            return folder
        outcomes.leave_failed(cfg, folder)
        if cfg.force:
            folder.clear()
        folder.start(OmegaConf.to_yaml(cfg, resolve=True))
        log.info("%s: %d tasks, %s, %s; everything goes to %s", model.name, len(tasks), *resolved.values(), folder.path)
        results = _run_all(folder, tasks, session, lock)
        metrics = {name: result.metrics for name, result in results.items()}
        metrics |= {name: whole.metrics for name, whole in summarize_tasks(summaries, metrics, "test").items()}
        left_out |= _without_parts(summaries, metrics)
        run_of = {key: model.record[key] for key in ("name", "identity", "seed")} if model.run else None
        lock.check()
        folder.finish(
            {
                "name": model.name,
                "suite": suite,
                "identity": identity,
                "seed": folder.seed,
                "model": {"given": cfg.model, "run": run_of, "prompt": cfg.prompt, **session.options()},
                "metrics": {
                    f"test/{name}/{metric}": v for name, found in metrics.items() for metric, v in found.items()
                },
                "baselines": {},
                "left_out": left_out,
                "sentences": {name: result.sentences for name, result in results.items()},
                "sentences_cut": {name: result.cut for name, result in results.items()},
                "data": decisive["data"],
                "task_data": {name: task.digests for name, task in tasks.items()},
                "encoder": decisive["encoder"],
                "device": session.device_name,
                "precision": cfg.precision,
                "environment": records.environment(),
                "seconds": {"evaluation": sum(result.seconds for result in results.values())},
                "task_seconds": {name: result.seconds for name, result in results.items()},
                "peak_memory_mib": peak_memory(),
                "overrides": list(overrides),
                "identity_document": records.identity_document(options, **decisive),
            }
        )
    return folder


def _finished(cfg: DictConfig, folder: EvaluationFolder) -> bool:
    if cfg.force or folder.state != "finished":
        return False
    log.info("%s is finished; force=true evaluates it again", folder.path)
    outcomes.tell(folder.path, skipped=True)
    return True


def _wrong_model(cfg: DictConfig) -> Iterator[str]:
    """Yield what cannot be a model, or the way it is to be read."""
    if OmegaConf.is_missing(cfg, "model") or not isinstance(cfg.model, str) or not cfg.model.strip():
        yield "model: give the folder of a run, an encoder of conf/encoder, a local folder, or a name on the hub"
    poolings = ("auto", *POOLINGS)
    if cfg.pooling not in poolings:
        near = did_you_mean(str(cfg.pooling), poolings)
        yield f"pooling: {cfg.pooling!r} is not one of {', '.join(poolings)}{near}"
    if cfg.prompt is not None:
        if not isinstance(cfg.prompt, str) or cfg.prompt.count("{}") != 1 or cfg.prompt.count("{mask}") != 1:
            yield f"prompt: {cfg.prompt!r} does not have {{}} (the sentence) and {{mask}} once each"
        if cfg.pooling not in ("auto", "prompt"):
            yield f"prompt: pooling={cfg.pooling} reads no prompt; leave it out, or set pooling=prompt"
    if cfg.max_length != "auto" and (not isinstance(cfg.max_length, int) or cfg.max_length < 1):
        yield f"max_length: {cfg.max_length!r} is neither auto nor a whole number of at least 1"


# ------------------------------------------------------------------------------------------------------- the folder


class EvaluationFolder(records.RunFolder):
    """The folder of one evaluation: ``<root>/<suite>-<identity>/``, with a file for each finished task in ``tasks/``.

    Args:
        root: the folder of all evaluations of a model.
        suite: the suite's name.
        identity: what `records.identity` returned.
        seed: the run's seed; 0 for a model that has none.

    Raises:
        ValueError: if ``suite`` or ``identity`` would lead out of ``root``.
    """

    def __init__(self, root: Path, suite: str, identity: str, seed: int) -> None:
        super().__init__(root, suite, identity, seed)
        self.path = self.root / f"{suite}-{identity}"

    def outcome(self, task: str) -> Path:
        """The file of a task's outcome, there only when the task is finished."""
        return self.path / "tasks" / f"{task}.json"


def _folder(cfg: DictConfig, model: LoadedModel, suite: str, identity: str) -> EvaluationFolder:
    if model.run is not None:
        return EvaluationFolder(model.run / "evaluate", suite, identity, int(model.record["seed"]))
    parts = [part for part in model.name.replace("\\", "/").split("/") if part not in ("", ".", "..", "~")]
    root = Path(cfg.paths.runs_dir).expanduser() / "evaluate"
    return EvaluationFolder(root.joinpath(*parts), suite, identity, 0)


# -------------------------------------------------------------------------------------------------------- the tasks


Step = Task | MTEBTask


def _build(
    suite: DictConfig, model: LoadedModel
) -> tuple[dict[str, Step], dict[str, Task], dict[str, tuple[str, ...]]]:
    """Build a suite: the tasks that the model can answer, the suite as a whole, and what the tasks left out need."""
    if any(isinstance(node, ListConfig) for node in suite.values()):
        return {name: MTEBTask(name) for name in suite.tasks}, {}, {}
    suite_tasks = {name: task for name, task in build_tasks(suite).items() if "test" in task.splits}
    check_parts(suite_tasks)
    kind = type(model.answers).__name__
    left_out = {name: task.needs for name, task in suite_tasks.items() if not task.suits(model.answers)}
    for name, needs in left_out.items():
        log.info("the task %s is left out: it needs %s, which %s does not give", name, " and ".join(needs), kind)
    tasks: dict[str, Step] = {
        name: task for name, task in suite_tasks.items() if name not in left_out and not isinstance(task, Summary)
    }
    if not tasks:
        raise TaskError(f"no task of the suite suits {model.name}: {kind} does not answer what they ask")
    return tasks, suite_tasks, left_out


def _without_parts(tasks: Mapping[str, Task], metrics: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Name the summaries that are not among the results, with the parts they need."""
    missing = {name: t.parts for name, t in tasks.items() if isinstance(t, Summary) and name not in metrics}
    for name, parts in missing.items():
        log.info("%s is left out: not all of its parts are there (%s)", name, ", ".join(parts))
    return missing


@dataclass(frozen=True)
class _Outcome:
    """What is kept of a finished task beside its predictions."""

    metrics: dict[str, float]
    sentences: int
    cut: int
    seconds: float


def _once(folder: EvaluationFolder, name: str, task: Step, session: _Session, place: str) -> _Outcome:
    """Return the outcome of a task: the one on the disk, or else a new one, which is then put there."""
    path = folder.outcome(name)
    if path.is_file():
        try:
            outcome = _Outcome(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise TaskError(f"{path} is damaged ({error}): remove it, and the task is done again") from error
        log.info("%s %s: done before, %s", place, name, _told(outcome.metrics))
        return outcome
    start = time.perf_counter()
    session.now = f"{place} {name}"
    if isinstance(task, MTEBTask):
        width, room = session.model.encoder.width, session.model.room
        cache = folder.path / "mteb"
        result = task.evaluate(session, session.model.name, folder.identity, cache, width=width, room=room)
    else:
        sentences = task.sentences("test")
        embedded = Embedded(session, sentences)
        if not embedded.is_finite:
            raise TaskError(
                f"the task {name}: some embeddings of {session.model.name} are not finite numbers"
                + (": use precision=32-true" if session.precision != "32-true" else "")
            )
        result = task.evaluate(session.model.answers, embedded, "test")
    if result.predictions:
        records.write_predictions(folder.predictions, name, result.predictions)
    count, cut = session.account()
    outcome = _Outcome(dict(result.metrics), count, cut, time.perf_counter() - start)
    records.write_atomic(path, json.dumps(asdict(outcome), indent=2, allow_nan=False) + "\n")
    if cut:
        longest = session.model.room
        log.warning("%s: %d of %d sentences are longer than %d word pieces and are cut", name, cut, count, longest)
    log.info("%s %s: %s (%.1f s)", place, name, _told(result.metrics), outcome.seconds)
    return outcome


def _run_all(
    folder: EvaluationFolder, tasks: Mapping[str, Step], session: _Session, lock: records.Lock
) -> dict[str, _Outcome]:
    results = {}
    for number, (name, task) in enumerate(tasks.items(), start=1):
        lock.check()
        try:
            results[name] = _once(folder, name, task, session, f"{number}/{len(tasks)}")
        except Exception as error:
            folder.fail(user_error(error) or error, stage=name)
            raise
    return results


def _told(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


# -------------------------------------------------------------------------------------------------------- the model


class _Session:
    """A model at work: embeds in the precision asked for, shows how far it is, and counts what it has read."""

    def __init__(self, model: LoadedModel, precision: str, accelerator: str) -> None:
        self.model = model
        self.precision = precision
        self.device = device_of(accelerator)
        self.now = ""
        self._count = self._cut = 0

    @property
    def device_name(self) -> str:
        """What the embeddings are computed on."""
        return device_name(self.device)

    def options(self) -> dict[str, Any]:
        """Return how the model is read: part of what decides a result."""
        encoder, answers = self.model.encoder, self.model.answers
        return {
            "method": type(answers).__name__,
            "pooling": encoder.pooling,
            "templates": [[template.prefix, template.suffix] for template in self.model.templates],
            "max_length": encoder.max_length,
            **({"whitening": answers.fitted_on} if isinstance(answers, Whitening) else {}),
        }

    def embed(self, sentences: Sequence[str]) -> Embedding:
        """Embed sentences, some at a time, under a progress bar where there is a terminal."""
        ids = self.model.encoder.tokenizer(sentences)
        self._count += len(ids)
        self._cut += sum(len(sentence) > self.model.room for sentence in ids)
        parts = []
        with _progress(self.now, len(sentences)) as advance:
            for start in range(0, len(sentences), SENTENCES_AT_ONCE):
                some = sentences[start : start + SENTENCES_AT_ONCE]
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16-mixed"):
                    parts.append(self.model.answers.embed(some))
                advance(len(some))
        return Embedding.cat(parts)

    def features(self, embedding: Any) -> torch.Tensor:
        """Return the vectors of the primary view: (n, d)."""
        return self.model.answers.features(embedding)

    def account(self) -> tuple[int, int]:
        """Return how many sentences were embedded, and how many of them cut, since the last account."""
        account, self._count, self._cut = (self._count, self._cut), 0, 0
        return account


@contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many sentences are embedded, in a terminal; give the function that is told of every new batch."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    shown = sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task(f"{label}: sentences", total=total)
        yield lambda count: progress.advance(task, count)
