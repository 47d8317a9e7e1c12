"""The device that an accelerator's name stands for."""

from __future__ import annotations

import pytest
import torch

from lightning_cse.runs.machine import device_name, device_of


@pytest.mark.parametrize(
    ("accelerator", "with_cuda", "without"),
    [("auto", "cuda", "cpu"), ("gpu", "cuda", "mps"), ("cpu", "cpu", "cpu"), ("mps", "mps", "mps")],
)
def test_the_device_of_an_accelerator(
    accelerator: str, with_cuda: str, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cuda, want in ((True, with_cuda), (False, without)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        assert device_of(accelerator) == torch.device(want)


def test_a_device_without_a_name_of_its_own_goes_by_its_kind() -> None:
    assert device_name(torch.device("cpu")) == "cpu"
    assert device_name(torch.device("mps")) == "mps"
