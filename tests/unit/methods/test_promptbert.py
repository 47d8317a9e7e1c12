"""PromptBERT: two prompts, denoised in training and not at test."""

import pytest
import torch
from method_steps import batch_of, method_of
from oracles import SENTENCES

from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import EncoderError
from lightning_cse.losses import InfoNCE
from lightning_cse.methods import PromptBERT
from lightning_cse.tokens import Tokens

PROMPTS = ('A "{}" is {mask}.', 'This "{}" means {mask} .')


def make(denoise=True, prompts=PROMPTS):
    encoder = tiny_encoder(pooling="prompt", prompts=prompts)
    return method_of(PromptBERT, InfoNCE(), encoder=encoder, denoise=denoise)


def masks(method, template, ids):
    """The states of the mask in a prompt around a sentence, and in the prompt alone."""
    states = method.model.encoder.backbone
    index = -template.pooled
    around = torch.tensor([[*template.prefix, *ids, *template.suffix]])
    alone = torch.tensor([[*template.prefix, *template.suffix]])
    positions = torch.arange(len(template))
    positions[len(template.prefix) :] += len(ids)

    return (
        states(input_ids=around).last_hidden_state[0, index],
        states(input_ids=alone, position_ids=positions[None]).last_hidden_state[0, index],
    )


@pytest.mark.parametrize("denoise", [True, False])
@torch.no_grad()
def test_step_compares_two_prompts_without_what_they_say_alone(denoise):
    method = make(denoise).eval()
    bare = method.model.encoder.tokenizer(SENTENCES)
    step = method.training_step(batch_of(method), 0)
    views = []
    for template in method.templates:
        rows = []
        for ids in bare:
            around, alone = masks(method, template, ids)
            rows.append(method.head(around - alone if denoise else around))

        views.append(torch.stack(rows))

    for role, view in zip(("anchor", "positive"), views, strict=True):
        torch.testing.assert_close(step["embeddings"][role]["vector"], view, atol=1e-5, rtol=1e-5)

    assert step["loss"].item() == pytest.approx(InfoNCE()(*views).item(), rel=1e-4)


@torch.no_grad()
def test_vector_at_test_is_the_mask_of_the_first_prompt():
    method = make().eval()
    bare = method.model.encoder.tokenizer(SENTENCES)
    (embedding,) = method.model.encode(Tokens.pad(bare))
    want = [masks(method, method.templates[0], ids)[0] for ids in bare]
    torch.testing.assert_close(embedding.vector, torch.stack(want), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("prompts", [PROMPTS[:1], (*PROMPTS, 'One "{}" {mask}')])
def test_another_number_of_prompts_is_an_error(prompts):
    with pytest.raises(EncoderError, match=rf"encoder\.prompts: .*two.*, got {len(prompts)};"):
        make(prompts=prompts)
