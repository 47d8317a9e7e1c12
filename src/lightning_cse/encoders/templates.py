"""The tokens around the bare tokens of a sentence: special tokens, the word of a second segment, a
prompt.

A template comes from the tokenizer: a probe sentence is encoded with its special tokens, and
the tokens before and after the probe are the prefix and the suffix. So BERT's ``[CLS] s [SEP]
explicit [SEP]`` with segment ids and RoBERTa's doubled separator are exactly as the tokenizer
writes them, without a table of models. Many tokenizers of decoders write no special tokens; their
end token is appended where it is pooled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedTokenizerBase

from lightning_cse.devices import to_device
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

PROBE = "zebra"  # our prompts contain no zebra
SENTENCE = "{}"
MASK = "{mask}"

PROMPTS = (
    f'This sentence : "{SENTENCE}" means {MASK}',
    f'This sentence of "{SENTENCE}" means {MASK}',
)
"""NGCSE's two prompts: without PromptBERT's full stop, and with the capital of the authors' ids for
RoBERTa.
"""

PROMPT_EOL = f'This sentence: "{SENTENCE}" means in one word:"'
"""The prompt of causal models, whose last token is pooled.

Source: PromptEOL (Jiang et al. 2023, "Scaling Sentence Embeddings with Large Language Models").
"""


def padding_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return an id for padding, which is masked: the tokenizer's own, its end token's, or 0."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)

    return 0


def end_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the id of the token that ends a text; raise EncoderError if there is none."""
    for token in (tokenizer.eos_token_id, tokenizer.sep_token_id):
        if token is not None:
            return int(token)

    raise EncoderError(
        f"the tokenizer {tokenizer.name_or_path} has no end token (eos_token): choose "
        "encoder.pooling=mean, or set one in its tokenizer_config.json"
    )


def prompt_templates(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str] | None, is_decoder: bool
) -> list[Template]:
    """Return the templates of prompts, by default those of a causal or of a masked model."""
    if is_decoder:
        return [Template.from_causal_prompt(tokenizer, text) for text in prompts or (PROMPT_EOL,)]

    return [Template.from_prompt(tokenizer, text) for text in prompts or PROMPTS]


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    """Return the ids of a text, without special tokens."""
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


@dataclass(frozen=True)
class Sequences:
    """Model inputs of n sentences, right-padded.

    ``ids``, ``type_ids`` (segments) and ``positions`` (from 0) are (n, length), on a device.
    ``lengths`` and ``pooled``, the place of the token that a prompt pools (0 without one), are
    (n,), in main memory.
    """

    ids: Tensor
    type_ids: Tensor
    positions: Tensor
    lengths: np.ndarray
    pooled: np.ndarray

    def take(self, rows: np.ndarray | slice) -> Sequences:
        """Return the sequences of these rows."""
        numbers = rows if isinstance(rows, slice) else to_device(rows, self.ids.device)
        return Sequences(
            self.ids[numbers],
            self.type_ids[numbers],
            self.positions[numbers],
            self.lengths[rows],
            self.pooled[rows],
        )

    @staticmethod
    def cat(parts: Sequence[Sequences], pad_id: int) -> Sequences:
        """Stack sequences of different widths."""
        width = max(part.ids.shape[1] for part in parts)

        def stacked(tensors: list[Tensor], padding: int = 0) -> Tensor:
            return torch.cat([pad(x, (0, width - x.shape[1]), value=padding) for x in tensors])

        return Sequences(
            ids=stacked([part.ids for part in parts], pad_id),
            type_ids=stacked([part.type_ids for part in parts]),
            positions=stacked([part.positions for part in parts]),
            lengths=np.concatenate([part.lengths for part in parts]),
            pooled=np.concatenate([part.pooled for part in parts]),
        )


@dataclass(frozen=True)
class Template:
    """Token ids before and after a sentence, with their segment ids.

    ``pooled`` is the place of a prompt's mask or of the end token, counted from the end (1 is the
    last token), the same for every sentence; None if neither is pooled.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    prefix_types: tuple[int, ...]
    suffix_types: tuple[int, ...]
    pad_id: int
    pooled: int | None = None

    @classmethod
    def from_tokenizer(
        cls, tokenizer: PreTrainedTokenizerBase, second: str | None = None
    ) -> Template:
        """Return the template of a single sentence, or of a pair whose second segment is the word
        ``second``.

        The end token separates them if the tokenizer writes no special token between two texts.
        """
        probe = list(tokenizer(PROBE, add_special_tokens=False)["input_ids"])
        encoded = tokenizer(PROBE, second, return_token_type_ids=True)
        ids = tuple(encoded["input_ids"])
        types = tuple(encoded["token_type_ids"])
        for start in range(len(ids) - len(probe) + 1):
            end = start + len(probe)
            if list(ids[start:end]) == probe:
                template = cls(
                    prefix=ids[:start],
                    suffix=ids[end:],
                    prefix_types=types[:start],
                    suffix_types=types[end:],
                    pad_id=padding_id(tokenizer),
                )
                if second is None or ids[end] in tokenizer.all_special_ids:
                    return template

                return replace(
                    template, suffix=(end_id(tokenizer), *ids[end:]), suffix_types=(0, *types[end:])
                )

        raise EncoderError(
            f"the tokenizer {tokenizer.name_or_path} changes a sentence between special tokens; "
            "use another encoder"
        )

    def ended(self, tokenizer: PreTrainedTokenizerBase) -> Template:
        """Return this template with its last token pooled: the special token that the tokenizer
        writes at the end, or else its end token, appended.
        """
        if self.suffix and self.suffix[-1] in tokenizer.all_special_ids:
            return replace(self, pooled=1)

        return replace(
            self,
            suffix=(*self.suffix, end_id(tokenizer)),
            suffix_types=(*self.suffix_types, 0),
            pooled=1,
        )

    @classmethod
    def from_causal_prompt(cls, tokenizer: PreTrainedTokenizerBase, prompt: str) -> Template:
        r"""Return the template of a prompt for a causal model: text with ``{}`` for the sentence
        and text after it, whose last token is pooled.

        The tokenizer's special tokens stand before it, and none after it. Each piece is tokenised
        alone: a sentence has the ids that it has at the start of a text, and spaces before it are
        dropped.

        Source: PromptEOL (Jiang et al. 2023).  Differs: there, the text is tokenised as a whole, so
        that a tokenizer may join the quotation mark and the first letters.  Raises EncoderError for
        a prompt of another form.
        """
        before, _, behind = prompt.partition(SENTENCE)
        if prompt.count(SENTENCE) != 1 or MASK in prompt or not behind.strip():
            raise EncoderError(
                f"encoder.prompts: {prompt!r} needs one {SENTENCE} and text behind it, whose last "
                f"token is pooled; a causal model has no {MASK}"
            )

        bare = replace(cls.from_tokenizer(tokenizer), suffix=(), suffix_types=(), pooled=1)
        return bare._with_text(_ids(tokenizer, before.rstrip()), _ids(tokenizer, behind))

    @classmethod
    def from_prompt(cls, tokenizer: PreTrainedTokenizerBase, prompt: str) -> Template:
        r"""Return the template of a prompt: text with ``{}`` for the sentence and, after it,
        ``{mask}`` for the mask.

        .. math:: \text{[CLS]} \; \text{before} \; s \; \text{between [MASK] after} \; \text{[SEP]}

        Each piece is tokenised alone; spaces before the sentence and before the mask are dropped.

        Source: NGCSE, authors' code, which inserts these ids.  Differs: ids come from the
        tokenizer, not from a table.
        """
        before, _, after_sentence = prompt.partition(SENTENCE)
        between, _, behind = after_sentence.partition(MASK)
        if (prompt.count(SENTENCE), prompt.count(MASK), after_sentence.count(MASK)) != (1, 1, 1):
            raise EncoderError(
                f"encoder.prompts: {prompt!r} needs one {SENTENCE} and, behind it, one {MASK}"
            )

        if tokenizer.mask_token_id is None:
            raise EncoderError(
                f"encoder.pooling: the tokenizer {tokenizer.name_or_path} has no mask token, which "
                "prompt pools; choose mean"
            )

        single = cls.from_tokenizer(tokenizer)
        after = _ids(tokenizer, behind)
        suffix = (*_ids(tokenizer, between.rstrip()), int(tokenizer.mask_token_id), *after)
        pooled = 1 + len(after) + len(single.suffix)

        return replace(single, pooled=pooled)._with_text(_ids(tokenizer, before.rstrip()), suffix)

    def _with_text(self, before: tuple[int, ...], behind: tuple[int, ...]) -> Template:
        """Return this template with the ids of a text directly around the sentence."""
        return replace(
            self,
            prefix=self.prefix + before,
            suffix=behind + self.suffix,
            prefix_types=self.prefix_types + (0,) * len(before),
            suffix_types=(0,) * len(behind) + self.suffix_types,
        )

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)

    def apply(self, tokens: Tokens, max_length: int) -> Sequences:
        """Put the template around each sentence of ``tokens``, cut so that all fits
        ``max_length``.
        """
        device = tokens.ids.device
        start = len(self.prefix)
        count = len(self)
        body = tokens.lengths.clip(max=max_length - count)
        lengths = (body + count).clip(min=1)  # an empty sequence becomes one padding token
        position = torch.arange(int(lengths.max()), device=device).expand(len(tokens), -1)

        # The token of the template at each position; its end stands for padding and the sentence.
        after = position - to_device(body, device)[:, None]
        suffix = torch.where(after >= start, after, count)
        index = torch.where(position < start, position, suffix).clamp(max=count)
        ids = to_device(np.array([*self.prefix, *self.suffix, self.pad_id]), device)[index]
        types = to_device(np.array([*self.prefix_types, *self.suffix_types, 0]), device)[index]
        width = tokens.ids.shape[1]
        if width:
            sentence = tokens.ids.gather(1, (position - start).clamp(0, width - 1))
            ids = torch.where((position >= start) & (after < start), sentence, ids)

        pooled = np.zeros_like(lengths) if self.pooled is None else lengths - self.pooled

        return Sequences(ids, types, position, lengths, pooled)

    def alone(self, sentence_lengths: np.ndarray, device: torch.device) -> Sequences:
        """Return the template without a sentence, its suffix at its positions after a sentence of
        each length (n,).
        """
        nothing = torch.zeros(len(sentence_lengths), 0, dtype=torch.long, device=device)
        tokens = Tokens(nothing, np.zeros_like(sentence_lengths), np.arange(len(nothing)))
        alone = self.apply(tokens, len(self))
        shift = to_device(sentence_lengths, device)[:, None] * (alone.positions >= len(self.prefix))

        return replace(alone, positions=alone.positions + shift)
