"""Alignment, uniformity and relative fitting difficulty of every view of a method's embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lightning_cse.embeddings import Embedding
from lightning_cse.evaluation import Embedded
from lightning_cse.metrics import alignment, relative_fitting_difficulty, uniformity

SIDES = ("held_out", "eval")
MEASURES = ("alignment", "uniformity")


@dataclass(frozen=True)
class Side:
    """One side of the comparison: the pairs to align, by view, and the sentences to spread."""

    pairs: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    sentences: Sequence[str]
    digests: dict[str, str] = field(default_factory=dict)  # sha256 of the files this side alone reads

    def all_sentences(self) -> list[str]:
        """Return every sentence that is looked at."""
        return [*self.sentences, *(s for pair in self.pairs.values() for side in pair for s in side)]


@dataclass
class Diagnostics:
    r"""Measure both sides at every evaluation, and keep the running RFD.

    For each view, on L2-normalised vectors: alignment over the side's pairs, uniformity over its sentences, and

    .. math:: \text{RFD} = \frac{1}{|T|} \sum_{t \in T} (\text{held-out}_t - \text{eval}_t)

    over the evaluations T after step 0. Keys: ``diag/held_out/alignment``, ``diag/eval/uniformity``,
    ``diag/rfd_alignment`` for the primary view; other views insert their name: ``diag/implicit/rfd_alignment``.

    Source: NGCSE, section on relative fitting difficulty, and the authors' plotting code (which sides, step 0).
    Differs: the last step counts as an evaluation even where it is no multiple of ``eval_every``; the authors stop at
    the last multiple.

    Attributes:
        held_out: rows of the training distribution that are never trained on.
        evaluation: the other side; None where there is none, and then no RFD is logged.
        curves: value by measure, side and view, one entry an evaluation after step 0; part of the checkpoint.
    """

    held_out: Side
    evaluation: Side | None
    curves: dict[str, list[float]] = field(default_factory=dict)

    @property
    def sides(self) -> dict[str, Side]:
        """The sides there are, by name."""
        return {name: side for name, side in zip(SIDES, (self.held_out, self.evaluation), strict=True) if side}

    def sentences(self) -> list[str]:
        """Return every sentence that `measure` will look up."""
        return [sentence for side in self.sides.values() for sentence in side.all_sentences()]

    def seconds(self) -> list[str]:
        """Return the second sentence of every pair."""
        return [sentence for side in self.sides.values() for _, second in side.pairs.values() for sentence in second]

    def measure(self, embedded: Embedded, second: Embedded, step: int) -> dict[str, float]:
        """Return all values of this evaluation by key.

        Args:
            embedded: all `sentences`.
            second: the `seconds`, which a pair's second sentence is looked up in: another pass with dropout, or the
                same embeddings.
            step: the optimizer step; there is no RFD at step 0.
        """
        values: dict[str, float] = {}
        for view, prefix in _prefixes(embedded[self.held_out.sentences[:1]]).items():
            for name, side in self.sides.items():
                a, b = side.pairs[view]
                aligned = alignment(embedded[a].views()[view], second[b].views()[view])
                values[f"{prefix}{name}/alignment"] = float(aligned)
                values[f"{prefix}{name}/uniformity"] = float(uniformity(embedded[side.sentences].views()[view]))
            if self.evaluation is not None and step > 0:
                values |= self._rfd(prefix, values)
        return values

    def _rfd(self, prefix: str, values: dict[str, float]) -> dict[str, float]:
        rfd = {}
        for measure in MEASURES:
            keys = [f"{prefix}{side}/{measure}" for side in SIDES]
            for key in keys:
                self.curves.setdefault(key, []).append(values[key])
            rfd[f"{prefix}rfd_{measure}"] = relative_fitting_difficulty(*(self.curves[key] for key in keys))
        return rfd

    def state_dict(self) -> dict[str, Any]:
        """Return the curves so far."""
        return {"curves": {key: list(curve) for key, curve in self.curves.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the curves of another run."""
        self.curves = {key: list(curve) for key, curve in state["curves"].items()}


def _prefixes(embedding: Embedding) -> dict[str, str]:
    views = list(embedding.views())
    return {view: "diag/" if view == views[0] else f"diag/{view}/" for view in views}
