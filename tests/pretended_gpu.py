"""Train a step of experiments on a GPU that is not there; print what waits for it, as JSON.

    python tests/pretended_gpu.py simcse_sup gausscse

torch registers a device without any code behind it, whose tensors are fake: they have a shape, a
type and the device, but no numbers. Code that mixes devices or reads a number fails, and every copy
between main memory and the device is seen. A process of its own, since torch registers for good.
"""

import json
import sys
import traceback
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration as registration
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from lightning_cse.config.compose import compose
from lightning_cse.engine.build import build

DEVICE = "pretended"


class Backend(registration._DummyBackendModule):
    """What torch asks a device for."""

    def get_amp_supported_dtype(self):
        return [torch.bfloat16]

    def get_rng_state(self, device=None):
        return torch.empty(0)


class Copies(TorchDispatchMode):
    """Record copies from one device to another; those of `to_device` do not wait."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        if func.name().startswith(("aten::_to_copy", "aten::copy_")):
            *_, source = (part for part in args if isinstance(part, torch.Tensor))
            stack = [
                frame for frame in traceback.extract_stack() if "lightning_cse" in frame.filename
            ]
            if source.device != result.device and stack[-1].name != "to_device":
                self.lines.append(f"{stack[-1].filename}:{stack[-1].lineno}")

        return result


def real(function):
    """Return a function that computes in main memory although tensors are fake."""

    def computed(*arguments, **options):
        with _disable_current_modes():
            return function(*arguments, **options)

    return computed


def drawn(function):
    """Return a function that draws random numbers: in main memory with a generator."""

    def draw(*arguments, **options):
        if "generator" not in options:
            return function(*arguments, **options)

        array = real(lambda: function(*arguments, **options).numpy())()
        return SimpleNamespace(numpy=lambda: array)

    return draw


def on_device(module):
    """Replace the weights of a module by fake ones on the device."""
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                fake = torch.empty(weight.shape, dtype=weight.dtype, device=DEVICE)
                part._parameters[name] = torch.nn.Parameter(fake, weight.requires_grad)

        for name, value in part._buffers.items():
            if value is not None:
                part._buffers[name] = torch.empty(value.shape, dtype=value.dtype, device=DEVICE)


def copies(method, batch):
    """Train a step on the device; return where tensors are copied in a way that waits."""
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    convert = real(torch.from_numpy)
    in_main_memory = {
        "from_numpy": lambda array: fakes.from_tensor(convert(array)),
        "rand": drawn(torch.rand),
        "randint": drawn(torch.randint),
    }
    with mock.patch.multiple(torch, **in_main_memory), fakes:
        on_device(method)
        if frozen := getattr(getattr(method, "restoration", None), "frozen", None):
            on_device(frozen.backbone)

        moved = {
            key: fakes.from_tensor(value).to(DEVICE)
            for key, value in batch.items()
            if key != "roles"
        }
        roles = {
            role: replace(tokens, ids=fakes.from_tensor(tokens.ids).to(DEVICE))
            for role, tokens in batch["roles"].items()
        }
        with Copies() as recorder:
            method.training_step({"roles": roles, **moved}, 0)["loss"].backward()

    return recorder.lines


def main():
    """Print the lines that wait, by experiment."""
    points = {}
    for name in sys.argv[1:]:
        overrides = (f"+experiment={name}", "+debug=tiny", "paths.cache_dir=null")
        parts = build(compose("train", *overrides))
        points[name] = parts.method.train(), next(iter(parts.data.train_dataloader()))

    registration._setup_privateuseone_for_python_backend(DEVICE, backend_module=Backend())
    results = {name: copies(*point) for name, point in points.items()}

    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
