"""A step on several devices, or in chunks, is the step of one: the loss and the gradient of every parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from omegaconf import DictConfig
from torch import Tensor

from lightning_cse.config.compose import register
from lightning_cse.devices import gather, share, together
from lightning_cse.encoders import SentenceEncoder, encoder
from lightning_cse.engine.build import build
from lightning_cse.methods import Method
from lightning_cse.tokens import Tokens

DEVICES = 3
EXPERIMENTS = (
    *(
        "simcse_unsup",
        "simcse_sup",
        "gausscse",
        "dualcse_cross",
        "dualcse_bi",
        "dualgauss",
        "impscore_inli",
    ),
    *("ngcse_wiki_dropout", "ngcse_wiki_sts_ht", "ngcse_nli_sts_ht_final"),
)
Steps = list[tuple[float, dict[str, Tensor]]]


def masked(forward: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    """Drop the same numbers of each vector in every call: two passes over a sentence differ, always in the same way."""

    def masked_forward(
        self: SentenceEncoder, requests: Sequence[Any], **options: Any
    ) -> list[Tensor]:
        draws = torch.Generator().manual_seed(len(requests))
        found = forward(self, requests, **options)
        return [vector * (torch.rand(vector.shape, generator=draws) > 0.1) for vector in found]

    return masked_forward


def steps(cfg: DictConfig, count: int = 4) -> Steps:
    """Loss and gradients of the first batches, without dropout but for `masked`."""
    torch.manual_seed(0)
    parts = build(cfg)
    method: Method = parts.method.eval()
    batches: Iterator[Any] = iter(parts.data.train_dataloader())
    found = []
    for number in range(count):
        method.zero_grad()
        batch = next(batches)
        if number == count - 1:  # fewer sentences than devices, and a role that some rows have
            batch["roles"] = {role: few(tokens) for role, tokens in batch["roles"].items()}
        loss = method.training_step(batch, number)["loss"]
        loss.backward()
        grads = {
            name: p.grad.clone() for name, p in method.named_parameters() if p.grad is not None
        }
        found.append((loss.item(), grads))
    return found


def few(tokens: Tokens) -> Tokens:
    return tokens.select(tokens.rows < 2)


def differences(some: Steps, others: Steps) -> list[float]:
    """The differences of losses and gradients, relative to their size; a gradient below 1 % of all counts as 1 %."""
    found = [abs(a - b) / abs(a) for (a, _), (b, _) in zip(some, others, strict=True)]
    for (_, one), (_, other) in zip(some, others, strict=True):
        assert one.keys() == other.keys()
        least = (
            0.01 * torch.stack([grad.norm() for grad in one.values()]).norm()
        )  # a key's bias has none but rounding
        found += [
            float((one[name] - other[name]).norm() / torch.maximum(one[name].norm(), least))
            for name in one
        ]
    return found


def on_one_of_several(rank: int, file: str, cfgs: dict[str, DictConfig]) -> None:
    torch.set_num_threads(1)
    register()
    SentenceEncoder.forward = masked(SentenceEncoder.forward)  # type: ignore[method-assign]
    alone = {name: steps(cfg) for name, cfg in cfgs.items()}
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=DEVICES)
    assert gather(torch.ones(1, 1)).shape == (1, 1), (
        "a program that has processes of its own computes alone"
    )
    with together():
        for n in (1, 2, 3, 7):
            assert torch.equal(gather(share(torch.arange(n))[:, None])[:n, 0], torch.arange(n))
        for name, cfg in cfgs.items():
            shared = steps(cfg)
            for _, grads in shared:
                for grad in grads.values():
                    dist.all_reduce(grad)  # as DDP does
                    grad /= DEVICES
            assert max(differences(alone[name], shared)) < 1e-5, name
    dist.destroy_process_group()


@pytest.mark.timeout(300)
def test_every_method_on_three_devices(compose: Callable[..., DictConfig], tmp_path: Path) -> None:
    cfgs = {
        name: compose(f"+experiment={name}", "+debug=tiny", "paths.cache_dir=null")
        for name in EXPERIMENTS
    }
    torch.multiprocessing.spawn(on_one_of_several, (str(tmp_path / "group"), cfgs), DEVICES)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_step_in_chunks(
    name: str, compose: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SentenceEncoder, "forward", masked(SentenceEncoder.forward))
    point = (f"+experiment={name}", "+debug=tiny", "paths.cache_dir=null")
    assert (
        max(differences(steps(compose(*point)), steps(compose(*point, "method.chunk_size=5"))))
        < 1e-5
    )


def test_chunks_are_encoded_again_under_their_dropout_masks(
    compose: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = compose(
        "+experiment=simcse_unsup", "+debug=tiny", "paths.cache_dir=null", "method.chunk_size=3"
    )
    passes: list[int] = []

    def step(checkpoint: Callable[..., Tensor]) -> tuple[float, dict[str, Tensor]]:
        monkeypatch.setattr(encoder, "checkpoint", checkpoint)
        torch.manual_seed(0)
        parts = build(cfg)
        backbone = parts.encoder.backbone
        backbone.register_forward_hook(lambda *_: passes.append(1))
        loss = parts.method.train().training_step(next(iter(parts.data.train_dataloader())), 0)[
            "loss"
        ]
        loss.backward()
        return loss.item(), {
            n: p.grad.clone() for n, p in parts.method.named_parameters() if p.grad is not None
        }

    kept = step(lambda encoded, rows, use_reentrant: encoded(rows))
    plain, passes[:] = len(passes), []
    again = step(torch.utils.checkpoint.checkpoint)
    assert len(passes) == 2 * plain
    assert max(differences([kept], [again])) < 1e-6
