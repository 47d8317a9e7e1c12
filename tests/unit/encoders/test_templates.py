"""A template is right if it writes what the tokenizer itself would have written."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedTokenizerBase, RobertaTokenizer

from lightning_cse.encoders.templates import PROMPTS, Sequences, Template
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
        Sequences(
            ids=torch.ones(1, width, dtype=torch.long),
            type_ids=torch.ones(1, width, dtype=torch.long),
            positions=torch.arange(width)[None],
            lengths=torch.tensor([width]),
            pooled=torch.tensor([width - 2]),
        )
        for width in (2, 3)
    ]
    both = Sequences.cat(parts, pad_id=7)
    assert both.ids.tolist() == [[1, 1, 7], [1, 1, 1]]
    assert both.type_ids.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert both.lengths.tolist() == [2, 3]
    assert both.positions.tolist() == [[0, 1, 0], [0, 1, 2]]
    assert both.pooled.tolist() == [0, 1]


# Prompts -------------------------------------------------------------------------------------------------------------

PROMPTBERT = 'This sentence : "{}" means {mask} .'


def test_the_ids_that_the_authors_insert_into_bert(tokenizers: dict[str, PreTrainedTokenizerBase]) -> None:
    first, second = (Template.from_prompt(tokenizers["minilm"], prompt) for prompt in PROMPTS)
    assert first.prefix == (101, 2023, 6251, 1024, 1000)
    assert second.prefix == (101, 2023, 6251, 1997, 1000)
    assert first.suffix == second.suffix == (1000, 2965, 103, 102)
    assert first.pooled == second.pooled == 2


def test_the_ids_that_the_authors_insert_into_roberta(roberta_base_tokenizer: PreTrainedTokenizerBase) -> None:
    first, second = (Template.from_prompt(roberta_base_tokenizer, prompt) for prompt in PROMPTS)
    assert first.prefix == (0, 713, 3645, 4832, 22)
    assert second.prefix == (0, 713, 3645, 9, 22)
    assert first.suffix == second.suffix == (113, 839, 50264, 2)


def test_pieces_of_a_byte_level_prompt_keep_their_leading_spaces(
    byte_level: Callable[[list[str]], RobertaTokenizer],
) -> None:
    # Each of the authors' ids for RoBERTa is one of these words in its vocabulary, with or without the space before.
    tokenizer = byte_level(['This sentence : "', 'This sentence of "', '" means'])
    first, second = (Template.from_prompt(tokenizer, prompt) for prompt in PROMPTS)
    assert tokenizer.convert_ids_to_tokens(first.prefix) == ["<s>", "This", "Ġsentence", "Ġ:", 'Ġ"']
    assert tokenizer.convert_ids_to_tokens(second.prefix) == ["<s>", "This", "Ġsentence", "Ġof", 'Ġ"']
    assert tokenizer.convert_ids_to_tokens(first.suffix) == ['"', "Ġmeans", "<mask>", "</s>"]
    assert Template.from_prompt(tokenizer, 'This sentence : " {}" means  {mask}') == first


@pytest.mark.parametrize("prompt", [*PROMPTS, PROMPTBERT])
@pytest.mark.parametrize("name", ["minilm", "tiny"])
def test_prompt_equals_the_text_around_the_sentence(
    tokenizers: dict[str, PreTrainedTokenizerBase], name: str, prompt: str
) -> None:
    tokenizer = tokenizers[name]
    template = Template.from_prompt(tokenizer, prompt)
    got = template.apply(Tokens.pad(tokenizer(SENTENCES, add_special_tokens=False)["input_ids"]), 200)
    texts = [prompt.replace("{}", sentence).replace("{mask}", tokenizer.mask_token) for sentence in SENTENCES]
    want = tokenizer(texts, padding=True, return_tensors="pt")
    assert torch.equal(got.ids, want["input_ids"])
    assert torch.equal(got.lengths, want["attention_mask"].sum(1))
    assert (got.type_ids == 0).all()
    assert torch.equal((got.ids == tokenizer.mask_token_id).int().argmax(1), got.pooled)
    assert (got.lengths - got.pooled == (3 if prompt == PROMPTBERT else 2)).all()


@pytest.mark.parametrize("name", ["minilm", "tiny", "roberta"])
@pytest.mark.parametrize("room", [1, 3, 12])
def test_truncation_never_takes_from_the_prompt(
    tokenizers: dict[str, PreTrainedTokenizerBase], name: str, room: int
) -> None:
    tokenizer = tokenizers[name]
    template = Template.from_prompt(tokenizer, PROMPTS[0])
    bare = tokenizer(SENTENCES, add_special_tokens=False)["input_ids"]
    got = template.apply(Tokens.pad(bare), len(template) + room)
    for ids, length, place, sentence in zip(got.ids.tolist(), got.lengths, got.pooled, bare, strict=True):
        assert ids[:length] == [*template.prefix, *sentence[:room], *template.suffix]
        assert ids[place] == tokenizer.mask_token_id


def test_a_template_alone_leaves_a_gap_where_the_sentence_stood(
    tokenizers: dict[str, PreTrainedTokenizerBase],
) -> None:
    template = Template.from_prompt(tokenizers["minilm"], PROMPTS[0])
    got = template.alone(torch.tensor([0, 3]))
    assert got.ids.tolist() == [[101, 2023, 6251, 1024, 1000, 1000, 2965, 103, 102]] * 2
    assert got.positions.tolist() == [[0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 8, 9, 10, 11]]
    assert got.lengths.tolist() == [9, 9]
    assert got.pooled.tolist() == [7, 7]


@pytest.mark.parametrize(
    "prompt",
    [
        "no place {mask}",
        "{} and {} {mask}",
        "{} no mask",
        "{} {mask} {mask}",
        "{mask} first: {}",
        "{mask} {} {mask}",
        "",
    ],
)
def test_prompts_that_are_none(tokenizers: dict[str, PreTrainedTokenizerBase], prompt: str) -> None:
    with pytest.raises(EncoderError, match=re.escape(f"encoder.prompts: {prompt!r} needs one {{}} and, behind it,")):
        Template.from_prompt(tokenizers["tiny"], prompt)


def test_a_tokenizer_without_a_mask(tokenizers: dict[str, PreTrainedTokenizerBase]) -> None:
    tokenizer = copy.deepcopy(tokenizers["tiny"])
    tokenizer.mask_token = None
    with pytest.raises(EncoderError, match="has no mask token for a prompt; choose mean"):
        Template.from_prompt(tokenizer, PROMPTS[0])


def test_a_probe_that_cannot_be_found_again_is_told() -> None:
    class Tokenizer:
        """Writes a sentence between special tokens differently from the sentence alone."""

        name_or_path = "odd"
        pad_token_id = 0

        def __call__(self, *_: object, add_special_tokens: bool = True, **__: object) -> dict[str, list[int]]:
            return {"input_ids": [2] if add_special_tokens else [1], "token_type_ids": [0]}

    with pytest.raises(EncoderError, match=r"tokenizer odd writes 'sentence' as \[1\] alone but not inside \[2\]"):
        Template.from_tokenizer(Tokenizer())  # type: ignore[arg-type]
