"""The tokens around the bare tokens of a sentence: special tokens, the word of a second segment, a
prompt.

A template comes from the tokenizer: a probe sentence is encoded with its special tokens, and
the tokens before and after the probe are the prefix and the suffix. So BERT's ``[CLS] s [SEP]
explicit [SEP]`` with segment ids and RoBERTa's doubled separator are exactly as the tokenizer
writes them, without a table of models.
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


@dataclass(frozen=True)
class Sequences:
    """Model inputs of n sentences, right-padded.

    ``ids``, ``type_ids`` (segments) and ``positions`` (from 0) are (n, length); ``lengths`` and
    ``pooled``, the place of the token that a prompt pools (0 without one), are (n,).
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
            if tensors[0].dim() == 2:
                tensors = [pad(x, (0, width - x.shape[1]), value=padding) for x in tensors]

            return torch.cat(tensors)

        return Sequences(
            ids=stacked("ids", pad_id),
            type_ids=stacked("type_ids"),
            positions=stacked("positions"),
            lengths=stacked("lengths"),
            pooled=stacked("pooled"),
        )


@dataclass(frozen=True)
class Template:
    """Token ids before and after a sentence, with their segment ids.

    ``pooled`` is the place of a prompt's mask, counted from the end (1 is the last token), the
    same for every sentence; None without a prompt.
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
        """
        probe = list(tokenizer(PROBE, add_special_tokens=False)["input_ids"])
        encoded = tokenizer(PROBE, second, return_token_type_ids=True)
        ids = tuple(encoded["input_ids"])
        types = tuple(encoded["token_type_ids"])
        for start in range(len(ids) - len(probe) + 1):
            end = start + len(probe)
            if list(ids[start:end]) == probe:
                return cls(
                    prefix=ids[:start],
                    suffix=ids[end:],
                    prefix_types=types[:start],
                    suffix_types=types[end:],
                    pad_id=int(tokenizer.pad_token_id),
                )

        raise EncoderError(
            f"the tokenizer {tokenizer.name_or_path} changes a sentence between special tokens; "
            "use another encoder"
        )

    @classmethod
    def from_prompt(cls, tokenizer: PreTrainedTokenizerBase, prompt: str) -> Template:
        r"""Return the template of a prompt: text with ``{}`` for the sentence and, after it,
        ``{mask}`` for the mask.

        .. math:: \text{[CLS]} \; \text{before} \; s \; \text{between [MASK] after} \; \text{[SEP]}

        Each piece is tokenised alone; spaces before the sentence and before the mask are dropped.

        Source: NGCSE, authors' code, which inserts these ids.  Differs: ids come from the
        tokenizer, not from a table.
        """
        before, _, rest = prompt.partition(SENTENCE)
        between, _, behind = rest.partition(MASK)
        if (prompt.count(SENTENCE), prompt.count(MASK), rest.count(MASK)) != (1, 1, 1):
            raise EncoderError(
                f"encoder.prompts: {prompt!r} needs one {SENTENCE} and, behind it, one {MASK}"
            )

        def ids(text: str) -> tuple[int, ...]:
            return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])

        single = cls.from_tokenizer(tokenizer)
        prefix = ids(before.rstrip())
        after = ids(behind)
        suffix = (*ids(between.rstrip()), int(tokenizer.mask_token_id), *after)

        return cls(
            prefix=single.prefix + prefix,
            suffix=suffix + single.suffix,
            prefix_types=single.prefix_types + (0,) * len(prefix),
            suffix_types=(0,) * len(suffix) + single.suffix_types,
            pad_id=single.pad_id,
            pooled=1 + len(after) + len(single.suffix),
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
        body = tokens.mask.sum(1).clamp(max=max_length - count)[:, None]  # (n, 1)
        lengths = (body + count).clamp(min=1)  # an empty sequence becomes one padding token
        position = torch.arange(int(lengths.max()), device=device).expand(len(tokens), -1)

        # The token of the template at each position; its end stands for padding and the sentence.
        after = position - body
        suffix = torch.where(after >= start, after, count)
        place = torch.where(position < start, position, suffix).clamp(max=count)
        ids = torch.tensor([*self.prefix, *self.suffix, self.pad_id], device=device)[place]
        types = torch.tensor([*self.prefix_types, *self.suffix_types, 0], device=device)[place]
        width = tokens.ids.shape[1]
        if width:
            sentence = tokens.ids.gather(1, (position - start).clamp(0, width - 1))
            ids = torch.where((position >= start) & (after < start), sentence, ids)

        pooled = torch.zeros_like(lengths) if self.pooled is None else lengths - self.pooled

        return Sequences(
            ids,
            types,
            position,
            lengths[:, 0],
            pooled[:, 0],
        )

    def alone(self, sentence_lengths: Tensor) -> Sequences:
        """Return the template without a sentence, its suffix at its positions after a sentence of
        each length (n,).
        """
        nothing = sentence_lengths.new_zeros(len(sentence_lengths), 0)
        alone = self.apply(Tokens(nothing, nothing, sentence_lengths), len(self))
        shift = sentence_lengths[:, None] * (alone.positions >= len(self.prefix))

        return replace(alone, positions=alone.positions + shift)
