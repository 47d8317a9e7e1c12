"""Turns the lines of a spec into points, which are commands without a seed, and composes their
configs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

from lightning_cse.arguments import hydra_text
from lightning_cse.config.compose import CompositionError, compose, compose_run
from lightning_cse.config.suggestions import explain
from lightning_cse.errors import ConfigError, user_error
from lightning_cse.paths import SAMPLE_DIR
from lightning_cse.runs.keys import evaluation_key, generation_key, training_keys
from lightning_cse.tables.spec import Column, Names, Request, Spec, profile_override

Command = Literal["train", "evaluate", "generate", "describe"]


# Some suites and patterns add keys to the config; these have them, too.
_SETTLED: dict[Command, Names] = {
    "train": (),
    "evaluate": ("+suite=all",),
    "generate": ("+pattern=sts",),
}
"""The overrides with which the config of a command has all of its groups and keys."""


@dataclass(frozen=True)
class Point:
    """A command without its seed; ``of`` is the training to evaluate, whose run becomes the
    ``model``.
    """

    command: Command
    overrides: Names
    of: Point | None = None


def points_of(spec: Spec, request: Request, line: Any, column: Column) -> tuple[Point, ...]:
    """Return the points of a cell of a line (`Spec.lines`): several for a grid, those of its row
    for a baseline, none if only published.

    Overrides are applied in this order, and a later one wins: the profile's for all rows, the
    row's, the profile's for this row, the column's, the request's. A setting of the profile or the
    request is left out if only the other command has its key.
    """
    if line.published:
        return ()

    if line.baseline:
        return points_of(spec, request, spec.line(line.of, request, like=line), column)

    profile = spec.profile(request)

    def point(command: Command, head: Names, of_row: Names) -> Point:
        general = _suiting(command, profile.overrides)
        return Point(command, (*head, *general, *of_row, *_suiting(command, request.settings)))

    added = profile.rows.get(line.label, ()) + column.overrides
    corpora = _corpora_of(request.profile)
    if line.evaluate:
        model = line.evaluate.model.replace("{encoder}", line.encoder)
        head = (f"model={hydra_text(model)}", f"+suite={line.evaluate.suite}", *corpora)
        return (point("evaluate", head, line.evaluate.overrides + added),)

    if line.generate:
        head = (*_suiting("generate", corpora), f"encoder={line.encoder}", *line.generate)
        return (point("generate", head, line.overrides + added),)

    small = (profile_override(request.profile),) if request.profile else ()
    head = (f"+experiment={line.experiment}", *small, f"encoder={line.encoder}")
    lists = [[f"{key}={json.dumps(value)}" for value in of] for key, of in line.grid.items()]
    trainings = [
        point("train", head, (*line.overrides, *values, *added))
        for values in itertools.product(*lists)
    ]
    if not line.suite:
        return tuple(trainings)

    evaluation = point("evaluate", (f"+suite={line.suite}", *corpora), line.suite_overrides)

    return tuple(replace(evaluation, of=training) for training in trainings)


@functools.cache
def _corpora_of(profile: str | None) -> Names:
    """Return the overrides that give an evaluation the corpora of a profile and its limits on their
    size.
    """
    if profile is None:
        return ()

    config = compose("train", profile_override(profile))
    default = compose("train")
    corpora = str(config.hydra.runtime.choices.corpora)
    overrides = []
    if Path(config.paths.data_dir) == SAMPLE_DIR:
        overrides = ["corpora=sample", "paths=sample"]
    elif corpora != default.hydra.runtime.choices.corpora:
        overrides = [f"corpora={corpora}"]

    for key, value in config.limits.items():
        if value != default.limits[key]:
            overrides.append(f"limits.{key}={json.dumps(value)}")

    return tuple(overrides)


def _suiting(command: Command, settings: Names) -> Names:
    """Return the settings for a command: all but those whose key only another command has."""
    foreign = frozenset().union(*map(_names, _SETTLED)) - _names(command)

    return tuple(setting for setting in settings if _root(setting) not in foreign)


def _root(setting: str) -> str:
    return setting.lstrip("+~").partition("=")[0].partition("@")[0].partition(".")[0]


@functools.cache
def _names(command: Command) -> frozenset[str]:
    """Return the groups and the top-level keys of a command's config."""
    config = compose(command, *_SETTLED[command])
    groups = {str(group).partition("@")[0] for group in config.hydra.runtime.choices}

    return frozenset({*groups, *map(str, config)})


@functools.cache
def composed(point: Point) -> dict[str, Any]:
    """Return the resolved config of a point without the ``hydra`` node; it is shared, so do not
    change it.
    """
    with explained(point.command, point.overrides):
        cfg = compose_run(point.command, point.overrides)
        config: Any = OmegaConf.to_container(cfg, resolve=True)

    return dict(config)


def key_of(point: Point) -> str:
    """Return the key that the records of a point have; see `lightning_cse.runs.keys`."""
    return keys_of(point)[0]


@functools.cache
def keys_of(point: Point) -> tuple[str, ...]:
    """Return the key of a point and those of the runs that may be the same in another precision."""
    config = composed(point)
    if point.command == "train":
        return training_keys(config)

    if point.command == "generate":
        return (generation_key(config),)

    trainings = (None,) if point.of is None else keys_of(point.of)

    return tuple(evaluation_key(config, training) for training in trainings)


@contextlib.contextmanager
def explained(command: Command, overrides: Names) -> Iterator[None]:
    """Turn Hydra's errors about overrides into the faults that a command line with these overrides
    reports.
    """
    try:
        yield
    except (*CompositionError, ConfigError) as error:
        explanation = user_error(error) or explain(error, overrides, command)
        faults = explanation.faults if isinstance(explanation, ConfigError) else [str(explanation)]
        raise ConfigError(
            [f"{command} {' '.join(overrides)}: {fault}" for fault in faults]
        ) from error


def limited(point: Point, steps: int) -> Point:
    """Return a point that makes this many steps."""
    if point.of is not None:
        return replace(point, of=limited(point.of, steps))

    # Without max_epochs, since the limit of the experiment could end the training earlier.
    limit = ("trainer.max_epochs=-1", f"trainer.max_steps={steps}")

    return replace(point, overrides=(*point.overrides, *limit))
