"""What is put around the bare tokens of a sentence before the backbone reads it.

A template is learned from the tokenizer itself: a probe sentence is encoded once with its special tokens, and what
stands before and after the probe is the prefix and the suffix. So BERT's ``[CLS] s [SEP] explicit [SEP]`` with segment
ids and RoBERTa's doubled separator come out as the tokenizer writes them, without a table of models.

A prompt is text around the sentence, inside the special tokens, whose mask token becomes the sentence's vector. Its two
pieces are tokenised for themselves, so that they have the same ids around every sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

PROBE = "sentence"

SENTENCE, MASK = "{}", "{mask}"

PROMPTS = (f'This sentence : "{SENTENCE}" means {MASK}', f'This sentence of "{SENTENCE}" means {MASK}')
"""NGCSE's two, without PromptBERT's full stop behind the mask.

The capital letter is in the authors' ids for RoBERTa, whose vocabulary keeps case; BERT's uncased one drops it.
"""


@dataclass(frozen=True)
class Sequences:
    """Model inputs of n sentences, right-padded.

    Attributes:
        ids: the token ids: (n, length).
        type_ids: the segment of each token: (n, length).
        lengths: tokens a sequence: (n,).
        positions: where the backbone is told each token stands, from 0: (n, length).
        pooled: the place of the token that a prompt pools: (n,); 0, the first token, without a prompt.
    """

    ids: Tensor
    type_ids: Tensor
    lengths: Tensor
    positions: Tensor
    pooled: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def cat(cls, parts: Sequence[Sequences], pad_id: int) -> Sequences:
        """Stack sequences of different widths."""
        width = max(part.ids.shape[1] for part in parts)
        pad = torch.nn.functional.pad
        return cls(
            torch.cat([pad(part.ids, (0, width - part.ids.shape[1]), value=pad_id) for part in parts]),
            torch.cat([pad(part.type_ids, (0, width - part.type_ids.shape[1])) for part in parts]),
            torch.cat([part.lengths for part in parts]),
            torch.cat([pad(part.positions, (0, width - part.positions.shape[1])) for part in parts]),
            torch.cat([part.pooled for part in parts]),
        )


@dataclass(frozen=True)
class Template:
    """Token ids before and after a sentence, with their segment ids.

    ``apply`` gives ``prefix + sentence[: max_length - len(prefix) - len(suffix)] + suffix``: truncation takes from the
    sentence only, as the tokenizer's ``truncation="only_first"`` does. ``pooled`` is where a prompt's mask stands,
    counted from the end (1 is the last token), the same for every sentence; None without a prompt.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    prefix_types: tuple[int, ...]
    suffix_types: tuple[int, ...]
    pad_id: int
    pooled: int | None = None

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, second: str | None = None) -> Template:
        """Learn the template of a single sentence, or of a pair whose second segment is the word ``second``.

        Raises:
            EncoderError: if the probe cannot be found again in what the tokenizer wrote.
        """
        probe = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
        encoded = tokenizer(PROBE, second, return_token_type_ids=True)
        ids, types = list(encoded["input_ids"]), list(encoded["token_type_ids"])
        starts = [k for k in range(len(ids) - len(probe) + 1) if ids[k : k + len(probe)] == probe]
        if not starts:
            raise EncoderError(
                f"the tokenizer {tokenizer.name_or_path} writes {PROBE!r} as {probe} alone but not inside {ids}: "
                "its special tokens cannot be told from the sentence"
            )
        start, end = starts[0], starts[0] + len(probe)
        return cls(
            tuple(ids[:start]), tuple(ids[end:]), tuple(types[:start]), tuple(types[end:]), int(tokenizer.pad_token_id)
        )

    @classmethod
    def from_prompt(cls, tokenizer: PreTrainedTokenizerBase, prompt: str) -> Template:
        r"""Make the template of a prompt: text with ``{}`` for the sentence and, behind it, ``{mask}`` for the mask.

        .. math:: \text{[CLS]} \; \text{before} \; s \; \text{between [MASK] after} \; \text{[SEP]}

        Each piece is tokenised without special tokens. Spaces at the start of a piece count where the vocabulary counts
        them (RoBERTa's); those before the sentence and before the mask do not.

        Source: NGCSE, authors' code, which inserts these ids.  Differs: they come from the tokenizer, not from a table.

        Raises:
            EncoderError: if the prompt has not one ``{}`` and one ``{mask}`` behind it, or there is no mask token.
        """
        before, *rest = prompt.split(SENTENCE)
        between, *ends = rest[0].split(MASK) if len(rest) == 1 else ("",)
        if len(rest) != 1 or len(ends) != 1 or MASK in before:
            raise EncoderError(
                f"encoder.prompts: {prompt!r} needs one {SENTENCE} for the sentence and, behind it, one {MASK}, "
                f"as {PROMPTS[0]!r} has them"
            )
        if tokenizer.mask_token_id is None:
            raise EncoderError(
                f"encoder.pooling: the tokenizer {tokenizer.name_or_path} has no mask token for a prompt; "
                "choose cls or mean"
            )

        def ids(text: str) -> tuple[int, ...]:
            return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])

        outer = cls.from_tokenizer(tokenizer)
        prefix, after = ids(before.rstrip()), ids(ends[0])
        suffix = (*ids(between.rstrip()), int(tokenizer.mask_token_id), *after)
        return cls(
            outer.prefix + prefix,
            suffix + outer.suffix,
            outer.prefix_types + (0,) * len(prefix),
            (0,) * len(suffix) + outer.suffix_types,
            outer.pad_id,
            pooled=1 + len(after) + len(outer.suffix),
        )

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)

    def apply(self, tokens: Tokens, max_length: int) -> Sequences:
        """Put the template around each sentence of ``tokens`` (n, width), truncated to ``max_length`` in all."""
        device = tokens.ids.device
        start = len(self.prefix)
        body = tokens.mask.sum(1).clamp(max=max_length - len(self))[:, None]  # (n, 1)
        lengths = body + len(self)
        position = torch.arange(int(lengths.max()), device=device).expand(len(tokens), -1)
        ids = torch.full_like(position, self.pad_id)
        types = torch.zeros_like(position)
        ids[:, :start] = torch.tensor(self.prefix, device=device)
        types[:, :start] = torch.tensor(self.prefix_types, device=device)
        if tokens.ids.shape[1]:
            inside = (position >= start) & (position < start + body)
            sentence = tokens.ids.gather(1, (position - start).clamp(0, tokens.ids.shape[1] - 1))
            ids = torch.where(inside, sentence, ids)
        if self.suffix:
            after = (position >= start + body) & (position < lengths)
            offset = (position - start - body).clamp(0, len(self.suffix) - 1)
            ids = torch.where(after, torch.tensor(self.suffix, device=device)[offset], ids)
            types = torch.where(after, torch.tensor(self.suffix_types, device=device)[offset], types)
        return Sequences(ids, types, lengths[:, 0], position, self._place(lengths[:, 0]))

    def alone(self, sentence_lengths: Tensor) -> Sequences:
        """Write the template without a sentence, its suffix at the positions it has behind one of so many tokens.

        ``sentence_lengths`` (n,) gives n sequences.
        """
        n, device = len(sentence_lengths), sentence_lengths.device
        ids = torch.tensor(self.prefix + self.suffix, device=device).expand(n, -1)
        types = torch.tensor(self.prefix_types + self.suffix_types, device=device).expand(n, -1)
        lengths = torch.full_like(sentence_lengths, len(self))
        position = torch.arange(len(self), device=device)
        positions = position + sentence_lengths[:, None] * (position >= len(self.prefix))
        return Sequences(ids, types, lengths, positions, self._place(lengths))

    def _place(self, lengths: Tensor) -> Tensor:
        return torch.zeros_like(lengths) if self.pooled is None else lengths - self.pooled
