"""The points of a sweep: a list that need be no rectangle, and what every point of it takes from the command line."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped,unused-ignore]
from hydra.core.override_parser.types import Override

from lightning_cse.errors import ConfigError


@dataclass(frozen=True)
class ListedPoint:
    """One point as it was written: where it stands (``points.yaml, point 3``), and its overrides."""

    place: str
    overrides: tuple[str, ...]


def listed_points(file: str | None, points: Sequence[Any] | None) -> list[ListedPoint]:
    """Read the points of ``hydra/sweeper=points``, from a YAML file or from the config.

    Args:
        file: ``hydra.sweeper.file``, a YAML list of lists of overrides.
        points: ``hydra.sweeper.points``, the same as plain containers.

    Raises:
        ConfigError: unless exactly one of the two is given, and it is a list of different lists of texts.
    """
    if (file is None) == (points is None):
        what = "both are set, of which one is too many" if file is not None else "neither is set"
        raise ConfigError(
            [f"hydra/sweeper=points takes its points from hydra.sweeper.file=FILE or hydra.sweeper.points: {what}"]
        )
    if file is None:
        return _checked("hydra.sweeper.points", points)
    path = Path(file).expanduser()
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise ConfigError([f"hydra.sweeper.file={file}: cannot be read ({why})"]) from error
    return _checked(str(file), found)


def _checked(place: str, found: Any) -> list[ListedPoint]:
    shape = "a list of points, each a list of overrides: [[+experiment=..., seed=0], ...]"
    if not isinstance(found, list) or not found:
        what = f"is of type {type(found).__name__}" if found else "holds no points"
        raise ConfigError([f"{place}: {what}; what is needed is {shape}"])
    faults = []
    points: dict[tuple[str, ...], str] = {}
    for number, point in enumerate(found):
        name = f"{place}, point {number}"
        if not isinstance(point, list):
            faults.append(f"{name}: {point!r} is no list of overrides, such as [+experiment=dualcse_cross, seed=0]")
        elif wrong := [item for item in point if not isinstance(item, str)]:
            shown = "key=value, quoted if it has a comma or a bracket"
            faults.append(f"{name}: {wrong[0]!r} is no override, which is one text: {shown}")
        elif tuple(sorted(point)) in points:
            faults.append(f"{name}: the same as {points[tuple(sorted(point))]}")
        else:
            points[tuple(sorted(point))] = name
    if faults:
        raise ConfigError(faults)
    return [ListedPoint(f"{place}, point {number}", tuple(map(str.strip, point))) for number, point in enumerate(found)]


def not_of_one_point(override: Override) -> str:
    """Return why an override cannot stand in a listed point, or an empty string."""
    if override.is_hydra_override():
        return "settings of Hydra hold for the whole sweep and go on the command line"
    if override.is_sweep_override():
        return "a point has one value a key: write a point for each, or give the values on the command line"
    return ""


def merged(shared: Iterable[Override], own: Sequence[Override]) -> list[Override]:
    """What one point is made of: what holds for all points, unless it sets the same itself, and its own."""
    taken = {(override.key_or_group, override.package) for override in own}
    return [*(other for other in shared if (other.key_or_group, other.package) not in taken), *own]


def rectangle(overrides: Iterable[Override]) -> Iterator[list[str]]:
    """The points of a grid: every combination of the values, the last key's changing fastest; a later key wins.

    An interval is none of these values: the caller has refused it.
    """
    lines: dict[str, list[str]] = {}
    for override in overrides:
        key = override.get_key_element()
        swept = override.is_sweep_override()
        lines[key] = [f"{key}={v}" for v in override.sweep_string_iterator()] if swept else [single_line(override)]
    for combination in itertools.product(*lines.values()):
        yield list(combination)


def single_line(override: Override) -> str:
    """An override that is no sweep, as Hydra reads it back."""
    key = override.get_key_element()
    if override.is_delete():
        return override.input_line or key
    return f"{key}={override.get_value_element_as_str()}"


def params_lines(params: Mapping[str, Any] | None) -> list[str]:
    """``hydra.sweeper.params`` as overrides."""
    return [f"{key}={value}" for key, value in (params or {}).items()]
