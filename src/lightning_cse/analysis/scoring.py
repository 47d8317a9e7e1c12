"""Score sentences or pairs chunk by chunk, so the input may be larger than memory."""

import contextlib
import itertools
import json
import signal
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pandas as pd
import torch

from lightning_cse.analysis.inputs import layout_of, read_frames
from lightning_cse.analysis.searching import swapped
from lightning_cse.baselines import Length
from lightning_cse.embeddings import Embedding
from lightning_cse.engine.load import LENGTH, load_model
from lightning_cse.errors import DataError, Interrupted, LightningCSEError, TaskError
from lightning_cse.evaluation import Embedded
from lightning_cse.progress import progress
from lightning_cse.runs import atomic_file
from lightning_cse.runs.machine import device_of
from lightning_cse.similarity import is_same

SIDES: Final = {1: ("sentence",), 2: ("premise", "hypothesis")}
IMPLICITNESS: Final = {1: ("implicitness",), 2: ("implicitness_premise", "implicitness_hypothesis")}
ENTAILMENT: Final = ("entailment", "entailment_reversed", "lead", "direction")


@torch.no_grad()
def answers(model: Any, *sides: Embedding) -> dict[str, np.ndarray]:
    """Return the columns that a model gives for sentences, or for premises and hypotheses, row by row.

    ``lead`` is ``entailment`` - ``entailment_reversed``, or the model's own ``direction``; the column ``direction`` is
    the sign of ``lead``.
    """

    def ask(question: str, *embeddings: Embedding) -> np.ndarray:
        return np.asarray(getattr(model, question)(*embeddings).double()) + 0.0  # without -0

    found: dict[str, np.ndarray] = {}
    if len(sides) == 2:
        if hasattr(model, "similarity"):
            found["similarity"] = ask("similarity", *sides)
        if hasattr(model, "entailment_score"):
            found["entailment"] = ask("entailment_score", *sides)
            found["entailment_reversed"] = ask("entailment_score", *reversed(sides))
            found["lead"] = found["entailment"] - found["entailment_reversed"]
        if hasattr(model, "direction"):
            found["lead"] = ask("direction", *sides)
        if "lead" in found:
            signs = np.sign(np.nan_to_num(found["lead"])).astype(int)
            found["direction"] = np.array(["tie", "forward", "backward"])[signs]
    if hasattr(model, "implicitness"):
        found |= {
            name: ask("implicitness", side)
            for name, side in zip(IMPLICITNESS[len(sides)], sides, strict=True)
        }
    return found


def columns_of(model: Any, sides: int) -> tuple[list[str], list[str]]:
    """Return the columns that a model gives for sentences or pairs, and those that are left out.

    Of an entailment score that is the same both ways, only ``entailment`` stays, and only if it is not the similarity.
    """
    like = model.embed(["a", "b"])
    columns = list(answers(model, *(like[:1], like[1:])[:sides]))
    if "entailment" in columns and is_same(
        model.entailment_score, swapped(model.entailment_score), like
    ):
        repeated = {"entailment_reversed"} if hasattr(model, "direction") else set(ENTAILMENT[1:])
        if "similarity" in columns and is_same(model.entailment_score, model.similarity, like):
            repeated.add("entailment")
        columns = [column for column in columns if column not in repeated]
    known = [*(("similarity", *ENTAILMENT) if sides == 2 else ()), *IMPLICITNESS[sides]]
    if not columns:
        raise TaskError(
            f"{type(model).__name__} gives no {' and no '.join(known)}; give pairs, or another model"
        )
    return columns, [column for column in known if column not in columns]


def run(options: Namespace) -> None:
    """Score the input of a command line; messages go to standard error."""
    layout = options.input_format or layout_of(
        options.input, "tsv"
    )  # a text is a TSV file of one column
    frames = read_frames(
        options.input, layout, columns=options.columns, most=2, at_once=options.batch_size
    )
    first = next(frames)
    sides, device = SIDES[len(first.columns)], device_of(options.device)
    loaded = None if options.model == LENGTH else load_model(options.model, pooling=options.pooling)
    model = Length() if loaded is None else loaded.answers.to(device)
    columns, missing = columns_of(model, len(sides))
    if missing:
        _say(
            f"left out, since {options.model} does not give them or they are symmetric: {', '.join(missing)}"
        )
    if layout in ("csv", "jsonl"):
        _say(
            ", ".join(
                f"{side} = {column}" for side, column in zip(sides, first.columns, strict=True)
            )
        )
    rows = empty = cut = 0
    try:
        with _output(options.output) as sink, progress() as bar:
            task = bar.add_task("rows", total=None)
            for frame in itertools.chain([first], frames):
                whole = (frame != "").all(axis=1)
                frame, empty = (
                    frame[whole].set_axis(list(sides), axis=1),
                    empty + int((~whole).sum()),
                )
                if frame.empty:
                    continue
                distinct = list(dict.fromkeys(frame.to_numpy().ravel()))
                if loaded is not None:
                    cut += sum(len(ids) > loaded.room for ids in loaded.encoder.tokenizer(distinct))
                with torch.autocast(
                    device.type, torch.bfloat16, enabled=options.precision == "bf16-mixed"
                ):
                    embedded = Embedded(model, distinct)
                found = answers(model, *(embedded[frame[side].tolist()] for side in sides))
                scored = frame.assign(**{name: found[name] for name in columns})
                finite = np.isfinite(scored.select_dtypes("number")).all(axis=1)
                if not finite.all():
                    raise LightningCSEError(
                        f"{options.input}:{finite.idxmin()}: a score of the model is not finite"
                    )
                sink.write(
                    _text(
                        scored.rename_axis("line").reset_index(), options.format, header=not rows
                    ).encode()
                )
                sink.flush()
                rows += len(frame)
                bar.update(task, completed=rows)
            if not rows:
                raise DataError(f"{options.input}: no row can be scored: each has an empty cell")
    except KeyboardInterrupt as error:
        signum = getattr(error, "signum", signal.SIGINT)
        raise Interrupted(
            f"interrupted after {rows:,} rows; a file is written only at the end", signum
        ) from None
    _say(
        f"{rows:,} rows scored, {empty:,} with an empty cell left out, {cut:,} sentences cut to the maximum length"
    )


def _text(scored: pd.DataFrame, layout: str, *, header: bool) -> str:
    if layout == "csv":
        return str(
            scored.to_csv(index=False, header=header, float_format="%.6g", lineterminator="\n")
        )
    rounded = scored.map(lambda cell: float(f"{cell:.6g}") if isinstance(cell, float) else cell)
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rounded.to_dict("records"))


def _output(path: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """Open standard output, a pipe or device, or a file that is replaced when all is written."""
    target = Path(path).expanduser()
    if path == "-":
        return contextlib.nullcontext(sys.stdout.buffer)
    return target.open("wb") if target.exists() and not target.is_file() else atomic_file(target)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
