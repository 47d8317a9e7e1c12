"""Turns the lines of an artefact into points, which are commands without a seed, and composes their configs."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hydra.utils import instantiate
from omegaconf import OmegaConf

from lightning_cse.arguments import quote_free_text
from lightning_cse.config.compose import (
    CompositionError,
    compose,
    compose_run,
    is_choice,
    parse,
)
from lightning_cse.config.key import evaluation_key, training_key
from lightning_cse.config.suggestions import explain
from lightning_cse.data import sample_dir
from lightning_cse.errors import ConfigError, user_error
from lightning_cse.papers import artefacts
from lightning_cse.papers.artefacts import Artefact, Column, Line, Request
from lightning_cse.papers.profiles import profile_encoder, profile_override

Command = Literal["train", "evaluate", "describe"]


@dataclass(frozen=True)
class Point:
    """A command without its seed; ``of`` is the training to evaluate, whose run becomes the ``model``."""

    command: Command
    overrides: tuple[str, ...]
    of: Point | None = None


def points_of(
    artefact: Artefact, request: Request, line: Line, column: Column
) -> tuple[Point, ...]:
    """Return the points of a cell: several for a grid, those of its row for a baseline, none if only published.

    Overrides are applied in this order, and a later one wins: the profile's for all rows, the row's, the profile's for
    this row, the column's, the request's. A setting of the profile or the request is left out if only the other
    command has its key.
    """
    way = line.way
    if isinstance(way, artefacts.Published):
        return ()
    if isinstance(way, artefacts.Baseline):
        return points_of(artefact, request, artefact.line(way.of, request, like=line), column)
    try:
        settings = tuple(map(artefacts.check_override, request.settings))
    except ValueError as error:
        raise ConfigError([str(error)]) from None
    profile, added = (
        artefact.profile(request),
        artefact.profile(request).rows.get(line.label, ()) + column.overrides,
    )

    def point(command: Command, head: tuple[str, ...], own: tuple[str, ...]) -> Point:
        general, asked = (_suiting(command, head, some) for some in (profile.overrides, settings))
        return Point(command, (*head, *general, *own, *asked))

    def trained(train: artefacts.Train) -> Point:
        head = [f"+experiment={train.experiment}"]
        if request.profile is not None:
            head.append(profile_override(request.profile))
        if request.encoder or request.profile is None or profile_encoder(request.profile) is None:
            head.append(f"encoder={line.encoder}")
        return point("train", tuple(head), train.overrides + added)

    if isinstance(way, artefacts.Chosen):
        return tuple(map(trained, way.among))
    if isinstance(way, artefacts.Train):
        return (trained(way),)
    model = [f"model={way.model}"] if way.model else []
    if not re.fullmatch(r"[\w./-]*", way.model or ""):
        model = quote_free_text(model, ["model"])
    head = (*model, f"+suite={way.suite}", *_corpora_of(request.profile))
    if way.of is None:
        return (point("evaluate", head, way.overrides + added),)
    return (replace(point("evaluate", head, way.overrides), of=trained(way.of)),)


@functools.cache
def _corpora_of(profile: str | None) -> tuple[str, ...]:
    """Return the overrides that give an evaluation the corpora of a profile and its limits on their size."""
    if profile is None:
        return ()
    own, default = compose("train", profile_override(profile)), compose("train")
    changed = {key: value for key, value in own.limits.items() if value != default.limits[key]}
    limits = [
        f"limits.{key}={'null' if value is None else value}" for key, value in changed.items()
    ]
    if Path(own.paths.data_dir) == sample_dir():
        return ("corpora=sample", "paths=sample", *limits)
    corpora, others = (str(cfg.hydra.runtime.choices.corpora) for cfg in (own, default))
    return (*([] if corpora == others else [f"corpora={corpora}"]), *limits)


def _suiting(command: Command, head: tuple[str, ...], settings: Iterable[str]) -> list[str]:
    """Return the settings for a command: those whose key it has, and those whose key neither command has."""
    # Some suites add keys to the config; the suite of all tasks has these keys, too.
    other: tuple[Command, tuple[str, ...]] = (
        ("evaluate", ("+suite=all",)) if command == "train" else ("train", ())
    )
    return [one for one in settings if _has(command, head, one) or not _has(*other, one)]


@functools.cache
def _has(command: Command, head: tuple[str, ...], setting: str) -> bool:
    """Return whether a command has the group of a setting, or the top-level config node that contains its key."""
    with explained(command, (*head, setting)):
        parsed = parse(setting)
        chooses, key = is_choice(parsed), parsed.key_or_group
        name = key.partition("@" if chooses else ".")[0]
        groups = {str(group).partition("@")[0] for group in compose(command).hydra.runtime.choices}
        return name in groups or (not chooses and name in compose_run(command, head))


@functools.cache
def composed(point: Point) -> dict[str, Any]:
    """Return the resolved config of a point without the ``hydra`` node; it is shared, so do not change it."""
    with explained(point.command, point.overrides):
        cfg = compose_run(point.command, point.overrides)
        config: Any = OmegaConf.to_container(cfg, resolve=True)
    return dict(config)


@functools.cache
def key_of(point: Point) -> str:
    """Return the key that the records of a point have; see `lightning_cse.config.key`."""
    config = composed(point)
    if point.command == "train":
        return training_key(config)
    training = None if point.of is None else key_of(point.of)
    return evaluation_key(config, training)


@contextlib.contextmanager
def explained(command: Command, overrides: tuple[str, ...]) -> Iterator[None]:
    """Turn Hydra's errors about overrides into the faults that a command line with these overrides reports."""
    try:
        yield
    except (*CompositionError, ConfigError) as error:
        known = user_error(error) or explain(overrides, command, error)
        faults = known.faults if isinstance(known, ConfigError) else [str(known)]
        raise ConfigError(
            [f"{command} {' '.join(overrides)}: {fault}" for fault in faults]
        ) from error


def limited(point: Point, by: str, record: Mapping[str, Any]) -> Point:
    """Return a point that makes as many steps as a finished run, or reads as many sentences (to the nearest step)."""
    if point.of is not None:
        return replace(point, of=limited(point.of, by, record))
    steps, config = record["steps"], composed(point)
    if by == "sentences":
        rows = config["data"]["rows"]
        if "llm" in rows:
            raise ConfigError(
                [
                    f"match.sentences: {config['name']} has rows of several sizes; match.steps suits it"
                ]
            )
        a_row = max(2, len(instantiate(rows).roles))  # a sentence alone is its own positive
        of_step = (
            a_row * config["data"]["batch_size"] * config["trainer"]["accumulate_grad_batches"]
        )
        steps = max(
            1, round(record["sentences_per_second"] * record["seconds"]["training"] / of_step)
        )
    # Without max_epochs, since the limit of the experiment could end the training earlier.
    return replace(
        point, overrides=(*point.overrides, "trainer.max_epochs=-1", f"trainer.max_steps={steps}")
    )
