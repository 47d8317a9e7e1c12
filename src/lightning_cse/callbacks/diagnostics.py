"""Alignment, uniformity and relative fitting difficulty of every view of a method's embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lightning_cse.data import ContrastiveData, Rows, read_corpus
from lightning_cse.embeddings import Embedding
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Embedded, measure
from lightning_cse.methods import Method
from lightning_cse.metrics import Alignment, RelativeFittingDifficulty, Uniformity

SIDES = ("held_out", "eval")
MEASURES = ("alignment", "uniformity")


@dataclass(frozen=True)
class Side:
    """One side of the comparison: the pairs for alignment, by view, and the sentences for uniformity."""

    pairs: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    sentences: Sequence[str]
    digests: dict[str, str] = field(default_factory=dict)  # sha256 of the files that only this side reads


@dataclass
class Diagnostics:
    r"""Measure both sides at every evaluation, and keep the running RFD.

    For each view, on L2-normalised vectors: alignment over the side's pairs, uniformity over its sentences, and

    .. math:: \text{RFD} = \frac{1}{|T|} \sum_{t \in T} (\text{held-out}_t - \text{eval}_t)

    over the evaluations T after step 0. Keys: ``diag/held_out/alignment``, ``diag/eval/uniformity``,
    ``diag/rfd_alignment`` for the primary view; other views insert their name: ``diag/implicit/rfd_alignment``.

    Source: NGCSE, section on relative fitting difficulty, and the authors' plotting code (which sides, step 0).
    Differs: the last step counts as an evaluation even if it is not a multiple of ``eval_every``; the authors stop at
    the last multiple.

    Attributes:
        held_out: rows of the training distribution that are never trained on.
        evaluation: the other side; without it no RFD is logged.
        curves: value by measure, side and view, one entry per evaluation after step 0; part of the checkpoint.
    """

    held_out: Side
    evaluation: Side | None
    curves: dict[str, list[float]] = field(default_factory=dict)

    @property
    def sides(self) -> dict[str, Side]:
        """The sides by name."""
        return {name: side for name, side in zip(SIDES, (self.held_out, self.evaluation), strict=True) if side}

    def sentences(self) -> list[str]:
        """Return every sentence that `measure` looks up."""
        found = []
        for side in self.sides.values():
            found += [*side.sentences, *(s for pair in side.pairs.values() for sentences in pair for s in sentences)]
        return found

    def seconds(self) -> list[str]:
        """Return the second sentence of every pair."""
        return [sentence for side in self.sides.values() for _, second in side.pairs.values() for sentence in second]

    def measure(self, embedded: Embedded, second: Embedded, step: int) -> dict[str, float]:
        """Return all values of this evaluation by key.

        Args:
            embedded: all `sentences`.
            second: the `seconds`, for the second sentences of pairs: another pass with dropout, or the same embeddings.
            step: the optimizer step; there is no RFD at step 0.
        """
        values: dict[str, float] = {}
        for view, prefix in _prefixes(embedded[self.held_out.sentences[:1]]).items():
            for name, side in self.sides.items():
                a, b = side.pairs[view]
                aligned = measure(Alignment, embedded[a].views()[view], second[b].views()[view])
                values[f"{prefix}{name}/alignment"] = aligned
                values[f"{prefix}{name}/uniformity"] = measure(Uniformity, embedded[side.sentences].views()[view])
            for name in MEASURES if self.evaluation is not None and step > 0 else ():
                keys = [f"{prefix}{side}/{name}" for side in SIDES]
                for key in keys:
                    self.curves.setdefault(key, []).append(values[key])
                values[f"{prefix}rfd_{name}"] = measure(RelativeFittingDifficulty, *(self.curves[key] for key in keys))
        return values

    def state_dict(self) -> dict[str, Any]:
        """Return the curves so far."""
        return {"curves": {key: list(curve) for key, curve in self.curves.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the curves."""
        self.curves = {key: list(curve) for key, curve in state["curves"].items()}


def build_diagnostics(method: Method, data: ContrastiveData, options: Mapping[str, Any], data_dir: str) -> Diagnostics:
    """Return the diagnostics of a method on its data, with the config's ``diag`` as options.

    The held-out side is the data's held-out rows: for each view the pair of roles that the method names, and the
    sentences of the roles it spreads (all of the data, if it names none), row by row, cut to the first
    ``options["sentences"]``.

    Raises:
        ConfigError: if alignment or RFD would be 0 by construction, or no pair reaches ``options["positive_score"]``.
    """
    if not options["dropout"] and any(a == b for a, b in method.pairs.values()):
        kind = type(method).__name__
        raise ConfigError([f"diag.dropout: the pairs of {kind} are dropout passes over one sentence; set it to true"])
    if options["evaluation"] == "corpus_dev":
        raise ConfigError(["diag.evaluation: corpus_dev is already the held-out side; use stsb_dev or none"])
    spread = method.spread or data.roles
    watched = data.watched(list(dict.fromkeys([*spread, *(role for pair in method.pairs.values() for role in pair)])))
    pairs = {view: (watched.column(a), watched.column(b)) for view, (a, b) in method.pairs.items()}
    held_out = Side(pairs, _flat(watched, spread)[: options["sentences"]])
    other = None if options["evaluation"] == "none" else stsb_dev(list(method.pairs), options, data_dir)
    return Diagnostics(held_out, other)


def stsb_dev(views: Sequence[str], options: Mapping[str, Any], data_dir: str) -> Side:
    """Return STS-B dev as NGCSE uses it: alignment over similar pairs, uniformity also over dissimilar ones.

    Raises:
        ConfigError: if no pair is as similar as ``options["positive_score"]``.
    """
    rows = read_corpus("stsb", "dev", data_dir)
    scores = rows.column("score")
    close = [row for row, score in enumerate(scores) if score >= options["positive_score"]]
    if not close:
        raise ConfigError(
            [f"diag.positive_score: {options['positive_score']} is above all of STS-B dev ({max(scores)})"]
        )
    chosen = [r for r, s in enumerate(scores) if s >= options["positive_score"] or s <= options["negative_score"]]
    aligned = rows.select(close)
    pair = (aligned.column("sentence1"), aligned.column("sentence2"))
    sentences = _flat(rows.select(chosen), ("sentence1", "sentence2"))[: options["sentences"]]
    return Side(dict.fromkeys(views, pair), sentences, {file.name: file.sha256 for file in rows.files})


def _flat(rows: Rows, columns: Sequence[str]) -> list[str]:
    """Return the sentences row by row, as the authors of NGCSE count them."""
    return [sentence for row in zip(*(rows.column(column) for column in columns), strict=True) for sentence in row]


def _prefixes(embedding: Embedding) -> dict[str, str]:
    views = list(embedding.views())
    return {view: "diag/" if view == views[0] else f"diag/{view}/" for view in views}
