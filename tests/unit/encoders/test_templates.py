"""A template is right if it writes what the tokenizer itself would have written."""

from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from lightning_cse.encoders.templates import Sequences, Template
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

SENTENCES = [
    "A cat.",
    "The dog chased the cat across the yard while it rained on all of us.",
    "sentence",  # the probe itself
    "explicit implicit explicit",
    "",
    "naïve — 東京 🙂",
    "She said it was warm; nobody took off a coat, not even the children by the door.",
]


@pytest.mark.parametrize("name", ["minilm", "tiny", "roberta"])
@pytest.mark.parametrize("second", [None, "explicit", "implicit"])
@pytest.mark.parametrize("room", [1, 2, 5, 12, 200])
def test_equals_the_tokenizers_own_encoding(
    tokenizers: dict[str, PreTrainedTokenizerBase], name: str, second: str | None, room: int
) -> None:
    tokenizer = tokenizers[name]
    template = Template.from_tokenizer(tokenizer, second)
    max_length = len(template) + room
    bare = Tokens.pad(tokenizer(SENTENCES, add_special_tokens=False)["input_ids"])
    got = template.apply(bare, max_length)
    want = tokenizer(
        SENTENCES,
        None if second is None else [second] * len(SENTENCES),
        truncation=True if second is None else "only_first",
        max_length=max_length,
        padding=True,
        return_tensors="pt",
        return_token_type_ids=True,
    )
    assert torch.equal(got.ids, want["input_ids"])
    assert torch.equal(got.lengths, want["attention_mask"].sum(1))
    inside = torch.arange(got.ids.shape[1]) < got.lengths[:, None]
    assert torch.equal(got.type_ids[inside], want["token_type_ids"][inside])


def test_segments_of_bert_and_doubled_separator_of_roberta(tokenizers: dict[str, PreTrainedTokenizerBase]) -> None:
    bert = Template.from_tokenizer(tokenizers["minilm"], "explicit")
    assert (bert.prefix_types, bert.suffix_types) == ((0,), (0, 1, 1))
    roberta = Template.from_tokenizer(tokenizers["roberta"], "explicit")
    end = tokenizers["roberta"].eos_token_id
    assert roberta.suffix[:2] == (end, end)
    assert roberta.suffix[-1] == end
    assert set(roberta.suffix_types) == {0}


@pytest.mark.parametrize("name", ["minilm", "roberta"])
def test_empty_sentences_alone(tokenizers: dict[str, PreTrainedTokenizerBase], name: str) -> None:
    template = Template.from_tokenizer(tokenizers[name], "implicit")
    got = template.apply(Tokens.pad([[], []]), 20)
    assert got.ids.tolist() == [[*template.prefix, *template.suffix]] * 2
    assert got.lengths.tolist() == [len(template)] * 2


def test_stacking_pads_with_the_padding_id() -> None:
    parts = [
        Sequences(torch.ones(1, 2, dtype=torch.long), torch.ones(1, 2, dtype=torch.long), torch.tensor([2])),
        Sequences(torch.ones(1, 3, dtype=torch.long), torch.ones(1, 3, dtype=torch.long), torch.tensor([3])),
    ]
    both = Sequences.cat(parts, pad_id=7)
    assert both.ids.tolist() == [[1, 1, 7], [1, 1, 1]]
    assert both.type_ids.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert both.lengths.tolist() == [2, 3]
    assert len(both) == 2


def test_a_probe_that_cannot_be_found_again_is_told() -> None:
    class Tokenizer:
        """Writes a sentence between special tokens differently from the sentence alone."""

        name_or_path = "odd"
        pad_token_id = 0

        def __call__(self, *_: object, add_special_tokens: bool = True, **__: object) -> dict[str, list[int]]:
            return {"input_ids": [2] if add_special_tokens else [1], "token_type_ids": [0]}

    with pytest.raises(EncoderError, match=r"tokenizer odd writes 'sentence' as \[1\] alone but not inside \[2\]"):
        Template.from_tokenizer(Tokenizer())  # type: ignore[arg-type]
