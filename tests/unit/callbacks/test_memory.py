"""The memory estimated before training: exact parts, and no trace in training."""

from functools import partial

import pytest
import torch
from torch import nn

from lightning_cse.callbacks.memory import MemoryEstimate, _saved, estimate, states_per_weight
from lightning_cse.encoders import tiny_encoder
from lightning_cse.losses import InfoNCE
from lightning_cse.methods import Schedule, UnsupervisedSimCSE
from lightning_cse.tokens import Tokens


def method_of(chunk_size=None, **options):
    torch.manual_seed(0)

    return UnsupervisedSimCSE(
        tiny_encoder(**options),
        InfoNCE(),
        optimizer=partial(torch.optim.AdamW, lr=1e-3),
        schedule=Schedule(),
        chunk_size=chunk_size,
    ).train()


def batch_of(rows):
    tokens = Tokens.pad([[5, 6, 7, 8]] * rows)
    return {"roles": {"anchor": tokens}, "index": torch.arange(rows)}


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [
        (partial(torch.optim.AdamW, fused=True), 2),
        (partial(torch.optim.SGD, lr=0.1), 0),
        (partial(torch.optim.SGD, lr=0.1, momentum=0.9), 1),
    ],
)
def test_size_of_an_optimizers_state(optimizer, states):
    assert states_per_weight(optimizer) == states


def test_what_autograd_saves_is_counted_once():
    layer = nn.Linear(10, 20, bias=False)
    x = torch.ones(3, 10)
    with _saved(layer.parameters()) as saved:
        y = layer(x).exp()  # the layer saves x, exp its result
        y.sum() + (y * y).sum()

    assert saved == {"scaling": 4 * (3 * 10 + 3 * 20), "fixed": 0}


def test_only_trained_weights_have_gradients_and_states():
    method = method_of()
    all_bytes = sum(4 * weight.numel() for weight in method.parameters())
    whole = estimate(method, batch_of(4), 1)
    assert (whole.gradients, whole.optimizer) == (all_bytes, 2 * all_bytes)

    frozen = method.model.encoder.backbone.get_submodule("embeddings").requires_grad_(False)
    less = sum(4 * weight.numel() for weight in frozen.parameters())
    part = estimate(method, batch_of(4), 1)
    assert (part.weights, part.gradients) == (whole.weights, all_bytes - less)


def test_activations_grow_with_the_batch_but_not_beyond_a_chunk():
    one = estimate(method_of(), batch_of(4), 1).activations
    assert one > 0
    assert estimate(method_of(), batch_of(4), 10).activations == pytest.approx(10 * one, rel=0.01)

    in_chunks = method_of(chunk_size=8)
    most = estimate(in_chunks, batch_of(4), 10).activations
    assert most < 10 * one
    assert most == estimate(in_chunks, batch_of(4), 100).activations
    assert in_chunks.model.encoder.chunk_size == 8


def test_training_is_the_same_with_and_without_it(run_tiny, tmp_path, monkeypatch):
    with_estimate = run_tiny(tmp_path / "with", "+experiment=simcse_unsup").read()
    monkeypatch.setattr(MemoryEstimate, "on_train_start", lambda *_: None)
    without = run_tiny(tmp_path / "without", "+experiment=simcse_unsup").read()
    for key in ("metrics", "final", "checkpoint"):
        assert with_estimate[key] == without[key]


def test_line_has_every_part_and_a_warning_where_memory_is_short(
    run_tiny, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("lightning_cse.callbacks.memory.memory_of", lambda device: 1000)
    with caplog.at_level("WARNING", "lightning_cse"):
        run_tiny(tmp_path, "+experiment=simcse_unsup")

    (line,) = [record.getMessage() for record in caplog.records if "memory:" in record.message]
    assert all(part in line for part in ("weights", "gradients", "AdamW", "activations", "chunk"))


def test_a_process_on_a_cpu_takes_more_than_its_tensors():
    small, large = (estimate(method_of(), batch_of(4), factor) for factor in (1, 100))
    grown = large.activations - small.activations
    assert large.overhead - small.overhead == pytest.approx(1.5 * grown, rel=0.01)
    tensors = small.weights + small.gradients + small.optimizer + small.activations
    assert small.total == tensors + small.overhead > tensors


def test_with_gradient_checkpointing_one_layer_has_its_activations():
    whole = estimate(method_of(), batch_of(8), 1).activations
    method = method_of(gradient_checkpointing=True)
    part = estimate(method, batch_of(8), 1).activations
    assert whole / 2 < part < whole  # of two layers
    assert all(
        layer.gradient_checkpointing for layer in method.model.encoder.backbone.encoder.layer
    )
