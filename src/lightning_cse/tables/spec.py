"""What the file of a table, figure or text says: columns, rows, how rows are obtained, published
numbers.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pandas as pd
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from lightning_cse.config.compose import compose

Significance = Literal["mcnemar", "mcnemar_all"]
Source = Literal["metric", "field", "config", "mean", "difference"]
COMPUTED = ("mean", "difference")
"""Sources that name other columns."""

_FILE = ConfigDict(extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)
_WAYS = ("experiment", "evaluate", "generate", "baseline", "published")


def _values(adapter: TypeAdapter[Any]) -> BeforeValidator:
    """Read a mapping as the tuple of its values; a fault in a value names its key."""
    return BeforeValidator(
        lambda of: tuple(adapter.validate_python(of).values()) if isinstance(of, dict) else of
    )


def _one_of(keys: Sequence[str], node: Mapping[str, Any]) -> str:
    """Return the one of these keys that a node has."""
    present = [key for key in keys if key in node]
    if len(present) != 1:
        raise ValueError(f"must have one of {', '.join(keys)}")

    return present[0]


Names = tuple[str, ...]
_COUNT = BeforeValidator(lambda value: tuple(range(value)) if type(value) is int else value)
Seeds = Annotated[tuple[int, ...], Field(min_length=1), _COUNT]


@dataclass(frozen=True, config=_FILE)
class Evaluate:
    """An evaluation of a model by name, in which ``{encoder}`` is the encoder of the line."""

    suite: str
    model: str
    overrides: Names = ()


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
    average, and for a difference, those of the first column and of the one that is subtracted.
    ``instead`` maps the metrics to use for runs that lack the first one to the remarks
    that mark their cells. ``absent`` is the value of a run that has other metrics of the task but
    not this one, such as a share of ties.
    """

    title: str
    source: Source
    keys: tuple[str, ...]
    instead: Mapping[str, str] = field(default_factory=dict, hash=False)
    absent: float | None = None
    scale: float = 100.0
    decimals: int = 2
    overrides: Names = ()

    @model_validator(mode="before")
    @classmethod
    def _of_file(cls, node: Any) -> Any:
        source = _one_of(get_args(Source), node)
        scale = 100.0 if source in ("metric", "field") else 1.0
        node = {"scale": scale, "source": source, **node}
        keys = node.pop(source)

        if source == "difference" and len(keys) != 2:
            raise ValueError("difference: needs two columns")

        return {**node, "keys": keys if source in COMPUTED else [keys]}


@dataclass(frozen=True, config=_FILE)
class Row:
    """A row; its fields are the keys in the file."""

    label: str
    name: str
    experiment: str | None = None
    overrides: Names = ()
    suite: str | None = None
    suite_overrides: Names = ()
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    evaluate: Evaluate | None = None
    generate: Names = ()
    baseline: str | None = None
    of: str = ""
    published: str = ""
    encoders: Names | None = None
    seeds: Seeds | None = None
    needs: Needs | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_way(cls, node: Any) -> Any:
        _one_of(_WAYS, node)

        return node


LINE = [*(field.name for field in dataclasses.fields(Row)), "encoder", "paper_encoder"]
"""The columns of `Spec.lines`."""


@dataclass(frozen=True, config=_FILE)
class Profile:
    """Additions to ``+profile=NAME``: overrides for all rows, overrides for some rows, and
    seeds.

    With ``keep_encoders``, the rows keep the encoders of the file.
    """

    overrides: Names = ()
    seeds: Seeds | None = None
    rows: Mapping[str, Names] = field(default_factory=dict, hash=False)
    keep_encoders: bool = False


PUBLISHED = ["row", "encoder", "column", "value", "deviation", "note"]
"""The columns of the paper's numbers; ``encoder`` is empty where its row has none."""


@dataclasses.dataclass(frozen=True)
class Request:
    """The user's choices for a spec, which take precedence over its file; ``only`` holds
    labels of rows, ``config_dir`` the folder of configs beside ``conf/``.
    """

    profile: str | None = None
    encoder: str | None = None
    seeds: tuple[int, ...] | None = None
    settings: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    config_dir: str | None = None


@dataclass(frozen=True, config=ConfigDict(**_FILE, arbitrary_types_allowed=True))
class Spec:
    """A table, figure or text of a paper.

    ``reference`` is the label of the row that ``test`` compares the others with. The rows in
    ``match`` train for as many steps as the first of them. ``make`` is the function,
    ``module:function``, that makes a figure or a text. ``seeds`` and ``encoders`` are the defaults
    of the rows; ``published`` has the paper's numbers: `PUBLISHED`.
    """

    paper: str
    name: str
    title: str
    source: str
    columns: Annotated[tuple[Column, ...], _values(TypeAdapter(dict[str, Column]))] = ()
    reference: str | None = None
    test: Significance | None = None
    match: Names = ()
    make: str | None = None
    note: str = ""
    path: Path = Path()
    published: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=PUBLISHED))
    rows: Annotated[tuple[Row, ...], _values(TypeAdapter(dict[str, Row]))] = ()
    seeds: Seeds = (0, 1, 2, 3, 4)
    profiles: Mapping[str, Profile] = field(default_factory=dict, hash=False)
    encoders: Names = ()

    @property
    def key(self) -> str:
        """Paper and name: ``dualcse/table5``."""
        return f"{self.paper}/{self.name}"

    def profile(self, request: Request) -> Profile:
        """Return this spec's additions to the requested profile."""
        return self.profiles.get(request.profile or "", Profile())

    def lines(self, request: Request) -> pd.DataFrame:
        """Return the requested rows with every requested encoder: the fields of `Row`, with those
        of the file replaced by what the request makes of them.

        ``encoder`` is the encoder of the line and ``paper_encoder`` that of the paper's numbers
        beside it; both are empty for a row without one. ``published`` says why a line has only the
        paper's numbers. ``request.encoder``, or a profile that sets an encoder, replaces all
        encoders of a row, so the row becomes one line. A row that evaluates one fixed model keeps
        it; with another encoder, it has only the paper's numbers.
        """
        rows = [row for row in self.rows if not request.only or row.label in request.only]
        lines = [line for row in rows for line in self._lines_of(row, request)]

        return pd.DataFrame(lines, columns=LINE, dtype=object)

    def line(self, label: str, request: Request, *, like: Any) -> Any:
        """Return the line of a row that has the same paper encoder as the line ``like``, or else
        the row's first line.
        """
        lines = [*self.lines(dataclasses.replace(request, only=(label,))).itertuples()]
        return next((line for line in lines if line.paper_encoder == like.paper_encoder), lines[0])

    def matched(self, label: str) -> str | None:
        """Return the row that sets the number of steps of a row; None if the row is not matched."""
        return self.match[0] if label in self.match[1:] else None

    def encoders_of(self, row: Row) -> Sequence[str]:
        """Return the encoders that a row is repeated for; an empty text for a row without one."""
        if row.encoders:
            return row.encoders

        if row.published:
            printed = set(self.published.loc[self.published["row"] == row.name, "encoder"])
            return [encoder for encoder in self.encoders if encoder in printed] or [""]

        is_alone = row.baseline or (row.evaluate and row.encoders == ())

        return [""] if is_alone else self.encoders

    def _lines_of(self, row: Row, request: Request) -> Iterator[dict[str, Any]]:
        # A baseline is measured by the runs of another row.
        measured = {row.label: row for row in self.rows}[row.of or row.label]
        profile = self.profile(request)
        quick = (0,) if request.profile == "tiny" else None
        seeds = request.seeds or profile.seeds or quick or measured.seeds or self.seeds
        replacement = request.encoder
        if request.profile and not request.encoder and not profile.keep_encoders:
            replacement = profile_encoder(request.profile)

        encoders = self.encoders_of(row)
        if replacement and encoders[0]:
            encoders = [replacement if replacement in encoders else encoders[0]]

        for paper_encoder in encoders:
            encoder = paper_encoder and (replacement or paper_encoder)
            reason = " ".join(row.published.split())
            model = row.evaluate.model if row.evaluate else "{encoder}"
            if encoder != paper_encoder and "{encoder}" not in model:
                reason = f"{model} is a model of its own, so it has no other encoder"

            yield vars(row) | {
                "encoder": paper_encoder if reason else encoder,
                "paper_encoder": paper_encoder,
                "seeds": (0,) if row.evaluate else seeds,  # an evaluation draws nothing at random
                "needs": row.needs or measured.needs,
                "published": reason,
            }


def profile_override(profile: str) -> str:
    """Return the override that chooses a profile: ``+profile=small``, or ``+debug=tiny``."""
    return f"+debug={profile}" if profile == "tiny" else f"+profile={profile}"


@functools.cache
def profile_encoder(profile: str) -> str | None:
    """Return the encoder that a profile sets; None if it keeps the experiment's encoder."""
    configs = compose("train", profile_override(profile)), compose("train")
    encoder, default = (str(cfg.hydra.runtime.choices.encoder) for cfg in configs)

    return encoder if encoder != default else None


def withheld(needs: Needs | None) -> bool:
    """Return whether a row needs an environment variable that is not set, or is 0."""
    return needs is not None and os.environ.get(needs.variable, "") in ("", "0")
