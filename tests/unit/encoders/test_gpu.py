"""Rows of sequences as a GPU gets them, on a CPU: compiled shapes, the choice of a kernel."""

import logging

import pytest
import torch
from torch import Tensor, nn

from lightning_cse.encoders import gpu, tiny_encoder
from lightning_cse.tokens import Tokens

CPU = torch.device("cpu")


def encoded(encoder, lengths):
    """The vectors of sentences of some lengths, and the gradient of every parameter."""
    tokens = Tokens.pad([list(range(5, 5 + length)) for length in lengths])
    encoder.zero_grad()
    (vectors,) = encoder([(tokens, encoder.template())])
    (vectors * torch.arange(encoder.width).cos()).sum().backward()
    gradients = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
    return [vectors.detach(), *gradients]


def test_compiled_rows_have_few_shapes_and_the_same_numbers(monkeypatch):
    encoder = tiny_encoder(
        dropout=0.0,
        pooling="mean",
        compile=True,
    )
    batches = [[1 + (k * number) % 40 for k in range(1, 30)] for number in range(1, 8)]
    encoder.compiled = False
    want = [encoded(encoder, lengths) for lengths in batches]
    encoder.compiled = True
    shapes = set()

    def backend(module, inputs):
        tensors = [x for x in inputs if isinstance(x, Tensor) and not isinstance(x, nn.Parameter)]
        shapes.add(tuple(tuple(x.shape) for x in tensors))
        return module.forward

    compiler = torch.compile

    def compile_with(call, **options):
        return compiler(
            call,
            backend=backend,
            fullgraph=True,
            **options,
        )

    monkeypatch.setattr(
        gpu,
        "kernel_for",
        lambda backbone, device: gpu.plain,
    )
    monkeypatch.setattr(
        gpu,
        "find_spec",
        lambda name: name,
    )
    monkeypatch.setattr(
        torch,
        "compile",
        compile_with,
    )
    gpu.compiled.cache_clear()
    for lengths, expected in zip(
        batches,
        want,
        strict=True,
    ):
        torch.testing.assert_close(
            encoded(encoder, lengths),
            expected,
            atol=1e-3,
            rtol=1e-4,
        )
    assert 1 <= len(shapes) <= 4 < len({sum(lengths) for lengths in batches})
    gpu.compiled.cache_clear()


def test_row_of_few_tokens_is_padded_to_the_smallest_shape():
    sequences = tiny_encoder().template().apply(Tokens.pad([[5], [6]]), 8)
    ((_, total, inputs),) = gpu.rows(
        sequences,
        None,
        gpu.plain,
        rounded=True,
    )
    assert (total, inputs["input_ids"].shape) == (6, (1, 64))


def test_compile_without_gpu_warns(caplog):
    gpu.compiled.cache_clear()
    got = encoded(
        tiny_encoder(
            dropout=0.0,
            compile=True,
        ),
        [3, 5],
    )
    assert all(
        map(
            torch.equal,
            got,
            encoded(tiny_encoder(dropout=0.0), [3, 5]),
        )
    )
    assert "encoder.compile: not compiled" in caplog.text


def wrong_scale(*arguments):
    return 1.1 * gpu.plain(*arguments)


def no_dropout(q, k, v, row, p, scale):
    return gpu.plain(
        q,
        k,
        v,
        row,
        0.0,
        scale,
    )


@pytest.mark.parametrize(
    ("kernel", "agrees"),
    [
        (gpu.plain, True),
        (wrong_scale, False),
        (no_dropout, False),
    ],
)
def test_kernel_is_compared_with_plain_attention(kernel, agrees):
    assert (
        gpu.agrees(
            kernel,
            CPU,
            torch.float32,
            16,
        )
        is agrees
    )


def test_no_kernel_on_a_cpu(caplog):
    assert gpu.kernel_for(tiny_encoder().backbone, CPU) is None
    with caplog.at_level(logging.INFO, "lightning_cse"):
        assert (
            gpu._first_fitting(
                CPU,
                torch.bfloat16,
                16,
            )
            is None
        )
    assert "has no attention kernel for packed sequences in torch.bfloat16" in caplog.text


@pytest.mark.parametrize("kernel", [gpu.flash, gpu.efficient])
def test_torch_takes_the_arguments_of_kernels(kernel):
    states = [
        torch.empty(
            9,
            2,
            16,
            device="meta",
            dtype=torch.bfloat16,
        )
        for _ in range(3)
    ]
    row = gpu.Row(
        torch.empty(
            3,
            dtype=torch.int32,
            device="meta",
        ),
        5,
        kernel,
    )
    assert kernel(
        *states,
        row,
        0.1,
        0.25,
    ).shape == (9, 2, 16)
