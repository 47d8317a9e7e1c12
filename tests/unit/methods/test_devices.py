"""A step on several devices, or in chunks, is the step of one: the loss and the gradient of every
parameter.
"""

import math

import numpy as np
import pytest
import torch
import torch.distributed as dist

import lightning_cse.config.compose  # noqa: F401 - the resolvers of configs
from lightning_cse.devices import gather_rows, share
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.encoders import passes as encoder_passes
from lightning_cse.engine.build import build

DEVICES = 3
EXPERIMENTS = [
    "simcse_unsup",
    "promptbert",
    "infocse",
    "gausscse",
    "dualcse_bi",
    "dualgauss",
    "impscore_inli",
    "ngcse_nli_sts_ht_final",
    "sbert",
    "sbert_regression",
    "clhaif",
    "infersent",
]
UNCHUNKED = ["consert_joint_adversarial"]
"""Experiments that need all activations of a batch at once."""
OVERRIDES = ("+debug=tiny", "paths.cache_dir=null")


def gradients(method):
    named = method.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def fixed_dropout(forward):
    """Drop the same numbers of each vector in every call: two passes over a sentence differ, always
    in the same way.
    """

    def masked_forward(self, requests, **options):
        draws = torch.Generator().manual_seed(len(requests))
        vectors = forward(self, requests, **options)
        return [vector * (torch.rand(vector.shape, generator=draws) > 0.1) for vector in vectors]

    return masked_forward


def steps(cfg, count=4, is_shared=False):
    """Loss and gradients of the first batches, without dropout but for `fixed_dropout`."""
    torch.manual_seed(0)
    parts = build(cfg)
    method = parts.method.eval()
    parts.data.is_shared = is_shared
    batches = iter(parts.data.train_dataloader())
    results = []
    for number in range(count):
        method.zero_grad()
        batch = next(batches)
        if number == count - 1:  # fewer sentences than devices, and a role that some rows have
            batch["roles"] = {role: few(tokens) for role, tokens in batch["roles"].items()}
            if "targets" in batch:
                batch["targets"] = batch["targets"][:2]

        loss = method.training_step(batch, number)["loss"]
        loss.backward()
        results.append((loss.item(), gradients(method)))

    return results


def few(tokens):
    return tokens.select(tokens.rows < 2)


def differences(results, other_results):
    """The differences of losses and gradients, relative to their size; a gradient below 1 % of all
    counts as 1 %.
    """
    largest = []
    for (loss, gradients_), (other_loss, other_gradients) in zip(
        results, other_results, strict=True
    ):
        largest.append(abs(loss - other_loss) / abs(loss))
        assert gradients_.keys() == other_gradients.keys()
        least = 0.01 * torch.nn.utils.get_total_norm(gradients_.values())
        for name, gradient in gradients_.items():
            size = torch.maximum(gradient.norm(), least)
            largest.append(float((gradient - other_gradients[name]).norm() / size))

    return largest


def on_one_of_several(rank, file, cfgs):
    torch.set_num_threads(1)
    SentenceEncoder.forward = fixed_dropout(SentenceEncoder.forward)  # type: ignore[method-assign]
    alone = {name: steps(cfg) for name, cfg in cfgs.items()}
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=DEVICES)
    for n in (1, 2, 3, 7):
        assert torch.equal(
            gather_rows(torch.from_numpy(share(np.arange(n)))[:, None])[:n, 0], torch.arange(n)
        )

    for name, cfg in cfgs.items():
        assert max(differences(alone[name], steps(cfg))) == 0.0, (
            "a program that has processes of its own computes alone"
        )
        shared = steps(cfg, is_shared=True)
        for _, grads in shared:
            for grad in grads.values():
                dist.all_reduce(grad)  # as DDP does
                grad /= DEVICES

        assert max(differences(alone[name], shared)) < 1e-5, name

    assert_bytes_of_a_step(cfgs["simcse_unsup"])

    dist.destroy_process_group()


def assert_bytes_of_a_step(cfg):
    """Check that a process receives the vectors of the others once, and nothing for the gradient:
    4 d ceil(n / P) (P - 1) bytes.
    """
    received = []
    with pytest.MonkeyPatch.context() as patch:
        for name in dist.distributed_c10d.__all__:
            if name.startswith(("all_", "broadcast", "gather", "reduce", "scatter")):
                patch.setattr(dist, name, counted(getattr(dist, name), name, received))

        parts = build(cfg)
        parts.data.is_shared = True
        step = parts.method.training_step(next(iter(parts.data.train_dataloader())), 0)
        step["loss"].backward()

    share_of_one = math.ceil(step["sentences"] / DEVICES)
    expected = 4 * parts.encoder.width * share_of_one * (DEVICES - 1)

    assert received == [("all_gather", expected)]


def counted(collective, name, received):
    """Note the bytes of the tensors that a collective brings from other processes."""

    def counting(parts, local):
        collective(parts, local)
        received.append((name, sum(part.nbytes for part in parts) - local.nbytes))

    return counting


@pytest.mark.slow
@pytest.mark.timeout(900)  # three processes, for a machine that is busy
def test_three_devices_match_one(compose, tmp_path):
    cfgs = {name: compose(f"+experiment={name}", *OVERRIDES) for name in (*EXPERIMENTS, *UNCHUNKED)}
    torch.multiprocessing.spawn(on_one_of_several, (str(tmp_path / "group"), cfgs), DEVICES)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_chunks_match_the_whole_batch(name, compose, monkeypatch):
    monkeypatch.setattr(SentenceEncoder, "forward", fixed_dropout(SentenceEncoder.forward))
    unchunked = compose(f"+experiment={name}", *OVERRIDES)
    chunked = compose(f"+experiment={name}", *OVERRIDES, "method.chunk_size=5")
    assert max(differences(steps(unchunked), steps(chunked))) < 1e-5


def test_chunks_are_encoded_again_under_their_dropout_masks(compose, monkeypatch):
    cfg = compose("+experiment=simcse_unsup", *OVERRIDES, "method.chunk_size=3")

    def step(checkpoint):
        passes = []
        monkeypatch.setattr(encoder_passes, "checkpoint", checkpoint)
        torch.manual_seed(0)
        parts = build(cfg)
        parts.encoder.backbone.register_forward_hook(lambda *_: passes.append(1))
        batch = next(iter(parts.data.train_dataloader()))
        loss = parts.method.train().training_step(batch, 0)["loss"]
        loss.backward()

        return len(passes), [(loss.item(), gradients(parts.method))]

    plain, expected = step(lambda encoded, *arguments, use_reentrant: encoded(*arguments))
    passes, recomputed = step(torch.utils.checkpoint.checkpoint)
    assert passes == 2 * plain
    assert max(differences(expected, recomputed)) < 1e-6
