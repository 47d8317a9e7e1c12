"""The other side of the benchmarks: sentence-transformers' trainer and losses, independent of
lightning_cse.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import datasets
import torch
import transformers
from hydra.utils import instantiate
from measuring import ON_GPU, Clock
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses, modules
from torch.utils.data import DataLoader

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
datasets.disable_progress_bars()


class HuggingFaceClock(Clock, transformers.TrainerCallback):
    """A clock for Hugging Face's Trainer."""

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Record the end of a step."""
        self.tick()


def train_theirs(
    rows: dict[str, list[str]],
    *,
    folder: str,
    pooling: str,
    max_length: int,
    batch: int,
    chunk: int | None,
    adapter: Mapping[str, Any] | None,
    **options: Any,
) -> tuple[float, SentenceTransformer]:
    """Train one epoch of the same rows with sentence-transformers; return seconds per step, and the
    model.

    With ``chunk``, its loss caches gradients (Gao et al. 2021). Processes started by torchrun share
    the batch.
    """
    transformer = modules.Transformer(folder)
    width = transformer.get_embedding_dimension()
    pooled = modules.Pooling(width, pooling.replace("last_token", "lasttoken"))
    model = SentenceTransformer(modules=[transformer, pooled], device="cuda" if ON_GPU else "cpu")
    if adapter is not None:
        model.add_adapter(instantiate(adapter))

    model.model_card_data.widget = [
        {"text": ""}
    ]  # otherwise it makes examples, with a progress bar
    model.max_seq_length = max_length
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    shared: dict[str, Any] = {
        "scale": 1 / options["temperature"],
        "gather_across_devices": processes > 1,
    }
    loss: torch.nn.Module
    if chunk is None:
        loss = losses.MultipleNegativesRankingLoss(model, **shared)
    else:
        loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=chunk, **shared)
    clock = HuggingFaceClock()
    with tempfile.TemporaryDirectory() as output:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=output,
            per_device_train_batch_size=batch // processes,
            num_train_epochs=1,
            learning_rate=options["lr"],
            max_grad_norm=options["clip"],
            bf16=options["bf16"],
            use_cpu=not ON_GPU,
            ddp_backend="gloo" if processes > 1 and not ON_GPU else None,
            seed=0,
            dataloader_pin_memory=ON_GPU,
            dataloader_drop_last=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        data = datasets.Dataset.from_dict(rows)
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=data, loss=loss, callbacks=[clock]
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return clock.seconds, model


def read_theirs(file: str, folder: str, batch: int, most: int = 500) -> float:
    """Read a file of sentences and tokenise shuffled batches; return seconds per epoch, from at
    most ``most``.
    """
    model = SentenceTransformer(folder, device="cpu")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        rows = datasets.load_dataset("text", data_files=file, split="train", cache_dir=cache)
        read = time.perf_counter() - start
        loader = DataLoader(
            rows,
            batch,
            shuffle=True,
            collate_fn=lambda part: model.preprocess([r["text"] for r in part]),
        )
        start = time.perf_counter()
        for number, _ in zip(range(1, most + 1), loader, strict=False):
            seconds = (time.perf_counter() - start) / number
    return read + seconds * len(loader)
