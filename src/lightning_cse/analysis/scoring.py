"""Scores sentences or pairs chunk by chunk: the input may be longer than memory."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pandas as pd
import torch

from lightning_cse.analysis.inputs import layout_of, read_frames
from lightning_cse.analysis.searching import is_same
from lightning_cse.baselines import Length
from lightning_cse.embeddings import Embedding
from lightning_cse.engine.load import LENGTH, load_model
from lightning_cse.errors import DataError, Interrupted, LightningCSEError, TaskError
from lightning_cse.evaluation import Embedded
from lightning_cse.progress import progress
from lightning_cse.runs import atomic_file
from lightning_cse.runs.machine import device_of

SIDES: Final = {1: ("sentence",), 2: ("premise", "hypothesis")}
ENTAILMENT: Final = ("entailment", "entailment_reversed", "lead", "direction")
COLUMNS: Final = {
    1: ("implicitness",),
    2: ("similarity", *ENTAILMENT, "implicitness_premise", "implicitness_hypothesis"),
}
"""The columns of a sentence and of a pair, as far as a model gives them."""


class Scorer:
    """The answers of a model about sentences or pairs.

    A sentence has ``implicitness``. A pair has ``similarity``; ``entailment``, the score of premise -> hypothesis, and
    ``entailment_reversed``; ``lead``, their difference (or the model's own ``direction``), and ``direction``, its sign:
    ``forward``, ``backward`` or ``tie``; the implicitness of both. Columns that the model does not answer are left out,
    and those that say nothing new: where the entailment score is the same both ways, or is the similarity.

    Raises TaskError if no column is left.
    """

    def __init__(self, model: Any, name: str, sides: int) -> None:
        self.model, self.sides = model, SIDES[sides]
        like = model.embed(["a", "b"])
        there = self.answers(*[like[:1], like[1:]][:sides])
        repeated: set[str] = set()
        if "entailment" in there and is_same(model.entailment_score, lambda a, b: model.entailment_score(b, a), like):
            repeated = {"entailment_reversed"} if hasattr(model, "direction") else set(ENTAILMENT[1:])
            if "similarity" in there and is_same(model.entailment_score, model.similarity, like):
                repeated.add("entailment")
        self.columns = [column for column in there if column not in repeated]
        without = [column for column in COLUMNS[sides] if column not in self.columns]
        self.left_out = f"{name} ({type(model).__name__}) gives no {', '.join(without)}" if without else ""
        if repeated:
            self.left_out += "; its entailment score is the same both ways"
        if not self.columns:
            raise TaskError(f"{self.left_out} of a {' and a '.join(self.sides)}; give pairs, or another model")

    @torch.no_grad()
    def answers(self, *sides: Embedding) -> dict[str, np.ndarray]:
        """Return all columns that the model answers about embeddings of sentences, or of premises and hypotheses."""
        model, found = self.model, {}

        def ask(question: str, *embeddings: Embedding) -> np.ndarray:
            return getattr(model, question)(*embeddings).double().numpy() + 0.0  # no -0

        if len(sides) == 2 and hasattr(model, "similarity"):
            found["similarity"] = ask("similarity", *sides)
        if len(sides) == 2 and hasattr(model, "entailment_score"):
            found["entailment"] = ask("entailment_score", *sides)
            found["entailment_reversed"] = ask("entailment_score", *reversed(sides))
        if len(sides) == 2 and hasattr(model, "direction"):
            found["lead"] = ask("direction", *sides)
        elif "entailment" in found:
            found["lead"] = found["entailment"] - found["entailment_reversed"]
        if "lead" in found:
            found["direction"] = np.array(["tie", "forward", "backward"])[np.sign(found["lead"]).astype(int)]
        if hasattr(model, "implicitness"):
            names = COLUMNS[1] if len(sides) == 1 else COLUMNS[2][-2:]
            found |= {name: ask("implicitness", side) for name, side in zip(names, sides, strict=True)}
        return found

    def __call__(self, embedded: Embedded, frame: pd.DataFrame) -> pd.DataFrame:
        """Return line, texts and columns of rows; raise LightningCSEError if a score is not finite."""
        found = self.answers(*(embedded[frame[name].tolist()] for name in frame.columns))
        scored = frame.set_axis(list(self.sides), axis=1).assign(**{name: found[name] for name in self.columns})
        bad = ~np.isfinite(scored.select_dtypes("number")).all(axis=1)
        if bad.any():
            raise LightningCSEError(f"line {bad.idxmax()}: a score of {type(self.model).__name__} is not finite")
        return scored.rename_axis("line").reset_index()


def run(options: Namespace) -> None:
    """Score the input of a command line; all that is not a score goes to standard error.

    Raises a LightningCSEError if something given is wrong; so is a row with an empty cell, unless such are left out.
    """
    layout = options.input_format or layout_of(options.input, "tsv")  # a text is a TSV file with one column
    frames = read_frames(options.input, layout, columns=options.columns, most=2, at_once=options.batch_size)
    first = next(frames)
    device, rows, skipped, cut = device_of(options.device), 0, 0, 0
    loaded = None if options.model == LENGTH else load_model(options.model, pooling=options.pooling)
    model = Length() if loaded is None else loaded.answers.to(device)
    scorer = Scorer(model, options.model if loaded is None else loaded.name, len(first.columns))
    if layout in ("csv", "jsonl"):
        _say(", ".join(f"{side} = {column}" for side, column in zip(scorer.sides, first.columns, strict=True)))
    if scorer.left_out:
        _say(scorer.left_out)
    try:
        with _output(options.output) as sink, progress() as bar:
            task = bar.add_task("rows", total=None)
            for frame in itertools.chain([first], frames):
                bad = (frame == "").any(axis=1)
                if bad.any() and not options.skip_bad:
                    raise DataError(f"{options.input}:{bad.idxmax()}: a cell is empty; --skip-bad leaves such rows out")
                frame, skipped = frame[~bad], skipped + int(bad.sum())
                if frame.empty:
                    continue
                distinct = list(dict.fromkeys(frame.to_numpy().ravel()))
                if loaded is not None:
                    cut += sum(len(ids) > loaded.room for ids in loaded.encoder.tokenizer(distinct))
                with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16-mixed"):
                    embedded = Embedded(model, distinct)
                sink.write(_text(scorer(embedded, frame), options.format, header=not rows).encode())
                sink.flush()
                rows += len(frame)
                bar.update(task, completed=rows)
            if not rows:
                raise DataError(f"{options.input}: no row can be scored")
    except KeyboardInterrupt as error:
        signum = getattr(error, "signum", signal.SIGINT)
        raise Interrupted(f"interrupted after {rows:,} rows; a file is written only at the end", signum) from None
    for count, what in (
        (skipped, "rows with an empty cell were left out"),
        (cut, "sentences were cut to the maximum length"),
    ):
        if count:
            _say(f"{count:,} {what}")


def _text(scored: pd.DataFrame, layout: str, *, header: bool) -> str:
    """Return rows as CSV or JSON lines, with six significant digits."""
    if layout == "csv":
        return scored.to_csv(index=False, header=header, float_format="%.6g", lineterminator="\n")
    rows = (
        {name: float(f"{cell:.6g}") if isinstance(cell, float) else cell for name, cell in row.items()}
        for row in scored.to_dict("records")
    )
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


@contextlib.contextmanager
def _output(path: str) -> Iterator[BinaryIO]:
    """Open standard output, a pipe or device, or a file that is replaced when all is written."""
    target = Path(path).expanduser()
    if path == "-":
        yield sys.stdout.buffer
    elif target.exists() and not target.is_file():
        with target.open("wb") as sink:
            yield sink
    else:
        with atomic_file(target) as sink:
            yield sink


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
