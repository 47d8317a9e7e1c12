"""A template is right if it writes what the tokenizer itself would have written."""

import pytest
import torch

from lightning_cse.encoders.templates import PROMPTS, Template
from lightning_cse.tokens import Tokens

SENTENCES = [
    "A cat.",
    "The dog chased the cat across the yard while it rained on all of us.",
    "sentence",  # the probe itself
    "explicit implicit explicit",
    "",
    "naïve — 東京 🙂",
]
PROMPTBERT = 'This sentence : "{}" means {mask} .'


def bare(tokenizer):
    return list(tokenizer(SENTENCES, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize("name", ["minilm", "tiny", "roberta"])
@pytest.mark.parametrize("second", [None, "explicit", "implicit"])
@pytest.mark.parametrize("room", [1, 5, 200])
def test_equals_the_tokenizers_own_encoding(tokenizers, name, second, room):
    tokenizer = tokenizers[name]
    template = Template.from_tokenizer(tokenizer, second)
    got = template.apply(Tokens.pad(bare(tokenizer)), len(template) + room)
    want = tokenizer(
        SENTENCES,
        None if second is None else [second] * len(SENTENCES),
        truncation=True if second is None else "only_first",
        max_length=len(template) + room,
        padding=True,
        return_tensors="pt",
        return_token_type_ids=True,
    )
    assert torch.equal(got.ids, want["input_ids"])
    assert got.lengths.tolist() == want["attention_mask"].sum(1).tolist()
    inside = want["attention_mask"].bool()
    assert torch.equal(got.type_ids[inside], want["token_type_ids"][inside])


# Prompts


def test_the_ids_that_the_authors_insert_into_bert(tokenizers):
    first, second = (Template.from_prompt(tokenizers["minilm"], prompt) for prompt in PROMPTS)
    assert first.prefix == (101, 2023, 6251, 1024, 1000)
    assert second.prefix == (101, 2023, 6251, 1997, 1000)
    assert first.suffix == second.suffix == (1000, 2965, 103, 102)
    assert first.pooled == second.pooled == 2


@pytest.mark.parametrize("prompt", [*PROMPTS, PROMPTBERT])
@pytest.mark.parametrize("name", ["minilm", "tiny"])
def test_prompt_equals_the_text_around_the_sentence(tokenizers, name, prompt):
    tokenizer = tokenizers[name]
    got = Template.from_prompt(tokenizer, prompt).apply(Tokens.pad(bare(tokenizer)), 200)
    texts = [
        prompt.replace("{}", sentence).replace("{mask}", tokenizer.mask_token)
        for sentence in SENTENCES
    ]
    want = tokenizer(texts, padding=True, return_tensors="pt")
    assert torch.equal(got.ids, want["input_ids"])
    assert got.lengths.tolist() == want["attention_mask"].sum(1).tolist()
    assert (got.type_ids == 0).all()
    assert (got.ids == tokenizer.mask_token_id).int().argmax(1).tolist() == got.pooled.tolist()
