"""ImpScore: how far what a sentence means is from what it says, learnt on top of a sentence encoder."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lightning_cse.data import ContrastiveData
from lightning_cse.data.corpora.impscore import SENTENCES
from lightning_cse.embeddings import Embedding, PointEmbedding, PragmaticEmbedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.errors import ConfigError, DataError, did_you_mean
from lightning_cse.methods.base import SENTENCES_AT_ONCE, MakeOptimizer, Method, embed
from lightning_cse.methods.schedules import Schedule
from lightning_cse.similarity import cosine
from lightning_cse.tokens import Tokens

log = logging.getLogger(__name__)

DIRECTIONS = ("p2s", "s2p", "third_space")
METRICS = ("cosine", "euclidean")

ROWS_AT_ONCE = 256
"""Rows whose tokens are looked at together; few, because one long sentence pads all others to its length."""

ROLES = SENTENCES


class ImpScore(Method):
    r"""Semantic and pragmatic vector of a sentence, linear in its encoder's; implicitness is the distance of the two.

    With the sentence vector x, scaled to length one, and linear maps without bias, P and S to ``dim`` dimensions and
    T inside them:

    .. math:: p = P x, \qquad s = S x, \qquad I = d(s, T p), \qquad D = d'(p_1, p_2)

    I is a sentence's implicitness, D the pragmatic distance of two sentences: how far apart they are in what is meant.
    ``direction`` says what is compared for I: s and Tp (``p2s``), Ts and p (``s2p``), or, in a third space, each
    through a map of its own, :math:`T_s s` and :math:`T_p p` (``third_space``). A distance is :math:`1 - \cos`, or
    Euclidean.

    The encoder is frozen: it gets no gradient and drops nothing out, and every training sentence is encoded once, when
    training starts, in an order that the data alone decide; a batch looks its vectors up. Sentences that are embedded
    again and again meanwhile, to watch the training, are encoded once too. The vectors take a row of ``width`` float32
    numbers for each distinct sentence, those of the training on the method's device, and are part of no checkpoint; nor
    is a frozen encoder.

    Source: ImpScore (Wang et al. 2025), method, and the authors' code, which has the third space's two maps.  Differs:
    nothing in the method. Their encoder, all-mpnet-base-v2, scales its vectors itself. How DualCSE's baseline "ImpScore
    (INLI)" encodes sentences, and whether its encoder learns too, is not known; nor is its score for entailment, which
    is ours: minus the pragmatic distance.

    Args:
        encoder: sentences to vectors.
        loss: implicitness of a row's four sentences and pragmatic distance of its two pairs to a scalar.
        optimizer: as in `Method`.
        schedule: as in `Method`.
        dim: dimensions of semantic and pragmatic vectors.
        direction: ``p2s``, ``s2p`` or ``third_space``.
        implicitness_metric: the distance of I, ``cosine`` or ``euclidean``.
        pragmatic_metric: the distance of D, ``euclidean`` or ``cosine``.
        frozen: whether the encoder stays as it is; false trains it too, as the other methods do.
        normalize: whether sentence vectors are scaled to length one, which Euclidean distances, and so the margins,
            depend on.

    Raises:
        ConfigError: for a direction or a metric that there is not, or a ``dim`` below 1.
    """

    roles = ROLES
    spread = ROLES[:2]  # the implicit sentence is as a rule the same in both pairs
    pairs: ClassVar = {"pragmatic": ROLES[:2], "semantic": ROLES[:2]}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: nn.Module,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule,
        dim: int = 64,
        direction: Literal["p2s", "s2p", "third_space"] = "p2s",
        implicitness_metric: Literal["cosine", "euclidean"] = "cosine",
        pragmatic_metric: Literal["cosine", "euclidean"] = "euclidean",
        frozen: bool = True,
        normalize: bool = True,
    ) -> None:
        super().__init__(encoder, loss, optimizer=optimizer, schedule=schedule)
        _check(dim, direction, implicitness_metric, pragmatic_metric)
        self.implicitness_metric = implicitness_metric
        self.pragmatic_metric = pragmatic_metric
        self.frozen = frozen
        self.normalize = normalize
        self.pragmatic = _xavier(encoder.width, dim)
        self.semantic = _xavier(encoder.width, dim)
        self.from_pragmatic = nn.Identity() if direction == "s2p" else _xavier(dim, dim)
        self.from_semantic = nn.Identity() if direction == "p2s" else _xavier(dim, dim)
        self.template = encoder.template()
        self._kept: _Kept | None = None
        if frozen:
            encoder.requires_grad_(False)
            encoder.eval()
            self.register_state_dict_post_hook(_without_encoder)  # type: ignore[no-untyped-call]
            self.register_load_state_dict_pre_hook(_with_own_encoder)  # type: ignore[no-untyped-call]

    @property
    def templates(self) -> tuple[Template, ...]:
        """The only one."""
        return (self.template,)

    def train(self, mode: bool = True) -> ImpScore:
        """Set the mode of all but a frozen encoder, which stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def encode(self, *roles: Tokens) -> list[PragmaticEmbedding]:
        """Embed every role's sentences in one pass."""
        return [self.project(vector) for vector in self.pooled(*roles)]

    def pooled(self, *roles: Tokens) -> list[Tensor]:
        """Return the encoder's vectors of every role's sentences, from one pass."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            vectors: list[Tensor] = self.encoder(
                [(tokens, self.template) for tokens in roles], most=self.tokens_at_once
            )
            return [nn.functional.normalize(vector, dim=-1) for vector in vectors] if self.normalize else vectors

    @torch.no_grad()
    def embed(self, sentences: Sequence[str]) -> Embedding:
        """Embed sentences; while a training with a frozen encoder runs, only the maps are applied anew."""
        if self._kept is None:
            return super().embed(sentences)
        watched, key = self._kept.watched, tuple(sentences)
        if key not in watched:
            (watched[key],) = embed(sentences, self.encoder, self._points, self.device).fields().values()
        return self.project(watched[key].to(self.device)).cpu()

    def _points(self, tokens: Tokens) -> list[PointEmbedding]:
        return [PointEmbedding(vector) for vector in self.pooled(tokens)]

    def project(self, vector: Tensor) -> PragmaticEmbedding:
        """Put the two maps on a sentence vector."""
        # In float32 also under autocast: a vector rounded to bfloat16 makes ties between scores.
        with torch.autocast(self.device.type, enabled=False):
            return PragmaticEmbedding(semantic=self.semantic(vector), pragmatic=self.pragmatic(vector))

    def on_fit_start(self) -> None:
        """Encode the training sentences once if the encoder is frozen; else start as every method does."""
        if not self.frozen:
            super().on_fit_start()
            return
        self.train()
        # Lightning's, of every module in evaluation mode when training starts: the encoder is meant to be.
        warnings.filterwarnings("ignore", message=r"Found \d+ module\(s\) in eval mode")
        data = getattr(self.trainer, "datamodule", None)
        if isinstance(data, ContrastiveData):
            with self.trainer.precision_plugin.forward_context():
                self._kept = self._encode_once(data)

    def on_fit_end(self) -> None:
        """Let the vectors that were kept go."""
        self._kept = None

    @torch.no_grad()
    def _encode_once(self, data: ContrastiveData) -> _Kept:
        count = len(data.train)
        number: dict[tuple[int, ...], int] = {}
        places: dict[str, list[int]] = {role: [] for role in self.roles}
        for start in range(0, count, ROWS_AT_ONCE):
            batch = data.collate(torch.arange(start, min(count, start + ROWS_AT_ONCE)))
            for role, place in places.items():
                tokens: Tokens = batch["roles"][role]
                for ids, length in zip(tokens.ids.tolist(), tokens.mask.sum(1).tolist(), strict=True):
                    place.append(number.setdefault(tuple(ids[: min(length, self.encoder.max_length)]), len(number)))
        _check_rows({role: len(place) for role, place in places.items()}, count)
        distinct = list(number)
        log.info("the %d distinct sentences of %d training rows are encoded once", len(distinct), count)
        vectors = [
            self.pooled(Tokens.pad(distinct[start : start + SENTENCES_AT_ONCE]).to(self.device))[0]
            for start in range(0, len(distinct), SENTENCES_AT_ONCE)
        ]
        return _Kept(
            torch.cat(vectors), {role: torch.tensor(place, device=self.device) for role, place in places.items()}
        )

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the four roles of a batch, and rank implicitness and distances."""
        index: Tensor = batch["index"]
        if self._kept is None:
            tokens: Sequence[Tokens] = [batch["roles"][role] for role in self.roles]
            _check_rows({role: len(some) for role, some in zip(self.roles, tokens, strict=True)}, len(index))
            embeddings = self.encode(*tokens)
        else:
            embeddings = [self.project(self._kept.take(role, index)) for role in self.roles]
        pos_implicit, pos_explicit, neg_implicit, neg_explicit = embeddings
        loss = self.loss(
            *(self.implicitness(sentence) for sentence in embeddings),
            pos_distance=self.pragmatic_distance(pos_implicit, pos_explicit),
            neg_distance=self.pragmatic_distance(neg_implicit, neg_explicit),
        )
        return self.output(loss, index, **dict(zip(self.roles, embeddings, strict=True)))

    def implicitness(self, sentence: PragmaticEmbedding) -> Tensor:
        """Return the distance of the semantic and the pragmatic vector, in the space where they are compared: (n,)."""
        weight = self.pragmatic.weight
        there = sentence.to(weight.device, weight.dtype)  # evaluation hands over what it keeps in main memory
        with torch.autocast(weight.device.type, enabled=False):
            semantic, pragmatic = self.from_semantic(there.semantic), self.from_pragmatic(there.pragmatic)
        return _distance(semantic, pragmatic, self.implicitness_metric).to(sentence.semantic.device)

    def pragmatic_distance(self, a: PragmaticEmbedding, b: PragmaticEmbedding) -> Tensor:
        """Return the distance of the pragmatic vectors row by row."""
        return _distance(a.pragmatic, b.pragmatic, self.pragmatic_metric)

    def similarity(self, a: PragmaticEmbedding, b: PragmaticEmbedding) -> Tensor:
        """Return minus the pragmatic distance row by row."""
        return -self.pragmatic_distance(a, b)

    def entailment_score(self, premise: PragmaticEmbedding, hypothesis: PragmaticEmbedding) -> Tensor:
        """Return minus the pragmatic distance row by row: it has no direction."""
        return -self.pragmatic_distance(premise, hypothesis)


@dataclass(frozen=True)
class _Kept:
    """What a frozen encoder makes of sentences, while training runs.

    Attributes:
        vectors: of the distinct training sentences: (sentences, width).
        places: for each role, which of them each training row has: (rows,).
        watched: vectors in main memory, by the sentences that were to be embedded together.
    """

    vectors: Tensor
    places: dict[str, Tensor]
    watched: dict[tuple[str, ...], Tensor] = field(default_factory=dict)

    def take(self, role: str, index: Tensor) -> Tensor:
        """Return the vectors of a role in these training rows."""
        return self.vectors[self.places[role][index.to(self.vectors.device)]]


def _without_encoder(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Leave a frozen encoder out of checkpoints: it is where it was loaded from, and far larger than the maps."""
    for name in [name for name in state if name.startswith(f"{prefix}encoder.")]:
        del state[name]


def _with_own_encoder(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Have a checkpoint without the encoder fit: the encoder stays as it is."""
    encoder = module.get_submodule("encoder")
    state.update({f"{prefix}encoder.{name}": value for name, value in encoder.state_dict().items()})


def _xavier(width: int, dim: int) -> nn.Linear:
    layer = nn.Linear(width, dim, bias=False)
    nn.init.xavier_uniform_(layer.weight)
    return layer


def _distance(a: Tensor, b: Tensor, metric: str) -> Tensor:
    if metric == "cosine":
        return 1 - cosine(a, b)
    distance: Tensor = torch.linalg.vector_norm((a - b).float(), dim=-1)
    return distance


def _check(dim: int, direction: str, implicitness_metric: str, pragmatic_metric: str) -> None:
    faults = [] if dim >= 1 else [f"method.dim: {dim} is no number of dimensions"]
    for key, value, known in (
        ("direction", direction, DIRECTIONS),
        ("implicitness_metric", implicitness_metric, METRICS),
        ("pragmatic_metric", pragmatic_metric, METRICS),
    ):
        if value not in known:
            faults.append(f"method.{key}: {value!r} is not one of {', '.join(known)}{did_you_mean(value, known)}")
    if faults:
        raise ConfigError(faults)


def _check_rows(sentences: dict[str, int], rows: int) -> None:
    """Refuse rows that lack a sentence: those of another row would stand in its place."""
    lacking = [f"{role} of {rows - count}" for role, count in sentences.items() if count != rows]
    if lacking:
        raise DataError(
            f"data: ImpScore trains on rows of four sentences, and of {rows} training rows some lack one: "
            f"{', '.join(lacking)}; leave these rows out"
        )
