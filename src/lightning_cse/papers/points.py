"""From the lines of an artefact to points, and from points to the runs on the disk that have made them."""

from __future__ import annotations

import functools
import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse import runs
from lightning_cse.arguments import quote_free_text
from lightning_cse.config.check import PRECISIONS
from lightning_cse.config.compose import CompositionError, compose, is_choice, options, parse
from lightning_cse.config.suggestions import explain
from lightning_cse.errors import ConfigError, DataError, did_you_mean, user_error
from lightning_cse.papers.artefacts import (
    Artefact,
    Baseline,
    Chosen,
    Column,
    Evaluate,
    Line,
    Published,
    Request,
    Train,
    profile_encoder,
    profile_override,
    wrong_override,
)
from lightning_cse.papers.nested import value_at

__all__ = ["Found", "Point", "RunsIndex", "State", "composed", "point_key", "points_of", "value_at", "winner"]

Command = Literal["train", "evaluate"]
State = Literal["finished", "running", "failed", "interrupted", "missing"]


@dataclass(frozen=True)
class Point:
    """One command without its seed.

    Args:
        command: the entry point.
        overrides: its command line; of an evaluation of a training run without the ``model``, which is that run's
            folder.
        of: the training point whose run is evaluated.
    """

    command: Command
    overrides: tuple[str, ...]
    of: Point | None = None


# ---------------------------------------------------------------------------------------------- from lines to points


def points_of(artefact: Artefact, line: Line, column: Column, request: Request) -> tuple[Point, ...]:
    """Return the points of a cell: several for a grid, those of its row for a baseline, none for a published number.

    Overrides come in this order, and a later one wins: those of the profile for all rows, of the row, of the profile
    for this row, of the column, of the request. A setting of the profile or the request that the command has no key
    for, and the other command has, is left out.

    Raises:
        ConfigError: if an override of the request is none, or means nothing to either command.
    """
    for text in request.settings:
        if fault := wrong_override(text):
            raise ConfigError([fault])
    way = line.way
    if isinstance(way, Published):
        return ()
    if isinstance(way, Baseline):
        other = artefact.line(way.of, request, like=line)
        return points_of(artefact, replace(line, way=other.way, encoder=other.encoder, label=way.of), column, request)
    own = artefact.profile(request).rows.get(line.label, ())
    cell = _Cell(artefact.profile(request).overrides, own, column.overrides, request, line)
    if isinstance(way, Chosen):
        return tuple(cell.train(point) for point in way.among)
    return (cell.evaluate(way) if isinstance(way, Evaluate) else cell.train(way),)


@dataclass(frozen=True)
class _Cell:
    """What a cell adds to the point of its row."""

    general: tuple[str, ...]
    of_row: tuple[str, ...]
    of_column: tuple[str, ...]
    request: Request
    line: Line

    def train(self, way: Train) -> Point:
        profile = self.request.profile
        head = [f"+experiment={way.experiment}"]
        if profile is not None:
            head.append(profile_override(profile))
        if self.request.encoder is not None or profile is None or profile_encoder(profile) is None:
            head.append(f"encoder={self.line.encoder}")
        return self._point("train", head, (*way.overrides, *self.of_row, *self.of_column))

    def evaluate(self, way: Evaluate) -> Point:
        head = [] if way.model is None else [_model(way.model)]
        head += [f"+suite={way.suite}", *_evaluation_of(self.request.profile)]
        if way.of is None:
            return self._point("evaluate", head, (*way.overrides, *self.of_row, *self.of_column))
        return replace(self._point("evaluate", head, way.overrides), of=self.train(way.of))

    def _point(self, command: Command, head: list[str], own: tuple[str, ...]) -> Point:
        def suiting(settings: Iterable[str]) -> list[str]:
            return [setting for setting in settings if _belongs(command, tuple(head), setting)]

        return Point(command, (*head, *suiting(self.general), *own, *suiting(self.request.settings)))


def _model(name: str) -> str:
    plain = f"model={name}"
    return plain if re.fullmatch(r"[\w./-]+", name) else quote_free_text([plain], ["model"])[0]


@functools.cache
def _evaluation_of(profile: str | None) -> tuple[str, ...]:
    """Return what makes an evaluation read what a profile trains and tests on: its corpora, and as much of them."""
    if profile is None:
        return ()
    with_it, without = compose("train", profile_override(profile)), compose("train")
    limits = tuple(
        f"limits.{key}={'null' if value is None else value}"
        for key, value in with_it.limits.items()
        if value != without.limits[key]
    )
    if _brings_sample(profile_override(profile)):
        return ("corpora=sample", "paths=sample", *limits)
    corpora = str(with_it.hydra.runtime.choices.corpora)
    return (*(() if corpora == without.hydra.runtime.choices.corpora else (f"corpora={corpora}",)), *limits)


@functools.cache
def _brings_sample(override: str) -> bool:
    """Whether a profile reads the sample corpus instead of the official files."""
    node = compose("train", override).paths
    return "sample_dir" in str(OmegaConf.to_container(node, resolve=False)["data_dir"])  # type: ignore[index,call-overload]


def _belongs(command: Command, head: tuple[str, ...], setting: str) -> bool:
    """Whether a setting is for a command: it knows the key or, which composing will tell, neither command does."""
    if _composer(command).knows(head, setting):
        return True
    if command == "train":
        suites = options("suite")  # some bring keys of their own
        return not any(_composer("evaluate").knows(head, setting) for head in [(), *((f"+suite={s}",) for s in suites)])
    return not _composer("train").knows((), setting)


# --------------------------------------------------------------------------------------------------------- composing


def composed(point: Point) -> dict[str, Any]:
    """Return the resolved config of a point, as its command composes it, without Hydra's own part.

    Raises:
        ConfigError: if the overrides do not compose.
    """
    return _composer(point.command).compose(point.overrides)


@functools.cache
def point_key(point: Point) -> str:
    """Return a text that is equal for two points that are the same runs, however their overrides are written."""
    wanted = _wanted(point)
    sample = _reads_sample(point.overrides)
    of = point_key(point.of) if point.of is not None else None
    return json.dumps([point.command, sample, of, wanted], sort_keys=True)


@functools.cache
def _composer(command: Command) -> _Composer:
    return _Composer(command)


class _Composer:
    """Composes one command's config: once a set of group choices, into which plain values are then put.

    What comes out equals a full composition by Hydra, which takes some eight times as long. Deletions, additions and
    values for a package, which are rare, are left to Hydra.
    """

    def __init__(self, command: Command) -> None:
        self.command: Command = command
        self._bases: dict[tuple[str, ...], DictConfig] = {}
        self._composed: dict[tuple[str, ...], dict[str, Any]] = {}
        self._parsed: dict[str, Override] = {}
        self._choosing: dict[str, bool] = {}

    def compose(self, overrides: tuple[str, ...]) -> dict[str, Any]:
        """Return the resolved config; it is not to be changed."""
        if overrides not in self._composed:
            try:
                cfg = self._filled(overrides)
                plain: Any = OmegaConf.to_container(cfg, resolve=True)
            except (*CompositionError, ConfigError) as error:
                raise self._told(overrides, error) from error
            self._composed[overrides] = plain
        return self._composed[overrides]

    def knows(self, head: tuple[str, ...], setting: str) -> bool:
        """Whether the config of some group choices has the group of a setting, or the node at the top it lies in."""
        try:
            key = self._parse(setting).key_or_group
            if self._is_choice(setting):
                return key.partition("@")[0] in {name.partition("@")[0] for name in self._listed}
            return key.partition(".")[0] in self._base(self._choices(head))
        except CompositionError as error:
            raise self._told((*head, setting), error) from error

    @functools.cached_property
    def _listed(self) -> set[str]:
        return set(map(str, compose(self.command).hydra.runtime.choices))

    def _parse(self, line: str) -> Override:
        if line not in self._parsed:
            self._parsed[line] = parse(line)
        return self._parsed[line]

    def _is_choice(self, line: str) -> bool:
        if line not in self._choosing:
            self._choosing[line] = is_choice(self._parse(line))
        return self._choosing[line]

    def _choices(self, overrides: Iterable[str]) -> tuple[str, ...]:
        return tuple(line for line in overrides if self._is_choice(line))

    def _base(self, choices: tuple[str, ...]) -> DictConfig:
        if choices not in self._bases:
            base = OmegaConf.to_container(compose(self.command, *choices), resolve=False)
            assert isinstance(base, dict)  # noqa: S101 - the top of a config
            self._bases[choices] = OmegaConf.create({key: value for key, value in base.items() if key != "hydra"})
        return self._bases[choices]

    def _filled(self, overrides: tuple[str, ...]) -> DictConfig:
        parsed = [self._parse(line) for line in overrides if not self._is_choice(line)]
        if any(one.is_delete() or one.is_add() or one.is_sweep_override() or one.package for one in parsed):
            cfg = compose(self.command, *overrides).copy()
            OmegaConf.set_struct(cfg, False)
            cfg.pop("hydra", None)
            return cfg
        cfg = self._base(self._choices(overrides)).copy()
        OmegaConf.set_struct(cfg, True)
        for override in parsed:
            adds = override.is_force_add()
            OmegaConf.update(cfg, override.key_or_group, override.value(), merge=True, force_add=adds)
        return cfg

    def _told(self, overrides: tuple[str, ...], error: Exception) -> ConfigError:
        """Return the faults as a command line with these overrides would be told them."""
        known = user_error(error) or explain(overrides, self.command, error)
        faults = known.faults if isinstance(known, ConfigError) else [str(known)]
        return ConfigError([f"{self.command} {' '.join(overrides)}: {fault}" for fault in faults])


def _train_document(config: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce a config of ``train`` to what a record has of it as decisive."""
    precision = str(config["trainer"]["precision"])
    precision = PRECISIONS.get(precision, precision)
    # With an encoder given, what says where it came from is left out.
    document = runs.decisive(config, data={}, encoder={"name": ""}, resolved={"trainer.precision": precision})
    kept: dict[str, Any] = document["config"]
    return kept


_READING: Final = ("model", "pooling", "prompt", "max_length", "whitening", "precision", "accelerator")


def _evaluate_document(config: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce a config of ``evaluate`` to the suite and to how the model is read."""
    suite = runs.decisive({"suite": config["suite"]}, data={}, encoder={}, resolved={})["config"]["suite"]
    kept: dict[str, Any] = {"suite": suite, **{key: config[key] for key in _READING}}
    if config["model"] == "llm":  # who is asked, and how; not by which way
        sent = {key: value for key, value in config["llm"]["parameters"].items() if value is not None}
        kept["llm"] = {"model": config["llm"]["model"], "parameters": sent}
        kept["few_shot"] = dict(config["few_shot"])
    return kept


def _wanted(point: Point) -> dict[str, Any]:
    config = composed(point)
    return _train_document(config) if point.command == "train" else _evaluate_document(config)


def _matches(wanted: Any, found: Any, key: str = "") -> bool:
    """Whether a config is the one wanted; an automatic choice may have become anything, a class have moved."""
    if wanted == "auto":
        return True
    if key == "_target_" and isinstance(found, str):
        return bool(wanted.rpartition(".")[2] == found.rpartition(".")[2])
    if isinstance(wanted, dict):
        same = isinstance(found, dict) and wanted.keys() == found.keys()
        return same and all(_matches(value, found[key], key) for key, value in wanted.items())
    if isinstance(wanted, list):
        same = isinstance(found, list) and len(wanted) == len(found)
        return same and all(_matches(one, other) for one, other in zip(wanted, found, strict=True))
    return isinstance(wanted, bool) == isinstance(found, bool) and bool(wanted == found)


# ------------------------------------------------------------------------------------------------- runs on the disk


@dataclass(frozen=True)
class Found:
    """A finished run.

    Args:
        record: its record.
        folder: the run's folder; None for a record that was kept as a file.
        source: the JSON file the record was read from.
    """

    record: Mapping[str, Any] = field(repr=False, hash=False, compare=False)
    folder: Path | None
    source: Path

    @property
    def curves(self) -> Path | None:
        """Its curves, where they were kept: in the folder, or beside a kept ``X.json`` as ``X.curves.csv``."""
        path = self.source.with_suffix(".curves.csv") if self.folder is None else self.folder / "curves.csv"
        return path if path.is_file() else None

    @property
    def predictions(self) -> Path | None:
        """The folder of its predictions, where there is one."""
        path = None if self.folder is None else self.folder / "predictions"
        return path if path is not None and path.is_dir() else None


_EVALUATIONS: Final = "evaluate"


@dataclass(frozen=True)
class _Open:
    """A run, or an evaluation, that is not finished; ``run`` is the folder of the run that is evaluated."""

    folder: runs.Run
    run: Path | None = None

    @functools.cached_property
    def config(self) -> dict[str, Any] | None:
        """The config it was started with, None where that cannot be read: then it is nobody's."""
        try:
            plain: Any = OmegaConf.to_container(OmegaConf.load(self.folder.config_path), resolve=False)
        except (OmegaConfBaseException, YAMLError, OSError, UnicodeDecodeError):
            return None
        return plain if isinstance(plain, dict) else None


@dataclass
class _Disk:
    """What lies on the disk: runs by name and seed, evaluations by suite."""

    runs: dict[tuple[str, int], list[Found]] = field(default_factory=dict)
    open_runs: dict[int, list[_Open]] = field(default_factory=dict)
    evaluations: list[Found] = field(default_factory=list)
    open_evaluations: list[_Open] = field(default_factory=list)


class RunsIndex:
    """The runs that there are, by the point and the seed they have made.

    A run is a point's when the point's config, composed anew, has what decides the run's result
    (`lightning_cse.runs.decisive`); an automatic choice in it (``auto``) matches whatever it became.
    Digests of data are not compared, which the run itself does, but runs on the sample corpus are told from others.

    The disk is read once, and again after `refresh`.

    Args:
        runs_dir: the folder of all runs.
        kept: folders of records that were kept as files, with nothing else of the run.
    """

    def __init__(self, runs_dir: Path, kept: Sequence[Path] = ()) -> None:
        self.runs_dir = Path(runs_dir)
        self.kept = tuple(kept)
        self._records: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}
        self._given: dict[Path, dict[str, Any]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Forget what is there; records that did not change are not read again."""
        self._disk: _Disk | None = None
        self._finished: dict[tuple[Point, int], Found | None] = {}
        self._unfinished: dict[tuple[Point, int], _Open | None] = {}

    def find(self, point: Point, seed: int) -> Found | None:
        """Return the finished run of a point and a seed; of several the newest, and a run before a kept record.

        Raises:
            ConfigError: if the point does not compose.
            DataError: if a record is damaged.
        """
        key = (point, seed)
        if key not in self._finished:
            self._finished[key] = self._newest(self._candidates(point, seed))
        return self._finished[key]

    def state(self, point: Point, seed: int) -> State:
        """Return how far a point and a seed are; what nobody began, or left before its first checkpoint, is missing."""
        if self.find(point, seed) is not None:
            return "finished"
        unfinished = self._find_open(point, seed)
        if unfinished is None:
            return "missing"
        state = unfinished.folder.status
        if state == "finished":  # since the disk was read
            self.refresh()
            return "finished" if self.find(point, seed) is not None else "missing"
        if state == "new":
            evaluated = any((unfinished.folder.path / "tasks").glob("*.json"))
            return "interrupted" if evaluated else "missing"
        return state

    def folder(self, point: Point, seed: int) -> Path | None:
        """Return the folder of a point and a seed, finished or not."""
        found = self.find(point, seed)
        if found is not None:
            return found.folder
        unfinished = self._find_open(point, seed)
        return None if unfinished is None else unfinished.folder.path

    def failure(self, point: Point, seed: int) -> dict[str, Any] | None:
        """Return what went wrong, as the run's ``failed.json`` tells it."""
        unfinished = None if self.find(point, seed) is not None else self._find_open(point, seed)
        if unfinished is None or not unfinished.folder.failed_path.is_file():
            return None
        return _read_json(unfinished.folder.failed_path)

    def seconds(self, point: Point) -> float | None:
        """Return how long one run of a point may take: as other seeds of it took, or else other points much like it.

        Much like a training run is one of the same experiment, encoder and profile; like an evaluation one of the same
        suite and model. None where there is neither.
        """
        wanted = _wanted(point)
        disk = self._read_disk()
        alike: list[Found]
        if point.command == "train":
            frame = _frame(point.overrides)
            alike = [
                found
                for (name, _), several in disk.runs.items()
                for found in several
                if name == wanted["name"]
                and found.record["encoder"]["name"] == wanted["encoder"]["name"]
                and _frame(found.record.get("overrides") or ()) in (frame, None)
            ]
            same = [found for found in alike if self._is_run_of(point, wanted, found)]
        else:
            alike = [found for found in disk.evaluations if self._evaluates_alike(point, wanted, found)]
            same = [found for found in alike if self._is_evaluation_of(point, wanted, found, None)]
        times = [_seconds(found.record) for found in same or alike]
        return statistics.fmean(times) if times else None

    # Matching

    def _candidates(self, point: Point, seed: int) -> list[Found]:
        wanted = _wanted(point)
        disk = self._read_disk()
        if point.command == "train":
            there = disk.runs.get((wanted["name"], seed), [])
            return [found for found in there if self._is_run_of(point, wanted, found)]
        run = None
        if point.of is not None:
            run = self.find(point.of, seed)
            if run is None:
                return []
        return [found for found in disk.evaluations if self._is_evaluation_of(point, wanted, found, run)]

    def _newest(self, found: Sequence[Found]) -> Found | None:
        def age(one: Found) -> tuple[bool, int]:
            changed, _ = self._records[one.source][0]
            return one.folder is not None, changed

        return max(found, key=age, default=None)

    @staticmethod
    def _is_run_of(point: Point, wanted: Mapping[str, Any], found: Found) -> bool:
        if not _matches(wanted, found.record["decisive"]["config"]):
            return False
        made_with = found.record.get("overrides")
        return not made_with or _reads_sample(tuple(made_with)) == _reads_sample(point.overrides)

    def _is_evaluation_of(self, point: Point, wanted: Mapping[str, Any], found: Found, run: Found | None) -> bool:
        """Whether a record is of this evaluation; with ``run``, of that run's, else of any run or of the model."""
        record = found.record
        of = record["model"]["run"]
        if run is not None and of != {key: run.record[key] for key in ("name", "config_hash", "seed")}:
            return False
        if (of is None) != (point.of is None) or (of is None and record["model"]["given"] != wanted["model"]):
            return False
        document = record["decisive"]["config"]
        if not _matches(wanted["suite"], document["suite"]):
            return False
        if not _matches(wanted["accelerator"], document["accelerator"]):
            return False
        read = document.get("model", {})
        if not all(_matches(wanted.get(key), read.get(key)) for key in ("llm", "few_shot")):
            return False
        given = self._options(found)
        if wanted["whitening"] != given.get("whitening") or wanted["prompt"] != record["model"]["prompt"]:
            return False
        for key in ("pooling", "max_length"):
            # What `auto` became, another may have asked for by its name, of a model whose own is something else.
            if wanted[key] != (given.get(key, "auto") if wanted[key] == "auto" else record["model"][key]):
                return False
        made_with = record.get("overrides")
        return not made_with or _reads_sample(tuple(made_with)) == _reads_sample(point.overrides)

    @staticmethod
    def _evaluates_alike(point: Point, wanted: Mapping[str, Any], found: Found) -> bool:
        model = found.record["model"]
        if (model["run"] is None) != (point.of is None):
            return False
        if point.of is None and model["given"] != wanted["model"]:
            return False
        if point.of is not None and found.record["encoder"]["name"] != composed(point.of)["encoder"]["name"]:
            return False
        there = found.record["decisive"]["config"]["suite"]
        return isinstance(there, dict) and there.keys() == wanted["suite"].keys()

    def _options(self, found: Found) -> dict[str, Any]:
        """Return the plain values on the command line of an evaluation."""
        if found.source not in self._given:
            self._given[found.source] = dict(_values(found.record.get("overrides") or ()))
        return self._given[found.source]

    def _find_open(self, point: Point, seed: int) -> _Open | None:
        key = (point, seed)
        if key not in self._unfinished:
            self._unfinished[key] = next(self._open_candidates(point, seed), None)
        return self._unfinished[key]

    def _open_candidates(self, point: Point, seed: int) -> Iterator[_Open]:
        wanted = _wanted(point)
        disk = self._read_disk()
        if point.command == "train":
            for unfinished in disk.open_runs.get(seed, []):
                config = unfinished.config if unfinished.folder.name == wanted["name"] else None
                if config is not None and _matches(wanted, _train_document(config)) and self._same_data(point, config):
                    yield unfinished
            return
        run = self.find(point.of, seed) if point.of is not None else None
        if point.of is not None and (run is None or run.folder is None):
            return
        for unfinished in disk.open_evaluations:
            place = None if run is None or run.folder is None else run.folder
            config = unfinished.config if unfinished.run == place else None
            if config is None or any(key not in config for key in ("suite", *_READING)):
                continue
            there = _evaluate_document(config)
            if point.of is not None:
                there["model"] = wanted["model"]
            exact = all(wanted[key] == there[key] for key in ("pooling", "max_length"))
            if exact and _matches(wanted, there) and self._same_data(point, config):
                yield unfinished

    @staticmethod
    def _same_data(point: Point, config: Mapping[str, Any]) -> bool:
        return bool(config["paths"]["data_dir"] == _sample_dir()) == _reads_sample(point.overrides)

    # Reading the disk

    def _read_disk(self) -> _Disk:
        if self._disk is None:
            disk = _Disk()
            for folder in self.kept:
                for source in sorted(folder.glob("*.json")):
                    self._take(disk, source, None)
            self._walk(disk, self.runs_dir)
            self._disk = disk
        return self._disk

    def _walk(self, disk: _Disk, root: Path) -> None:
        for run in runs.find_runs(root):
            before, evaluated, _ = f"/{run.name}".partition(f"/{_EVALUATIONS}/")
            if run.record_path.is_file():
                self._take(disk, run.record_path, run.path)
            elif evaluated:
                disk.open_evaluations.append(_Open(run, root / before[1:] if before else None))
            else:
                disk.open_runs.setdefault(run.seed, []).append(_Open(run))

    def _take(self, disk: _Disk, source: Path, folder: Path | None) -> None:
        try:
            record = self._read(source)
        except FileNotFoundError:
            return  # somebody clears this run just now
        if not _of_a_run(record):
            return  # JSON of something else
        found = Found(record, folder, source)
        if "suite" in record and "model" in record:
            disk.evaluations.append(found)
        else:
            disk.runs.setdefault((str(record["name"]), int(record["seed"])), []).append(found)

    def _read(self, source: Path) -> dict[str, Any]:
        status = source.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._records.get(source)
        if known is None or known[0] != stamp:
            known = (stamp, _read_json(source))
            self._records[source] = known
            self._given.pop(source, None)
        return known[1]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}): remove it, and its run is made again") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} is no JSON object: remove it, and its run is made again")
    return content


def _of_a_run(record: Mapping[str, Any]) -> bool:
    """Whether a record has what it is told by."""
    document, model = record.get("decisive"), record.get("model")
    whole = isinstance(document, dict) and isinstance(document.get("config"), dict)
    named = {"name", "config_hash", "seed", "encoder", "seconds"} <= record.keys()
    evaluated = "suite" not in record or (isinstance(model, dict) and {"given", "run"} <= model.keys())
    return whole and named and evaluated


def _sample_dir() -> str:
    return str(OmegaConf.create({"at": "${sample_dir:}"}).at)


def _values(overrides: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of a command line, without lines that cannot be read: it is another code's."""
    for line in overrides:
        try:
            override = parse(line)
        except HydraException:
            continue
        if not override.is_delete() and not override.is_sweep_override():
            yield override.key_or_group, override.value()


@functools.cache
def _reads_sample(overrides: tuple[str, ...]) -> bool:
    """Whether a command line reads the sample corpus: by a profile, by ``paths=sample``, or by the folder itself."""
    sample = False
    for key, value in _values(overrides):
        known = key in ("profile", "debug") and value in options(key)
        sample |= (known and _brings_sample(f"+{key}={value}")) or (key == "paths" and value == "sample")
    folders = [str(value) for key, value in _values(overrides) if key == "paths.data_dir"]
    return folders[-1] in ("${sample_dir:}", _sample_dir()) if folders else sample


def _frame(overrides: Iterable[str]) -> frozenset[str] | None:
    """Return the profiles on a command line; None where it is not known."""
    lines = tuple(overrides)
    return frozenset(line for line in lines if line.startswith(("+profile=", "+debug="))) if lines else None


def _seconds(record: Mapping[str, Any]) -> float:
    return float(sum(value for value in record["seconds"].values() if isinstance(value, int | float)))


# --------------------------------------------------------------------------------------------------------- the winner


def winner(index: RunsIndex, points: Sequence[Point], seeds: Sequence[int], by: str) -> Point | None:
    """Return the best point of a grid, by the mean over the seeds that all of them have; None until they share one.

    So a grid may be run with one seed, and its winner alone with the others. Of equals the first wins.

    Args:
        index: the runs.
        points: the points of the grid.
        seeds: the seeds that may count.
        by: a dotted path in the record; larger is better.

    Raises:
        ConfigError: if a record has no number there.
    """
    found = {point: {seed: run for seed in seeds if (run := index.find(point, seed)) is not None} for point in points}
    common = [seed for seed in seeds if all(seed in runs for runs in found.values())]
    if not points or not common:
        return None
    means = {point: statistics.fmean(_score(runs[seed], by) for seed in common) for point, runs in found.items()}
    return max(means, key=means.__getitem__)


def _score(found: Found, by: str) -> float:
    value = value_at(found.record, by)
    if not isinstance(value, int | float) or isinstance(value, bool):
        known = [f"{top}.{key}" for top, node in found.record.items() if isinstance(node, Mapping) for key in node]
        raise ConfigError([f"choose: {found.source} has no number at {by!r}{did_you_mean(by, known)}"])
    return float(value)
