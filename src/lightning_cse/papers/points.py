"""Turns the lines of an artefact into points, which are commands without a seed, and composes their
configs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hydra.utils import instantiate
from omegaconf import OmegaConf

from lightning_cse.arguments import quote_free_text
from lightning_cse.config import SAMPLE_DIR
from lightning_cse.config.compose import (
    CompositionError,
    compose,
    compose_run,
    is_choice,
    parse,
)
from lightning_cse.config.suggestions import explain
from lightning_cse.errors import ConfigError, user_error
from lightning_cse.papers import artefacts
from lightning_cse.papers.artefacts import Artefact, Column, Line, Request
from lightning_cse.papers.profiles import profile_encoder, profile_override
from lightning_cse.runs.hashing import evaluation_key, training_key

Command = Literal["train", "evaluate", "describe"]


@dataclass(frozen=True)
class Point:
    """A command without its seed; ``of`` is the training to evaluate, whose run becomes the
    ``model``.
    """

    command: Command
    overrides: tuple[str, ...]
    of: Point | None = None


def points_of(
    artefact: Artefact,
    request: Request,
    line: Line,
    column: Column,
) -> tuple[Point, ...]:
    """Return the points of a cell: several for a grid, those of its row for a baseline, none if
    only published.

    Overrides are applied in this order, and a later one wins: the profile's for all rows, the
    row's, the profile's for this row, the column's, the request's. A setting of the profile or the
    request is left out if only the other command has its key.
    """
    way = line.way
    if isinstance(way, artefacts.Published):
        return ()
    if isinstance(way, artefacts.Baseline):
        measured = artefact.line(way.of, request, like=line)
        return points_of(artefact, request, measured, column)
    if isinstance(way, artefacts.Chosen):
        return tuple(_training(artefact, request, line, column, train) for train in way.among)
    if isinstance(way, artefacts.Train):
        return (_training(artefact, request, line, column, way),)
    head = []
    if way.model:
        is_plain = re.fullmatch(r"[\w./-]*", way.model)
        model = [f"model={way.model}"]
        head = model if is_plain else quote_free_text(model, ["model"])
    head += [f"+suite={way.suite}", *_corpora_of(request.profile)]
    if way.of is None:
        added = _added(artefact, request, line, column)
        return (
            _point(
                "evaluate",
                head,
                way.overrides + added,
                artefact,
                request,
            ),
        )
    training = _training(artefact, request, line, column, way.of)
    return (
        replace(
            _point(
                "evaluate",
                head,
                way.overrides,
                artefact,
                request,
            ),
            of=training,
        ),
    )


def _training(
    artefact: Artefact,
    request: Request,
    line: Line,
    column: Column,
    train: artefacts.Train,
) -> Point:
    head = [f"+experiment={train.experiment}"]
    if request.profile is not None:
        head.append(profile_override(request.profile))
    if request.encoder or request.profile is None or profile_encoder(request.profile) is None:
        head.append(f"encoder={line.encoder}")
    own = train.overrides + _added(artefact, request, line, column)
    return _point("train", head, own, artefact, request)


def _added(
    artefact: Artefact,
    request: Request,
    line: Line,
    column: Column,
) -> tuple[str, ...]:
    """Return the overrides of the profile for a row, and those of the column."""
    return artefact.profile(request).rows.get(line.label, ()) + column.overrides


def _point(
    command: Command,
    head: Sequence[str],
    own: Sequence[str],
    artefact: Artefact,
    request: Request,
) -> Point:
    """Return a point with its own overrides between those of the profile and those of the
    request.
    """
    try:
        settings = tuple(map(artefacts.check_override, request.settings))
    except ValueError as error:
        raise ConfigError([str(error)]) from None
    general = _suiting(
        command,
        tuple(head),
        artefact.profile(request).overrides,
    )
    requested = _suiting(command, tuple(head), settings)
    return Point(command, (*head, *general, *own, *requested))


@functools.cache
def _corpora_of(profile: str | None) -> tuple[str, ...]:
    """Return the overrides that give an evaluation the corpora of a profile and its limits on their
    size.
    """
    if profile is None:
        return ()
    own = compose("train", profile_override(profile))
    default = compose("train")
    limits = []
    for key, value in own.limits.items():
        if value != default.limits[key]:
            limits.append(f"limits.{key}={json.dumps(value)}")
    if Path(own.paths.data_dir) == SAMPLE_DIR:
        return ("corpora=sample", "paths=sample", *limits)
    corpora = str(own.hydra.runtime.choices.corpora)
    is_default = corpora == default.hydra.runtime.choices.corpora
    return tuple(limits) if is_default else (f"corpora={corpora}", *limits)


def _suiting(
    command: Command,
    head: tuple[str, ...],
    settings: Iterable[str],
) -> list[str]:
    """Return the settings for a command: those whose key it has, and those whose key neither
    command has.
    """
    # Some suites add keys to the config; the suite of all tasks has these keys, too.
    other: tuple[Command, tuple[str, ...]] = (
        ("evaluate", ("+suite=all",)) if command == "train" else ("train", ())
    )
    return [one for one in settings if _has(command, head, one) or not _has(*other, one)]


@functools.cache
def _has(
    command: Command,
    head: tuple[str, ...],
    setting: str,
) -> bool:
    """Return whether a command has the group of a setting, or the top-level config node that
    contains its key.
    """
    with explained(command, (*head, setting)):
        parsed = parse(setting)
        chooses, key = is_choice(parsed), parsed.key_or_group
        name = key.partition("@" if chooses else ".")[0]
        groups = {str(group).partition("@")[0] for group in compose(command).hydra.runtime.choices}
        return name in groups or (not chooses and name in compose_run(command, head))


@functools.cache
def composed(point: Point) -> dict[str, Any]:
    """Return the resolved config of a point without the ``hydra`` node; it is shared, so do not
    change it.
    """
    with explained(point.command, point.overrides):
        cfg = compose_run(point.command, point.overrides)
        config: Any = OmegaConf.to_container(cfg, resolve=True)
    return dict(config)


@functools.cache
def key_of(point: Point) -> str:
    """Return the key that the records of a point have; see `lightning_cse.runs.hashing`."""
    config = composed(point)
    if point.command == "train":
        return training_key(config)
    training = None if point.of is None else key_of(point.of)
    return evaluation_key(config, training)


@contextlib.contextmanager
def explained(command: Command, overrides: tuple[str, ...]) -> Iterator[None]:
    """Turn Hydra's errors about overrides into the faults that a command line with these overrides
    reports.
    """
    try:
        yield
    except (*CompositionError, ConfigError) as error:
        known = user_error(error) or explain(error)
        faults = known.faults if isinstance(known, ConfigError) else [str(known)]
        raise ConfigError(
            [f"{command} {' '.join(overrides)}: {fault}" for fault in faults]
        ) from error


def limited(
    point: Point,
    by: str,
    record: Mapping[str, Any],
) -> Point:
    """Return a point that makes as many steps as a finished run, or reads as many sentences (to the
    nearest step).
    """
    if point.of is not None:
        return replace(point, of=limited(point.of, by, record))
    steps = record["steps"]
    if by == "sentences":
        of_step = _sentences_of_step(composed(point))
        sentences = record["sentences_per_second"] * record["seconds"]["training"]
        steps = max(1, round(sentences / of_step))
    # Without max_epochs, since the limit of the experiment could end the training earlier.
    limit = ("trainer.max_epochs=-1", f"trainer.max_steps={steps}")
    return replace(point, overrides=(*point.overrides, *limit))


def _sentences_of_step(config: Mapping[str, Any]) -> int:
    rows = config["data"]["rows"]
    if "llm" in rows:
        name = config["name"]
        fault = f"match.sentences: {name} has rows of several sizes; match.steps suits it"
        raise ConfigError([fault])
    of_row = max(2, len(instantiate(rows).roles))  # a sentence alone is its own positive
    accumulated = config["trainer"]["accumulate_grad_batches"]
    return int(of_row * config["data"]["batch_size"] * accumulated)
