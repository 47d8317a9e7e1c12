"""A sentence encoder: transformer backbone and pooling, one pass for all sentences of a step."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lightning_cse.devices import gather, share, to_device
from lightning_cse.encoders.adapters import (
    Adapter,
    checkpoint_layers,
    frozen_names,
    leave_out_frozen,
)
from lightning_cse.encoders.architecture import attend_both_ways, is_causal, is_decoder, positions
from lightning_cse.encoders.augmentation import Augmentation, augmented_row, changed
from lightning_cse.encoders.instructions import USES, complete
from lightning_cse.encoders.packing import (
    WIDEST,
    Windows,
    cut_by_length,
    cut_evenly,
    keep_freed_memory,
    make_dropout_fast,
    pads_little,
)
from lightning_cse.encoders.templates import PROMPT_EOL, PROMPTS, Sequences, Template, padding_id
from lightning_cse.encoders.windowed import MODEL_TYPES, use_window_attention
from lightning_cse.errors import EncoderError, did_you_mean
from lightning_cse.tokens import Tokens

POOLINGS = (
    "cls",
    "cls_pooler",
    "embedding_last",
    "first_last",
    "last_token",
    "max",
    "last_two",
    "mean",
    "prompt",
)

EARLIER_STATES = {"first_last": 1, "embedding_last": 0, "last_two": -2}
r"""Poolings that average the states of the last layer and an earlier one, and its index k in
``hidden_states``.

.. math:: x = \frac{1}{\ell} \sum_{t=1}^{\ell} \frac{h^{(k)}_t + h^{(L)}_t}{2}

Source: SimCSE, authors' code, ``avg_first_last``, with k = 1 since January 2022. This gives
BERT-base an average of 60.73 on the seven STS tasks (their issue 285). The paper's 56.70 for
"first-last avg." is from k = 0, the embeddings. ``last_two`` is from ConSERT (Yan et al. 2021).
"""


def pool(pooling: str, hidden: Tensor, mask: Tensor, place: Tensor) -> Tensor:
    """Pool padded token vectors (n, length, d) to (n, d) in float32.

    The result is the first vector, the one at ``place`` (n,), or the mean or the largest numbers
    over ``mask``.
    """
    hidden = hidden.float()  # a mean that is stored in bfloat16 makes ties between scores
    if pooling in ("cls", "cls_pooler"):
        return hidden[:, 0]
    if pooling in ("prompt", "last_token"):
        return hidden[torch.arange(len(hidden), device=hidden.device), place]

    if pooling == "max":
        return hidden.masked_fill(~mask[:, :, None].bool(), -torch.inf).amax(1)

    weights = mask.to(hidden.dtype)[:, :, None]

    return torch.sum(hidden * weights, 1) / weights.sum(1).clamp(min=1)


TOKENS_AT_ONCE = 4096
"""On a CPU: enough tokens for the matrix products, few enough for the cache."""

PASSED_AT_ONCE = 2048
"""The same where there are neither gradients nor dropout: half the memory, and no slower."""

PADDING = 64
"""There, padding tokens of a group: about the cost of another group."""

PADDING_ON_GPU = 4096
"""Padding tokens of a group on a GPU: about the cost of another, smaller pass through BERT-base."""


@dataclass(frozen=True)
class _Pass:
    """How sequences go through the backbone in one call of the encoder."""

    most: int | None = None
    denoise: bool = False
    augment: Augmentation | None = None
    is_shared: bool = False

    @property
    def sets_positions(self) -> bool:
        """Whether positions may be others than 0, 1, 2, ..."""
        return self.denoise or self.augment is not None


class Tokenizer:
    """A tokenizer as `lightning_cse.data` uses it: sentences to bare token ids, with a digest for
    the cache key.

    ``instruction`` is text put before every sentence.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, digest: str, instruction: str = ""
    ) -> None:
        self.tokenizer = tokenizer
        self.instruction = instruction
        self.digest = digest
        if instruction:
            self.digest = hashlib.sha256(f"{digest} {instruction}".encode()).hexdigest()

        self.pad_id = padding_id(tokenizer)

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the bare ids of each sentence: no special tokens, nothing truncated."""
        if not sentences:  # transformers raises an IndexError
            return []

        # verbose=False: the data module counts and reports sentences over the model's maximum.
        encoded = self.tokenizer(
            [self.instruction + sentence for sentence in sentences],
            add_special_tokens=False,
            return_attention_mask=False,
            truncation=False,
            verbose=False,
        )

        return list(encoded["input_ids"])

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each list of ids, as the tokenizer joins word pieces."""
        texts = self.tokenizer.batch_decode([list(sentence) for sentence in ids])
        return [str(text) for text in texts]


class SentenceEncoder(nn.Module):
    r"""Encode sentences as vectors: template, transformer, pooling.

    All sentences of a step are encoded in one call. For the architectures of `MODEL_TYPES`, and
    MPNet, they are packed into windows on a CPU. Otherwise, they are padded in groups of similar
    length.

    .. math:: x_i = \text{pool}(\text{backbone}(\text{template}(s_i)))

    ``pooling`` takes the first token (``cls``), all real tokens (``mean``, or ``max``, the largest
    number in each dimension), the mask of a prompt around the sentence (``prompt``; one vector per
    prompt, None for NGCSE's two), the end token (``last_token``; appended if the tokenizer writes
    no special token at the end), or all real tokens of two layers (`EARLIER_STATES`). A causal
    model pools the last token of a prompt without a mask, by default `PROMPT_EOL`, and has no
    ``cls``; ``bidirectional`` removes its causal mask (`attend_both_ways`). ``cls_pooler`` applies
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
        bidirectional: bool = False,
        instructions: Mapping[str, str] | None = None,
        compile: bool = False,  # noqa: A002 - the option's name,
        adapter: Any = None,
        gradient_checkpointing: bool = False,
        template: Template | None = None,
    ) -> None:
        super().__init__()
        self._first_position, limit = positions(backbone)
        if limit is not None and max_length > limit:
            raise EncoderError(
                f"encoder.max_length: {max_length} is more than the {limit} positions of {name}"
            )

        if bidirectional:
            attend_both_ways(backbone, name)

        self.is_decoder = is_decoder(backbone.config)
        self.is_causal = self.is_decoder and is_causal(backbone)
        """Whether a token sees only the tokens before it."""
        _check_pooling(pooling, backbone, name, self.is_causal)
        self.backbone = backbone
        self.bidirectional = bidirectional
        self.tokenizer = Tokenizer(tokenizer, digests["tokenizer"])
        self.instructions = complete(instructions)
        """The text before a sentence by its use; empty without instructions."""
        self.instructed = self._instructed()
        """The tokenizer of a sentence by its use: ``default``, ``query`` or ``document``."""
        self.name = name
        self.pooling = pooling
        self.max_length = max_length
        self.digests = digests
        self.denoise = denoise
        self.compiled = compile
        self.chunk_size: int | None = None
        """The number of sentences whose activations are kept at once while gradients are computed.

        None for all.
        """
        self._kept: dict[bytes, list[Tensor]] | None = None
        self.width = int(backbone.config.hidden_size)
        self.has_segments = getattr(backbone.config, "type_vocab_size", 0) > 1
        self.adapter = None if adapter is None else Adapter(backbone, adapter)
        make_dropout_fast(backbone)
        if freeze_embeddings:
            embeddings = self._embedding_layer() or backbone.get_input_embeddings()
            embeddings.requires_grad_(False)
        if gradient_checkpointing:
            checkpoint_layers(backbone)

        leave_out_frozen(self)
        self._is_packed = use_window_attention(backbone)
        self.templates = (
            tuple(self._single_templates(prompts))
            if template is None
            else (self._with_room(template),)
        )
        """The templates of a single sentence: one per prompt, or just one without prompts."""
        self._check_instructions()

    def _instructed(self) -> dict[str, Tokenizer]:
        """Return the tokenizer of each use."""
        return {use: self._with_instruction(self.instructions.get(use, "")) for use in USES}

    def _with_instruction(self, text: str) -> Tokenizer:
        bare = self.tokenizer
        return Tokenizer(bare.tokenizer, bare.digest, text) if text else bare

    def prompted(self, text: str) -> Tokenizer:
        """Return the tokenizer that puts a text before each sentence, in place of instructions;
        raise EncoderError if it leaves no room for a sentence.
        """
        self._check_room("prompt", text)

        return self._with_instruction(text)

    def _check_instructions(self) -> None:
        for use, text in self.instructions.items():
            self._check_room(f"encoder.instructions.{use}", text)

    def _check_room(self, key: str, text: str) -> None:
        """Raise EncoderError if a text leaves no room for a sentence after it."""
        tokens = max(map(len, self.templates)) + len(self.tokenizer([text])[0])
        if tokens >= self.max_length:
            raise EncoderError(
                f"{key}: {tokens} tokens with the template leave no room for a sentence within "
                f"encoder.max_length={self.max_length}"
            )

    def _single_templates(self, prompts: Sequence[str] | None) -> Iterator[Template]:
        """Yield one template per prompt, or the tokenizer's own where no prompt is pooled."""
        tokenizer = self.tokenizer.tokenizer
        if self.pooling == "prompt":
            if self.denoise:
                self.check_positions("encoder.denoise")

            by_default = (PROMPT_EOL,) if self.is_decoder else PROMPTS
            make = Template.from_causal_prompt if self.is_decoder else Template.from_prompt
            for prompt in prompts or by_default:
                yield self._with_room(make(tokenizer, prompt))

            return

        if prompts or self.denoise:
            raise EncoderError(
                f"encoder.prompts, encoder.denoise: need encoder.pooling=prompt, got {self.pooling}"
            )

        yield self._complete(Template.from_tokenizer(tokenizer))

    def check_positions(self, key: str) -> None:
        """Raise EncoderError, which names an option, if it cannot set the positions of tokens."""
        kind = self.backbone.config.model_type
        if kind not in MODEL_TYPES:
            raise EncoderError(
                f"{key}: the positions of {kind} cannot be set, only those of "
                f"{', '.join(MODEL_TYPES)}"
            )

    def check_augmentation(self, key: str) -> None:
        """Raise EncoderError, which names an option, if sentences cannot be augmented."""
        self.check_positions(key)
        if self._embedding_layer() is None:
            raise EncoderError(
                f"{key}: {self.name} ({self.backbone.config.model_type}) has no layer of its own "
                "for embeddings, as BERT has; choose a masked language model such as BERT"
            )

    def _embedding_layer(self) -> nn.Module | None:
        """Return the layer whose result is the matrix of a sentence's embeddings, if any."""
        layer: nn.Module | None = getattr(self.backbone, "embeddings", None)
        return layer

    def _complete(self, template: Template) -> Template:
        """Return a template that ends with the token that is pooled, if a sentence has room."""
        if self.pooling == "last_token":
            template = template.ended(self.tokenizer.tokenizer)

        return self._with_room(template)

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
        own = self.adapter.own if self.adapter else ()
        return frozen_names(self, frozenset(f"backbone.{name}" for name in own))

    @property
    def has_dropout(self) -> bool:
        """Whether two passes over a sentence differ in training mode."""
        return any(_drops(module) for module in self.backbone.modules())

    @property
    def is_fixed(self) -> bool:
        """Whether a pass is always the same: no parameter is trained, and nothing is dropped."""
        if any(parameter.requires_grad for parameter in self.parameters()):
            return False

        return not any(part.training and _drops(part) for part in self.backbone.modules())

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

        return self._complete(template)

    def passes(self, device: torch.device | None = None) -> str:
        """Return how sentences go through the backbone on a device, by default its own: ``packed``
        or ``padded``.
        """
        kind = (device or self.backbone.device).type
        return "packed" if self._is_packed and kind == "cpu" else "padded"

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
        is_shared = any(tokens.is_shared for tokens, _ in requests)
        way = _Pass(most, self.denoise if denoise is None else denoise, augment, is_shared)
        is_usual = way.denoise == self.denoise and augment is None
        if self._kept is None or not is_usual or not self.is_fixed:
            return self._vectors(requests, way)

        key = _digest(requests)
        if key not in self._kept:
            self._kept[key] = self._vectors(requests, way)

        return [vectors.clone() for vectors in self._kept[key]]

    def _vectors(self, requests: Sequence[tuple[Tokens, Template]], way: _Pass) -> list[Tensor]:
        """Return one tensor of vectors per request, of `denoise` without the bias of the prompt."""
        parts = [template.apply(tokens, self.max_length) for tokens, template in requests]
        if not way.denoise:
            return self._encode(parts, way)

        # Each template alone, once per length.
        lengths = [np.unique(part.lengths) for part in parts]
        alone = []
        for (tokens, template), distinct in zip(requests, lengths, strict=True):
            alone.append(template.alone(distinct - len(template), tokens.ids.device))

        encoded = self._encode([*parts, *alone], way)
        vectors = encoded[: len(parts)]
        biases = encoded[len(parts) :]
        denoised = []
        for part, distinct, vector, bias in zip(parts, lengths, vectors, biases, strict=True):
            numbers = np.searchsorted(distinct, part.lengths)
            denoised.append(vector - bias[to_device(numbers, bias.device)])

        return denoised

    def _encode(self, parts: Sequence[Sequences], way: _Pass) -> list[Tensor]:
        """Encode all sequences, sorted by length, or this process's share of them; return the
        vectors of all.
        """
        sequences = Sequences.cat(parts, self.tokenizer.pad_id)
        device = sequences.ids.device
        order = np.argsort(sequences.lengths, kind="stable")
        fits = self.passes(device) == "packed" and sequences.lengths.max() <= WIDEST
        packs = fits and not self._pads(sequences.lengths[order], way.most)
        encode = self._packed if packs else self._padded

        def encoded(rows: np.ndarray, _ids: Tensor) -> Tensor:
            chosen = sequences.take(rows)
            if way.augment:
                lengths = to_device(chosen.lengths, device)
                positions = way.augment.positions(chosen.positions, lengths)
                chosen = replace(chosen, positions=positions)

            vectors = torch.cat(list(encode(chosen, way)))
            return self._through_pooler(vectors) if self.pooling == "cls_pooler" else vectors

        rows, ids = share(order) if way.is_shared else order, sequences.ids
        if self.chunk_size is None or not torch.is_grad_enabled():
            vectors = encoded(rows, ids)
        else:
            chunks = np.split(rows, range(self.chunk_size, len(rows), self.chunk_size))
            # `checkpoint` restores the random state of the devices that its tensors are on.
            vectors = torch.cat(
                [checkpoint(encoded, chunk, ids, use_reentrant=False) for chunk in chunks]
            )

        if way.is_shared:
            vectors = gather(vectors)[: len(order)]

        sizes = [len(part.ids) for part in parts]

        return list(vectors[to_device(order.argsort(), device)].split(sizes))

    def _through_pooler(self, vectors: Tensor) -> Tensor:
        # Vectors rounded to bfloat16 make ties between scores.
        with torch.autocast(vectors.device.type, enabled=False):
            pooled: Tensor = self.backbone.get_submodule("pooler")(vectors[:, None])

        return pooled

    def _padded(self, sequences: Sequences, way: _Pass) -> Iterator[Tensor]:
        """Encode sequences, sorted by length, in groups of similar length, each padded to its
        longest.
        """
        lengths, device = sequences.lengths, sequences.ids.device
        ends = to_device(lengths, device)
        pooled = to_device(sequences.pooled, device)
        for start, end in pairwise([0, *self._groups(lengths, way.most)]):
            group = slice(start, end)
            part = sequences.take(group)
            width = int(lengths[end - 1])
            mask = torch.arange(width, device=device) < ends[group, None]
            inputs = {"input_ids": part.ids[:, :width]}
            # Without a mask, attention has faster kernels. A decoder would take a gap in positions
            # for the start of another sequence.
            if lengths[start] < width or (way.denoise and self.is_decoder):
                inputs["attention_mask"] = mask.long()
            if self.has_segments:
                inputs["token_type_ids"] = part.type_ids[:, :width]
            if way.sets_positions:
                inputs["position_ids"] = part.positions[:, :width] + self._first_position

            if self.backbone.config.model_type == "bilstm":
                inputs["lengths"] = torch.from_numpy(part.lengths)

            change = partial(way.augment.embeddings, mask=mask) if way.augment else None
            yield pool(self.pooling, self._states(inputs, change), mask, pooled[group])

    def _groups(self, lengths: np.ndarray, most: int | None) -> list[int]:
        """Return the ends of the groups that sentences sorted by length are padded in."""
        if self.backbone.device.type != "cpu":
            return cut_by_length(lengths, PADDING_ON_GPU, most)
        if self._draws:
            return cut_by_length(lengths, 256, most)

        return cut_by_length(lengths, PADDING, min(PASSED_AT_ONCE, most or PASSED_AT_ONCE))

    @property
    def _draws(self) -> bool:
        """Whether dropout may be drawn or gradients computed: then, rows stay as they are."""
        return self.training or torch.is_grad_enabled()

    def _pads(self, lengths: np.ndarray, most: int | None) -> bool:
        """Whether padding sequences, sorted by length, costs less than packing them."""
        if self._draws:
            return False

        return pads_little(lengths, self._groups(lengths, most), PADDING)

    def _packed(self, sequences: Sequences, way: _Pass) -> Iterator[Tensor]:
        """Encode sequences, sorted by length, in rows of a few thousand tokens
        (`lightning_cse.encoders.packing`).
        """
        if self._draws:
            keep_freed_memory()  # not before: reading a corpus would keep half as much memory again

        at_once = TOKENS_AT_ONCE if self._draws else PASSED_AT_ONCE
        ends = cut_evenly(sequences.lengths, min(at_once, way.most or at_once))
        parts = [sequences.take(slice(start, end)) for start, end in pairwise([0, *ends])]
        rows = [self._packed_row(part) for part in parts]
        embedded = self._embedded([ids for ids, *_ in rows])
        for part, (_, inputs, places, mask), vectors in zip(parts, rows, embedded, strict=True):
            change = None
            if way.augment is not None:
                change = partial(augmented_row, augment=way.augment, places=places, mask=mask)

            hidden = self._states({"inputs_embeds": vectors[None], **inputs}, change)[0]
            hidden = hidden.index_select(0, places.flatten()).unflatten(0, places.shape)
            yield pool(self.pooling, hidden, mask, torch.from_numpy(part.pooled))

    def _embedded(self, ids: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the word embeddings of each row of tokens."""
        table = self.backbone.get_input_embeddings()
        if torch.is_grad_enabled():
            # One look-up for all rows, since the gradient of each is as large as the whole table.
            sizes = [len(row) for row in ids]
            yield from table(torch.cat(list(ids))).split(sizes)
        else:
            yield from map(table, ids)

    def _packed_row(self, part: Sequences) -> tuple[Tensor, dict[str, Any], Tensor, Tensor]:
        """Lay sequences out in one row of windows.

        Return the ids, a model's inputs, and the place and the mask (n, length) of each token.
        """
        windows = Windows.pack(
            part.lengths, is_causal=self.is_causal, includes_bound=self.bidirectional
        )
        width = int(part.lengths.max())
        position = torch.arange(width).expand(len(part.lengths), -1)
        mask = position < torch.from_numpy(part.lengths)[:, None]
        places = torch.from_numpy(windows.starts)[:, None] + position
        inside = places[mask]

        def laid_out(values: Tensor, padding: int) -> Tensor:
            row = torch.full((windows.count * windows.width,), padding)
            return row.index_copy_(0, inside, values[:, :width][mask])

        first = self._first_position
        inputs: dict[str, Any] = {
            "position_ids": laid_out(part.positions + first, first)[None],
            "windows": windows,
            # A mask of four dimensions is taken as it is: without one, some architectures would
            # make a mask of tokens x tokens. Attention in windows ignores it.
            "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool),
        }
        if self.has_segments:
            inputs["token_type_ids"] = laid_out(part.type_ids, 0)[None]

        ids = laid_out(part.ids, self.tokenizer.pad_id)

        return ids, inputs, places.where(mask, 0), mask

    def _states(
        self, inputs: dict[str, Any], change: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Return the states of every token for pooling: the last layer's, or their average with an
        earlier layer's. ``change`` is applied to the embeddings.
        """
        earlier = EARLIER_STATES.get(self.pooling)
        inputs["output_hidden_states"] = earlier is not None
        if self.is_decoder:
            inputs["use_cache"] = False

        with changed(self._embedding_layer(), change):
            output = self.backbone(**inputs)

        if earlier is None:
            last: Tensor = output.last_hidden_state
            return last

        states: tuple[Tensor, ...] = output.hidden_states

        return (states[earlier].float() + states[-1].float()) / 2


def _check_pooling(pooling: str, backbone: PreTrainedModel, name: str, is_causal: bool) -> None:
    if pooling not in POOLINGS:
        near = did_you_mean(pooling, POOLINGS)
        raise EncoderError(
            f"encoder.pooling: must be one of {', '.join(POOLINGS)}, got {pooling!r}{near}"
        )

    kind = backbone.config.model_type
    if pooling == "cls" and is_causal:
        raise EncoderError(
            f"encoder.pooling: the first token of {name} ({kind}, causal) sees no other token; "
            "choose last_token, mean or prompt"
        )

    if pooling == "cls_pooler" and not hasattr(getattr(backbone, "pooler", None), "dense"):
        instead = "last_token or mean" if is_causal else "cls or mean"
        raise EncoderError(
            f"encoder.pooling: {name} ({kind}) has no pooler (a dense layer "
            f"and tanh on [CLS]); choose {instead}"
        )


def _digest(requests: Sequence[tuple[Tokens, Template]]) -> bytes:
    """Return a digest of all that decides the vectors of some requests."""
    digest = hashlib.sha256()
    for tokens, template in requests:
        digest.update(f"{template} {tuple(tokens.ids.shape)}".encode())
        for array in (tokens.ids.cpu().numpy(), tokens.lengths):
            digest.update(array.tobytes())

    return digest.digest()


def _drops(module: nn.Module) -> bool:
    """Whether a module drops something; a number named dropout belongs to a functional one."""
    if isinstance(module, nn.Dropout):
        return module.p > 0

    for key, value in vars(module).items():
        if "dropout" in key and type(value) in (int, float) and value > 0:
            return True

    return False
