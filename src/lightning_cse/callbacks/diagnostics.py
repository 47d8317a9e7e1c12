"""Diagnostics during training: alignment, uniformity and relative fitting difficulty (RFD)."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from lightning_cse.data import ContrastiveDataModule, Rows, read_corpus
from lightning_cse.data.rows import digests_of
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Embedded
from lightning_cse.methods import Method
from lightning_cse.metrics import alignment, relative_fitting_difficulty, uniformity

RFD_SIDES = ("held_out", "eval")
MEASURES = ("alignment", "uniformity")


@dataclass(frozen=True)
class Side:
    """One side of the comparison: pairs for alignment, by view, and sentences for uniformity.

    ``digests`` has the sha256 of the files that only this side reads.
    """

    pairs: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    sentences: Sequence[str]
    digests: dict[str, str] = field(default_factory=dict)


@dataclass
class Diagnostics:
    r"""Measure both sides at every evaluation, and keep the running RFD.

    For each view, on L2-normalised vectors: alignment over the side's pairs, uniformity over its
    sentences, and

    .. math:: \text{RFD} = \frac{1}{|T|} \sum_{t \in T} (\text{held-out}_t - \text{eval}_t)

    over the evaluations T after step 0. Keys: ``diag/held_out/alignment``,
    ``diag/eval/uniformity``, ``diag/rfd_alignment`` for the primary view; other views insert their
    name: ``diag/implicit/rfd_alignment``. A side that is None is not measured, and there is no RFD.

    Source: NGCSE, section on relative fitting difficulty, and the authors' plotting code (which
    sides, step 0).  Differs: the last step counts as an evaluation even if it is not a multiple of
    ``eval_every``; the authors stop at the last multiple.

    Args:
        held_out: rows of the training distribution that are never trained on.
        evaluation: the other side, pairs and sentences of another corpus.
        curves: the values of each measure, side and view, one per evaluation after step 0; part of
            the checkpoint.
    """

    held_out: Side | None
    evaluation: Side | None
    curves: dict[str, list[float]] = field(default_factory=dict)

    @property
    def sides(self) -> dict[str, Side]:
        """The sides by name."""
        sides = zip(RFD_SIDES, (self.held_out, self.evaluation), strict=True)
        return {name: side for name, side in sides if side}

    def sentences(self) -> list[str]:
        """Return every sentence that `measure` looks up."""
        sentences: list[str] = []
        for side in self.sides.values():
            sentences += side.sentences
            for first, second in side.pairs.values():
                sentences += [*first, *second]

        return sentences

    def seconds(self) -> list[str]:
        """Return the second sentence of every pair."""
        sentences: list[str] = []
        for side in self.sides.values():
            for _, second in side.pairs.values():
                sentences += second

        return sentences

    def measure(self, embedded: Embedded, second: Embedded, step: int) -> dict[str, float]:
        """Return all values of this evaluation by key, from the embedded `sentences`.

        ``second`` has the embedded `seconds`: from another pass with dropout, or the same as in
        ``embedded``. There is no RFD at step 0.
        """
        values: dict[str, float] = {}
        views = list(embedded[self.sentences()[:1]].views())
        for view in views:
            prefix = "diag/" if view == views[0] else f"diag/{view}/"
            for name, side in self.sides.items():
                if view in side.pairs:
                    a, b = side.pairs[view]
                    distance = alignment(_view(embedded, a, view), _view(second, b, view))
                    values[f"{prefix}{name}/alignment"] = distance

                spread = uniformity(_view(embedded, side.sentences, view))
                values[f"{prefix}{name}/uniformity"] = spread

            if step > 0:
                values |= self._fitting_difficulty(prefix, values)

        return values

    def _fitting_difficulty(self, prefix: str, values: Mapping[str, float]) -> dict[str, float]:
        """Add the values of one view to the curves, and return its RFD of each measure."""
        difficulty = {}
        for name in MEASURES:
            keys = [f"{prefix}{side}/{name}" for side in RFD_SIDES]
            if any(key not in values for key in keys):
                continue

            for key in keys:
                self.curves.setdefault(key, []).append(values[key])

            curves = [self.curves[key] for key in keys]
            difficulty[f"{prefix}rfd_{name}"] = relative_fitting_difficulty(*curves)

        return difficulty


def _view(embedded: Embedded, sentences: Sequence[str], view: str) -> Tensor:
    return embedded[sentences].views()[view]


def build_diagnostics(
    method: Method, data: ContrastiveDataModule, options: Mapping[str, Any], data_dir: str
) -> Diagnostics:
    """Return the diagnostics of a method on its data, with the config's ``diag`` as options."""
    if not options["dropout"] and any(a == b for a, b in method.pairs.values()):
        kind = type(method).__name__
        fault = f"diag.dropout: {kind} pairs two dropout passes over one sentence; set it to true"
        raise ConfigError([fault])

    evaluation = None
    if options["evaluation"] != "none":
        evaluation = stsb_dev(list(method.pairs), options, data_dir)

    held_out = None
    if len(data.held_out):
        held_out = held_out_side(method, data, options["sentences"])

    return Diagnostics(held_out, evaluation)


def held_out_side(method: Method, data: ContrastiveDataModule, limit: int) -> Side:
    """Return the held-out rows of the data as a side.

    Its pairs are, for each view, those of the two roles that the method names. Its sentences are
    those of the roles that the method spreads (all roles of the data if it names none), row by row,
    cut to the first ``limit``. A role that no held-out row has is left out, and so is a view whose
    pair needs it.
    """
    present = {role for role in data.held_out.names if data.held_out.has(role).any()}
    spread = [role for role in method.spread or data.roles if role in present]
    aligned = {view: pair for view, pair in method.pairs.items() if present.issuperset(pair)}
    if not aligned:
        aligned = dict(method.pairs)

    roles = list(spread)
    for pair in aligned.values():
        roles += pair

    watched = data.watched(list(dict.fromkeys(roles)))
    pairs = {view: (watched.column(a), watched.column(b)) for view, (a, b) in aligned.items()}

    return Side(pairs, _flat(watched, spread)[:limit])


def stsb_dev(views: Sequence[str], options: Mapping[str, Any], data_dir: str) -> Side:
    """Return STS-B dev as NGCSE uses it.

    Alignment is over similar pairs, uniformity also over dissimilar ones.
    """
    rows = read_corpus("stsb", "dev", data_dir)
    scores = np.array(rows.column("score"))
    least = options["positive_score"]
    is_similar = scores >= least
    if not is_similar.any():
        raise ConfigError([f"diag.positive_score: no pair of STS-B dev has a score of {least}"])

    aligned = rows.select(np.flatnonzero(is_similar))
    chosen = np.flatnonzero(is_similar | (scores <= options["negative_score"]))
    pair = (aligned.column("sentence1"), aligned.column("sentence2"))
    sentences = _flat(rows.select(chosen), ("sentence1", "sentence2"))[: options["sentences"]]

    return Side(dict.fromkeys(views, pair), sentences, digests_of([rows]))


def _flat(rows: Rows, columns: Sequence[str]) -> list[str]:
    """Return the sentences row by row, as the authors of NGCSE count them."""
    return list(itertools.chain.from_iterable(zip(*map(rows.column, columns), strict=True)))
