"""Methods on the tiny encoder, a batch of five sentences, and a step with what it logs."""

from functools import partial

import torch
from oracles import SENTENCES

from lightning_cse.encoders import tiny_encoder
from lightning_cse.methods import Schedule
from lightning_cse.tokens import Tokens

TRAINING = {"optimizer": partial(torch.optim.AdamW, lr=1e-2), "schedule": Schedule()}


def method_of(method_class, *parts, encoder=None, **options):
    """Return a method whose layers follow from one seed; ``parts`` are its loss and the like."""
    torch.manual_seed(0)
    return method_class(encoder or tiny_encoder(), *parts, **TRAINING | options)


def batch_of(method, **more):
    """Return a batch that has the sentences in another order in each role."""
    ids = method.model.encoder.tokenizer(SENTENCES)
    roles = {role: Tokens.pad(ids[k:] + ids[:k]) for k, role in enumerate(method.roles)}
    return {"roles": roles, "index": torch.arange(len(SENTENCES)), **more}


def logged_step(method, batch):
    """Return the outputs of a training step, and the values that it logs, by key."""
    values = {}
    method.log = lambda key, value, **_: values.update({key: value.item()})
    outputs = method.training_step(batch, 0)
    del method.log

    return outputs, values
