"""A sentence encoder: transformer backbone and pooling, one pass for all sentences of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lightning_cse.devices import to_device
from lightning_cse.encoders.architecture import (
    MODEL_TYPES,
    avoid_host_reads,
    checkpoint_layers,
    drops,
    embedding_layer,
    has_segments,
    is_causal,
    is_decoder,
    position_limit,
)
from lightning_cse.encoders.frozen import frozen_names, leave_out_frozen
from lightning_cse.encoders.instructions import USES, Tokenizer, complete
from lightning_cse.encoders.passes import Passes
from lightning_cse.encoders.pooling import check_pooling
from lightning_cse.encoders.templates import Template, prompt_templates
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

if TYPE_CHECKING:
    from lightning_cse.encoders.adapters import Adapter
    from lightning_cse.encoders.augmentation import Augmentation


class SentenceEncoder(nn.Module):
    r"""Encode sentences as vectors: template, transformer, pooling.

    All sentences of a step are encoded in one call, padded in groups of similar length (`Passes`).
    On a CPU, for the architectures of `MODEL_TYPES` and for MPNet, they are packed into windows
    (`lightning_cse.encoders.cpu`).

    .. math:: x_i = \text{pool}(\text{backbone}(\text{template}(s_i)))

    ``pooling`` takes the first token (``cls``), all real tokens (``mean``, or ``max``, the largest
    number in each dimension), the mask of a prompt around the sentence (``prompt``; one vector per
    prompt, None for NGCSE's two), the end token (``last_token``; appended if the tokenizer writes
    no special token at the end), or all real tokens of two layers (`EARLIER_STATES`). A causal
    model pools the last token of a prompt without a mask, by default `PROMPT_EOL`, and has no
    ``cls``. ``cls_pooler`` applies
    the checkpoint's own pooler to the first token, :math:`\tanh(W h_1 + b)`. SimCSE's authors test
    their supervised checkpoints this way, the unsupervised ones with ``cls`` (authors' code,
    ``evaluation.py``).
    ``instructions`` are texts put before a sentence, by its use (`Use`).
    ``max_length`` includes it and the template; longer sentences are cut. ``denoise`` subtracts the
    vector of the prompt alone, of its mask without the sentence, with the suffix at its
    positions after a sentence of that length:

    .. math:: x_i = h_{\text{[MASK]}}(\text{template}(s_i))
              - h_{\text{[MASK]}}(\text{template}_{|s_i|})

    Source (denoising): PromptBERT (Jiang et al. 2022), section 3.3.  Differs: only lengths that
    occur in a request are encoded, each once, with one dropout mask; gradients flow through
    both.  Raises EncoderError for invalid options.

    ``adapter`` is a peft config (`Adapter`); then the backbone's own weights are frozen.
    ``gradient_checkpointing`` computes the activations of each layer again for the gradient, with
    the same numbers. ``template`` is put around a single sentence, in place of the tokenizer's or
    of ``prompts``. State dicts have no parameter that is frozen (``frozen``).
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
        instructions: Mapping[str, str] | None = None,
        compile: bool = False,  # noqa: A002 - the option's name,
        adapter: Any = None,
        gradient_checkpointing: bool = False,
        template: Template | None = None,
    ) -> None:
        super().__init__()
        limit = position_limit(backbone)
        if limit is not None and max_length > limit:
            raise EncoderError(
                f"encoder.max_length: {max_length} is more than the {limit} positions of {name}"
            )

        self.is_decoder = is_decoder(backbone.config)
        self.is_causal = self.is_decoder and is_causal(backbone)
        """Whether a token sees only the tokens before it."""
        check_pooling(pooling, backbone, name, self.is_causal)
        self.backbone = backbone
        self.tokenizer = Tokenizer(tokenizer, digests["tokenizer"])
        self.instructions = complete(instructions)
        """The text before a sentence by its use; empty without instructions."""
        self.instructed: dict[str, Tokenizer] = {
            use: self._with_instruction(self.instructions.get(use, "")) for use in USES
        }
        """The tokenizer of a sentence by its use: ``default``, ``query`` or ``document``."""
        self.name = name
        self.pooling = pooling
        self.max_length = max_length
        self.digests = digests
        self.denoise = denoise
        self.compiled = compile
        self.chunk_size: int | None = None
        """The sentences whose activations are kept at once for a gradient; None for all."""
        self._kept: dict[bytes, list[Tensor]] | None = None
        self.width = int(backbone.config.hidden_size)
        self.has_segments = has_segments(backbone.config)
        self.adapter: Adapter | None = None
        if adapter is not None:
            from lightning_cse.encoders.adapters import Adapter  # few runs have one

            self.adapter = Adapter(backbone, adapter)

        if freeze_embeddings:
            embeddings = embedding_layer(backbone) or backbone.get_input_embeddings()
            embeddings.requires_grad_(False)
        if gradient_checkpointing:
            checkpoint_layers(backbone)

        leave_out_frozen(self)
        avoid_host_reads(backbone)
        self._passes_on_cpu: type[Passes] | None = None
        self.templates = (
            tuple(self._single_templates(prompts))
            if template is None
            else (self._with_room(template),)
        )
        """The templates of a single sentence: one per prompt, or just one without prompts."""
        for use, text in self.instructions.items():
            self._check_room(f"encoder.instructions.{use}", text)

    def _with_instruction(self, text: str) -> Tokenizer:
        bare = self.tokenizer
        return Tokenizer(bare.tokenizer, bare.digest, text) if text else bare

    def prompted(self, text: str) -> Tokenizer:
        """Return the tokenizer that puts a text before each sentence, in place of instructions;
        raise EncoderError if it leaves no room for a sentence.
        """
        self._check_room("prompt", text)

        return self._with_instruction(text)

    def _check_room(self, key: str, text: str) -> None:
        """Raise EncoderError if a text leaves no room for a sentence after it."""
        tokens = max(map(len, self.templates)) + len(self.tokenizer([text])[0])
        if tokens >= self.max_length:
            raise EncoderError(
                f"{key}: {tokens} tokens with the template leave no room for a sentence within "
                f"encoder.max_length={self.max_length}"
            )

    def _single_templates(self, prompts: Sequence[str] | None) -> Iterator[Template]:
        """Yield one template per prompt, or the tokenizer's if no prompt is pooled."""
        tokenizer = self.tokenizer.tokenizer
        if self.pooling == "prompt":
            if self.denoise:
                self.check_positions("encoder.denoise")

            for template in prompt_templates(tokenizer, prompts, self.is_decoder):
                yield self._with_room(template)

            return

        if prompts or self.denoise:
            raise EncoderError(
                f"encoder.prompts, encoder.denoise: need encoder.pooling=prompt, got {self.pooling}"
            )

        yield self._with_end(Template.from_tokenizer(tokenizer))

    def check_positions(self, key: str) -> None:
        """Raise EncoderError, which names an option, if it cannot set the positions of tokens."""
        model_type = self.backbone.config.model_type
        if model_type not in MODEL_TYPES:
            raise EncoderError(
                f"{key}: the positions of {model_type} cannot be set, only those of "
                f"{', '.join(MODEL_TYPES)}"
            )

    def check_augmentation(self, key: str) -> None:
        """Raise EncoderError, which names an option, if sentences cannot be augmented."""
        self.check_positions(key)
        if embedding_layer(self.backbone) is None:
            raise EncoderError(
                f"{key}: {self.name} ({self.backbone.config.model_type}) has no layer of its own "
                "for embeddings, as BERT has; choose a masked language model such as BERT"
            )

    def _with_end(self, template: Template) -> Template:
        """Return a template that ends with the token that is pooled, if a sentence has room."""
        ends = self.pooling == "last_token"
        return self._with_room(template.ended(self.tokenizer.tokenizer) if ends else template)

    def _with_room(self, template: Template) -> Template:
        """Return the template if a sentence has room beside it."""
        if len(template) >= self.max_length:
            raise EncoderError(
                f"encoder.max_length: {self.max_length} leaves no room for a sentence beside "
                f"{len(template)} special tokens and tokens of the prompt"
            )

        return template

    @property
    def frozen(self) -> list[str]:
        """The names of the parameters that are not trained and that its folder has."""
        saved = self.adapter.parameter_names if self.adapter else ()
        return frozen_names(self, {f"backbone.{name}" for name in saved})

    @property
    def has_dropout(self) -> bool:
        """Whether two passes over a sentence differ in training mode."""
        return any(drops(module) for module in self.backbone.modules())

    @property
    def is_fixed(self) -> bool:
        """Whether a pass is always the same: no parameter is trained, and nothing is dropped."""
        is_trained = any(parameter.requires_grad for parameter in self.parameters())
        return not is_trained and not any(m.training and drops(m) for m in self.backbone.modules())

    @contextmanager
    def keeping(self, vectors: dict[bytes, list[Tensor]]) -> Iterator[None]:
        """Keep the vectors of every pass while the encoder `is_fixed`, and look up a pass over the
        same tokens instead of repeating it.

        ``vectors`` holds them, by a digest of the tokens; it belongs to one encoder and precision.
        """
        self._kept = vectors
        try:
            yield
        finally:
            self._kept = None

    def template(self, second: str | None = None) -> Template:
        """Return the first template of a single sentence, or that of a pair with the word
        ``second`` (no prompts).
        """
        if second is None:
            return self.templates[0]

        if self.pooling == "prompt":
            raise EncoderError(
                f"encoder.pooling: this method puts {second!r} behind a sentence; choose "
                f"{'last_token' if self.is_decoder else 'cls'} or mean"
            )

        tokenizer = self.tokenizer.tokenizer
        template = Template.from_tokenizer(tokenizer, second)
        if not self.has_segments:
            template = replace(template, suffix_types=(0,) * len(template.suffix))

        return self._with_end(template)

    def passes(self, device: torch.device | None = None) -> type[Passes]:
        """Return how sequences go through the backbone on a device, by default its own.

        The first passes on a CPU replace modules of the backbone by faster ones.
        """
        if (device or self.backbone.device).type != "cpu":
            return Passes

        if self._passes_on_cpu is None:
            from lightning_cse.encoders.cpu import prepare  # a GPU needs nothing of it

            self._passes_on_cpu = prepare(self.backbone)

        return self._passes_on_cpu

    def forward(
        self,
        requests: Sequence[tuple[Tokens, Template]],
        *,
        most: int | None = None,
        denoise: bool | None = None,
        augment: Augmentation | None = None,
    ) -> list[Tensor]:
        """Encode all requests in one pass; return one (n, d) float32 tensor per request.

        ``most`` limits the padded tokens that go through the backbone at once, to save memory
        in evaluation. ``denoise`` replaces the encoder's own setting (see `check_positions`), and
        ``augment`` changes the sentences of this call (see `check_augmentation`).
        """
        is_usual = denoise in (None, self.denoise) and augment is None
        passes = self.passes()(
            self.backbone,
            self.pooling,
            pad_id=self.tokenizer.pad_id,
            is_causal=self.is_causal,
            draws=self.training or torch.is_grad_enabled(),
            most=most,
            denoise=self.denoise if denoise is None else denoise,
            augment=augment,
            chunk_size=self.chunk_size,
            is_shared=any(tokens.is_shared for tokens, _ in requests),
        )
        if self._kept is None or not is_usual or not self.is_fixed:
            return self._vectors(requests, passes)

        key = b"".join(tokens.digest(str(template)) for tokens, template in requests)
        if key not in self._kept:
            self._kept[key] = self._vectors(requests, passes)

        return [vectors.clone() for vectors in self._kept[key]]

    def _vectors(self, requests: Sequence[tuple[Tokens, Template]], passes: Passes) -> list[Tensor]:
        """Return one tensor of vectors per request, of `denoise` without the bias of the prompt."""
        parts = [template.apply(tokens, self.max_length) for tokens, template in requests]
        if not passes.denoise:
            return passes.encode(parts)

        # Each template alone, once per length.
        lengths = [np.unique(part.lengths) for part in parts]
        alone = []
        for (tokens, template), distinct in zip(requests, lengths, strict=True):
            alone.append(template.alone(distinct - len(template), tokens.ids.device))

        encoded = passes.encode([*parts, *alone])
        vectors = encoded[: len(parts)]
        biases = encoded[len(parts) :]
        denoised = []
        for part, distinct, vector, bias in zip(parts, lengths, vectors, biases, strict=True):
            numbers = np.searchsorted(distinct, part.lengths)
            denoised.append(vector - bias[to_device(numbers, bias.device)])

        return denoised
