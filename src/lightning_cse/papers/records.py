"""The runs on disk, found by the point and the seed that they have made."""

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
from lightning_cse.data import sample_dir
from lightning_cse.errors import DataError
from lightning_cse.papers.points import Point, composed, filled

State = Literal["finished", "running", "interrupted", "failed", "missing"]
Key = tuple[Any, ...]
"""What two points have in common if they are the same runs, however their overrides are written.

First the `config_hash` of their configs without digests and without automatic choices, then whether they read the
sample corpus, then the automatic choices as they were asked for. A run has a key for each way to ask for a choice: by
``auto``, and by what that became.
"""

_NOTHING: Final[Mapping[str, Any]] = {"data": {}, "encoder": {"name": ""}, "resolved": {}}
_AUTOMATIC: Final = ("trainer.accelerator", "trainer.precision", "encoder.pooling", "encoder.max_length")


@dataclass(frozen=True)
class Found:
    """A run: its record, the run's folder, None for a record kept as a file, and the file of the record.

    Only a report shows runs that are not finished; of their record it has name, hash and seed.
    """

    record: Mapping[str, Any] = field(repr=False, hash=False, compare=False)
    folder: Path | None
    source: Path
    state: str = "finished"

    @property
    def curves_path(self) -> Path:
        """Where its curves are, if it has any: in the folder, or ``X.curves.csv`` beside a kept ``X.json``."""
        return self.source.with_suffix(".curves.csv") if self.folder is None else self.folder / "curves.csv"

    @functools.cached_property
    def curves(self) -> Mapping[str, Sequence[tuple[int, float]]]:
        """Its logged values ``(step, value)`` by key; empty without curves."""
        return runs.Curves(self.curves_path).read()

    @functools.cached_property
    def training(self) -> "Found | None":
        """The run whose model an evaluation has, None if it is not there; any other run itself."""
        of = None if "steps" in self.record else (self.record.get("model") or {}).get("run")
        if not of:
            return self
        if self.folder is None:
            places = [*self.source.parents[3].glob(f"*/results/records/{kept_name(of)}.json")]
        else:
            places = [self.source.parents[3] / "record.json"]  # <run>/evaluate/<suite>/<evaluation>/record.json
        for path in filter(Path.is_file, places):
            return Found(json.loads(path.read_text(encoding="utf-8")), self.folder and path.parent, path)
        return None


@dataclass(frozen=True)
class Measured:
    """The finished runs of a cell by seed, and the seeds that were asked for."""

    found: Mapping[int, Found] = field(default_factory=dict)
    asked: tuple[int, ...] = ()


@functools.cache
def key_of(point: Point, of: str | None = None) -> Key:
    """Return the key of a point; of an evaluation, for the `identity` of a run, or for all runs of its training."""
    config = composed(point)
    if point.of is not None:
        of = of or str(key_of(point.of))
    decisive = runs.decisive(config, **_NOTHING)["config"]
    digest, choices = _training(decisive) if point.command == "train" else _evaluation(config, of)
    return digest, Path(config["paths"]["data_dir"]) == sample_dir(), *choices


def identity(record: Mapping[str, Any]) -> str:
    """Return the folder of a run below that of all runs."""
    return f"{record['name']}/{record['config_hash']}-s{record['seed']}"


def kept_name(record: Mapping[str, Any]) -> str:
    """Return the name that a record is kept by, without its ending."""
    suite = f"-{record['suite']}" if "suite" in record else ""
    return f"{record['name'].replace('/', '-')}{suite}-{record['config_hash']}-s{record['seed']}"


def _training(config: Mapping[str, Any]) -> tuple[str, Sequence[Any]]:
    """Return hash and automatic choices of the decisive part of a training's config."""
    document = runs.decisive(config, **_NOTHING)["config"]  # a copy, as a record of this version would have it
    choices = [document[node].pop(key, None) for node, key in (dotted.split(".") for dotted in _AUTOMATIC)]
    return runs.config_hash(document, **_NOTHING), [PRECISIONS.get(str(one), one) for one in choices]


def _evaluation(config: Mapping[str, Any], of: str | None) -> tuple[str, Sequence[Any]]:
    """Return hash and automatic choices of an evaluation's config and of the run that it evaluates."""
    document = {key: config[key] for key in ("suite", "prompt", "whitening")} | {"of": of or [config["model"]]}
    if config["model"] == "llm":
        document["llm"] = {key: config["llm"][key] for key in ("model", "parameters")}
        document["few_shot"] = config["few_shot"]
    return runs.config_hash(document, **_NOTHING), [config[key] for key in ("accelerator", "pooling", "max_length")]


def _keys_of_record(record: Mapping[str, Any]) -> Iterator[Key]:
    config, overrides = record["decisive"]["config"], record.get("overrides") or ()
    samples = [_reads_sample(tuple(overrides))] if overrides else [True, False]
    if "suite" not in record:
        return _keys(record["seed"], samples, *_training(config))
    given, model = {one.key_or_group: one.value() for one in map(parse, overrides)}, record["model"]
    read = {**config["model"], **config, **model, "model": model["given"], "whitening": given.get("whitening")}
    digest, became = _evaluation(read, model["run"] and identity(model["run"]))
    return _keys(record["seed"], samples, digest, became, given.get("pooling", "auto"), given.get("max_length", "auto"))


def _keys_of_config(run: runs.Run) -> Iterator[Key]:
    config: Any = OmegaConf.to_container(OmegaConf.load(run.config_path), resolve=False)
    samples = [Path(config["paths"]["data_dir"]) == sample_dir()]
    of, evaluated, _ = f"/{run.name}".partition("/evaluate/")
    if not evaluated:
        return _keys(run.seed, samples, *_training(runs.decisive(config, **_NOTHING)["config"]))
    return _keys(run.seed, samples, *_evaluation(config, of[1:]), config["pooling"], config["max_length"])


def _keys(seed: int, samples: Sequence[bool], digest: str, became: Sequence[Any], *asked: Any) -> Iterator[Key]:
    """Yield the keys of a run whose automatic choices became something; the last ones were asked for like this."""
    asked = (*["auto"] * (len(became) - len(asked)), *asked)
    return itertools.product([seed], [digest], samples, *map(set, zip(asked, became, strict=True)))


@functools.cache
def _reads_sample(overrides: tuple[str, ...]) -> bool:
    """Return whether a command line reads the sample corpus: by a profile, by ``paths=sample``, or by its folder."""
    places = [line for line in overrides if re.match(r"\+?(profile|debug|paths|paths\.data_dir)=", line)]
    with contextlib.suppress(*CompositionError):  # a profile of another version
        return Path(filled("train", places).paths.data_dir) == sample_dir()
    return False


@functools.cache
def _read(source: Path, folder: Path | None, changed: int) -> tuple[list[Key], Found] | None:
    """Return a run with its keys; None for JSON that is not the record of a run."""
    try:
        record = json.loads(source.read_text(encoding="utf-8"))
        return list(_keys_of_record(record)), Found(record, folder, source)
    except ValueError as error:
        raise DataError(f"{source} is damaged ({error}): remove it, and its run is made again") from None
    except (KeyError, TypeError, AttributeError, HydraException):
        return None


class RunsIndex:
    """The runs below a folder, and records kept as files in others, by the points that they have made.

    The disk is read once, and again after `refresh`.
    """

    def __init__(self, runs_dir: Path, kept: Sequence[Path] = ()) -> None:
        self.runs_dir, self.kept = Path(runs_dir), tuple(kept)

    def refresh(self) -> None:
        """Forget what is on disk; records that did not change are not read again."""
        vars(self).pop("_finished", None)
        vars(self).pop("_unfinished", None)

    def find(self, point: Point, seed: int) -> Found | None:
        """Return the finished run of a point and a seed: the newest, and a run rather than a kept record."""
        return self._finished.get(self._key(point, seed))

    def state(self, point: Point, seed: int) -> State:
        """Return how far a point and a seed are; what was left before its first checkpoint is missing."""
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
        """Return in one line why a run failed."""
        run = self._unfinished.get(self._key(point, seed))
        return (run and run.reason()) or ""

    def _key(self, point: Point, seed: int) -> Key:
        run = None if point.of is None else self.find(point.of, seed)
        return seed, *key_of(point, None if run is None else identity(run.record))

    @functools.cached_property
    def _finished(self) -> dict[Key, Found]:
        """The finished runs, of which a later one replaces an earlier one."""
        kept = ((False, path, None) for folder in self.kept for path in folder.glob("*.json"))
        below = ((True, run.record_path, run.path) for run in runs.find_runs(self.runs_dir))
        there = [(own, path.stat().st_mtime_ns, path, run) for own, path, run in (*kept, *below) if path.is_file()]
        read = (_read(path, run, changed) for _, changed, path, run in sorted(there, key=lambda one: one[:3]))
        return {key: found for keys, found in filter(None, read) for key in keys}

    @functools.cached_property
    def _unfinished(self) -> dict[Key, runs.Run]:
        found: dict[Key, runs.Run] = {}
        for run in runs.find_runs(self.runs_dir):
            if not run.record_path.is_file():
                with contextlib.suppress(OmegaConfBaseException, YAMLError, OSError, ValueError, KeyError, TypeError):
                    found |= dict.fromkeys(_keys_of_config(run), run)
        return found
