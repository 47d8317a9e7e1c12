"""From the lines of an artefact to points: commands without a seed, and their configs."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from lightning_cse.arguments import quote_free_text
from lightning_cse.config.compose import CompositionError, compose, is_choice, options, parse
from lightning_cse.config.suggestions import explain
from lightning_cse.errors import ConfigError, user_error
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

Command = Literal["train", "evaluate"]


@dataclass(frozen=True)
class Point:
    """A command without its seed; ``of`` is the training whose run is evaluated, which then gives the ``model``."""

    command: Command
    overrides: tuple[str, ...]
    of: Point | None = None


def points_of(artefact: Artefact, line: Line, column: Column, request: Request) -> tuple[Point, ...]:
    """Return the points of a cell: several for a grid, those of its row for a baseline, none for a published number.

    Overrides come in this order, and a later one wins: those of the profile for all rows, of the row, of the profile
    for this row, of the column, of the request. A setting of the profile or the request that only the other command
    has a key for is left out.

    Raises:
        ConfigError: If a setting of the request is not an override of a run.
    """
    if faults := [fault for text in request.settings if (fault := wrong_override(text))]:
        raise ConfigError(faults)
    way = line.way
    if isinstance(way, Published):
        return ()
    if isinstance(way, Baseline):
        other = artefact.line(way.of, request, like=line)
        return points_of(artefact, replace(other, seeds=line.seeds), column, request)
    profile = artefact.profile(request)
    added = (*profile.rows.get(line.label, ()), *column.overrides)

    def point(command: Command, head: tuple[str, ...], own: tuple[str, ...]) -> Point:
        first, last = (_suiting(command, head, settings) for settings in (profile.overrides, request.settings))
        return Point(command, (*head, *first, *own, *last))

    def trained(train: Train) -> Point:
        head = (f"+experiment={train.experiment}",)
        if request.profile is not None:
            head += (profile_override(request.profile),)
        if request.encoder is not None or request.profile is None or profile_encoder(request.profile) is None:
            head += (f"encoder={line.encoder}",)
        return point("train", head, (*train.overrides, *added))

    if isinstance(way, Chosen):
        return tuple(trained(train) for train in way.among)
    if isinstance(way, Train):
        return (trained(way),)
    head = (*([] if way.model is None else [_model(way.model)]), f"+suite={way.suite}", *_sample_of(request.profile))
    if way.of is None:
        return (point("evaluate", head, (*way.overrides, *added)),)
    return (replace(point("evaluate", head, way.overrides), of=trained(way.of)),)


def _model(name: str) -> str:
    plain = f"model={name}"
    return plain if re.fullmatch(r"[\w./-]+", name) else quote_free_text([plain], ["model"])[0]


@functools.cache
def _sample_of(profile: str | None) -> tuple[str, ...]:
    """Return what makes an evaluation read what a profile trains and tests on: its corpora, and as much of them."""
    if profile is None:
        return ()
    own, default = compose("train", profile_override(profile)), compose("train")
    limits = [(key, value) for key, value in own.limits.items() if value != default.limits[key]]
    chosen = tuple(f"limits.{key}={'null' if value is None else value}" for key, value in limits)
    if own.paths.data_dir == sample_dir():
        return ("corpora=sample", "paths=sample", *chosen)
    corpora, others = (str(cfg.hydra.runtime.choices.corpora) for cfg in (own, default))
    return chosen if corpora == others else (f"corpora={corpora}", *chosen)


def _suiting(command: Command, head: tuple[str, ...], settings: Iterable[str]) -> list[str]:
    """Return the settings that are for a command: those it has a key for, and those that neither command has."""
    return [one for one in settings if _has(command, head, one) or not _other_has(command, one)]


@functools.cache
def _other_has(command: Command, setting: str) -> bool:
    if command == "evaluate":
        return _has("train", (), setting)
    return any(_has("evaluate", head, setting) for head in [(), *((f"+suite={one}",) for one in options("suite"))])


@functools.cache
def _has(command: Command, head: tuple[str, ...], setting: str) -> bool:
    """Return whether a command has the group of a setting, or the node at the top of its config that it is below."""
    with _explained(command, (*head, setting)):
        key = parse(setting).key_or_group
        if _chooses(setting):
            return key.partition("@")[0] in {
                str(one).partition("@")[0] for one in compose(command).hydra.runtime.choices
            }
        return key.partition(".")[0] in _base(command, tuple(filter(_chooses, head)))


# Composing -----------------------------------------------------------------------------------------------------------


def composed(point: Point) -> dict[str, Any]:
    """Return the resolved config of a point without Hydra's own part; it is shared, so do not change it.

    Raises:
        ConfigError: If the overrides do not compose.
    """
    return _composed(point.command, point.overrides)


@functools.cache
def _composed(command: Command, overrides: tuple[str, ...]) -> dict[str, Any]:
    with _explained(command, overrides):
        config: Any = OmegaConf.to_container(filled(command, overrides), resolve=True)
    return config


def filled(command: Command, overrides: Iterable[str]) -> DictConfig:
    """Compose a config once for its group choices, and put plain values in: eight times as fast as Hydra alone.

    Deletions, additions and values for a package, which are rare, are left to Hydra.
    """
    parsed = [_parse(line) for line in overrides if not _chooses(line)]
    if any(one.is_delete() or one.is_add() or one.is_sweep_override() or one.package for one in parsed):
        return _without_hydra(compose(command, *overrides))
    cfg = _base(command, tuple(filter(_chooses, overrides))).copy()
    OmegaConf.set_struct(cfg, True)
    for one in parsed:
        OmegaConf.update(cfg, one.key_or_group, one.value(), merge=True, force_add=one.is_force_add())
    return cfg


@functools.cache
def _base(command: Command, choices: tuple[str, ...]) -> DictConfig:
    return _without_hydra(compose(command, *choices))


def _without_hydra(cfg: DictConfig) -> DictConfig:
    return OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])


_parse = functools.cache(parse)


@functools.cache
def _chooses(line: str) -> bool:
    return is_choice(_parse(line))


@contextlib.contextmanager
def _explained(command: Command, overrides: tuple[str, ...]) -> Iterator[None]:
    """Turn what Hydra says of overrides into the faults that a command line with them reports."""
    try:
        yield
    except (*CompositionError, ConfigError) as error:
        known = user_error(error) or explain(overrides, command, error)
        faults = known.faults if isinstance(known, ConfigError) else [str(known)]
        raise ConfigError([f"{command} {' '.join(overrides)}: {fault}" for fault in faults]) from error


@functools.cache
def sample_dir() -> str:
    """Return the folder of the sample corpus."""
    compose("train")  # registers the resolver
    return str(OmegaConf.create({"at": "${sample_dir:}"}).at)
