"""Finds the runs on disk by their point and seed."""

import contextlib
import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse import runs
from lightning_cse.config.check import PRECISIONS
from lightning_cse.config.compose import CompositionError, parse
from lightning_cse.config.compose import compose_run as filled
from lightning_cse.data import sample_dir
from lightning_cse.errors import DataError
from lightning_cse.papers.points import Point, composed

State = Literal["finished", "running", "interrupted", "failed", "missing"]
Key = tuple[Any, ...]
"""The identity of a point: two points with the same key are the same runs, however their overrides are written.

It holds the `config_hash` of the config without digests and automatic choices, then whether the point reads the sample
corpus, then the automatic choices as they were requested. A run has one key for each way to request a choice: as
``auto``, and as the value that it became.
"""

_NOTHING: Final[Mapping[str, Any]] = {"data": {}, "encoder": {"name": ""}, "resolved": {}}
_AUTOMATIC: Final = (
    "trainer.accelerator",
    "trainer.precision",
    "encoder.pooling",
    "encoder.max_length",
)


@dataclass(frozen=True)
class Found:
    """A run: its record, its folder (None for a record kept as a file), and the file of the record.

    Only a report shows runs that are not finished; their record has only the name, the hash and the seed.
    """

    record: Mapping[str, Any] = field(repr=False, hash=False, compare=False)
    folder: Path | None
    source: Path
    state: str = "finished"

    @property
    def curves_path(self) -> Path:
        """The file of its curves, which may not exist: in the folder, or ``X.curves.csv`` beside a kept ``X.json``."""
        return (
            self.source.with_suffix(".curves.csv")
            if self.folder is None
            else self.folder / "curves.csv"
        )

    @functools.cached_property
    def curves(self) -> Mapping[str, Sequence[tuple[int, float]]]:
        """The logged values ``(step, value)`` by key; empty without curves."""
        return runs.Curves(self.curves_path).read()

    @functools.cached_property
    def training(self) -> "Found | None":
        """The run whose model an evaluation uses, None if it is missing; for any other run, the run itself."""
        of = None if "steps" in self.record else (self.record.get("model") or {}).get("run")
        if not of:
            return self
        if self.folder is None:
            places = [*self.source.parents[3].glob(f"*/results/records/{kept_name(of)}.json")]
        else:
            places = [
                self.source.parents[3] / "record.json"
            ]  # <run>/evaluate/<suite>/<evaluation>/record.json
        for path in filter(Path.is_file, places):
            return Found(
                json.loads(path.read_text(encoding="utf-8")), self.folder and path.parent, path
            )
        return None


@dataclass(frozen=True)
class Measured:
    """The finished runs of a cell by seed, and the seeds that were asked for."""

    found: Mapping[int, Found] = field(default_factory=dict)
    asked: tuple[int, ...] = ()


@functools.cache
def key_of(point: Point, of: str | None = None) -> Key:
    """Return the key of a point; ``of`` is the `identity` of the evaluated run, None for any run of the training."""
    config = composed(point)
    if point.of is not None:
        of = of or str(key_of(point.of))
    decisive = runs.decisive(config, **_NOTHING)["config"]
    digest, choices = _training(decisive) if point.command == "train" else _evaluation(config, of)
    return digest, Path(config["paths"]["data_dir"]) == sample_dir(), *choices


def identity(record: Mapping[str, Any]) -> str:
    """Return the path of a run's folder below the folder of all runs."""
    return f"{record['name']}/{record['config_hash']}-s{record['seed']}"


def kept_name(record: Mapping[str, Any]) -> str:
    """Return the file name of a kept record, without its ending."""
    suite = f"-{record['suite']}" if "suite" in record else ""
    return f"{record['name'].replace('/', '-')}{suite}-{record['config_hash']}-s{record['seed']}"


def _training(config: Mapping[str, Any]) -> tuple[str, Sequence[Any]]:
    """Return the hash and the automatic choices of a training, from the decisive part of its config."""
    document = runs.decisive(config, **_NOTHING)[
        "config"
    ]  # a copy, as this version would write it to a record
    choices = [
        document[node].pop(key, None) for node, key in (dotted.split(".") for dotted in _AUTOMATIC)
    ]
    return runs.config_hash(document, **_NOTHING), [
        PRECISIONS.get(str(one), one) for one in choices
    ]


def _evaluation(config: Mapping[str, Any], of: str | None) -> tuple[str, Sequence[Any]]:
    """Return the hash and the automatic choices of an evaluation, from its config and the run that it evaluates."""
    document = {key: config[key] for key in ("suite", "prompt", "whitening")} | {
        "of": of or [config["model"]]
    }
    if config["model"] == "llm":
        document["llm"] = {key: config["llm"][key] for key in ("model", "parameters")}
        document["few_shot"] = config["few_shot"]
    return runs.config_hash(document, **_NOTHING), [
        config[key] for key in ("accelerator", "pooling", "max_length")
    ]


def _keys_of_record(record: Mapping[str, Any]) -> Iterator[Key]:
    config, overrides = record["decisive"]["config"], record.get("overrides") or ()
    samples = [_reads_sample(tuple(overrides))] if overrides else [True, False]
    if "suite" not in record:
        return _keys(record["seed"], samples, *_training(config))
    given, model = {one.key_or_group: one.value() for one in map(parse, overrides)}, record["model"]
    read = {
        **config["model"],
        **config,
        **model,
        "model": model["given"],
        "whitening": given.get("whitening"),
    }
    digest, became = _evaluation(read, model["run"] and identity(model["run"]))
    return _keys(
        record["seed"],
        samples,
        digest,
        became,
        given.get("pooling", "auto"),
        given.get("max_length", "auto"),
    )


def _keys_of_config(run: runs.Run) -> Iterator[Key]:
    config: Any = OmegaConf.to_container(OmegaConf.load(run.config_path), resolve=False)
    samples = [Path(config["paths"]["data_dir"]) == sample_dir()]
    of, evaluated, _ = f"/{run.name}".partition("/evaluate/")
    if not evaluated:
        return _keys(run.seed, samples, *_training(runs.decisive(config, **_NOTHING)["config"]))
    return _keys(
        run.seed, samples, *_evaluation(config, of[1:]), config["pooling"], config["max_length"]
    )


def _keys(
    seed: int, samples: Sequence[bool], digest: str, became: Sequence[Any], *asked: Any
) -> Iterator[Key]:
    """Yield a run's keys: each automatic choice as it ``became`` and as it was ``asked`` for (by default ``auto``)."""
    asked = (*["auto"] * (len(became) - len(asked)), *asked)
    return itertools.product([seed], [digest], samples, *map(set, zip(asked, became, strict=True)))


@functools.cache
def _reads_sample(overrides: tuple[str, ...]) -> bool:
    """Return whether a command line reads the sample corpus: by a profile, by ``paths=sample``, or by its folder."""
    places = [
        line for line in overrides if re.match(r"\+?(profile|debug|paths|paths\.data_dir)=", line)
    ]
    with contextlib.suppress(*CompositionError):  # the profile is of another version
        return Path(filled("train", places).paths.data_dir) == sample_dir()
    return False


@functools.cache
def _read(source: Path, folder: Path | None, changed: int) -> tuple[list[Key], Found] | None:
    """Return a run with its keys; None for JSON that is not the record of a run."""
    try:
        record = json.loads(source.read_text(encoding="utf-8"))
        return list(_keys_of_record(record)), Found(record, folder, source)
    except ValueError as error:
        raise DataError(
            f"{source} is damaged ({error}): remove it, and its run is made again"
        ) from None
    except (KeyError, TypeError, AttributeError, HydraException):
        return None


class RunsIndex:
    """An index, by point and seed, of the runs below a folder and of the records kept as files in other folders.

    The disk is read once, and again after `refresh`.
    """

    def __init__(self, runs_dir: Path, kept: Sequence[Path] = ()) -> None:
        self.runs_dir, self.kept = Path(runs_dir), tuple(kept)

    def refresh(self) -> None:
        """Make the next query read the disk again; records that did not change are not read again."""
        vars(self).pop("_finished", None)
        vars(self).pop("_unfinished", None)

    def find(self, point: Point, seed: int) -> Found | None:
        """Return the newest finished run of a point and a seed; runs take precedence over kept records."""
        return self._finished.get(self._key(point, seed))

    def state(self, point: Point, seed: int) -> State:
        """Return the state of a point and a seed; a run that stopped before its first checkpoint is missing."""
        if self.find(point, seed) is not None:
            return "finished"
        run = self._unfinished.get(self._key(point, seed))
        if run is None:
            return "missing"
        status = run.status
        if status == "finished":  # since the disk was read
            self.refresh()
            return self.state(point, seed)
        if status == "new":
            return "interrupted" if any((run.path / "tasks").glob("*.json")) else "missing"
        return status

    def failure(self, point: Point, seed: int) -> str:
        """Return the reason why a run failed, in one line."""
        run = self._unfinished.get(self._key(point, seed))
        return (run and run.reason()) or ""

    def _key(self, point: Point, seed: int) -> Key:
        run = None if point.of is None else self.find(point.of, seed)
        return seed, *key_of(point, None if run is None else identity(run.record))

    @functools.cached_property
    def _finished(self) -> dict[Key, Found]:
        """The finished runs by key; a later run replaces an earlier one."""
        kept = ((False, path, None) for folder in self.kept for path in folder.glob("*.json"))
        below = ((True, run.record_path, run.path) for run in runs.find_runs(self.runs_dir))
        there = [
            (own, path.stat().st_mtime_ns, path, run)
            for own, path, run in (*kept, *below)
            if path.is_file()
        ]
        read = (
            _read(path, run, changed)
            for _, changed, path, run in sorted(there, key=lambda one: one[:3])
        )
        return {key: found for keys, found in filter(None, read) for key in keys}

    @functools.cached_property
    def _unfinished(self) -> dict[Key, runs.Run]:
        found: dict[Key, runs.Run] = {}
        for run in runs.find_runs(self.runs_dir):
            if not run.record_path.is_file():
                with contextlib.suppress(
                    OmegaConfBaseException, YAMLError, OSError, ValueError, KeyError, TypeError
                ):
                    found |= dict.fromkeys(_keys_of_config(run), run)
        return found
