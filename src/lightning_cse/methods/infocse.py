"""InfoCSE: SimCSE, and a network that restores masked tokens from the sentence's vector."""

import copy
from typing import Any, ClassVar, Unpack, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lightning_cse.devices import to_device
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.methods.base import Method, Training
from lightning_cse.models import PointModel
from lightning_cse.models.base import in_float32
from lightning_cse.tokens import Tokens


class FrozenLayers:
    """The first layers of a copy of a backbone, without dropout.

    This is no `torch.nn.Module`: as a part of one, the copy would be saved in checkpoints and set
    to training mode.
    """

    def __init__(self, backbone: PreTrainedModel, depth: int) -> None:
        self.backbone = copy.deepcopy(backbone).requires_grad_(False).eval()
        self.depth = depth

    @torch.no_grad()
    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the states after the layers: (n, length, d)."""
        backbone = self.backbone.to(ids.device)
        output = backbone(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True)
        states: Tensor = output.hidden_states[self.depth]

        return states

    @property
    def vocabulary(self) -> Tensor:
        """The vectors of the vocabulary: (tokens, d)."""
        return cast("nn.Embedding", self.backbone.get_input_embeddings()).weight


class Restoration(nn.Module):
    r"""The loss of restoring masked tokens from the vectors of their sentences.

    .. math:: \ell = -\frac{1}{|M|} \sum_{(i, t) \in M} \log p(w_{it} \mid g(v_i, h_{i2}, \dots))

    with the vector :math:`v_i` of a sentence in the place of its first token, the states :math:`h`
    of its other tokens, some of them masked, after the first layers of a frozen copy of the
    encoder, :math:`g` two transformer layers and a layer before the vocabulary, and the masked
    tokens :math:`M`. The vocabulary's vectors are those of the frozen copy.

    Source: InfoCSE (Wu et al. 2022), and the authors' code, after Condenser (Gao and Callan 2021).
    Differs: the layers before the vocabulary are new, where the authors have BERT's own, trained
    for this task; a step of the same number masks the same places.

    Args:
        encoder: the encoder, as it is before training.
        share: of the tokens that are masked, in (0, 1).
        frozen_layers: the layers of the copy; None for half of the encoder's.
        layers: those on top of it.

    Raises:
        ConfigError: if ``share`` or ``frozen_layers`` is out of range.
        EncoderError: if the encoder has no mask token.
    """

    def __init__(
        self, encoder: SentenceEncoder, *, share: float, frozen_layers: int | None, layers: int
    ) -> None:
        super().__init__()
        self.mask_id = encoder.tokenizer.tokenizer.mask_token_id
        config = encoder.backbone.config
        if self.mask_id is None or encoder.is_causal:
            raise EncoderError(f"encoder: InfoCSE restores masked tokens; {encoder.name} has none")

        if not 0 < share < 1:
            raise ConfigError([f"method.share: must be in (0, 1), got {share}"])

        depth = int(config.num_hidden_layers)
        self.depth = max(1, depth // 2) if frozen_layers is None else frozen_layers
        if not 1 <= self.depth <= depth:
            raise ConfigError(
                [f"method.frozen_layers: must be from 1 to {depth}, got {frozen_layers}"]
            )

        self.share = share
        width = encoder.width
        self.frozen = FrozenLayers(encoder.backbone, self.depth)
        layer = nn.TransformerEncoderLayer(
            width,
            config.num_attention_heads,
            getattr(config, "intermediate_size", 4 * width),
            dropout=getattr(config, "hidden_dropout_prob", 0.1),
            activation="gelu",
            batch_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.before_vocabulary = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)
        )
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(
        self, vectors: Tensor, ids: Tensor, is_token: np.ndarray, is_bare: np.ndarray, step: int
    ) -> Tensor:
        """Return the loss of sentences (n, d) with these ids (n, length); of their tokens, bare
        ones may be masked. What is a token is in main memory.
        """
        masked_ids, chosen = self.mask_tokens(ids, is_bare, step)
        indices = to_device(np.flatnonzero(chosen), ids.device)
        mask = to_device(is_token, ids.device)
        states = self.frozen.states(masked_ids, mask)
        states = torch.cat([vectors[:, None].to(states.dtype), states[:, 1:]], dim=1)
        states = self.layers(states, src_key_padding_mask=~mask).flatten(0, 1)[indices]
        states = self.before_vocabulary(states)
        logits = nn.functional.linear(states, self.frozen.vocabulary, self.bias)

        # The sum over none is 0; their mean would not be a number.
        targets = ids.flatten()[indices]
        loss = nn.functional.cross_entropy(logits.float(), targets, reduction="sum")

        return loss / max(1, len(logits))

    def mask_tokens(self, ids: Tensor, is_bare: np.ndarray, step: int) -> tuple[Tensor, np.ndarray]:
        """Return the ids with a share of the bare tokens masked, and where: the same in every
        process.
        """
        draws = torch.Generator().manual_seed(step)
        chance, change = torch.rand(2, *ids.shape, generator=draws).numpy()
        random_ids = torch.randint(len(self.bias), ids.shape, generator=draws).numpy()
        chosen = is_bare & (chance < self.share)
        # As in BERT, a tenth of the chosen tokens keep their id, and a tenth get a random one.
        changed = to_device(np.where(change < 0.2, random_ids, self.mask_id), ids.device)
        is_changed = to_device(chosen & (change >= 0.1), ids.device)

        return torch.where(is_changed, changed, ids), chosen


class InfoCSE(Method):
    r"""InfoCSE: unsupervised SimCSE, with the loss of restoring masked tokens.

    .. math:: L = L_{\mathrm{SimCSE}} + \lambda L_{\mathrm{restoration}}

    Both passes under dropout restore tokens, masked in other places each (`Restoration`). The head
    of the contrastive loss is two linear layers with batch norm; as in `UnsupervisedSimCSE`, it is
    used in training only.

    Source: Wu et al. 2022, and the authors' code (head, frozen layers, :math:`\lambda`).  Differs:
    the authors start from Condenser, BERT trained on for this task.

    Args:
        encoder: maps sentences to vectors.
        loss: the contrastive loss.
        weight: :math:`\lambda`.
        share: of the tokens that are masked.
        frozen_layers: the layers below the auxiliary ones; None for half of the encoder's.
        layers: the auxiliary layers.
    """

    papers = ("wu2022infocse",)
    model: PointModel
    roles = ("anchor",)
    pairs: ClassVar = {"primary": ("anchor", "anchor")}
    needs_dropout = True

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: nn.Module,
        *,
        weight: float,
        share: float,
        frozen_layers: int | None = None,
        layers: int = 2,
        **training: Unpack[Training],
    ) -> None:
        super().__init__(PointModel(encoder), loss, **training)
        self.weight = weight
        self.restoration = Restoration(
            encoder, share=share, frozen_layers=frozen_layers, layers=layers
        )
        width = encoder.width
        self.head = nn.Sequential(
            nn.Linear(width, 2 * width, bias=False),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width, bias=False),
            nn.BatchNorm1d(width, affine=False),
        )

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the sentences of a batch twice; compare them, and restore their tokens."""
        tokens = batch["roles"]["anchor"]
        vectors = torch.cat(self.model.pooled(tokens, tokens))
        projected = in_float32(self.head, vectors)
        anchor, positive = (PointEmbedding(view) for view in projected.chunk(2))
        contrastive = self.loss(anchor.vector, positive.vector)
        parts = {"contrastive": contrastive, "restoration": self._restored(tokens, vectors)}

        return self.output(
            contrastive + self.weight * parts["restoration"],
            batch["index"],
            parts,
            anchor=anchor,
            positive=positive,
        )

    def _restored(self, tokens: Tokens, vectors: Tensor) -> Tensor:
        """Return the loss of restoring tokens from the vectors of both passes."""
        encoder = self.model.encoder
        template = encoder.template()
        sequences = template.apply(tokens, encoder.max_length)
        position = np.arange(sequences.ids.shape[1])
        lengths = sequences.lengths[:, None]
        start = len(template.prefix)
        is_bare = (position >= start) & (position < lengths - len(template.suffix))
        loss: Tensor = self.restoration(
            vectors,
            sequences.ids.repeat(2, 1),
            np.tile(position < lengths, (2, 1)),
            np.tile(is_bare, (2, 1)),
            self.global_step,
        )

        return loss
