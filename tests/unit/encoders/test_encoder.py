"""Prompts, denoising and refused options of an encoder."""

import pytest
import torch
from encoder_kinds import pad_groups

from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

SENTENCES = [
    "A cat.",
    "The dog chased the cat across the yard while it rained on all of us.",
    "Are you coming to the party tonight?",
    "Hi",
    "",
]


def requests(encoder, template=None):
    tokens = Tokens.pad(encoder.tokenizer(SENTENCES))
    return [(tokens, template or encoder.template())]


def states(encoder, ids, **inputs):
    output = encoder.backbone(input_ids=torch.tensor([ids]), **inputs)
    return output.last_hidden_state[0]


@pytest.mark.parametrize("is_padded", [False, True], ids=["packed", "padded"])
@pytest.mark.parametrize("denoise", [False, True])
@pytest.mark.parametrize("name", ["minilm", "roberta"])
def test_denoising_subtracts_the_template_at_the_positions_after_the_sentence(
    load, name, denoise, is_padded, monkeypatch
):
    encoder = load(name, pooling="prompt", denoise=denoise)
    if is_padded:
        pad_groups(encoder, monkeypatch)

    first = 2 if name == "roberta" else 0  # positions start behind the padding id
    for template in encoder.templates:
        (vectors,) = encoder(requests(encoder, template))
        index = -(template.pooled or 0)
        for vector, ids in zip(vectors, encoder.tokenizer(SENTENCES), strict=True):
            ids = ids[: 64 - len(template)]
            want = states(encoder, [*template.prefix, *ids, *template.suffix])[index]
            if denoise:
                positions = torch.arange(len(template)) + first
                positions[len(template.prefix) :] += len(ids)
                alone = [*template.prefix, *template.suffix]
                want = want - states(encoder, alone, position_ids=positions[None])[index]

            torch.testing.assert_close(vector, want, atol=1e-5, rtol=1e-5)


ROOM = len(tiny_encoder(pooling="prompt").template())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "maen"}, "did you mean 'mean'"),
        ({"max_length": 257}, "257 is more than the 256 positions of tiny"),
        ({"max_length": 2}, "2 leaves no room"),
        ({"pooling": "prompt", "max_length": ROOM}, "leaves no room"),
        ({"pooling": "mean", "denoise": True}, "need encoder.pooling=prompt, got mean"),
        ({"pooling": "prompt", "prompts": ["no place {mask}"]}, "needs one"),
        ({"pooling": "prompt", "prompts": ["{mask} {} {mask}"]}, "needs one"),
    ],
)
def test_refused_options(options, message):
    with pytest.raises(EncoderError, match=message):
        tiny_encoder(**options)
