"""The old names of `tables`, for the modules of other parts; to be removed when they are merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lightning_cse.papers.tables import Table, assemble, few

if TYPE_CHECKING:
    from lightning_cse.papers.points import Found

__all__ = ["Change", "Measured", "Table", "assemble", "few"]

Change = str


@dataclass(frozen=True)
class Measured:
    """The finished runs of a cell, by seed, and the seeds that were asked for."""

    found: Mapping[int, Found] = field(default_factory=dict)
    asked: tuple[int, ...] = ()
