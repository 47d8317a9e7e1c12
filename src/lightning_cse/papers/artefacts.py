"""A table or a figure of a paper as a file: its rows, its columns, how each is obtained, and what the paper printed."""

from __future__ import annotations

import csv
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.config.compose import APPENDED, compose, options, plain_line
from lightning_cse.errors import ConfigError, did_you_mean

__all__ = [
    "Artefact",
    "Baseline",
    "Chosen",
    "Column",
    "Evaluate",
    "Kind",
    "Line",
    "Needs",
    "Profile",
    "Published",
    "PublishedValue",
    "Request",
    "Row",
    "Significance",
    "Train",
    "Way",
    "find_artefacts",
    "profile_override",
    "read_artefact",
]

Kind = Literal["table", "figure", "text"]
Significance = Literal["mcnemar", "mcnemar_all", "bootstrap"]

PUBLISHED: Final = "published.csv"
"""The file beside the artefacts of a paper that holds its numbers."""

_KINDS: Final[tuple[Kind, ...]] = ("table", "figure", "text")
_TESTS: Final[tuple[Significance, ...]] = ("mcnemar", "mcnemar_all", "bootstrap")
_SEEDS: Final = (0, 1, 2, 3, 4)
_ENCODER: Final = "{encoder}"
_QUICK: Final = "tiny"  # a profile that shows that everything works: its numbers mean nothing, and one seed will do


# ------------------------------------------------------------------------------------------ how a line is obtained


@dataclass(frozen=True)
class Train:
    """A training run: an experiment, and what is set beside it."""

    experiment: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evaluate:
    """An evaluation: of a model by its name, or of what a training run gave; exactly one of ``model`` and ``of``."""

    suite: str
    model: str | None = None
    of: Train | None = None
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chosen:
    """The best of a grid; ``by`` is a dotted path in the record, of which the larger value is the better."""

    among: tuple[Train, ...]
    by: str


@dataclass(frozen=True)
class Baseline:
    """What the runs of another row (its label) measured beside themselves."""

    name: str
    of: str


@dataclass(frozen=True)
class Published:
    """Only what the paper printed, and why nothing is measured."""

    why: str


Way = Train | Evaluate | Chosen | Baseline | Published


@dataclass(frozen=True)
class Needs:
    """The variable of the environment that must be set before a row is run, and why: it costs money, say.

    The file reads the same with and without it. Only what starts runs asks the environment.
    """

    variable: str
    why: str

    def __str__(self) -> str:
        """Return why the row is not run, and what runs it."""
        return f"{self.why}; {self.variable}=1 in the environment runs it"


# ----------------------------------------------------------------------------------------------- what an artefact is


@dataclass(frozen=True)
class Column:
    """Where the values of a column are.

    Args:
        title: the heading.
        source: ``metric``, a key of the record's metrics; ``field``, a dotted path in the record; ``config``, a
            setting of the run, shown as it is; ``mean``, the mean of other columns, seed by seed.
        keys: the one key or path; of a mean the titles of its columns.
        instead: keys that are taken where a metric is not there, and what to say of them.
        scale: what a value is multiplied by (a mean is of columns that are scaled already).
        decimals: digits after the point.
        overrides: what the column adds to the runs of every row.
    """

    title: str
    source: Literal["metric", "field", "config", "mean"]
    keys: tuple[str, ...]
    instead: Mapping[str, str] = field(default_factory=dict, hash=False)
    scale: float = 100.0
    decimals: int = 2
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedValue:
    """A number as the paper printed it; ``encoder`` is None where its row has none."""

    row: str
    encoder: str | None
    column: str
    value: float
    deviation: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Request:
    """What is asked of an artefact beyond its file.

    Args:
        profile: a profile of ``conf/profile``, or ``tiny``.
        encoder: instead of the encoders of the file.
        seeds: instead of the seeds of the file.
        settings: overrides for all runs; those of keys that a command does not have are left out there.
        only: labels of rows; empty for all.
    """

    profile: str | None = None
    encoder: str | None = None
    seeds: tuple[int, ...] | None = None
    settings: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """A row with one encoder.

    Args:
        label: the row's label.
        name: what the published numbers call it.
        encoder: what it is run with here; of a row that is only published, the paper's.
        paper_encoder: the encoder of the file whose published numbers stand beside it.
        way: how it is obtained, the encoder filled in.
        seeds: the seeds asked for.
        needs: what must be set before it is run, None where nothing must.
    """

    label: str
    name: str
    encoder: str | None
    paper_encoder: str | None
    way: Way
    seeds: tuple[int, ...]
    needs: Needs | None = None


@dataclass(frozen=True)
class Row:
    """A row of the file; its encoders are None where it is not repeated by encoder."""

    label: str
    name: str
    way: Way
    encoders: tuple[str, ...] | None
    seeds: tuple[int, ...] | None = None
    needs: Needs | None = None


@dataclass(frozen=True)
class Profile:
    """What a profile needs beyond ``+profile=NAME``: overrides for all rows and for some, and its own seeds."""

    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] | None = None
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Artefact:
    """A table, a figure or a text of a paper: what it shows, how it is obtained, and what was published.

    Args:
        paper: the folder it lies in.
        name: the file's name.
        title: one line.
        source: paper and number.
        kind: what it is.
        columns: its columns.
        reference: the label of the row that the others are tested against.
        test: the test of significance, None without a reference.
        make: the function that makes a figure or a text.
        note: shown below.
        path: the file.
        published: the paper's numbers, in their order.
        rows: its rows.
        seeds: the seeds of rows that have none of their own.
        profiles: by name, what profiles need.
    """

    paper: str
    name: str
    title: str
    source: str
    kind: Kind
    columns: tuple[Column, ...]
    reference: str | None
    test: Significance | None
    make: str | None
    note: str
    path: Path
    published: tuple[PublishedValue, ...] = ()
    rows: tuple[Row, ...] = ()
    seeds: tuple[int, ...] = _SEEDS
    profiles: Mapping[str, Profile] = field(default_factory=dict, hash=False)

    @property
    def key(self) -> str:
        """Paper and name: ``dualcse/table5``."""
        return f"{self.paper}/{self.name}"

    def profile(self, request: Request) -> Profile:
        """What this artefact adds to the profile that is asked for."""
        return self.profiles.get(request.profile or "", Profile())

    def lines(self, request: Request) -> list[Line]:
        """Return the rows, each with every encoder it is asked for with, in the order of the file.

        A profile that sets an encoder, and ``request.encoder``, stand for all encoders of a row: several become one
        line. A row that evaluates a model of its own keeps that model, so with another encoder it is only published.

        Raises:
            ConfigError: if a row of ``request.only``, the encoder or the profile is not known.
        """
        labels = [row.label for row in self.rows]
        unknown = [label for label in request.only if label not in labels]
        if unknown:
            raise ConfigError([f"{self.path}: there is no row {label!r}{_near(label, labels)}" for label in unknown])
        if request.encoder is not None and (fault := _not_an_option("encoder", request.encoder)):
            raise ConfigError([fault])
        given = request.encoder or (profile_encoder(request.profile) if request.profile else None)
        rows = [row for row in self.rows if not request.only or row.label in request.only]
        return [line for row in rows for line in self._lines_of(row, request, given)]

    def line(self, label: str, request: Request, *, like: Line) -> Line:
        """Return the line of a row that has the paper's encoder of another line, or else the row's first.

        Raises:
            ConfigError: as `lines`.
        """
        found = self.lines(Request(request.profile, request.encoder, request.seeds, request.settings, (label,)))
        same = [line for line in found if line.paper_encoder == like.paper_encoder]
        return (same or found)[0]

    def _lines_of(self, row: Row, request: Request, given: str | None) -> Iterator[Line]:
        seeds, needs = self._seeds_of(row, request), self._needs_of(row)
        papers: Sequence[str | None] = row.encoders or [None]
        if given is not None and row.encoders:
            papers = [given if given in row.encoders else row.encoders[0]]
        for paper in papers:
            encoder = given or paper if row.encoders else None
            way, runs_with = _filled(row.way, encoder, paper)
            yield Line(row.label, row.name, runs_with, paper, way, seeds, needs)

    def _needs_of(self, row: Row) -> Needs | None:
        if row.needs is None and isinstance(row.way, Baseline):  # its runs are those of the other row
            label = row.way.of
            return next(other.needs for other in self.rows if other.label == label)
        return row.needs

    def _seeds_of(self, row: Row, request: Request) -> tuple[int, ...]:
        if isinstance(row.way, Evaluate) and row.way.model is not None:
            return (0,)  # nothing is drawn
        if isinstance(row.way, Baseline):
            label = row.way.of
            return next(self._seeds_of(other, request) for other in self.rows if other.label == label)
        if request.seeds is not None:
            return request.seeds
        quick = (0,) if request.profile == _QUICK else None
        return self.profile(request).seeds or quick or row.seeds or self.seeds


def _filled(way: Way, encoder: str | None, paper: str | None) -> tuple[Way, str | None]:
    """Put the encoder into the way, and return with what encoder it is then obtained."""
    if isinstance(way, Published):
        return way, paper
    if isinstance(way, Evaluate) and way.model is not None:
        if _ENCODER in way.model:
            return Evaluate(way.suite, way.model.replace(_ENCODER, str(encoder)), None, way.overrides), encoder
        if encoder != paper:
            return Published(f"{way.model} is a model of its own, which no other encoder stands for"), paper
    return way, encoder


def profile_override(profile: str) -> str:
    """Return the override that chooses a profile: ``+profile=small``, and ``+debug=tiny``.

    Raises:
        ConfigError: if there is no such profile.
    """
    for group in ("profile", "debug"):
        if profile in options(group):
            return f"+{group}={profile}"
    known = [*options("profile"), *options("debug")]
    raise ConfigError(
        [f"there is no profile {profile!r}{did_you_mean(profile, known)} (there are: {', '.join(known)})"]
    )


@functools.cache
def profile_encoder(profile: str) -> str | None:
    """Return the encoder that a profile brings with it, None where it leaves the experiment's.

    Raises:
        ConfigError: if there is no such profile.
    """
    configs = compose("train", profile_override(profile)), compose("train")
    with_it, without = (str(cfg.hydra.runtime.choices.encoder) for cfg in configs)
    return with_it if with_it != without else None


def _not_an_option(group: str, name: str) -> str:
    known = options(group)
    if name in known:
        return ""
    return f"there is no {group} {name!r}{did_you_mean(name, known)} (there are: {', '.join(known)})"


# ---------------------------------------------------------------------------------------------------- reading files


def read_artefact(path: Path) -> Artefact:
    """Read and check an artefact and, from ``published.csv`` beside it, the paper's numbers.

    Args:
        path: ``experiments/<paper>/<name>.yaml``.

    Raises:
        ConfigError: with all faults of the file, each with the file and the key.
    """
    try:
        node = OmegaConf.load(path)
        raw: Any = OmegaConf.to_container(node, resolve=False) if isinstance(node, DictConfig) else None
    except FileNotFoundError:
        known = sorted(file.stem for file in path.parent.glob("*.yaml"))
        there = f" (there are: {', '.join(known)})" if known else ""
        raise ConfigError([f"{path}: there is no such file{did_you_mean(path.stem, known)}{there}"]) from None
    except (OmegaConfBaseException, YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {plain_line(error)}"]) from error
    if not isinstance(raw, dict):
        raise ConfigError([f"{path}: an artefact is a mapping with title, source, columns and rows"])
    return _Reader(path).artefact(raw)


def find_artefacts(folder: Path) -> dict[str, Artefact]:
    """Read all artefacts of a folder of papers, by key (``dualcse/table5``), table2 before table10.

    Raises:
        ConfigError: with all faults of all files.
    """
    found: dict[str, Artefact] = {}
    faults: list[str] = []
    for path in sorted(folder.glob("*/*.yaml"), key=lambda file: (file.parent.name, natural(file.stem))):
        try:
            artefact = read_artefact(path)
        except ConfigError as error:
            faults += error.faults
        else:
            found[artefact.key] = artefact
    if faults:
        raise ConfigError(faults)
    return found


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key of order in which numbers count as numbers.

    Example:
        >>> sorted(["table10", "table2", "figure1"], key=natural)
        ['figure1', 'table2', 'table10']
    """
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part]


_TOP_KEYS: Final = (
    *("title", "source", "kind", "published", "encoders", "seeds", "columns", "rows", "reference", "test"),
    *("profiles", "make", "note"),
)
_COLUMN_SOURCES: Final[tuple[Literal["metric", "field", "config", "mean"], ...]] = ("metric", "field", "config", "mean")
_COLUMN_KEYS: Final = (*_COLUMN_SOURCES, "instead", "scale", "decimals", "overrides")
_ROW_COMMON: Final = ("encoders", "seeds", "name", "needs")
_ROW_WAYS: Final = {
    "experiment": ("overrides", "suite", "suite_overrides", "grid", "choose"),
    "evaluate": (),
    "baseline": ("of",),
    "published": (),
}
_PROFILE_KEYS: Final = ("overrides", "seeds", "rows")


class _Reader:
    """One file: every fault is kept, so that all are told at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults: list[str] = []

    def artefact(self, raw: Mapping[str, Any]) -> Artefact:
        self._known(raw, _TOP_KEYS, "")
        kind = self._one_of(raw.get("kind", "table"), _KINDS, "kind")
        encoders = self._encoders(raw.get("encoders", []), "encoders")
        columns = self._columns(self._mapping(raw.get("columns"), "columns"))
        rows_raw = self._mapping(raw.get("rows"), "rows")
        table = self._text(raw.get("published", self.path.stem), "published")
        numbers = self._published(table, given="published" in raw)
        rows = tuple(self._row(label, row, encoders, numbers) for label, row in rows_raw.items())
        self._references(rows, columns)
        self._covered(numbers, rows, columns, given="published" in raw)
        reference = raw.get("reference")
        labels = [row.label for row in rows]
        if reference is not None and reference not in labels:
            self._fault("reference", f"there is no row {reference!r}{_near(reference, labels)}")
        test = self._one_of(raw.get("test", _TESTS[0]), _TESTS, "test") if reference is not None else None
        if reference is None and "test" in raw:
            self._fault("test", "against which row? - add reference: <label of a row>")
        make = self._text(raw["make"], "make") if "make" in raw else None
        if make is None and kind != "table":
            self._fault("make", f"a {kind} names the function that makes it")
        if make is None and not (rows and columns):
            self._fault("rows" if columns else "columns", "a table needs columns and rows")
        artefact = Artefact(
            paper=self.path.absolute().parent.name,
            name=self.path.stem,
            title=self._line(raw, "title"),
            source=self._line(raw, "source"),
            kind=kind,
            columns=columns,
            reference=reference,
            test=test,
            make=make,
            note=self._text(raw["note"], "note").strip() if "note" in raw else "",
            path=self.path,
            published=self._kept(numbers, rows, columns),
            rows=rows,
            seeds=self._seeds(raw.get("seeds"), "seeds") or _SEEDS,
            profiles=self._profiles(self._mapping(raw.get("profiles"), "profiles"), labels),
        )
        if self.faults:
            raise ConfigError(self.faults)
        return artefact

    # Values

    def _fault(self, key: str, text: str) -> None:
        self.faults.append(f"{self.path}: {key}: {text}" if key else f"{self.path}: {text}")

    def _known(self, raw: Mapping[Any, Any], keys: Iterable[str], below: str) -> None:
        known = list(keys)
        for key in raw:
            if key not in known:
                place = f"{below}.{key}" if below else str(key)
                near = _near(key, known) or f" (there are: {', '.join(known)})"
                self._fault(place, f"unknown key{near}")

    def _mapping(self, value: Any, key: str) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._fault(key, f"{value!r} is no mapping")
            return {}
        return {str(name): inner for name, inner in value.items()}

    def _text(self, value: Any, key: str) -> str:
        if not isinstance(value, str) or not value.strip():
            self._fault(key, f"{value!r} is no text")
            return ""
        return value

    def _line(self, raw: Mapping[str, Any], key: str) -> str:
        if key not in raw:
            self._fault(key, "missing")
            return ""
        text = self._text(raw[key], key).strip()
        if "\n" in text:
            self._fault(key, "is one line")
        return text

    def _texts(self, value: Any, key: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            self._fault(key, f"{value!r} is no list of texts")
            return ()
        return tuple(value)

    def _overrides(self, value: Any, key: str) -> tuple[str, ...]:
        texts = self._texts(value, key)
        for text in texts:
            if fault := wrong_override(text):
                self._fault(key, fault)
        return texts

    def _one_of(self, value: Any, known: Sequence[Any], key: str) -> Any:
        if value not in known:
            self._fault(key, f"{value!r} is not one of {', '.join(known)}{_near(value, known)}")
            return known[0]
        return value

    def _option(self, group: str, value: Any, key: str) -> str:
        name = self._text(value, key)
        if name and (fault := _not_an_option(group, name)):
            self._fault(key, fault)
        return name

    def _encoders(self, value: Any, key: str) -> tuple[str, ...]:
        names = self._texts(value, key)
        for name in names:
            self._option("encoder", name, key)
        if len(set(names)) < len(names):
            self._fault(key, "names an encoder twice")
        return names

    def _seeds(self, value: Any, key: str) -> tuple[int, ...] | None:
        if value is None:
            return None
        seeds = list(range(value)) if isinstance(value, int) and not isinstance(value, bool) else value
        whole = isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds)
        if not whole or not seeds or len(set(seeds)) < len(seeds):
            self._fault(key, f"{value!r} is neither a number of seeds nor a list of different ones")
            return None
        return tuple(seeds)

    # Columns

    def _columns(self, raw: Mapping[str, Any]) -> tuple[Column, ...]:
        columns = tuple(self._column(title, node) for title, node in raw.items())
        by_title = {column.title: column for column in columns}
        for column in columns:
            for title in column.keys if column.source == "mean" else ():
                if title not in by_title:
                    self._fault(f"columns.{column.title}.mean", f"there is no column {title!r}{_near(title, by_title)}")
                elif by_title[title].source in ("mean", "config"):
                    self._fault(f"columns.{column.title}.mean", f"{title!r} holds no measured value")
        return columns

    def _column(self, title: str, node: Any) -> Column:
        key = f"columns.{title}"
        raw = {"metric": node} if isinstance(node, str) else self._mapping(node, key)
        self._known(raw, _COLUMN_KEYS, key)
        sources = [source for source in _COLUMN_SOURCES if source in raw]
        if len(sources) != 1:
            self._fault(key, f"where is the value? - give one of {', '.join(_COLUMN_SOURCES)}")
            return Column(title, "metric", ("",))
        source = sources[0]
        below = f"{key}.{source}"
        keys = self._texts(raw[source], below) if source == "mean" else (self._text(raw[source], below),)
        instead = {
            name: self._text(why, f"{key}.instead.{name}")
            for name, why in self._mapping(raw.get("instead"), f"{key}.instead").items()
        }
        if instead and source != "metric":
            self._fault(f"{key}.instead", "only a metric has another in its place")
        for metric in (*keys, *instead) if source == "metric" else ():
            if metric and not metric.startswith("test/"):
                self._fault(key, f"{metric!r} is no metric of a record, which begin with test/")
        measured = source in ("metric", "field")
        scale = raw.get("scale", 100.0 if measured else 1.0)
        decimals = raw.get("decimals", 2)
        if not isinstance(scale, int | float) or isinstance(scale, bool):
            self._fault(f"{key}.scale", f"{scale!r} is no number")
            scale = 1.0
        if type(decimals) is not int or not 0 <= decimals <= 12:
            self._fault(f"{key}.decimals", f"{decimals!r} is no number of digits")
            decimals = 2
        overrides = self._overrides(raw.get("overrides", []), f"{key}.overrides")
        return Column(title, source, keys, instead, float(scale), decimals, overrides)

    # Rows

    def _row(
        self, label: str, node: Any, encoders: tuple[str, ...], numbers: Sequence[tuple[int, PublishedValue]]
    ) -> Row:
        key = f"rows.{label}"
        raw = self._mapping(node, key)
        ways = [way for way in _ROW_WAYS if way in raw]
        if len(ways) != 1:
            self._fault(key, f"how is it obtained? - give one of {', '.join(_ROW_WAYS)}")
            return Row(label, label, Published(""), None)
        way = ways[0]
        self._known(raw, (way, *_ROW_WAYS[way], *_ROW_COMMON), key)
        name = self._text(raw["name"], f"{key}.name") if "name" in raw else label
        own = self._encoders(raw["encoders"], f"{key}.encoders") if "encoders" in raw else None
        repeated: tuple[str, ...] | None
        if way == "published":
            printed = {value.encoder for _, value in numbers if value.row == name} - {None}
            repeated = own or tuple(encoder for encoder in encoders if encoder in printed) or None
        elif way == "baseline":
            repeated = own
        elif way == "evaluate" and raw.get("encoders") == []:
            repeated = None  # a model without an encoder
        else:
            repeated = own or encoders
            if not repeated:
                self._fault(key, "with which encoder? - add encoders: [...] to the file or to the row")
        obtained: Way
        if way == "experiment":
            obtained = self._trained(raw, key)
        elif way == "evaluate":
            obtained = self._evaluated(self._mapping(raw[way], f"{key}.{way}"), f"{key}.{way}")
        elif way == "baseline":
            obtained = Baseline(self._text(raw[way], f"{key}.{way}"), self._text(raw.get("of"), f"{key}.of"))
        else:
            obtained = Published(" ".join(self._text(raw[way], f"{key}.{way}").split()))
        needs = self._needs(raw["needs"], f"{key}.needs") if "needs" in raw else None
        if needs is not None and isinstance(obtained, Published):
            self._fault(f"{key}.needs", "nothing is run of a row that is only published")
        return Row(label, name, obtained, repeated, self._seeds(raw.get("seeds"), f"{key}.seeds"), needs)

    def _needs(self, node: Any, key: str) -> Needs:
        raw = self._mapping(node, key)
        self._known(raw, ("variable", "why"), key)
        variable = self._text(raw.get("variable"), f"{key}.variable")
        if variable and not re.fullmatch(r"[A-Za-z_]\w*", variable, re.ASCII):
            self._fault(f"{key}.variable", f"{variable!r} is no name of a variable")
        return Needs(variable, " ".join(self._text(raw.get("why"), f"{key}.why").split()))

    def _trained(self, raw: Mapping[str, Any], key: str) -> Way:
        experiment = self._option("experiment", raw["experiment"], f"{key}.experiment")
        overrides = self._overrides(raw.get("overrides", []), f"{key}.overrides")
        if ("grid" in raw) != ("choose" in raw):
            self._fault(key, "grid and choose go together: the points, and by what the best of them is told")
        if "suite_overrides" in raw and "suite" not in raw:
            self._fault(f"{key}.suite_overrides", "of which evaluation? - add suite: <name>")
        if "grid" in raw:
            if "suite" in raw:
                self._fault(f"{key}.suite", "a row is chosen from a grid, or evaluated on a suite, not both")
            points = self._grid(self._mapping(raw["grid"], f"{key}.grid"), f"{key}.grid")
            among = tuple(Train(experiment, (*overrides, *point)) for point in points)
            return Chosen(among, self._text(raw.get("choose"), f"{key}.choose"))
        if "suite" in raw:
            suite = self._option("suite", raw["suite"], f"{key}.suite")
            options = self._overrides(raw.get("suite_overrides", []), f"{key}.suite_overrides")
            return Evaluate(suite, None, Train(experiment, overrides), options)
        return Train(experiment, overrides)

    def _grid(self, raw: Mapping[str, Any], key: str) -> list[tuple[str, ...]]:
        lists = []
        for name, values in raw.items():
            if not isinstance(values, list) or not values or any(isinstance(value, list | dict) for value in values):
                self._fault(f"{key}.{name}", f"{values!r} is no list of plain values")
                continue
            lists.append([f"{name}={_written(value)}" for value in values])
        if not lists:
            self._fault(key, "names no values")
        return list(itertools.product(*lists))

    def _evaluated(self, raw: Mapping[str, Any], key: str) -> Evaluate:
        self._known(raw, ("model", "suite", "overrides"), key)
        model = self._text(raw.get("model"), f"{key}.model")
        suite = self._option("suite", raw.get("suite"), f"{key}.suite")
        return Evaluate(suite, model, None, self._overrides(raw.get("overrides", []), f"{key}.overrides"))

    def _references(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        """Check what rows say of other rows."""
        by_label = {row.label: row for row in rows}
        for row in rows:
            if isinstance(row.way, Baseline) and row.way.of:
                of = by_label.get(row.way.of)
                if of is None:
                    self._fault(f"rows.{row.label}.of", f"there is no row {row.way.of!r}{_near(row.way.of, by_label)}")
                elif not isinstance(of.way, Train):
                    self._fault(f"rows.{row.label}.of", f"the row {row.way.of!r} is no training run")

    # What was published

    def _published(self, table: str, *, given: bool) -> list[tuple[int, PublishedValue]]:
        """Return the numbers of a table, each with its line in the file."""
        path = self.path.with_name(PUBLISHED)
        if not path.is_file():
            return []
        numbers: list[tuple[int, PublishedValue]] = []
        try:
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file, strict=True)
                missing = {"table", "row", "encoder", "column", "value"} - set(reader.fieldnames or ())
                if missing:
                    self.faults.append(f"{path}, line 1: the columns {', '.join(sorted(missing))} are missing")
                    return []
                for line in reader:
                    if line["table"] == table:
                        numbers += self._number(line, f"{path}, line {reader.line_num}", reader.line_num)
        except (csv.Error, UnicodeDecodeError) as error:
            self.faults.append(f"{path}: {error}")
            return []
        if given and not numbers:
            self._fault("published", f"{path} has no table {table!r}")
        return numbers

    def _number(self, line: Mapping[str, str], where: str, number: int) -> list[tuple[int, PublishedValue]]:
        try:
            value = float(line["value"])
            deviation = float(line["deviation"]) if line.get("deviation") else None
        except (TypeError, ValueError):
            self.faults.append(f"{where}: {line['value']!r}, {line.get('deviation')!r}: no numbers")
            return []
        if not all(math.isfinite(one) for one in (value, deviation or 0.0)):
            self.faults.append(f"{where}: {line['value']!r} is no number that was measured")
            return []
        note = line.get("note") or ""
        return [(number, PublishedValue(line["row"], line["encoder"] or None, line["column"], value, deviation, note))]

    def _covered(
        self,
        numbers: Sequence[tuple[int, PublishedValue]],
        rows: Sequence[Row],
        columns: Sequence[Column],
        *,
        given: bool,
    ) -> None:
        """Refuse numbers that no row, encoder or column asks for; of another file's table some may be left out."""
        encoders: dict[str, set[str | None]] = {}
        for row in rows:
            encoders.setdefault(row.name, set()).update(row.encoders or (None,))
        titles = [column.title for column in columns]
        seen: dict[tuple[str, str | None, str], int] = {}
        for line, value in numbers:
            where = f"{self.path.with_name(PUBLISHED)}, line {line}"
            cell = (value.row, value.encoder, value.column)
            if cell in seen:
                self.faults.append(f"{where}: the same cell as line {seen[cell]}")
            seen[cell] = line
            if given:
                continue
            if value.row not in encoders:
                self.faults.append(f"{where}: {self.path.name} has no row {value.row!r}{_near(value.row, encoders)}")
            elif value.encoder not in encoders[value.row]:
                its = ", ".join(sorted(str(name or "none") for name in encoders[value.row]))
                told = f"the row {value.row!r} has no encoder {value.encoder or 'none'!r}"
                self.faults.append(f"{where}: in {self.path.name} {told} (there are: {its})")
            if value.column not in titles:
                near = _near(value.column, titles)
                self.faults.append(f"{where}: {self.path.name} has no column {value.column!r}{near}")

    @staticmethod
    def _kept(
        numbers: Sequence[tuple[int, PublishedValue]], rows: Sequence[Row], columns: Sequence[Column]
    ) -> tuple[PublishedValue, ...]:
        cells = {(row.name, encoder) for row in rows for encoder in row.encoders or (None,)}
        titles = {column.title for column in columns}
        return tuple(value for _, value in numbers if (value.row, value.encoder) in cells and value.column in titles)

    # Profiles

    def _profiles(self, raw: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Profile]:
        profiles = {}
        for name, node in raw.items():
            key = f"profiles.{name}"
            try:
                profile_override(name)
            except ConfigError as error:
                self._fault(key, error.faults[0])
                continue
            inner = self._mapping(node, key)
            self._known(inner, _PROFILE_KEYS, key)
            of_rows = self._mapping(inner.get("rows"), f"{key}.rows")
            for label in of_rows:
                if label not in labels:
                    self._fault(f"{key}.rows.{label}", f"there is no such row{_near(label, labels)}")
            profiles[name] = Profile(
                self._overrides(inner.get("overrides", []), f"{key}.overrides"),
                self._seeds(inner.get("seeds"), f"{key}.seeds"),
                {label: self._overrides(lines, f"{key}.rows.{label}") for label, lines in of_rows.items()},
            )
        return profiles


def wrong_override(text: str) -> str:
    """Return what makes an override none that a row, a column or a profile may add, or an empty string."""
    key, equals, _ = text.partition("=")
    name = key.lstrip("+~")
    if not equals and not text.startswith("~"):
        return f"{text!r} is no override, which is key=value"
    if name == "seed":
        return f"{text!r}: seeds are chosen with seeds"
    if name.partition("@")[0] in APPENDED or name.partition(".")[0].partition("/")[0] == "hydra":
        return f"{text!r}: what is run decides that, not an override"
    return ""


def _written(value: Any) -> str:
    """Return a plain value as Hydra reads it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _near(word: Any, known: Iterable[str]) -> str:
    return did_you_mean(str(word), known)
