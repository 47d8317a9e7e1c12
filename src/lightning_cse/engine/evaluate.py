"""An evaluation from its config to its record: load a model, run the tasks one by one, write what each of them gave."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig, OmegaConf

from lightning_cse import runs
from lightning_cse.config.sweeps import in_sweep
from lightning_cse.encoders.pooling import POOLINGS
from lightning_cse.engine.build import build_tasks, check_nodes, plain
from lightning_cse.engine.chatting import SETTINGS, ChatSession, wrong_endpoint
from lightning_cse.engine.load import LENGTH, LLM, WITHOUT_ENCODER, load_model
from lightning_cse.engine.machine import peak_memory, resolve_automatic
from lightning_cse.engine.mteb_suite import MTEBTask
from lightning_cse.engine.sessions import EncoderSession, LengthSession, Session, Step
from lightning_cse.errors import ConfigError, TaskError, did_you_mean, user_error
from lightning_cse.evaluation import Summary, Task, check_parts, summarize_tasks
from lightning_cse.runs.table import print_run

log = logging.getLogger(__name__)


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
    resolved = _resolve(cfg)
    if faults := list(_wrong_model(cfg, overrides)):
        raise ConfigError(faults)
    check_nodes(cfg, {})
    session = _open(cfg)
    tasks, summaries, left_out = _build(cfg.suite, session)
    decisive: dict[str, Any] = {
        "data": {name: digest for task in tasks.values() for name, digest in task.digests.items()} | session.data,
        "encoder": session.encoder,
        "resolved": resolved,
    }
    options = {"suite": plain(cfg.suite), "model": session.options()}
    identity = runs.identity(options, **decisive)
    root = session.root(Path(cfg.paths.runs_dir).expanduser())
    folder = EvaluationFolder(root, suite, identity, session.seed)
    if _finished(cfg, folder):
        return folder
    with folder.lock() as lock:
        if _finished(cfg, folder):  # by somebody who held the lock until now
            return folder
        if in_sweep() and folder.state == "failed" and not (cfg.retry_failed or cfg.force):
            raise runs.FailedBeforeError(folder.path, folder.reason() or "")
        if cfg.force:
            folder.clear()
        read = [str(key) for key in cfg if key not in SETTINGS or cfg.model == LLM]
        folder.start(OmegaConf.to_yaml(OmegaConf.masked_copy(cfg, read), resolve=True))
        how = ", ".join(map(str, resolved.values())) if session.embeds else session.device_name
        log.info("%s: %d tasks, %s; everything goes to %s", session.name, len(tasks), how, folder.path)
        results = _run_all(folder, tasks, session, lock)
        metrics = {name: result.metrics for name, result in results.items()}
        metrics |= {name: whole.metrics for name, whole in summarize_tasks(summaries, metrics, "test").items()}
        left_out |= _without_parts(summaries, metrics)
        accounts = {name: result.account for name, result in results.items() if result.account}
        lock.check()
        folder.finish(
            {
                "name": session.name,
                "suite": suite,
                "identity": identity,
                "seed": folder.seed,
                "model": {"given": cfg.model, "run": session.run, "prompt": cfg.prompt, **session.options()},
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
                "precision": cfg.precision if session.embeds else None,
                "environment": runs.environment(),
                "seconds": {"evaluation": sum(result.seconds for result in results.values())},
                "task_seconds": {name: result.seconds for name, result in results.items()},
                "peak_memory_mib": peak_memory(),
                **({"account": accounts} if accounts else {}),
                "overrides": list(overrides),
                "identity_document": runs.identity_document(options, **decisive),
            }
        )
    return folder


def _finished(cfg: DictConfig, folder: EvaluationFolder) -> bool:
    if cfg.force or folder.state != "finished":
        return False
    log.info("%s is finished; force=true evaluates it again", folder.path)
    return True


# --------------------------------------------------------------------------------------------------------- the model


_READING = {"pooling": "auto", "prompt": None, "max_length": "auto", "whitening": None, "precision": "32-true"}
"""How an encoder reads, and what stands there where nothing is asked for."""


def _resolve(cfg: DictConfig) -> dict[str, Any]:
    """Replace automatic choices as `resolve_automatic` does; what has no encoder computes nothing on a GPU."""
    if _is_given(cfg) and cfg.model in WITHOUT_ENCODER:
        for key, value in (("accelerator", "cpu"), ("precision", _READING["precision"])):
            if cfg[key] == "auto":
                cfg[key] = value
    return resolve_automatic(cfg, under="")


def _open(cfg: DictConfig) -> Session:
    """Load the model that a config names."""
    if cfg.model == LENGTH:
        return LengthSession()
    if cfg.model == LLM:
        return ChatSession(cfg)
    model = load_model(cfg.model, pooling=cfg.pooling, prompt=cfg.prompt, max_length=cfg.max_length)
    if cfg.whitening:
        model = model.whitened(cfg.whitening, cfg.paths.data_dir)
    return EncoderSession(model, cfg.precision, cfg.accelerator)


def _is_given(cfg: DictConfig) -> bool:
    return not OmegaConf.is_missing(cfg, "model") and isinstance(cfg.model, str) and bool(cfg.model.strip())


def _wrong_model(cfg: DictConfig, overrides: Sequence[str]) -> Iterator[str]:
    """Yield what cannot be a model, or the way it is to be read."""
    if not _is_given(cfg):
        yield "model: give the folder of a run, an encoder of conf/encoder, a local folder, or a name on the hub"
    if _is_given(cfg) and cfg.model in WITHOUT_ENCODER:
        yield from _wrong_without_encoder(cfg)
    else:
        yield from _wrong_reading(cfg)
    if _is_given(cfg) and cfg.model == LLM:
        yield from wrong_endpoint(cfg)
    elif given := _of_llm(cfg, overrides):
        yield f"{given}: it is for model={LLM}, and the model is {cfg.model if _is_given(cfg) else 'not given'}"


def _wrong_reading(cfg: DictConfig) -> Iterator[str]:
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


def _wrong_without_encoder(cfg: DictConfig) -> Iterator[str]:
    given = [key for key, unset in _READING.items() if cfg[key] != unset]
    if cfg.accelerator != "cpu":
        given.append("accelerator")
    for key in given:
        yield f"{key}: model={cfg.model} has no encoder that this could be for; leave it out"


def _of_llm(cfg: DictConfig, overrides: Sequence[str]) -> str | None:
    """Return a key that only a language model has and that somebody has set, if there is one."""
    keys = (override.lstrip("+").partition("=")[0] for override in overrides)
    given = next((key for key in keys if key.partition(".")[0] in SETTINGS), None)
    return "llm.model" if given is None and cfg.get("llm") and cfg.llm.model is not None else given


# ------------------------------------------------------------------------------------------------------- the folder


class EvaluationFolder(runs.Run):
    """The folder of one evaluation: ``<root>/<suite>-<identity>/``, with a file for each finished task in ``tasks/``.

    Args:
        root: the folder of all evaluations of a model.
        suite: the suite's name.
        identity: what `runs.identity` returned.
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


# -------------------------------------------------------------------------------------------------------- the tasks


def _build(suite: DictConfig, session: Session) -> tuple[dict[str, Step], dict[str, Task], dict[str, tuple[str, ...]]]:
    """Build a suite: the tasks that the model can answer, the suite as a whole, and what the tasks left out need."""
    if any(isinstance(node, ListConfig) for node in suite.values()):
        if not session.embeds:
            raise TaskError(f"the suite is of tasks that need vectors, which {session.name} does not give")
        return {name: MTEBTask(name) for name in suite.tasks}, {}, {}
    lacking: dict[str, str] = {}
    suite_tasks = {name: task for name, task in build_tasks(suite, lacking).items() if "test" in task.splits}
    check_parts(suite_tasks)
    left_out = {name: task.needs for name, task in suite_tasks.items() if not session.suits(task)}
    for name, needs in left_out.items():
        log.info(
            "the task %s is left out: it needs %s, which %s does not give", name, " and ".join(needs), session.kind
        )
    tasks: dict[str, Step] = {
        name: task for name, task in suite_tasks.items() if name not in left_out and not isinstance(task, Summary)
    }
    if not tasks:
        raise TaskError(f"no task of the suite suits {session.name}: {session.kind} does not answer what they ask")
    return tasks, suite_tasks, left_out | {name: (reason,) for name, reason in lacking.items()}


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
    account: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it as it is written: an account only where there is one."""
        return {key: value for key, value in asdict(self).items() if key != "account" or value}


def _once(folder: EvaluationFolder, name: str, task: Step, session: Session, place: str) -> _Outcome:
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
    result = session.do(name, task, folder)
    if result.predictions:
        runs.write_predictions(folder.predictions, name, result.predictions)
    work = session.work()
    seconds = time.perf_counter() - start
    outcome = _Outcome(dict(result.metrics), work.sentences, work.cut, seconds, dict(work.account))
    runs.write_atomic(path, json.dumps(outcome.as_dict(), indent=2, allow_nan=False) + "\n")
    if work.cut:
        log.warning(
            "%s: %d of %d sentences are longer than %d word pieces and are cut",
            name,
            work.cut,
            work.sentences,
            session.room,
        )
    log.info("%s %s: %s (%.1f s)", place, name, _told(result.metrics), outcome.seconds)
    return outcome


def _run_all(
    folder: EvaluationFolder, tasks: Mapping[str, Step], session: Session, lock: runs.Lock
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
