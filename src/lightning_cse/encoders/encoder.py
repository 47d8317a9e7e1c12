"""A sentence encoder: transformer backbone and pooling, one pass for all sentences of a step."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lightning_cse.devices import gather, share
from lightning_cse.encoders import gpu
from lightning_cse.encoders.packing import (
    MODEL_TYPES,
    Windows,
    cut_by_length,
    keep_freed_memory,
    make_dropout_fast,
    use_window_attention,
)
from lightning_cse.encoders.templates import PROMPTS, Sequences, Template
from lightning_cse.errors import EncoderError, did_you_mean
from lightning_cse.tokens import Tokens

TOKENS_AT_ONCE = 4096  # on a CPU: enough for the matrix products, few enough for the cache
POOLINGS = ("cls", "cls_pooler", "embedding_last", "first_last", "mean", "prompt")

EARLIER_STATES = {"first_last": 1, "embedding_last": 0}
r"""Poolings that average the states of the last layer and an earlier one, and its index k in ``hidden_states``.

.. math:: x = \frac{1}{\ell} \sum_{t=1}^{\ell} \frac{h^{(k)}_t + h^{(L)}_t}{2}

Source: SimCSE, authors' code, ``avg_first_last``, with k = 1 since January 2022. This gives BERT-base an average of
60.73 on the seven STS tasks (their issue 285). The paper's 56.70 for "first-last avg." is from k = 0, the embeddings.
"""


def pool(pooling: str, hidden: Tensor, mask: Tensor, place: Tensor) -> Tensor:
    """Pool token vectors (n, length, d) to (n, d): the first, the one at ``place`` (n,), or the mean over ``mask``."""
    hidden = hidden.float()  # a mean that is stored in bfloat16 makes ties between scores
    if pooling in ("cls", "cls_pooler"):
        return hidden[:, 0]
    if pooling == "prompt":
        return hidden[torch.arange(len(hidden), device=hidden.device), place]
    weights = mask.to(hidden.dtype)[:, :, None]
    return torch.sum(hidden * weights, 1) / weights.sum(1).clamp(min=1)


class Tokenizer:
    """A tokenizer as `lightning_cse.data` uses it: sentences to bare token ids, with a digest for the cache key."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, digest: str) -> None:
        self.tokenizer = tokenizer
        self.digest = digest
        self.pad_id = int(tokenizer.pad_token_id)

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the bare ids of each sentence: no special tokens, nothing truncated."""
        if not sentences:  # transformers raises an IndexError
            return []
        # verbose=False: the data module counts and reports sentences over the model's maximum.
        encoded = self.tokenizer(
            list(sentences),
            add_special_tokens=False,
            return_attention_mask=False,
            truncation=False,
            verbose=False,
        )
        return list(encoded["input_ids"])

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each list of ids, as the tokenizer joins word pieces."""
        return [
            str(text) for text in self.tokenizer.batch_decode([list(sentence) for sentence in ids])
        ]


class SentenceEncoder(nn.Module):
    r"""Encode sentences as vectors: template, transformer, pooling.

    All sentences of a step are encoded in one call. For BERT-like models (`MODEL_TYPES`) they are packed into windows
    on a CPU and concatenated on a GPU (with torch's compiler if ``compiled``). Otherwise, they are padded in groups of
    similar length.

    .. math:: x_i = \text{pool}(\text{backbone}(\text{template}(s_i)))

    ``pooling`` takes the first token (``cls``), all real tokens (``mean``), the mask of a prompt around the sentence
    (``prompt``; one vector per prompt, None for NGCSE's two), or all real tokens of two layers (`EARLIER_STATES`).
    ``cls_pooler`` applies the checkpoint's own pooler to the first token, :math:`\tanh(W h_1 + b)`. SimCSE's authors
    test their supervised checkpoints this way, the unsupervised ones with ``cls`` (authors' code, ``evaluation.py``).
    ``max_length`` includes the template; longer sentences are cut. ``denoise`` subtracts the vector of the prompt
    alone, of its mask without the sentence, with the suffix at its positions after a sentence of that length:

    .. math:: x_i = h_{\text{[MASK]}}(\text{template}(s_i)) - h_{\text{[MASK]}}(\text{template}_{|s_i|})

    Source (denoising): PromptBERT (Jiang et al. 2022), section 3.3.  Differs: only lengths that occur in a request are
    encoded, each once, with one dropout mask; gradients flow through both.  Raises EncoderError for invalid options.
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
        prompts: Sequence[str] | None = None,
        denoise: bool = False,
        freeze_embeddings: bool = False,
        compiled: bool = False,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            near = did_you_mean(pooling, POOLINGS)
            raise EncoderError(
                f"encoder.pooling: must be one of {', '.join(POOLINGS)}, got {pooling!r}{near}"
            )
        if tokenizer.pad_token_id is None:
            raise EncoderError(
                f"encoder {name}: its tokenizer has no padding token; set one and save it again"
            )
        self._first_position, limit = positions(backbone)
        if limit is not None and max_length > limit:
            raise EncoderError(
                f"encoder.max_length: {max_length} is more than the {limit} positions of {name}"
            )
        if pooling == "cls_pooler" and not hasattr(getattr(backbone, "pooler", None), "dense"):
            what = f"{name} ({backbone.config.model_type}) has no pooler (a dense layer and tanh on [CLS])"
            raise EncoderError(f"encoder.pooling: {what}; choose cls or mean")
        self.backbone = backbone
        self.tokenizer = Tokenizer(tokenizer, digests["tokenizer"])
        self.name, self.pooling, self.max_length = name, pooling, max_length
        self.digests, self.denoise, self.compiled = digests, denoise, compiled
        self.chunk_size: int | None = None
        """The number of sentences whose activations are kept at once while gradients are computed; None for all."""
        make_dropout_fast(backbone)
        if freeze_embeddings:
            if not isinstance(getattr(backbone, "embeddings", None), nn.Module):
                raise EncoderError(
                    f"encoder.freeze_embeddings: {name} has no module `embeddings`; set it to false"
                )
            backbone.embeddings.requires_grad_(False)
        self.width = int(backbone.config.hidden_size)
        self._windows = use_window_attention(backbone)
        self.has_segments = getattr(backbone.config, "type_vocab_size", 0) > 1
        self.templates = tuple(self._with_room(template) for template in self._single(prompts))
        """The templates of a single sentence: one per prompt, or just one without prompts."""
        if pooling in ("cls", "cls_pooler") and not self.templates[0].prefix:
            raise EncoderError(
                f"encoder.pooling: the tokenizer of {name} puts no [CLS] before a sentence; choose mean"
            )

    def _single(self, prompts: Sequence[str] | None) -> list[Template]:
        """Return one template per prompt, or the tokenizer's own where no prompt is pooled."""
        if self.pooling != "prompt":
            if prompts or self.denoise:
                raise EncoderError(
                    f"encoder.prompts, encoder.denoise: need encoder.pooling=prompt, got {self.pooling}"
                )
            return [Template.from_tokenizer(self.tokenizer.tokenizer)]
        if self.denoise and not self._windows:
            kind, known = self.backbone.config.model_type, ", ".join(MODEL_TYPES)
            raise EncoderError(
                f"encoder.denoise: the positions of {kind} cannot be set, only those of {known}"
            )
        if isinstance(prompts, str) or (prompts is not None and len(prompts) == 0):
            raise EncoderError(
                f"encoder.prompts: must be a list of prompts, or null for NGCSE's two; got {prompts!r}"
            )
        return [
            Template.from_prompt(self.tokenizer.tokenizer, prompt) for prompt in prompts or PROMPTS
        ]

    def _with_room(self, template: Template) -> Template:
        if len(template) >= self.max_length:
            what = "special tokens" if template.pooled is None else "tokens of the prompt"
            raise EncoderError(
                f"encoder.max_length: {self.max_length} leaves no room beside {len(template)} {what}"
            )
        return template

    @property
    def has_dropout(self) -> bool:
        """Whether two passes over a sentence differ in training mode."""
        return any(
            type(value) in (int, float) and value > 0
            for module in self.backbone.modules()
            for key, value in vars(
                module
            ).items()  # a number named dropout belongs to a functional one
            if "dropout" in key or (key == "p" and isinstance(module, nn.Dropout))
        )

    def template(self, second: str | None = None) -> Template:
        """Return the first template of a single sentence, or that of a pair with the word ``second`` (no prompts)."""
        if second is None:
            return self.templates[0]
        if self.pooling == "prompt":
            raise EncoderError(
                f"encoder.pooling: this method puts {second!r} behind a sentence; choose cls or mean"
            )
        tokenizer = self.tokenizer.tokenizer
        template = Template.from_tokenizer(tokenizer, second)
        if not {*template.prefix, *template.suffix} & {*tokenizer.all_special_ids}:
            what = f"writes no special token between a sentence and {second!r}"
            raise EncoderError(
                f"the tokenizer of {self.name} {what}; choose method.architecture=bi"
            )
        if not self.has_segments:
            template = replace(template, suffix_types=(0,) * len(template.suffix))
        return self._with_room(template)

    def forward(
        self, requests: Sequence[tuple[Tokens, Template]], *, most: int | None = None
    ) -> list[Tensor]:
        """Encode all requests in one pass; return one (n, d) float32 tensor per request.

        ``most`` limits the padded tokens that go through the backbone at once, to save memory in evaluation.
        """
        parts = [template.apply(tokens, self.max_length) for tokens, template in requests]
        if not self.denoise:
            return self._encode(parts, most)
        lengths = [part.lengths.unique() for part in parts]
        alone = [
            template.alone(own - len(template))
            for own, (_, template) in zip(lengths, requests, strict=True)
        ]
        vectors = self._encode([*parts, *alone], most)
        return [
            vector - bias[torch.searchsorted(own, part.lengths)]
            for part, own, vector, bias in zip(
                parts, lengths, vectors, vectors[len(parts) :], strict=False
            )
        ]

    def _encode(self, parts: Sequence[Sequences], most: int | None) -> list[Tensor]:
        sequences = Sequences.cat(parts, self.tokenizer.pad_id)
        order = torch.argsort(sequences.lengths, stable=True)
        encode = self._packed if self._windows and order.device.type == "cpu" else self._padded
        kernel = gpu.kernel_for(self.backbone, order.device) if self._windows else None
        run = (
            gpu.compiled(kernel) if self.compiled and torch.is_grad_enabled() else None
        )  # evaluation: too many shapes
        if kernel is not None:
            encode = partial(self._in_rows, kernel, run)

        def encoded(rows: Tensor) -> Tensor:
            vectors = torch.cat(list(encode(sequences.take(rows), most)))
            if self.pooling != "cls_pooler":
                return vectors
            with torch.autocast(
                vectors.device.type, enabled=False
            ):  # vectors rounded to bfloat16 make ties
                pooled: Tensor = self.backbone.get_submodule("pooler")(vectors[:, None])
            return pooled

        own = share(order)
        if self.chunk_size is None or not torch.is_grad_enabled():
            vectors = encoded(own)
        else:
            vectors = torch.cat(
                [
                    checkpoint(encoded, rows, use_reentrant=False)
                    for rows in own.split(self.chunk_size)
                ]
            )
        vectors = gather(vectors)[: len(order)]
        return list(vectors[order.argsort()].split([len(part.ids) for part in parts]))

    def _in_rows(
        self, kernel: gpu.Kernel, run: Any, sequences: Sequences, most: int | None
    ) -> Iterator[Tensor]:
        """Encode sequences, sorted by length, concatenated without padding (`lightning_cse.encoders.gpu`)."""
        for part, total, inputs in gpu.rows(sequences, most, kernel, rounded=run is not None):
            inputs["position_ids"] += self._first_position
            if not self.has_segments:
                del inputs["token_type_ids"]
            yield gpu.pool_row(self.pooling, self._states(run=run, **inputs)[0, :total], part)

    def _padded(self, sequences: Sequences, most: int | None) -> Iterator[Tensor]:
        """Encode sequences, sorted by length, in groups of similar length, each padded to its longest."""
        lengths = sequences.lengths.cpu().numpy()
        for start, end in pairwise([0, *cut_by_length(lengths, most=most)]):
            part, width = sequences.take(slice(start, end)), int(lengths[end - 1])
            mask = torch.arange(width, device=part.ids.device) < part.lengths[:, None]
            inputs = {"input_ids": part.ids[:, :width]}
            if lengths[start] < width:  # without a mask, attention has faster kernels
                inputs["attention_mask"] = mask.long()
            if self.has_segments:
                inputs["token_type_ids"] = part.type_ids[:, :width]
            if self.denoise:
                inputs["position_ids"] = part.positions[:, :width] + self._first_position
            yield pool(self.pooling, self._states(**inputs), mask, part.pooled)

    def _packed(self, sequences: Sequences, most: int | None) -> Iterator[Tensor]:
        """Encode sequences, sorted by length, in rows of a few thousand tokens (`lightning_cse.encoders.packing`)."""
        keep_freed_memory()  # not before: reading a corpus would keep half as much memory again
        ends = np.cumsum(sequences.lengths.numpy())
        pieces = -(-int(ends[-1]) // min(TOKENS_AT_ONCE, most or TOKENS_AT_ONCE))
        # A sequence longer than a piece leaves some pieces empty, which unique() drops.
        _, sizes = np.unique((ends - 1) * pieces // ends[-1], return_counts=True)
        parts = [sequences.take(slice(*piece)) for piece in pairwise([0, *np.cumsum(sizes)])]
        rows = [self._row(part) for part in parts]
        # One look-up for all rows, since the gradient of each look-up is as large as the whole table.
        table, ids = (
            self.backbone.get_input_embeddings(),
            [columns.pop("input_ids") for columns, *_ in rows],
        )
        embedded = (
            table(torch.cat(ids)).split([*map(len, ids)])
            if torch.is_grad_enabled()
            else map(table, ids)
        )
        kinds = getattr(self.backbone.config, "layer_types", None)
        # Without this, ModernBERT makes a mask over every pair of tokens of a row.
        unmasked: Any = {"attention_mask": dict.fromkeys(kinds)} if kinds else {}
        for part, inputs_embeds, (columns, windows, places, mask) in zip(
            parts, embedded, rows, strict=True
        ):
            inputs = {name: column[None] for name, column in columns.items()} | unmasked
            hidden = self._states(inputs_embeds=inputs_embeds[None], **inputs, windows=windows)[0]
            hidden = hidden.index_select(0, places.flatten()).unflatten(0, places.shape)
            yield pool(self.pooling, hidden, mask, part.pooled)

    def _row(self, part: Sequences) -> tuple[dict[str, Tensor], Windows, Tensor, Tensor]:
        """Return the model's inputs for sequences in one row, their windows, and each token's place and mask."""
        windows = Windows.pack(part.lengths.numpy())
        position = torch.arange(int(part.lengths.max())).expand(len(part.lengths), -1)
        mask = position < part.lengths[:, None]
        places = torch.from_numpy(windows.starts)[:, None] + position
        width, inside = position.shape[1], places[mask]

        def laid_out(values: Tensor, padding: int) -> Tensor:
            row = torch.full((windows.count * windows.width,), padding)
            return row.index_copy_(0, inside, values[:, :width][mask])

        columns = {
            "input_ids": laid_out(part.ids, self.tokenizer.pad_id),
            "position_ids": laid_out(part.positions + self._first_position, self._first_position),
        }
        if self.has_segments:
            columns["token_type_ids"] = laid_out(part.type_ids, 0)
        return columns, windows, places.where(mask, 0), mask

    def _states(self, *, run: Any = None, **inputs: Any) -> Tensor:
        """Return the states of every token for pooling: the last layer's, or their average with an earlier layer's."""
        earlier = EARLIER_STATES.get(self.pooling)
        inputs["output_hidden_states"] = earlier is not None
        found = run(self.backbone, inputs) if run else self.backbone(**inputs)
        if earlier is None:
            last: Tensor = found.last_hidden_state
            return last
        states: tuple[Tensor, ...] = found.hidden_states
        return (states[earlier].float() + states[-1].float()) / 2


def positions(backbone: PreTrainedModel) -> tuple[int, int | None]:
    """Return the position of the first token, and how many positions tokens can have; None without a limit."""
    # Positions of RoBERTa and MPNet start after the padding id, so two of their 514 are never used.
    first = int(getattr(getattr(backbone, "embeddings", None), "padding_idx", -1)) + 1
    limit = getattr(backbone.config, "max_position_embeddings", None)
    return first, None if limit is None else limit - first
