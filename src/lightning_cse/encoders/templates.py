"""The tokens around the bare tokens of a sentence: special tokens, the word of a second segment, a prompt.

A template comes from the tokenizer: a probe sentence is encoded with its special tokens, and the tokens before and
after the probe are the prefix and the suffix. So BERT's ``[CLS] s [SEP] explicit [SEP]`` with segment ids and RoBERTa's
doubled separator are exactly as the tokenizer writes them, without a table of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedTokenizerBase

from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

PROBE, SENTENCE, MASK = "zebra", "{}", "{mask}"  # our prompts contain no zebra

PROMPTS = (
    f'This sentence : "{SENTENCE}" means {MASK}',
    f'This sentence of "{SENTENCE}" means {MASK}',
)
"""NGCSE's two prompts: without PromptBERT's full stop, and with the capital of the authors' ids for RoBERTa."""


@dataclass(frozen=True)
class Sequences:
    """Model inputs of n sentences, right-padded.

    ``ids``, ``type_ids`` (segments) and ``positions`` (from 0) are (n, length); ``lengths`` and ``pooled``, the place
    of the token that a prompt pools (0 without one), are (n,).
    """

    ids: Tensor
    type_ids: Tensor
    positions: Tensor
    lengths: Tensor
    pooled: Tensor

    def take(self, rows: Tensor | slice) -> Sequences:
        """Return the sequences of the given rows."""
        return Sequences(*(tensor[rows] for tensor in vars(self).values()))

    @staticmethod
    def cat(parts: Sequence[Sequences], pad_id: int) -> Sequences:
        """Stack sequences of different widths."""
        width = max(part.ids.shape[1] for part in parts)

        def stacked(name: str, padding: int = 0) -> Tensor:
            tensors = [getattr(part, name) for part in parts]
            return torch.cat(
                [
                    pad(x, (0, width - x.shape[1]), value=padding) if x.dim() == 2 else x
                    for x in tensors
                ]
            )

        return Sequences(
            stacked("ids", pad_id), *map(stacked, ("type_ids", "positions", "lengths", "pooled"))
        )


@dataclass(frozen=True)
class Template:
    """Token ids before and after a sentence, with their segment ids.

    ``pooled`` is the place of a prompt's mask, counted from the end (1 is the last token), the same for every sentence;
    None without a prompt.
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
        """Return the template of a single sentence, or of a pair whose second segment is the word ``second``."""
        probe = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
        encoded = tokenizer(PROBE, second, return_token_type_ids=True)
        ids, types = tuple(encoded["input_ids"]), tuple(encoded["token_type_ids"])
        for start in range(len(ids) - len(probe) + 1):
            end = start + len(probe)
            if list(ids[start:end]) == probe:
                return cls(
                    ids[:start], ids[end:], types[:start], types[end:], int(tokenizer.pad_token_id)
                )
        raise EncoderError(
            f"the tokenizer {tokenizer.name_or_path} writes {PROBE!r} as {probe} alone but not inside {list(ids)}: "
            "its special tokens cannot be separated from the sentence; use another encoder"
        )

    @classmethod
    def from_prompt(cls, tokenizer: PreTrainedTokenizerBase, prompt: str) -> Template:
        r"""Return the template of a prompt: text with ``{}`` for the sentence and, after it, ``{mask}`` for the mask.

        .. math:: \text{[CLS]} \; \text{before} \; s \; \text{between [MASK] after} \; \text{[SEP]}

        Each piece is tokenised alone; spaces before the sentence and before the mask are dropped.

        Source: NGCSE, authors' code, which inserts these ids.  Differs: ids come from the tokenizer, not from a table.
        """
        before, _, rest = prompt.partition(SENTENCE)
        between, _, behind = rest.partition(MASK)
        if (prompt.count(SENTENCE), prompt.count(MASK), rest.count(MASK)) != (1, 1, 1):
            raise EncoderError(
                f"encoder.prompts: {prompt!r} needs one {SENTENCE} and, behind it, one {MASK}"
            )
        if tokenizer.mask_token_id is None:
            name = tokenizer.name_or_path
            raise EncoderError(
                f"encoder.pooling: the tokenizer {name} has no mask token for a prompt; choose mean"
            )

        def ids(text: str) -> tuple[int, ...]:
            return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])

        outer, prefix, after = cls.from_tokenizer(tokenizer), ids(before.rstrip()), ids(behind)
        suffix = (*ids(between.rstrip()), int(tokenizer.mask_token_id), *after)
        types = (outer.prefix_types + (0,) * len(prefix), (0,) * len(suffix) + outer.suffix_types)
        place = 1 + len(after) + len(outer.suffix)
        return cls(outer.prefix + prefix, suffix + outer.suffix, *types, outer.pad_id, pooled=place)

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)

    def apply(self, tokens: Tokens, max_length: int) -> Sequences:
        """Put the template around each sentence of ``tokens`` (n, width), cut so that all fits ``max_length``."""
        device, start = tokens.ids.device, len(self.prefix)
        body = tokens.mask.sum(1).clamp(max=max_length - len(self))[:, None]  # (n, 1)
        lengths = (body + len(self)).clamp(min=1)  # an empty sequence becomes one padding token
        position = torch.arange(int(lengths.max()), device=device).expand(len(tokens), -1)
        ids, types = torch.full_like(position, self.pad_id), torch.zeros_like(position)
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
            types = torch.where(
                after, torch.tensor(self.suffix_types, device=device)[offset], types
            )
        pooled = torch.zeros_like(lengths) if self.pooled is None else lengths - self.pooled
        return Sequences(ids, types, position, lengths[:, 0], pooled[:, 0])

    def alone(self, sentence_lengths: Tensor) -> Sequences:
        """Return the template without a sentence, its suffix at its positions after a sentence of each length (n,)."""
        nothing = sentence_lengths.new_zeros(len(sentence_lengths), 0)
        alone = self.apply(Tokens(nothing, nothing, sentence_lengths), len(self))
        shift = sentence_lengths[:, None] * (alone.positions >= len(self.prefix))
        return replace(alone, positions=alone.positions + shift)
