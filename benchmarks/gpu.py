"""Check training on a GPU: equal losses, no waiting for the device, speed and memory.

    make test-gpu                             # or: python benchmarks/gpu.py; under eight minutes
    make test-gpu ARGS="--only gausscse sbert"
    python benchmarks/gpu.py --tiny           # the smallest sizes, also on a CPU

Without a GPU, it says so and ends. Otherwise it

- trains every method under ``+debug=tiny`` with MiniLM on the CPU and on the GPU, and compares the
  losses step by step (without dropout, whose masks differ): those in float32 within 1e-5, those in
  bfloat16 within 1e-3 of float32, or three times as far from it as the CPU's own;
- trains every method again, and any operation of a step that waits for the GPU is an error;
- measures both trainers of `make bench` with a BERT of base size and random weights: sentences per
  second and the peak of memory, with batches of 64 and 512 triplets;
- measures GaussCSE's step, and estimates its three epochs.

The numbers are written to ``results/gpu.json`` under the name of the GPU. The exit code is 1 if a
loss differs, or a step waits.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import pytorch_lightning as pl
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from measuring import ON_GPU, Size, console, machine, rounded, save, silence, table_of
from omegaconf import DictConfig
from ours import config_of, for_theirs, sentences_of, train_ours
from rich.console import Console
from torch import Tensor
from transformers import BertConfig, BertModel

from lightning_cse.config.compose import compose_run
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.encoders import SentenceEncoder, tiny_encoder
from lightning_cse.encoders.passes import Passes
from lightning_cse.engine.build import build
from lightning_cse.tokens import Tokens

RESULTS = Path(__file__).parent / "results" / "gpu.json"
PRECISIONS = ("float32", "bf16")
TOLERANCE = {"float32": 1e-5, "bf16": 1e-3}
"""The accepted relative difference of a loss to float32 on the CPU, by precision."""

UNCHANGED = ("method.first=null", "method.second=null")
METHODS: dict[str, tuple[str, ...]] = {
    "claif": (),
    "clhaif": (),
    "consert": UNCHANGED,
    "consert_joint": UNCHANGED,
    "consert_joint_adversarial": (),
    "dino": (),
    "dualcse_bi": (),
    "dualcse_cross": (),
    "dualgauss": (),
    "gausscse": (),
    "impscore_inli": (),
    "infersent": (),
    "infocse": (),
    "ngcse_nli_sts_ht": (),
    "promptbert": (),
    "sbert": (),
    "sbert_regression": (),
    "simcse_sup": (),
    "simcse_unsup": (),
}
"""An experiment of every method; a comparison leaves out random changes of a sentence."""

MINILM = ("encoder=minilm_l6", "encoder.max_length=64")
"""Its weights are real: bfloat16 rounds the random ones of the tests to other sentences."""

GAUSSCSE_STEPS = 51_700
"""The steps of GaussCSE's three epochs with batches of 16 (paper, settings)."""


# Equal losses -------------------------------------------------------------------------------------


def losses(cfg: DictConfig, device: str, precision: str, steps: int) -> Tensor:
    """Train a method without dropout; return the loss of each step."""
    pl.seed_everything(0, verbose=False)
    parts = build(cfg)
    method = parts.method.eval().to(device)
    weights = [weight for weight in method.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4)
    values = []
    for number, batch in enumerate(islice(parts.data.train_dataloader(), steps)):
        batch = apply_to_collection(batch, (Tensor, Tokens), lambda part: part.to(device))
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            step: Any = method.training_step(batch, number)

        loss = step["loss"]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        values.append(loss.detach())

    return torch.stack(values).double().cpu()


def differences(name: str, steps: int, encoder: Sequence[str]) -> dict[str, float]:
    """Return the largest relative differences of a loss to float32 on the CPU.

    The device has padded batches, which the CPU packs.
    """
    device = "cuda" if ON_GPU else "cpu"
    overrides = ("+debug=tiny", "paths.cache_dir=null", *METHODS[name], *encoder)
    cfg = compose_run("train", [f"+experiment={name}", *overrides])
    expected = losses(cfg, "cpu", "float32", steps)
    computed = {"bf16, CPU": losses(cfg, "cpu", "bf16", steps)}
    with mock.patch.object(SentenceEncoder, "passes", return_value=Passes):
        for precision in PRECISIONS:
            computed[precision] = losses(cfg, device, precision, steps)

    size = expected.abs().clamp(min=1e-2)

    return {key: float(((x - expected).abs() / size).max()) for key, x in computed.items()}


def is_equal(values: Mapping[str, float], encoder: Sequence[str]) -> bool:
    """Whether these differences are accepted; how far bfloat16 rounds depends on the method.

    Without a real encoder, only float32 counts.
    """
    rounding = max(TOLERANCE["bf16"], 3 * values["bf16, CPU"])
    rounds_well = not encoder or values["bf16"] <= rounding

    return values["float32"] <= TOLERANCE["float32"] and rounds_well


# No waiting ---------------------------------------------------------------------------------------


class NoWaiting(pl.Callback):
    """Make waiting for the GPU an error, from the end of the first step to that of the last."""

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        """Start after the first step, which fills caches, and stop after the last."""
        if ON_GPU:
            is_last = index + 1 >= trainer.num_training_batches
            torch.cuda.set_sync_debug_mode("default" if is_last else "error")


def waits(name: str) -> str | None:
    """Train an epoch of a method; return the error of a step that waits for the GPU."""
    accelerator = f"trainer.accelerator={'gpu' if ON_GPU else 'cpu'}"
    overrides = ("+debug=tiny", "paths.cache_dir=null", "diag.evaluation=none", accelerator)
    cfg = compose_run("train", [f"+experiment={name}", *overrides, "trainer.max_epochs=1"])
    try:
        train_ours(cfg, NoWaiting())
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        if ON_GPU:
            torch.cuda.set_sync_debug_mode("default")

    return None


# Speed and memory ---------------------------------------------------------------------------------


def save_encoder(folder: Path, *, is_tiny: bool) -> None:
    """Save a BERT of base size with random weights."""
    sizes: dict[str, Any] = {}
    if is_tiny:
        sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}

    BertModel(BertConfig(**sizes)).save_pretrained(folder)
    tiny_encoder().tokenizer.tokenizer.save_pretrained(folder)


def save_rows(file: Path, count: int) -> None:
    """Write triplets, from the sentences of the sample corpus."""
    sample = read_corpus("inli", "train", sample_dir())
    columns = ("premise", "explicit_entailment", "contradiction")
    texts = [sample[name][:] for name in columns]
    with file.open("w", encoding="utf-8") as lines:
        for number in range(count):
            turn, row = divmod(number, len(sample))
            triplet = [f"{column[row]} {turn}" for column in texts]
            names = ("anchor", "positive", "negative", "premise", "entailment", "contradiction")
            lines.write(json.dumps(dict(zip(names, triplet * 2, strict=True))) + "\n")


def measured(train: Callable[[], tuple[float, Any]]) -> tuple[float, float | None]:
    """Return the seconds of a step and, on a GPU, the MiB that training takes at most."""
    if not ON_GPU:
        return train()[0], None

    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    seconds, _ = train()

    return seconds, torch.cuda.max_memory_allocated() / 2**20


def speeds(size: Size, options: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """Return sentences per second and memory of both trainers."""
    from theirs import train_theirs

    cfg = config_of("simcse_sup", size, *options)
    sentences = sentences_of(cfg)
    trainers = {
        "ours": lambda: train_ours(cfg),
        "sentence-transformers": lambda: train_theirs(sentences, **for_theirs(cfg)),
    }
    values = {}
    for side, train in trainers.items():
        seconds, memory = measured(train)
        per_second = size.batch * len(sentences) / seconds
        values[side] = {"sentences_per_second": per_second, "peak_mib": memory}

    return values


def hours_of_gausscse(size: Size, options: Sequence[str]) -> float:
    """Return the hours of three epochs of GaussCSE, without evaluation."""
    seconds, _ = train_ours(config_of("gausscse", size, *options))

    return seconds * GAUSSCSE_STEPS / 3600


# Together -----------------------------------------------------------------------------------------


def check(
    names: Sequence[str], steps: int, encoder: Sequence[str], out: Console
) -> tuple[dict[str, Any], bool]:
    """Compare and watch every method; print and return the results, and whether all is well."""
    results: dict[str, Any] = {}
    rows = []
    is_well = True
    for name in names:
        values = differences(name, steps, encoder)
        error = waits(name)
        equal = is_equal(values, encoder)
        results[name] = {"differences": values, "is_equal": equal, "waits": error}
        is_well &= error is None and equal
        row = {"experiment": name} | {key: f"{value:.1e}" for key, value in values.items()}
        row["is equal"] = "yes" if equal else "NO"
        row["waits for the GPU"] = error or ("no" if ON_GPU else "not checked")
        rows.append(row)

    out.print(table_of(rows, "losses: difference to float32 on the CPU"))

    return results, is_well


def compare(is_tiny: bool, steps: int, out: Console) -> dict[str, Any]:
    """Measure both trainers and GaussCSE; print and return the results."""
    batches = (4, 8) if is_tiny else (64, 512)
    results: dict[str, Any] = {}
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder, file = Path(temporary) / "bert", Path(temporary) / "rows.jsonl"
        save_encoder(folder, is_tiny=is_tiny)
        save_rows(file, 2 * steps * batches[-1] + 40)
        options = (
            "data=file",
            f"data.train={file}",
            f"encoder.source={folder}",
            "encoder.name=bert",
            "encoder.pooling=cls",
            "encoder.max_length=64",
        )
        for precision in PRECISIONS:
            for batch in batches:
                values = speeds(Size(precision, steps, batch, encoder="custom"), options)
                name = f"{precision}, batch {batch}"
                results[name] = values
                for side, value in values.items():
                    memory = value["peak_mib"]
                    rows.append(
                        {
                            "": name,
                            "side": side,
                            "sentences a second": f"{value['sentences_per_second']:.0f}",
                            "MiB at most": f"{memory:.0f}" if memory else "",
                        }
                    )

        size = Size("bf16", max(steps, 30 if not is_tiny else 3), 16, encoder="custom")
        results["gausscse, hours"] = hours_of_gausscse(size, options)

    out.print(table_of(rows, "training a BERT of base size"))
    out.print(
        f"GaussCSE: three epochs ({GAUSSCSE_STEPS:,} steps of 16) take about "
        f"{results['gausscse, hours']:.2f} hours, without evaluation"
    )

    return results


def main() -> int:
    """Check, measure and print; see the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes, also on a CPU")
    parser.add_argument("--steps", type=int, default=12, help="steps that are measured")
    parser.add_argument("--only", nargs="+", choices=METHODS, help="check these alone")
    parser.add_argument(
        "--json", type=Path, default=RESULTS, metavar="FILE", help="for the results"
    )
    options = parser.parse_args()
    out = console()
    if not (ON_GPU or options.tiny):
        out.print("no GPU")
        return 0

    silence()
    torch.backends.cudnn.allow_tf32 = False  # of the LSTM; matrix products are exact by default
    about = machine()
    name = about.get("gpu") or about["machine"]["cpu"]
    out.print(f"{name}, {about['versions']}\n")
    encoder = () if options.tiny else MINILM
    checks, is_well = check(options.only or list(METHODS), min(options.steps, 3), encoder, out)
    results = {"machine": about, "methods": checks}
    if not options.only or options.tiny:
        results["training"] = compare(options.tiny, options.steps, out)

    save(options.json, {name: rounded(results)})

    return int(not is_well)


if __name__ == "__main__":
    sys.exit(main())
