"""Rows of sequences as a GPU gets them, on a CPU: a stand-in attends where a GPU's kernel would."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_kinds import KINDS, save_kind
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from lightning_cse.encoders import SentenceEncoder, gpu, load_encoder, tiny_encoder
from lightning_cse.encoders.gpu import Row
from lightning_cse.tokens import Tokens

LENGTHS = (3, 17, 1, 40, 40, 8, 25, 2)
CPU = torch.device("cpu")


def one_by_one(q: Tensor, k: Tensor, v: Tensor, row: Row, dropout: float, scale: float) -> Tensor:
    """Attend a sequence at a time."""
    attended = []
    for states in zip(*(x.split(row.starts.diff().tolist()) for x in (q, k, v)), strict=True):
        assert len(states[0]) <= row.longest
        query, key, value = (x.transpose(0, 1)[None] for x in states)
        mixed = scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scale)
        attended.append(mixed[0].transpose(0, 1))
    return torch.cat(attended)


def encoded(
    encoder: SentenceEncoder, *lengths: tuple[int, ...], most: int | None = None
) -> list[Tensor]:
    """The vectors of two requests, and the gradient of every parameter."""
    roles = (
        [torch.arange(5, 5 + n).tolist() for n in some]
        for some in lengths or (LENGTHS, LENGTHS[::-2])
    )
    given = [(Tokens.pad(ids), encoder.template()) for ids in roles]
    encoder.zero_grad()
    vectors = encoder(given, most=most)
    weights = torch.arange(
        encoder.width
    ).cos()  # even ones would have no gradient behind a layer norm
    sum((vector * weights).sum() for vector in vectors).backward()  # type: ignore[union-attr]
    return [
        *(v.detach() for v in vectors),
        *(p.grad.clone() for p in encoder.parameters() if p.grad is not None),
    ]


def assert_near(found: list[Tensor], wanted: list[Tensor]) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(
            ours, theirs, atol=2e-5 * max(1.0, float(theirs.abs().max())), rtol=1e-4
        )


def on_gpu(patch: pytest.MonkeyPatch, kernel: gpu.Kernel = one_by_one) -> None:
    patch.setattr(gpu, "kernel_for", lambda backbone, device: kernel)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"mpnet", "deberta-v3", "modernbert"}))
def test_rows_equal_windows(
    name: str, pooling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(save_kind(name, tmp_path))
    encoder = load_encoder(name=name, source=folder, pooling=pooling, max_length=64, dropout=0.0)
    wanted = encoded(encoder)
    on_gpu(monkeypatch)
    assert_near(encoded(encoder), wanted)


@pytest.mark.parametrize("most", [None, 50])
@pytest.mark.parametrize(
    "options",
    [{"pooling": "first_last"}, {"pooling": "cls_pooler"}, {"pooling": "prompt", "denoise": True}],
)
def test_poolings_and_pieces(
    options: Any, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny_encoder(dropout=0.0, **options)
    wanted = encoded(encoder, most=most)
    on_gpu(monkeypatch)
    assert_near(encoded(encoder, most=most), wanted)


def test_compiled_rows_have_few_shapes_and_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = tiny_encoder(dropout=0.0, pooling="mean", compile=True)
    sizes = [tuple(1 + (k * number) % 40 for k in range(1, 30)) for number in range(1, 8)]
    encoder.compiled = False
    wanted = [encoded(encoder, size) for size in sizes]
    encoder.compiled = True
    on_gpu(monkeypatch, gpu.plain)
    monkeypatch.setattr(gpu, "find_spec", lambda name: name)
    shapes = set()

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        shapes.add(
            tuple(
                tuple(x.shape)
                for x in inputs
                if isinstance(x, Tensor) and not isinstance(x, nn.Parameter)
            )
        )
        return module.forward

    compiler = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda call, **options: compiler(call, backend=backend, fullgraph=True, **options),
    )
    gpu.compiled.cache_clear()
    for size, want in zip(sizes, wanted, strict=True):
        assert_near(encoded(encoder, size), want)
    assert 1 <= len(shapes) <= 4 < len({sum(size) for size in sizes})
    gpu.compiled.cache_clear()


def test_a_row_of_few_tokens_has_a_shape_too() -> None:
    encoder = tiny_encoder()
    few = encoder.template().apply(Tokens.pad([[5], [6]]), 8)
    ((_, total, inputs),) = gpu.rows(few, None, gpu.plain, rounded=True)
    assert (total, inputs["input_ids"].shape) == (6, (1, 64))


def test_what_is_not_compiled(caplog: pytest.LogCaptureFixture) -> None:
    gpu.compiled.cache_clear()
    assert_near(
        encoded(tiny_encoder(dropout=0.0, compile=True)), encoded(tiny_encoder(dropout=0.0))
    )
    assert [record.message.partition(":")[0] for record in caplog.records] == ["encoder.compile"]


def test_a_kernel_is_taken_if_it_agrees(caplog: pytest.LogCaptureFixture) -> None:
    for kernel, fits in {
        one_by_one: True,
        gpu.plain: True,
        lambda *given: 1.1 * gpu.plain(*given): False,
        lambda q, k, v, row, dropout, scale: gpu.plain(q, k, v, row, 0.0, scale): False,
    }.items():
        assert gpu.agrees(kernel, CPU, torch.float32, 16) is fits
    assert gpu.kernel_for(tiny_encoder().backbone, CPU) is None
    with caplog.at_level(logging.INFO, "lightning_cse"):
        assert gpu._first_fitting(CPU, torch.bfloat16, 16) is None
    assert (
        "cpu has no attention kernel for packed sequences in torch.bfloat16: they are padded in groups"
        in caplog.text
    )


def test_torch_takes_what_the_kernels_give_it() -> None:
    states = [
        torch.empty(9, 2, 16, device="meta", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]
    row = Row(torch.empty(3, dtype=torch.int32, device="meta"), 5, gpu.flash)
    for kernel in (gpu.flash, gpu.efficient):
        assert kernel(*states, row, 0.1, 0.25).shape == (9, 2, 16)
    torch.autograd.grad(
        gpu.flash(*states, row, 0.1, 0.25).sum(), states
    )  # torch 2.13 cannot say so of the other's
