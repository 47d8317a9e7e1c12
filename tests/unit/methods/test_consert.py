"""ConSERT: two augmented views of a sentence in training and in the diagnostics, none at test."""

from functools import partial

import pytest
import torch
from oracles import SENTENCES

from lightning_cse.encoders import FeatureCutoff, ShuffledPositions, tiny_encoder
from lightning_cse.losses import NTXent
from lightning_cse.methods import ConSERT, Schedule
from lightning_cse.tokens import Tokens

CUTOFF = FeatureCutoff(0.2)
SHUFFLE = ShuffledPositions()


def make(first=CUTOFF, second=SHUFFLE):
    torch.manual_seed(0)
    return ConSERT(
        tiny_encoder(pooling="last_two", dropout=0.0),
        NTXent(),
        first=first,
        second=second,
        optimizer=partial(torch.optim.AdamW, lr=1e-3),
        schedule=Schedule(),
    ).train()


def tokens_of(method):
    return Tokens.pad(method.model.encoder.tokenizer(SENTENCES))


@pytest.mark.parametrize(("first", "second"), [(CUTOFF, SHUFFLE), (None, CUTOFF)])
@torch.no_grad()
def test_step_compares_two_augmented_views(first, second):
    method = make(first, second)
    tokens = tokens_of(method)
    torch.manual_seed(3)
    step = method.training_step({"roles": {"anchor": tokens}, "index": torch.arange(5)}, 0)
    torch.manual_seed(3)
    request = [(tokens, method.model.encoder.template())]
    views = [method.model.encoder(request, augment=augment)[0] for augment in (first, second)]
    for role, view in zip(("anchor", "positive"), views, strict=True):
        assert torch.equal(step["embeddings"][role]["vector"], view)

    assert step["loss"].item() == pytest.approx(NTXent()(*views).item())


@torch.no_grad()
def test_views_of_the_diagnostics_are_those_of_training_and_the_test_has_none():
    method = make()
    plain = method.model.embed(SENTENCES).vector
    seen = []
    for number in range(2):
        with method.view(number):
            seen.append(method.model.embed(SENTENCES).vector)

    for view in seen:
        assert (view - plain).norm(dim=1).min() > 1e-2

    assert not torch.allclose(*seen)
    assert torch.equal(method.model.embed(SENTENCES).vector, plain)


def test_only_without_augmentations_does_it_need_dropout():
    assert not make().needs_dropout
    assert make(None, None).needs_dropout
