"""A sentence encoder: transformer backbone and pooling, one pass for all sentences of a step."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from lightning_cse.encoders.packing import MODEL_TYPES, Windows, cut_by_length, make_dropout_fast, use_window_attention
from lightning_cse.encoders.pooling import EARLIER_STATES, POOLINGS
from lightning_cse.encoders.templates import PROMPTS, Sequences, Template
from lightning_cse.errors import EncoderError, did_you_mean
from lightning_cse.tokens import Tokens

log = logging.getLogger(__name__)

TOKENS_AT_ONCE = 4096
"""Tokens that go through the backbone together on a CPU: enough for the matrix products, few enough for the cache."""


class Tokenizer:
    """A tokenizer as the data room sees it: sentences to bare token ids, with a digest for the cache key."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, digest: str) -> None:
        self.tokenizer = tokenizer
        self.digest = digest
        self.pad_id = int(tokenizer.pad_token_id)

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the bare ids of each sentence: no special tokens, nothing truncated."""
        if not sentences:  # of which transformers makes an IndexError
            return []
        # verbose=False: a sentence over the model's maximum is counted and told by the data module, not here.
        encoded = self.tokenizer(
            list(sentences), add_special_tokens=False, return_attention_mask=False, truncation=False, verbose=False
        )
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each list of ids, as the tokenizer joins word pieces."""
        return [str(text) for text in self.tokenizer.batch_decode([list(sentence) for sentence in ids])]


class SentenceEncoder(nn.Module):
    r"""Sentences to vectors: template, transformer, pooling.

    All sentences of a step go through in one call. They are sorted by length, run, and put back in order: on a CPU
    packed into windows (BERT and RoBERTa; `encoders.packing`), elsewhere cut into the groups that waste
    the fewest padded tokens (`cut_by_length`):

    .. math:: x_i = \text{pool}(\text{backbone}(\text{template}(s_i)))

    With ``denoise``, what the template alone gives is taken away: the mask's vector without the sentence, the suffix at
    the positions it has behind a sentence of that length. Each length of a step is encoded once for all its sentences,
    with one dropout mask, and gradients flow through both.

    .. math:: x_i = h_{\text{[MASK]}}(\text{template}(s_i)) - h_{\text{[MASK]}}(\text{template}_{|s_i|})

    Source (denoising): PromptBERT (Jiang et al. 2022), section 3.3.  Differs: only lengths that occur are encoded.

    Args:
        backbone: a Hugging Face encoder without a pooler.
        tokenizer: its tokenizer.
        name: short name, for records and recipes.
        pooling: ``cls`` (first token), ``mean`` (all real tokens), ``prompt`` (the mask of a prompt around the
            sentence), or ``first_last`` or ``embedding_last`` (all real tokens of two layers; see `encoders.pooling`).
        max_length: tokens a sequence may have, template included; longer sentences are cut.
        digests: sha256 of the weights and of the tokenizer's files.
        dropout: if given, replaces every dropout probability of the backbone.
        prompts: with ``pooling=prompt`` the prompts, one template each (`Template.from_prompt`); None for NGCSE's two.
        denoise: with ``pooling=prompt``, whether the template's own vector is subtracted.
        freeze_embeddings: whether the word, position and type embeddings and their layer norm stay as they are.

    Raises:
        EncoderError: for an unknown pooling, a ``max_length`` the backbone has no positions for, a tokenizer without a
            padding token, prompts that are none or are not pooled, or a backbone that cannot denoise or freeze.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str,
        pooling: str,
        max_length: int,
        digests: dict[str, str],
        dropout: float | None = None,
        prompts: Sequence[str] | None = None,
        denoise: bool = False,
        freeze_embeddings: bool = False,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise EncoderError(
                f"encoder.pooling: {pooling!r} is not one of {sorted(POOLINGS)}{did_you_mean(pooling, POOLINGS)}"
            )
        if tokenizer.pad_token_id is None:
            raise EncoderError(f"encoder {name}: its tokenizer has no padding token")
        positions = _positions(backbone)
        if positions is not None and max_length > positions:
            raise EncoderError(f"encoder.max_length: {max_length} is more than the {positions} of {name}")
        self.backbone = backbone
        self.tokenizer = Tokenizer(tokenizer, digests["tokenizer"])
        self.name = name
        self.pooling = pooling
        self.max_length = max_length
        self.digests = digests
        if dropout is not None:
            for module in self.backbone.modules():
                if isinstance(module, nn.Dropout):
                    module.p = dropout
                elif isinstance(getattr(module, "dropout_prob", None), float):  # functional dropout in attention
                    module.dropout_prob = dropout  # type: ignore[assignment]
        make_dropout_fast(self.backbone)
        if freeze_embeddings:
            _freeze_embeddings(self.backbone, name)
        self._windows = use_window_attention(self.backbone)
        self._first_position = _first_position(backbone)
        self._has_types = getattr(backbone.config, "type_vocab_size", 0) > 1
        self.denoise = denoise
        self._prompts = self._checked_prompts(prompts)

    def _checked_prompts(self, prompts: Sequence[str] | None) -> tuple[Template, ...]:
        """Return a template a prompt; none where another token or all of them are pooled."""
        if self.pooling != "prompt":
            for key, value in (("prompts", prompts), ("denoise", self.denoise)):
                if value:
                    raise EncoderError(
                        f"encoder.{key}: needs encoder.pooling=prompt, and it is {self.pooling}; change one of the two"
                    )
            return ()
        if self.denoise and not self._windows:
            known = ", ".join(MODEL_TYPES)
            raise EncoderError(
                f"encoder.denoise: the positions of {self.name}, a {self.backbone.config.model_type}, cannot be set; "
                f"those of {known} can"
            )
        if isinstance(prompts, str) or (prompts is not None and len(prompts) == 0):
            raise EncoderError(f"encoder.prompts: {prompts!r} is no list of prompts; null stands for {list(PROMPTS)}")
        return tuple(Template.from_prompt(self.tokenizer.tokenizer, prompt) for prompt in prompts or PROMPTS)

    @property
    def width(self) -> int:
        """The dimension d of a sentence vector."""
        return int(self.backbone.config.hidden_size)

    @property
    def has_dropout(self) -> bool:
        """Whether two passes over a sentence differ in training mode."""
        return any(isinstance(module, nn.Dropout) and module.p > 0 for module in self.backbone.modules())

    @property
    def templates(self) -> tuple[Template, ...]:
        """The templates of a single sentence: one for each prompt, else one."""
        return tuple(self._with_room(template) for template in self._prompts) or (self.template(),)

    def template(self, second: str | None = None) -> Template:
        """Return the first template of a single sentence, or that of a pair with the word ``second`` behind it.

        Raises:
            EncoderError: if it leaves no room for a sentence, or a prompt is to have a second segment.
        """
        if self._prompts and second is not None:
            raise EncoderError(
                f"encoder.pooling: a prompt takes no second segment, and this method puts {second!r} there; "
                "choose cls or mean"
            )
        return self._with_room(
            self._prompts[0] if self._prompts else Template.from_tokenizer(self.tokenizer.tokenizer, second)
        )

    def _with_room(self, template: Template) -> Template:
        if len(template) >= self.max_length:
            what = "specials" if template.pooled is None else "of specials and prompt"
            raise EncoderError(f"encoder.max_length: {self.max_length} leaves no room beside {len(template)} {what}")
        return template

    def forward(self, requests: Sequence[tuple[Tokens, Template]], *, most: int | None = None) -> list[Tensor]:
        """Encode every request in one pass; return one (n, d) float32 tensor a request.

        ``most`` bounds the padded tokens that go through the backbone at once (memory, in evaluation).
        """
        parts = [template.apply(tokens, self.max_length) for tokens, template in requests]
        templates = [template for _, template in requests]
        if not self.denoise:
            return self._encode(parts, most)
        distinct = {
            template: torch.cat(
                [p.lengths for p, own in zip(parts, templates, strict=True) if own == template]
            ).unique()
            for template in templates
        }
        alone = [template.alone(lengths - len(template)) for template, lengths in distinct.items()]
        vectors = self._encode([*parts, *alone], most)
        biases = dict(zip(distinct, vectors[len(parts) :], strict=True))
        return [
            vector - biases[template][torch.searchsorted(distinct[template], part.lengths)]
            for vector, part, template in zip(vectors, parts, templates, strict=False)
        ]

    def _encode(self, parts: Sequence[Sequences], most: int | None) -> list[Tensor]:
        """Return the vectors of each part: (n, d) float32."""
        sequences = Sequences.cat(parts, pad_id=self.tokenizer.pad_id)
        order = torch.argsort(sequences.lengths, stable=True)
        lengths = sequences.lengths[order].cpu().numpy()
        if self._windows and order.device.type == "cpu":
            vectors = self._encode_packed(sequences, order, lengths, most)
        else:
            vectors = self._encode_padded(sequences, order, lengths, most)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return list(torch.cat(list(vectors))[back].split([len(part) for part in parts]))

    def _encode_padded(
        self, sequences: Sequences, order: Tensor, lengths: np.ndarray, most: int | None
    ) -> Iterator[Tensor]:
        """Run every group of similar lengths, padded to its longest."""
        start = 0
        for end in cut_by_length(lengths, most=most):
            chosen, width = order[start:end], int(lengths[end - 1])
            mask = torch.arange(width, device=chosen.device) < sequences.lengths[chosen, None]
            inputs = {"input_ids": sequences.ids[chosen, :width]}
            if lengths[start] < width:  # without a mask, attention has faster kernels
                inputs["attention_mask"] = mask.long()
            if self._has_types:
                inputs["token_type_ids"] = sequences.type_ids[chosen, :width]
            if self.denoise:
                inputs["position_ids"] = sequences.positions[chosen, :width] + self._first_position
            yield self._pool(self._states(**inputs), mask, sequences.pooled[chosen])
            start = end

    def _encode_packed(
        self, sequences: Sequences, order: Tensor, lengths: np.ndarray, most: int | None
    ) -> Iterator[Tensor]:
        """Run the tokens of all sequences in one row, some thousands at once; see `encoders.packing`."""
        ends = np.cumsum(lengths)
        pieces = -(-int(ends[-1]) // min(TOKENS_AT_ONCE, most or TOKENS_AT_ONCE))
        # The piece each sequence goes with; a sequence longer than a piece leaves some empty, which unique() drops.
        _, piece = np.unique((ends - 1) * pieces // ends[-1], return_inverse=True)
        rows = [self._row(sequences, order[piece == number], lengths[piece == number]) for number in np.unique(piece)]
        table = self.backbone.get_input_embeddings()
        ids = [columns.pop("input_ids") for columns, *_ in rows]
        # Looked up for all pieces at once, since each look-up's gradient is as large as the whole table.
        sizes = [len(part) for part in ids]
        embedded = table(torch.cat(ids)).split(sizes) if torch.is_grad_enabled() else map(table, ids)
        pooled = sequences.pooled[order].split([len(mask) for *_, mask in rows])
        for inputs_embeds, (columns, windows, places, mask), place in zip(embedded, rows, pooled, strict=True):
            row = {name: column[None] for name, column in columns.items()}
            hidden = self._states(inputs_embeds=inputs_embeds[None], **row, windows=windows)[0]
            yield self._pool(hidden.index_select(0, places.flatten()).unflatten(0, places.shape), mask, place)

    def _row(
        self, sequences: Sequences, chosen: Tensor, lengths: np.ndarray
    ) -> tuple[dict[str, Tensor], Windows, Tensor, Tensor]:
        """Return the model's inputs for some sequences in one row, their windows, and each token's place and mask."""
        windows = Windows.pack(lengths)
        position = torch.arange(int(lengths.max())).expand(len(lengths), -1)
        mask = position < torch.from_numpy(lengths)[:, None]
        places = torch.from_numpy(windows.starts)[:, None] + position
        width = position.shape[1]
        inside = places[mask]

        def laid_out(values: Tensor, padding: int) -> Tensor:
            return torch.full((windows.count * windows.width,), padding).index_copy_(0, inside, values[mask])

        columns = {
            "input_ids": laid_out(sequences.ids[chosen, :width], self.tokenizer.pad_id),
            "position_ids": laid_out(sequences.positions[chosen, :width] + self._first_position, self._first_position),
        }
        if self._has_types:
            columns["token_type_ids"] = laid_out(sequences.type_ids[chosen, :width], 0)
        return columns, windows, places.where(mask, 0), mask

    def _states(self, **inputs: Any) -> Tensor:
        """Return the states that are pooled, of every token: the last layer's, or their average with earlier ones."""
        earlier = EARLIER_STATES.get(self.pooling)
        if earlier is None:
            last: Tensor = self.backbone(**inputs).last_hidden_state
            return last
        states: tuple[Tensor, ...] = self.backbone(**inputs, output_hidden_states=True).hidden_states
        return (states[earlier].float() + states[-1].float()) / 2

    def _pool(self, hidden: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
        # Pooled in float32: a mean of bfloat16 vectors, stored in bfloat16, makes ties between scores.
        return POOLINGS[self.pooling](hidden.float(), mask, pooled)


def _freeze_embeddings(backbone: PreTrainedModel, name: str) -> None:
    embeddings = getattr(backbone, "embeddings", None)
    if not isinstance(embeddings, nn.Module):
        raise EncoderError(
            f"encoder.freeze_embeddings: {name}, a {backbone.config.model_type}, keeps its embeddings in no module of "
            "that name; set it to false"
        )
    embeddings.requires_grad_(False)


def load_encoder(
    *,
    name: str,
    source: str,
    package: str | None = None,
    pooling: str = "cls",
    max_length: int | Literal["auto"] = 128,
    dropout: float | None = None,
    prompts: Sequence[str] | None = None,
    denoise: bool = False,
    freeze_embeddings: bool = False,
) -> SentenceEncoder:
    """Load an encoder in float32 from a folder, a Python package that carries it, or the hub.

    Only safetensors weights are read and no code of a model's repository is ever run. ``pooling="auto"`` and
    ``max_length="auto"`` take what a sentence-transformers folder says; where it names no length, the most that both
    the tokenizer and the backbone allow, as sentence-transformers does.

    Raises:
        EncoderError: if it is not in reach or its files cannot be read; the message says what was tried. For ``auto``,
            if the folder does not say, or says what cannot be done here.
    """
    from lightning_cse.encoders.sources import find_encoder, tokenizer_digest, weights_digest

    folder = find_encoder(source, package)
    if pooling == "auto":
        pooling = _own_pooling(folder)
    try:
        config = AutoConfig.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True)
        backbone = _backbone(folder, config)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise EncoderError(f"the encoder in {folder} cannot be loaded: {' '.join(str(error).split())}") from error
    digests = {"weights": weights_digest(folder), "tokenizer": tokenizer_digest(folder)}
    return SentenceEncoder(
        backbone,
        tokenizer,
        name=name,
        pooling=pooling,
        max_length=_own_max_length(folder, backbone, tokenizer) if max_length == "auto" else max_length,
        digests=digests,
        dropout=dropout,
        prompts=prompts,
        denoise=denoise,
        freeze_embeddings=freeze_embeddings,
    )


def _own_pooling(folder: Path) -> str:
    from lightning_cse.encoders.saved import read_pooling

    pooling = read_pooling(folder)
    if pooling is None:
        raise EncoderError(
            f"encoder.pooling: {folder} has no modules.json and does not say how it pools; choose one of "
            f"{sorted(POOLINGS)} in place of auto"
        )
    return pooling


def _own_max_length(folder: Path, backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    from lightning_cse.encoders.saved import read_max_length

    said = read_max_length(folder)
    if said is not None:
        return said
    # A tokenizer that knows no limit gives 1e30.
    known = [limit for limit in (_positions(backbone), int(tokenizer.model_max_length)) if limit and limit < 10**9]
    if not known:
        raise EncoderError(f"encoder.max_length: nothing in {folder} says how long a sequence may be; set a number")
    return min(known)


def _first_position(backbone: PreTrainedModel) -> int:
    # RoBERTa's and MPNet's positions start behind the padding id, so two of their 514 are never used.
    shifted = "roberta" in backbone.config.model_type or backbone.config.model_type == "mpnet"
    return int(backbone.config.pad_token_id) + 1 if shifted else 0


def _positions(backbone: PreTrainedModel) -> int | None:
    """Return how many tokens the backbone has positions for; None if there is no such limit."""
    positions: int | None = getattr(backbone.config, "max_position_embeddings", None)
    return None if positions is None else positions - _first_position(backbone)


def _backbone(folder: Path, config: Any) -> PreTrainedModel:
    model_class = cast("type[PreTrainedModel]", MODEL_MAPPING[type(config)])
    # A pooler would hold parameters that never get a gradient; not every architecture has the switch.
    options: dict[str, Any] = {"add_pooling_layer": False} if _takes_pooler_switch(model_class) else {}
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()  # the report on the pooler left out says nothing a user can use
    transformers_logging.disable_progress_bar()
    try:
        loaded = model_class.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # told below, with those that are missing
            output_loading_info=True,
            **options,
        )
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
    backbone, report = cast("tuple[PreTrainedModel, dict[str, Any]]", loaded)
    lacking = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    lacking = {name for name in lacking if "pooler" not in name}  # never read here
    if lacking:  # transformers would go on with random numbers
        raise ValueError(
            f"{len(lacking)} parameters of the {model_class.__name__} in config.json are not in the weights, or not in "
            f"that shape: {', '.join(sorted(lacking)[:3])}{', ...' if len(lacking) > 3 else ''}"
        )
    return backbone


def _takes_pooler_switch(model_class: type) -> bool:
    return "add_pooling_layer" in inspect.signature(model_class).parameters
