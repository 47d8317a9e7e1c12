"""What is put around the bare tokens of a sentence before the backbone reads it.

A template is learned from the tokenizer itself: a probe sentence is encoded once with its special tokens, and what
stands before and after the probe is the prefix and the suffix. So BERT's ``[CLS] s [SEP] explicit [SEP]`` with segment
ids and RoBERTa's doubled separator come out as the tokenizer writes them, without a table of models.
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


@dataclass(frozen=True)
class Sequences:
    """Model inputs of n sentences, right-padded: ``ids`` and ``type_ids`` (n, length), ``lengths`` (n,)."""

    ids: Tensor
    type_ids: Tensor
    lengths: Tensor

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
        )


@dataclass(frozen=True)
class Template:
    """Token ids before and after a sentence, with their segment ids.

    ``apply`` gives ``prefix + sentence[: max_length - len(prefix) - len(suffix)] + suffix``: truncation takes from the
    sentence only, as the tokenizer's ``truncation="only_first"`` does.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    prefix_types: tuple[int, ...]
    suffix_types: tuple[int, ...]
    pad_id: int

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
        return Sequences(ids, types, lengths[:, 0])
