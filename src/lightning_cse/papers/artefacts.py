"""Files that describe a paper's tables, figures and texts: columns, rows, how rows are obtained,
published numbers.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    model_validator,
)
from pydantic.dataclasses import dataclass

from lightning_cse.config.compose import APPENDED, options
from lightning_cse.config.suggestions import no_option
from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.papers.profiles import profile_encoder

if TYPE_CHECKING:
    pass

Significance = Literal["mcnemar", "mcnemar_all", "bootstrap"]
Source = Literal["metric", "field", "config", "mean"]

_FILE: Final = ConfigDict(
    extra="forbid",
    str_strip_whitespace=True,
    allow_inf_nan=False,
)
_ENCODER: Final = "{encoder}"
_WAYS: Final = ("experiment", "evaluate", "baseline", "published")
_BESIDE: Final = dict.fromkeys(
    ("overrides", "suite", "suite_overrides", "grid", "choose"), "experiment"
)


def check_override(text: str) -> str:
    """Return an override that a run of an artefact may have; raise ValueError for any other
    text.
    """
    name = text.partition("=")[0].lstrip("+~")
    if "=" not in text and not text.startswith("~"):
        raise ValueError(f"{text!r} is not an override of the form key=value")
    if name.partition("@")[0] in ("seed", *APPENDED) or re.match(r"hydra\b", name):
        raise ValueError(f"{text!r} cannot be set here{': use seeds' if name == 'seed' else ''}")
    return text


def _option(*groups: str) -> AfterValidator:
    def check(name: str) -> str:
        if not any(name in options(group) for group in groups):
            raise ValueError(no_option(groups[0], name))
        return name

    return AfterValidator(check)


def _values(adapter: TypeAdapter[Any]) -> BeforeValidator:
    """Read a mapping as the tuple of its values; a fault in a value names its key."""
    return BeforeValidator(
        lambda of: tuple(adapter.validate_python(of).values()) if isinstance(of, dict) else of
    )


Overrides = tuple[Annotated[str, AfterValidator(check_override)], ...]
Encoders = tuple[Annotated[str, _option("encoder")], ...]
Seed = Annotated[int, Field(ge=0, strict=True)]
_COUNT: Final = BeforeValidator(lambda value: tuple(range(value)) if type(value) is int else value)
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), _COUNT]
_Match = Annotated[
    Mapping[Literal["steps", "sentences"], tuple[str, ...]],
    Field(max_length=1),
    BeforeValidator(lambda by: {by: ()} if isinstance(by, str) else by),
]
Suite = Annotated[str, _option("suite")]


@dataclasses.dataclass(frozen=True)
class Train:
    """A training run: an experiment with overrides."""

    experiment: str
    overrides: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """An evaluation of a named model or of a training run; exactly one of ``model`` and ``of`` is
    given.
    """

    suite: Suite
    model: str | None = None
    of: Train | None = None
    overrides: Overrides = ()


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The best training run of a grid: the one whose record has the largest value at the dotted
    path ``by``.
    """

    among: tuple[Train, ...]
    by: str


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A baseline that the runs of another row have measured; ``of`` is the label of that row."""

    name: str
    of: str


@dataclasses.dataclass(frozen=True)
class Published:
    """A row with the paper's numbers only; ``why`` gives the reason why nothing is measured."""

    why: str


Way = Train | Evaluate | Chosen | Baseline | Published


@dataclass(frozen=True, config=_FILE)
class Needs:
    """The environment variable that must be set before a row is run, and why."""

    variable: str
    why: str

    def __str__(self) -> str:
        return f"{self.why}; {self.variable}=1 in the environment runs it"


@dataclass(frozen=True, config=_FILE)
class Column:
    """A column and the source of its values.

    ``keys`` holds one key or dotted path; for a mean, it holds the titles of the columns to
    average. ``instead`` maps the metrics to use for runs that lack the first one to the remarks
    that mark their cells.
    """

    title: str
    source: Source
    keys: tuple[str, ...]
    instead: Mapping[str, str] = field(default_factory=dict, hash=False)
    scale: float = 100.0
    decimals: Annotated[int, Field(ge=0, le=12)] = 2
    overrides: Overrides = ()

    @model_validator(mode="before")
    @classmethod
    def _of_file(cls, node: Any) -> Any:
        if not isinstance(node, dict) or "source" in node:
            return node
        sources = [source for source in get_args(Source) if source in node]
        if len(sources) != 1:
            raise ValueError(f"must have one of {', '.join(get_args(Source))}")
        rest, source = dict(node), sources[0]
        place = rest.pop(source)
        scale = 100.0 if source in ("metric", "field") else 1.0
        return {
            "scale": scale,
            **rest,
            "source": source,
            "keys": place if source == "mean" else [place],
        }


@dataclass(frozen=True, config=_FILE)
class Row:
    """A row; its fields are the keys in the file."""

    label: str
    name: str = ""
    experiment: Annotated[str, _option("experiment")] | None = None
    overrides: Overrides = ()
    suite: Suite | None = None
    suite_overrides: Overrides = ()
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    choose: str = ""
    evaluate: Evaluate | None = None
    baseline: str | None = None
    of: str = ""
    published: str | None = None
    encoders: Encoders | None = None
    seeds: Seeds | None = None
    needs: Needs | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_way(cls, node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        ways = [way for way in _WAYS if way in node]
        if len(ways) != 1:
            raise ValueError(f"must have one of {', '.join(_WAYS)}")
        if wrong := [key for key in node if _BESIDE.get(key, ways[0]) != ways[0]]:
            raise ValueError(f"{wrong[0]} is for rows with {_BESIDE[wrong[0]]}")
        return {"name": node["label"], **node}

    @functools.cached_property
    def way(self) -> Way:
        """How the row is obtained, before the encoder is filled in."""
        if self.evaluate is not None:
            return self.evaluate
        if self.baseline is not None:
            return Baseline(self.baseline, self.of)
        if self.experiment is None:
            return Published(" ".join(str(self.published).split()))
        if self.suite is not None:
            return Evaluate(
                self.suite,
                None,
                Train(self.experiment, self.overrides),
                self.suite_overrides,
            )
        lists = [
            [f"{key}={json.dumps(value)}" for value in values] for key, values in self.grid.items()
        ]
        among = tuple(
            Train(self.experiment, (*self.overrides, *point)) for point in itertools.product(*lists)
        )
        return Chosen(among, self.choose) if self.grid else among[0]


@dataclass(frozen=True, config=_FILE)
class Profile:
    """Additions to ``+profile=NAME``: overrides for all rows, overrides for some rows, and
    seeds.
    """

    overrides: Overrides = ()
    seeds: Seeds | None = None
    rows: Mapping[str, Overrides] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, config=_FILE)
class PublishedValue:
    """A number as the paper printed it; ``encoder`` is None if its row has none."""

    row: str
    encoder: str | None
    column: str
    value: float
    deviation: float | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Request:
    """The user's choices for an artefact, which take precedence over its file; ``only`` holds
    labels of rows.
    """

    profile: str | None = None
    encoder: str | None = None
    seeds: tuple[int, ...] | None = None
    settings: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def within(
        self,
        artefact: Artefact,
        others: Iterable[Artefact],
    ) -> Request | None:
        """Return the part of the request that concerns an artefact; None if only others have the
        requested rows.
        """
        elsewhere = {row.label for other in others for row in other.rows} - {
            row.label for row in artefact.rows
        }
        only = tuple(label for label in self.only if label not in elsewhere)
        return dataclasses.replace(self, only=only) if only or not self.only else None


@dataclasses.dataclass(frozen=True)
class Line:
    """A row with one encoder; ``name`` and ``paper_encoder`` identify the published numbers beside
    it.
    """

    label: str
    name: str
    encoder: str | None
    paper_encoder: str | None
    way: Way
    seeds: tuple[int, ...]
    needs: Needs | None = None


@dataclass(frozen=True, config=_FILE)
class Artefact:
    """A table, figure or text of a paper.

    ``reference`` is the label of the row that ``test`` compares the others with. The rows in
    ``match`` train for as many steps, or read as many sentences, as the first of them; if none is
    named, all trained rows match the reference. ``make`` is the function that makes a figure or a
    text. ``seeds`` and ``encoders`` are the defaults of the rows.
    """

    paper: str
    name: str
    title: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]
    columns: Annotated[tuple[Column, ...], _values(TypeAdapter(dict[str, Column]))] = ()
    reference: str | None = None
    test: Significance | None = None
    match: _Match = field(default_factory=dict, hash=False)
    make: str | None = None
    note: str = ""
    path: Path = Path()
    published: Annotated[
        tuple[PublishedValue, ...], _values(TypeAdapter(dict[str, PublishedValue]))
    ] = ()
    rows: Annotated[tuple[Row, ...], _values(TypeAdapter(dict[str, Row]))] = ()
    seeds: Seeds = (0, 1, 2, 3, 4)
    profiles: Mapping[Annotated[str, _option("profile", "debug")], Profile] = field(
        default_factory=dict,
        hash=False,
    )
    encoders: Encoders = ()

    @property
    def key(self) -> str:
        """Paper and name: ``dualcse/table5``."""
        return f"{self.paper}/{self.name}"

    def profile(self, request: Request) -> Profile:
        """Return this artefact's additions to the requested profile."""
        return self.profiles.get(request.profile or "", Profile())

    def lines(self, request: Request) -> list[Line]:
        """Return the rows with every requested encoder, in the order of the file.

        ``request.encoder``, or a profile that sets an encoder, replaces all encoders of a row, so
        the row becomes one line. A row that evaluates one fixed model keeps it; with another
        encoder, it has only the paper's numbers.
        """
        labels = [row.label for row in self.rows]
        unknown = unknown_names((f"{self.path}: rows", label, labels) for label in request.only)
        if unknown:
            raise ConfigError(unknown)
        if request.encoder is not None and request.encoder not in options("encoder"):
            raise ConfigError([no_option("encoder", request.encoder)])
        given = request.encoder
        if given is None and request.profile:
            given = profile_encoder(request.profile)
        lines: list[Line] = []
        for row in self.rows:
            if not request.only or row.label in request.only:
                lines += self._lines_of(row, request, given)
        return lines

    def line(
        self,
        label: str,
        request: Request,
        *,
        like: Line,
    ) -> Line:
        """Return the line of a row that has the same paper encoder as ``like``, or else the row's
        first line.
        """
        found = self.lines(dataclasses.replace(request, only=(label,)))
        return next((line for line in found if line.paper_encoder == like.paper_encoder), found[0])

    def matched(self, label: str) -> str | None:
        """Return the row that sets the number of steps or sentences of a row; None if the row is
        not matched.
        """
        trained = [row.label for row in self.rows if row.experiment]
        rows = [named or (self.reference or trained[0], *trained) for named in self.match.values()]
        return next((named[0] for named in rows if label in named[1:] and label != named[0]), None)

    def encoders_of(self, row: Row) -> Sequence[str | None]:
        """Return the encoders that a row is repeated for; None stands for a row without one."""
        if row.encoders:
            return row.encoders
        if row.published is not None:
            printed = {value.encoder for value in self.published if value.row == row.name}
            return [encoder for encoder in self.encoders if encoder in printed] or [None]
        alone = row.baseline is not None or (row.evaluate is not None and row.encoders == ())
        return [None] if alone else self.encoders

    def _lines_of(
        self,
        row: Row,
        request: Request,
        given: str | None,
    ) -> Iterator[Line]:
        papers = self.encoders_of(row)
        needs, seeds = self._of_runs(row, request)
        if given is not None and papers[0] is not None:
            papers = [given if given in papers else papers[0]]
        for paper in papers:
            encoder = paper and (given or paper)
            way = _way_with(row.way, encoder, paper)
            yield Line(
                label=row.label,
                name=row.name,
                encoder=paper if isinstance(way, Published) else encoder,
                paper_encoder=paper,
                way=way,
                seeds=seeds,
                needs=needs,
            )

    def _of_runs(
        self,
        row: Row,
        request: Request,
    ) -> tuple[Needs | None, tuple[int, ...]]:
        """Return the needs and the seeds of a row's runs; a baseline has those of the row that
        measures it.
        """
        if row.baseline is not None:
            measured = next(other for other in self.rows if other.label == row.of)
            needs, seeds = self._of_runs(measured, request)
            return row.needs or needs, seeds
        if row.evaluate is not None:
            return row.needs, (0,)  # an evaluation draws nothing at random
        quick = (0,) if request.profile == "tiny" else None
        of_profile = self.profile(request).seeds or quick
        return row.needs, request.seeds or of_profile or row.seeds or self.seeds


def _way_with(
    way: Way,
    encoder: str | None,
    paper: str | None,
) -> Way:
    """Return how a row is obtained with an encoder in place of the paper's."""
    if not isinstance(way, Evaluate) or way.model is None:
        return way
    if _ENCODER in way.model:
        return dataclasses.replace(way, model=way.model.replace(_ENCODER, str(encoder)))
    if encoder != paper:
        return Published(f"{way.model} is a model of its own, so it has no other encoder")
    return way


def unknown_names(refers: Iterable[tuple[str, str, Sequence[str]]]) -> list[str]:
    """Return a fault for each name that is not among the known ones; a reference is its key, name
    and known names.
    """
    return [
        f"{key}: there is no {name!r}{did_you_mean(name, known)}"
        for key, name, known in refers
        if name not in known
    ]
