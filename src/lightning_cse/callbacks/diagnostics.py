"""Diagnostics during training: alignment, uniformity and relative fitting difficulty (RFD)."""

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytorch_lightning as pl
from datasets import Dataset
from pytorch_lightning import Callback
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn

from lightning_cse.data import ContrastiveDataModule, read_corpus
from lightning_cse.data.rows import digests_of, files_of, has, names_of
from lightning_cse.embeddings import Embedding
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Embedded
from lightning_cse.methods import Method
from lightning_cse.methods.evaluated import check_finite
from lightning_cse.metrics import alignment, relative_fitting_difficulty, uniformity

RFD_SIDES = ("held_out", "eval")
MEASURES = ("alignment", "uniformity")


@dataclass(frozen=True)
class Side:
    """One side of the comparison: pairs for alignment, by view, and sentences for uniformity.

    ``digests`` has the sha256 of the files that only this side reads, and ``sentences_a_row`` says
    how many consecutive sentences are of one row; pairs are one a row, in the same order.
    """

    pairs: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    sentences: Sequence[str]
    digests: dict[str, str] = field(default_factory=dict)
    sentences_a_row: int = 1


class Diagnostics(Callback):
    r"""Measure both sides at every validation, and keep the running RFD.

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
        dropout: whether dropout is active, as in the NGCSE authors' code, so that a pair of a
            sentence with itself is a dropout pair. The random state is left as it was.
    """

    def __init__(
        self, held_out: Side | None, evaluation: Side | None, *, dropout: bool = False
    ) -> None:
        sides = zip(RFD_SIDES, (held_out, evaluation), strict=True)
        self.sides = {name: side for name, side in sides if side}
        self.dropout = dropout
        self.curves: dict[str, list[float]] = {}
        """The values of each measure, side and view, one per evaluation after step 0."""

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure both sides and log all values; without sentences or some of them, do nothing."""
        sentences = self.sentences()
        method: Any = pl_module
        if not sentences or trainer.sanity_checking or not isinstance(method, Method):
            return

        if self.dropout:
            first, second = self._dropout_passes(trainer, method)
        else:
            first = second = method.embedded
            if not all(sentence in first for sentence in sentences):  # under limit_val_batches
                return

        for key, value in self.measure(first, second, trainer.global_step).items():
            method.log(key, value, batch_size=1)

    def _dropout_passes(self, trainer: pl.Trainer, method: Method) -> tuple[Embedded, Embedded]:
        """Embed the sentences, and the second sentences of all pairs, in training mode."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]  # set by Lightning

        def embed(distinct: list[str]) -> Embedding:
            embedding: Embedding = method.model.embed(distinct, data.tokens_of(distinct))
            return embedding

        passes: list[Embedded] = []
        with isolate_rng(), trainer.precision_plugin.forward_context(), _training_mode(method):
            for number, sentences in enumerate((self.sentences(), self.seconds())):
                with method.view(number):
                    passes.append(Embedded(method.model, sentences, embed))

                check_finite(passes[-1].embedding, trainer.global_step)

        return passes[0], passes[1]

    def state_dict(self) -> dict[str, Any]:
        """Return the values of all evaluations."""
        return {"curves": copy.deepcopy(self.curves)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the running RFD."""
        self.curves = state_dict["curves"]

    @property
    def sizes(self) -> dict[str, dict[str, Any]]:
        """On how many pairs, by view, and sentences the values of each side rest."""
        return {
            name: {
                "pairs": {view: len(first) for view, (first, _) in side.pairs.items()},
                "sentences": len(side.sentences),
            }
            for name, side in self.sides.items()
        }

    def sentences(self) -> list[str]:
        """Return every sentence that `measure` looks up."""
        parts: list[Sequence[str]] = []
        for side in self.sides.values():
            parts += [side.sentences, *itertools.chain(*side.pairs.values())]

        return list(itertools.chain(*parts))

    def seconds(self) -> list[str]:
        """Return the second sentence of every pair."""
        seconds = [second for side in self.sides.values() for _, second in side.pairs.values()]
        return list(itertools.chain(*seconds))

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


@contextmanager
def _training_mode(module: nn.Module) -> Iterator[None]:
    """Put a module and all its parts in training mode, and restore the mode of each afterwards."""
    modes = {part: part.training for part in module.modules()}
    module.train()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def _view(embedded: Embedded, sentences: Sequence[str], view: str) -> Tensor:
    return embedded[sentences].views()[view]


def build_diagnostics(
    method: Method, data: ContrastiveDataModule, options: Mapping[str, Any], data_dir: str
) -> Diagnostics:
    """Return the diagnostics of a method on its data, with the config's ``diag`` as options."""
    if not options["dropout"] and any(a == b for a, b in method.pairs.values()):
        method_name = type(method).__name__
        fault = f"diag.dropout: {method_name} pairs two dropout passes over one sentence; set it to true"
        raise ConfigError([fault])

    evaluation = None
    if options["evaluation"] != "none":
        rows = read_corpus("stsb", "dev", data_dir)
        evaluation = scored_pairs(rows, list(method.pairs), options)

    held_out = None
    if len(data.held_out):
        held_out = held_out_side(method, data, options["sentences"])

    return Diagnostics(held_out, evaluation, dropout=options["dropout"])


def held_out_side(method: Method, data: ContrastiveDataModule, limit: int) -> Side:
    """Return the held-out rows of the data as a side.

    Its pairs are, for each view, those of the two roles that the method names. Its sentences are
    those of the roles that the method spreads (all roles of the data if it names none), row by row,
    cut to the first ``limit``. A role that no held-out row has is left out, and so is a view whose
    pair needs it.
    """
    present = {role for role in names_of(data.held_out) if has(data.held_out, role).any()}
    spread = [role for role in method.spread or data.roles if role in present]
    aligned = {view: pair for view, pair in method.pairs.items() if present.issuperset(pair)}
    if not aligned:
        aligned = dict(method.pairs)

    roles = list(spread)
    for pair in aligned.values():
        roles += pair

    watched = data.watched(list(dict.fromkeys(roles)))
    pairs = {view: (list(watched[a]), list(watched[b])) for view, (a, b) in aligned.items()}

    return Side(pairs, _flat(watched, spread)[:limit], sentences_a_row=len(spread))


def scored_pairs(
    rows: Dataset, views: Sequence[str], options: Mapping[str, Any], key: str = "diag"
) -> Side:
    """Return pairs with a score as a side, as NGCSE uses STS-B dev.

    Alignment is over similar pairs, those of at least ``positive_score``; uniformity is also over
    dissimilar ones, of at most ``negative_score``, cut to the first ``sentences``. ``key`` is the
    config key of these options, for messages.
    """
    scores = np.array(rows["score"])
    least = options["positive_score"]
    is_similar = scores >= least
    if not is_similar.any():
        file = files_of(rows)[0].name
        fault = f"no pair of {file} has a score of {least:g} or more"
        raise ConfigError([f"{key}.positive_score: {fault}"])

    aligned = rows.select(np.flatnonzero(is_similar))
    chosen = np.flatnonzero(is_similar | (scores <= options["negative_score"]))
    pair = (list(aligned["sentence1"]), list(aligned["sentence2"]))
    sentences = _flat(rows.select(chosen), ("sentence1", "sentence2"))[: options["sentences"]]

    return Side(dict.fromkeys(views, pair), sentences, digests_of([rows]), sentences_a_row=2)


def _flat(rows: Dataset, columns: Sequence[str]) -> list[str]:
    """Return the sentences row by row, as the authors of NGCSE count them."""
    return list(itertools.chain.from_iterable(zip(*(rows[name] for name in columns), strict=True)))
