"""From sentences or pairs to a table of what a model says of them, chunk by chunk: a file may be longer than memory."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import itertools
import json
import math
import os
import secrets
import shutil
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from lightning_cse.engine.load import LENGTH, check_device, check_model
from lightning_cse.errors import DataError, LightningCSEError, TaskError

__all__ = ["Input", "Request", "Row", "Scorer", "Tally", "layout_of", "run", "score"]

Value = float | int | str
Layout = Literal["auto", "text", "tsv", "csv", "jsonl"]

_WINDOWS: Final = "\ufeff"  # the mark that some programs put before the first letter
_DIGITS: Final = 6
_MOST_OF_A_CELL: Final = 2**17  # characters; a quote that is never closed takes no more of a CSV file into memory
_ASKED: Final = {
    "sentence": ("implicitness",),
    "pair": ("similarity", "entailment_score", "direction", "implicitness"),
}
"""What is asked of a model, by the kind of a row."""


# ------------------------------------------------------------------------------------------------------- what is read


@dataclass(frozen=True)
class Row:
    """A sentence, or a premise and a hypothesis, and the line of the input that it begins in."""

    line: int
    texts: tuple[str, ...]


@dataclass(frozen=True)
class _Bad:
    """A row that cannot be scored, and why."""

    line: int
    why: str


_Found = Iterator[Row | _Bad]
_Columns = tuple[str, ...]


class Input:
    """The rows of an input, read as they are asked for.

    Layouts: ``text`` has a sentence a line; ``tsv`` columns divided by tabs, with a header only if ``columns`` are
    named; ``csv`` has a header; ``jsonl`` an object a line. ``auto`` is ``tsv`` if there is a tab in the first line,
    else ``text``. Outer white space of a sentence is removed.

    Attributes:
        kind: ``sentence`` or ``pair``.
        columns: the names of the columns that are read.
        skipped: how many bad rows were left out so far.

    Args:
        stream: the bytes, UTF-8.
        name: what to call it in messages.
        layout: as above.
        columns: the names of one column (sentences) or two (premise and hypothesis); without them the first two, or
            the only one.
        skip_bad: whether bad rows are left out and counted: empty ones, and those with a wrong number of columns.

    Raises:
        DataError: if there is no row, or a column is not there; while it is read, at the first bad row, and where the
            input is not UTF-8 text.
    """

    def __init__(
        self,
        stream: BinaryIO,
        name: str,
        *,
        layout: Layout = "auto",
        columns: Sequence[str] = (),
        skip_bad: bool = False,
    ) -> None:
        self.name = name
        self.skipped = 0
        self._skip_bad = skip_bad
        lines = _decoded(stream, name)
        first = next(lines, None)
        if first is None:
            raise DataError(f"{name}: is empty, so there is nothing to score")
        auto = layout == "auto"
        chosen = ("tsv" if "\t" in first else "text") if auto else layout
        if chosen == "text" and columns:
            raise DataError(
                f"{name}: a sentence a line has no columns, and --columns names {', '.join(columns)}; give "
                "--input-format tsv, csv or jsonl"
            )
        whole = itertools.chain((first,), lines)
        self.columns, self._found = _LAYOUTS[chosen](whole, name, tuple(columns), auto)
        self.kind = "sentence" if len(self.columns) == 1 else "pair"

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in order."""
        for found in self._found:
            if isinstance(found, Row):
                yield found
            elif self._skip_bad:
                self.skipped += 1
            else:
                raise DataError(f"{self.name}:{found.line}: {found.why}; mend it, or leave such rows out: --skip-bad")


def layout_of(path: str) -> Layout:
    """Return the layout that the ending of a file's name says, ``.gz`` behind it or not.

    Example:
        >>> layout_of("pairs.csv.gz"), layout_of("sentences.txt")
        ('csv', 'auto')
    """
    ending = Path(path.removesuffix(".gz")).suffix
    known: dict[str, Layout] = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl"}
    return known.get(ending, "auto")


def _decoded(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of a stream with their ends."""
    for number in itertools.count(1):
        try:
            raw = stream.readline()
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{name}:{number}: the compressed data is cut off or broken here: {error}") from None
        except OSError as error:
            raise DataError(f"{name}:{number}: cannot be read: {error.strerror or error}") from None
        if not raw:
            return
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = raw[error.start]
            raise DataError(f"{name}:{number}: not UTF-8 text (byte 0x{byte:02x}); save the file as UTF-8") from None
        if "\0" in text:
            raise DataError(f"{name}:{number}: a zero byte; save the file as UTF-8 text")
        yield text.removeprefix(_WINDOWS) if number == 1 else text


def _read_text(lines: Iterable[str], name: str, columns: tuple[str, ...], auto: bool) -> tuple[_Columns, _Found]:
    def rows() -> _Found:
        for number, line in enumerate(lines, 1):
            if auto and "\t" in line:
                yield _Bad(number, "has a tab and so several columns, where the first line has one")
            else:
                yield _row(number, [line], ("line",), (0,))

    return ("line",), rows()


def _read_tsv(lines: Iterable[str], name: str, columns: tuple[str, ...], auto: bool) -> tuple[_Columns, _Found]:
    cells = ((number, line.rstrip("\r\n").split("\t")) for number, line in enumerate(lines, 1))
    number, first = next(cells)
    if columns:
        header, places = first, _places(first, columns, name)
    else:
        header = [f"column {place}" for place in range(1, len(first) + 1)]
        places = tuple(range(min(2, len(first))))
        cells = itertools.chain(((number, first),), cells)  # type: ignore[assignment]  # iterated as before
    chosen = tuple(header[place] for place in places)
    return chosen, (_row(number, found, header, places) for number, found in cells)


def _read_csv(lines: Iterable[str], name: str, columns: tuple[str, ...], auto: bool) -> tuple[_Columns, _Found]:
    reader = csv.reader(lines, strict=True)

    def records() -> Iterator[tuple[int, list[str] | str]]:
        while True:
            line = reader.line_num + 1
            before = csv.field_size_limit(_MOST_OF_A_CELL)  # of the whole process, where others may read longer ones
            record: list[str] | str
            try:
                record = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                record = f"cannot be read as CSV: {error}"
            finally:
                csv.field_size_limit(before)
            yield line, record

    found = records()
    line, header = next(found)
    if isinstance(header, str):
        raise DataError(f"{name}:{line}: {header}")
    header = [cell.strip() for cell in header]
    if not any(header):
        raise DataError(f"{name}:{line}: is no header; the first line of a CSV file names its columns")
    places = _places(header, columns or tuple(header[:2]), name)
    return tuple(header[place] for place in places), (
        _Bad(line, cells) if isinstance(cells, str) else _row(line, cells, header, places) for line, cells in found
    )


def _read_jsonl(lines: Iterable[str], name: str, columns: tuple[str, ...], auto: bool) -> tuple[_Columns, _Found]:
    found = (_object(number, line) for number, line in enumerate(lines, 1))
    first = next(found)
    if isinstance(first, _Bad):  # even where bad rows are left out: nothing else says what the keys are
        raise DataError(f"{name}:{first.line}: {first.why}")
    header = tuple(first[1])
    keys = tuple(header[place] for place in _places(header, columns or header[:2], name))

    def rows() -> _Found:
        for one in itertools.chain((first,), found):
            if isinstance(one, _Bad):
                yield one
                continue
            number, values = one
            wrong = [key for key in keys if not isinstance(values.get(key), str)]
            if wrong:
                what = "is missing" if wrong[0] not in values else f"is {json.dumps(values[wrong[0]])[:40]}, not text"
                yield _Bad(number, f"{wrong[0]!r} {what}")
            else:
                yield _row(number, [values[key] for key in keys], keys, tuple(range(len(keys))))

    return keys, rows()


def _object(number: int, line: str) -> tuple[int, dict[str, Any]] | _Bad:
    if not line.strip():
        return _Bad(number, "is empty")
    try:
        value = json.loads(line)
    except ValueError as error:
        return _Bad(number, f"is no JSON: {error}")
    return (number, value) if isinstance(value, dict) and value else _Bad(number, "is no JSON object with keys")


_LAYOUTS: Final[dict[str, Callable[[Iterable[str], str, tuple[str, ...], bool], tuple[_Columns, _Found]]]] = {
    "text": _read_text,
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
}


def _places(header: Sequence[str], columns: Sequence[str], name: str) -> tuple[int, ...]:
    missing = [column for column in columns if column not in header]
    if missing:
        raise DataError(
            f"{name}: there is no column {', '.join(map(repr, missing))} (--columns); there are: {', '.join(header)}"
        )
    return tuple(header.index(column) for column in columns)


def _row(line: int, cells: Sequence[str], header: Sequence[str], places: Sequence[int]) -> Row | _Bad:
    texts = [cell.strip() for cell in cells]
    if not any(texts):
        return _Bad(line, "is empty")
    if len(cells) != len(header):
        return _Bad(line, f"has {len(cells)} columns, where the first line has {len(header)}")
    empty = [header[place] for place in places if not texts[place]]
    if empty:
        return _Bad(line, f"{empty[0]!r} is empty")
    return Row(line, tuple(texts[place] for place in places))


# ------------------------------------------------------------------------------------------------------- what is said


class Scorer:
    """What a model says of sentences or of pairs, each distinct sentence of a chunk embedded once, without dropout.

    Columns of a sentence: ``implicitness``. Columns of a pair, as far as the model answers: ``similarity``;
    ``entailment``, the score of premise → hypothesis, and ``entailment_reversed``, that of hypothesis → premise;
    ``lead``, the one minus the other (of a model that gives the direction outright, what it gives), and ``direction``,
    its sign: ``forward`` if the premise rather entails the hypothesis, ``backward``, or ``tie``;
    ``implicitness_premise`` and ``implicitness_hypothesis``. A score of entailment that is the same both ways says
    nothing of a direction: only ``entailment`` is left of it, and not that where it is the similarity.

    Attributes:
        columns: the names of what is said.
        unanswered: the questions that this kind of row is asked and the model does not answer.
        left_out: the same for users: a line for each reason why columns are not there.
        cut: how many sentences, each counted once a chunk, were longer than the model reads; ``embedded`` is of how
            many.

    Args:
        model: a run's folder, an encoder as in `load_model`, or ``length``.
        kind: ``sentence`` or ``pair``.
        precision: ``32-true`` or ``bf16-mixed``, of the encoder; scores are computed in float32.
        device: ``auto``, ``cpu``, ``gpu``, ``cuda`` or ``mps``.

    Raises:
        TaskError: if the model answers nothing that can be asked of such rows.
        ConfigError: if the device is not there.
        EncoderError: as `load_model`.
    """

    def __init__(self, model: str, kind: str, *, precision: str = "32-true", device: str = "auto") -> None:
        check_device(device)

        from lightning_cse.baselines import Length
        from lightning_cse.evaluation.task import QUESTIONS
        from lightning_cse.runs.machine import device_of

        self._answers: Any
        self._tokenizer, self._room = None, 0
        self._device = device_of(device)
        self._half = precision == "bf16-mixed"
        if model == LENGTH:
            self._answers, self.name = Length(), model
        else:
            from lightning_cse.engine.load import load_model  # heavy, and LENGTH does without

            loaded = load_model(model)
            loaded.answers.to(self._device)
            self._answers, self.name = loaded.answers, loaded.name
            self._tokenizer, self._room = loaded.encoder.tokenizer, loaded.room
        self.kind = kind
        self.cut = self.embedded = 0
        answered = {question for question in QUESTIONS if hasattr(self._answers, question)}
        known = answered | ({"direction"} if "entailment_score" in answered else set())
        self.unanswered = [question for question in _ASKED[kind] if question not in known]
        if len(self.unanswered) == len(_ASKED[kind]):
            asked, answers = " or ".join(self.unanswered), ", ".join(sorted(answered))
            pairs = " Give pairs (two columns)." if kind == "sentence" and answered & set(_ASKED["pair"]) else ""
            raise TaskError(
                f"{self.name} ({type(self._answers).__name__}) gives no {asked} of a {kind}; "
                f"it answers: {answers or 'nothing'}.{pairs}"
            )
        self.left_out: list[str] = []
        if self.unanswered:
            self.left_out.append(f"{self.name} gives no {' and no '.join(self.unanswered)}: these columns are left out")
        without = self._said_twice(answered) if kind == "pair" else set()
        self._parts = list(_parts(self._answers, kind, known, without))
        self.columns: tuple[str, ...] = tuple(column for part in self._parts for column in part.columns)

    def _said_twice(self, answered: Collection[str]) -> set[str]:
        """Return the columns of entailment that other columns say too, and note why they are left out."""
        if "entailment_score" not in answered:
            return set()
        import torch

        from lightning_cse.analysis.searching import drawn_like, is_same_both_ways

        with torch.no_grad():
            like = self._answers.embed(["a"])
            if not is_same_both_ways(self._answers.entailment_score, like):
                return set()
            pair = drawn_like(like)
            is_similarity = "similarity" in answered and torch.allclose(
                self._answers.entailment_score(*pair), self._answers.similarity(*pair), rtol=1e-5, atol=1e-9
            )
        without = ["entailment"] if is_similarity else []
        without += ["entailment_reversed"] if "direction" in answered else ["entailment_reversed", "lead", "direction"]
        self.left_out.append(
            f"the entailment score of {self.name} ({type(self._answers).__name__}) is the same both ways"
            f"{', and is its similarity' if is_similarity else ''}: {', '.join(without)} are left out"
        )
        return set(without)

    def __call__(self, rows: Sequence[Row]) -> list[tuple[Value, ...]]:
        """Return the cells of ``columns`` of each row.

        Raises:
            LightningCSEError: if a score is not a finite number, naming its line as ``line 3``.
        """
        import torch

        from lightning_cse.evaluation.task import Embedded

        distinct = list(dict.fromkeys(text for row in rows for text in row.texts))
        self.embedded += len(distinct)
        if self._tokenizer is not None:
            self.cut += sum(len(ids) > self._room for ids in self._tokenizer(distinct))
        with torch.no_grad():
            with torch.autocast(self._device.type, torch.bfloat16, enabled=self._half):
                embedded = Embedded(self._answers, distinct)
            sides = [embedded[[row.texts[place] for row in rows]] for place in range(len(rows[0].texts))]
            columns = [column for part in self._parts for column in part.values(*sides)]
        for name, column in zip(self.columns, columns, strict=True):
            for row, value in zip(rows, column, strict=True):
                if isinstance(value, float) and not math.isfinite(value):
                    advice = ": use --precision 32-true" if self._half else ""
                    raise LightningCSEError(f"line {row.line}: the {name} of {self.name} is no finite number{advice}")
        return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class _Part:
    """Columns that are made of one question, and their values from the embeddings of a row's one or two sides."""

    columns: tuple[str, ...]
    values: Callable[..., Sequence[Sequence[Value]]]


def _parts(answers: Any, kind: str, known: Collection[str], without: Collection[str]) -> Iterator[_Part]:
    def numbers(question: str, *embeddings: Any) -> list[float]:
        return [float(value) + 0.0 for value in getattr(answers, question)(*embeddings).double().tolist()]

    def direction(premise: Any, hypothesis: Any) -> Sequence[Sequence[Value]]:
        if hasattr(answers, "direction"):
            lead = numbers("direction", premise, hypothesis)
        else:
            there, back = (
                numbers("entailment_score", *pair) for pair in ((premise, hypothesis), (hypothesis, premise))
            )
            lead = [one - other for one, other in zip(there, back, strict=True)]
        return lead, ["forward" if value > 0 else "backward" if value < 0 else "tie" for value in lead]

    def both_ways(premise: Any, hypothesis: Any) -> Sequence[Sequence[Value]]:
        return numbers("entailment_score", premise, hypothesis), numbers("entailment_score", hypothesis, premise)

    def one_way(premise: Any, hypothesis: Any) -> Sequence[Sequence[Value]]:
        return [numbers("entailment_score", premise, hypothesis)]

    def implicitness(*sides: Any) -> Sequence[Sequence[Value]]:
        return [numbers("implicitness", side) for side in sides]

    one = ("implicitness",) if kind == "sentence" else ("implicitness_premise", "implicitness_hypothesis")
    parts = {
        "similarity": _Part(("similarity",), lambda *sides: [numbers("similarity", *sides)]),
        "entailment_score": _Part(("entailment",), one_way)
        if "entailment_reversed" in without
        else _Part(("entailment", "entailment_reversed"), both_ways),
        "direction": _Part(("lead", "direction"), direction),
        "implicitness": _Part(one, implicitness),
    }
    asked = (parts[question] for question in _ASKED[kind] if question in known)
    return (part for part in asked if not set(part.columns) <= set(without))


# ---------------------------------------------------------------------------------------------------- what is written


@dataclass
class Tally:
    """How much was scored: rows, and chunks of them."""

    rows: int = 0
    chunks: int = 0


def score(
    source: Input,
    scorer: Scorer,
    sink: BinaryIO,
    *,
    layout: str = "csv",
    at_once: int = 1024,
    told: Callable[[int], None] = lambda rows: None,
) -> Tally:
    """Score an input chunk by chunk and write each chunk, whole lines of it, before the next is read.

    A row of the output has ``line`` (of the input), ``sentence``, or ``premise`` and ``hypothesis``, and the scorer's
    columns, numbers with six significant digits. What stands before a bad row is written before that is told, and an
    interrupt is heard between two chunks.

    Args:
        source: the rows.
        scorer: the model.
        sink: where to write.
        layout: ``csv``, with a header, or ``jsonl``.
        at_once: rows of a chunk.
        told: is given the number of rows of every chunk that is written, before an interrupt is heard.

    Raises:
        DataError: as `Input`.
        LightningCSEError: if a score is not a finite number.
    """
    tally = Tally()
    names = ("line", *(("sentence",) if source.kind == "sentence" else ("premise", "hypothesis")), *scorer.columns)
    for chunk in _chunks(source, at_once):
        try:
            cells = scorer(chunk)
        except LightningCSEError as error:
            raise LightningCSEError(f"{source.name}: {error}") from error
        rows = [(row.line, *row.texts, *values) for row, values in zip(chunk, cells, strict=True)]
        text = FORMATS[layout](names, rows, header=not tally.chunks)
        with _unbroken():
            sink.write(text.encode("utf-8"))
            sink.flush()
            tally.rows += len(rows)
            tally.chunks += 1
            told(len(rows))
    return tally


def _chunks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    try:
        for row in rows:
            chunk.append(row)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except LightningCSEError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _as_csv(names: Sequence[str], rows: Sequence[Sequence[Value]], *, header: bool) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    if header:
        writer.writerow(names)
    writer.writerows([f"{cell:.{_DIGITS}g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    return sink.getvalue()


def _as_jsonl(names: Sequence[str], rows: Sequence[Sequence[Value]], *, header: bool) -> str:
    return "".join(
        json.dumps(
            {
                name: float(f"{cell:.{_DIGITS}g}") if isinstance(cell, float) else cell
                for name, cell in zip(names, row, strict=True)
            },
            ensure_ascii=False,
            allow_nan=False,
        )
        + "\n"
        for row in rows
    )


FORMATS: Final[dict[str, Callable[..., str]]] = {"csv": _as_csv, "jsonl": _as_jsonl}


@contextmanager
def _unbroken() -> Iterator[None]:
    """Hear the first Ctrl-C only after the block, so that no line is cut; a second one ends it at once."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    heard: list[int] = []

    def hear(number: int, frame: object) -> None:
        if heard:
            raise KeyboardInterrupt
        heard.append(number)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


# -------------------------------------------------------------------------------------------------------- the command


@dataclass(frozen=True)
class Request:
    """What the command line asks for; ``input`` and ``output`` are paths, or ``-`` for standard input and output."""

    model: str
    input: str
    output: str
    input_format: Layout
    format: str
    columns: tuple[str, ...]
    skip_bad: bool
    precision: str
    batch_size: int
    device: str


def run(request: Request) -> None:
    """Do what a command line asks for; what is to be said beside the scores goes to standard error.

    The input's first row, the place of the output and the model's name are looked at before anything is loaded. A file
    gets its name when all rows are written: until then, and if that never is, what was there stays as it is.

    Raises:
        LightningCSEError: for whatever is the user's to mend.
        KeyboardInterrupt: if it is interrupted; once rows are scored, with how many of them are written, and where.
    """
    _check(request)
    with ExitStack() as opened:
        source, raw = _open_source(request, opened)
        scorer = Scorer(request.model, source.kind, precision=request.precision, device=request.device)
        for line in scorer.left_out:
            _say(line)
        written = 0

        def count(rows: int) -> None:
            nonlocal written
            written += rows
            show(rows)

        try:
            shown = request.output != "-" or not sys.stdout.isatty()
            with _output(request.output) as sink, _progress(raw, shown=shown) as show:
                score(source, scorer, sink, layout=request.format, at_once=request.batch_size, told=count)
                if not written:
                    raise DataError(f"{source.name}: has no row that can be scored")
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_interrupted(written, request.output)) from None
        except _OutputError:
            raise
        except LightningCSEError:
            if written and request.output != "-":
                _say(f"{_rows(written)} before the fault, written to {_kept_at(request.output)}")
            raise
        finally:
            if source.skipped:
                _say(f"{source.name}: {source.skipped} bad rows were left out")
            if scorer.cut:
                _say(f"{scorer.cut} of {scorer.embedded} sentences are longer than {scorer.name} reads and were cut")
    if request.output != "-":
        _say(f"{_rows(written)} -> {request.output}")


def _check(request: Request) -> None:
    """Raise what can be said of a request before anything is read or loaded."""
    if "-" not in (request.input, request.output) and _same(request.input, request.output):
        raise DataError(f"--output: {request.output} is the input itself; give another file")
    if request.output != "-" and (fault := _fault_of(Path(request.output).expanduser())):
        raise _OutputError(f"--output: {request.output} cannot be written: {os.strerror(fault)}")
    if request.model != LENGTH:
        check_model(request.model)


def _interrupted(written: int, output: str) -> str:
    if not written:
        return "interrupted after 0 rows, nothing is written"
    return f"interrupted after {_rows(written)}, written to {_kept_at(output)}"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _same(one: str, other: str) -> bool:
    paths = [Path(path).expanduser() for path in (one, other)]
    return all(path.exists() for path in paths) and paths[0].samefile(paths[1])


def _open_source(request: Request, opened: ExitStack) -> tuple[Input, BinaryIO | None]:
    """Return the rows to score, of which the first is read, and the file as `_open_input` does; tell their columns."""
    stream, raw = _open_input(request.input, opened)
    name = "standard input" if request.input == "-" else request.input
    layout = request.input_format if request.input_format != "auto" else layout_of(request.input)
    source = Input(stream, name, layout=layout, columns=request.columns, skip_bad=request.skip_bad)
    if layout in ("csv", "jsonl") and not request.columns:
        roles = ("sentence",) if source.kind == "sentence" else ("premise", "hypothesis")
        chosen = (f"{role} = {column}" for role, column in zip(roles, source.columns, strict=True))
        _say(f"{', '.join(chosen)} (--columns chooses)")
    return source, raw


def _open_input(path: str, opened: ExitStack) -> tuple[BinaryIO, BinaryIO | None]:
    """Return the bytes to read, and the file whose size and place say how far that is; None for standard input."""
    if path == "-":
        return sys.stdin.buffer, None
    file = Path(path).expanduser()
    try:
        raw = opened.enter_context(file.open("rb"))
    except FileNotFoundError:
        raise DataError(f"--input: there is no file {file.absolute()}") from None
    except OSError as error:
        raise DataError(f"--input: {file} cannot be read: {error.strerror}") from None
    if file.suffix != ".gz":
        return raw, raw
    return opened.enter_context(io.BufferedReader(gzip.GzipFile(fileobj=raw))), raw


class _OutputError(LightningCSEError):
    """The output cannot be written; of a file nothing is kept, and what was there is as it was."""


def _fault_of(target: Path) -> int:
    """Return the number of the system's error that opening an output would meet; 0 where none is to be seen."""
    if target.is_dir():
        return errno.EISDIR
    needed = [target] if target.exists() else []
    if not _takes_as_they_come(target):
        needed.append(folder := _real(target).parent)
        if not folder.is_dir():
            return errno.ENOTDIR if folder.exists() else errno.ENOENT
    return 0 if all(os.access(place, os.W_OK) for place in needed) else errno.EACCES


def _real(target: Path) -> Path:
    """Return the file itself where the path is a link, which stays one."""
    return Path(os.path.realpath(target))


def _takes_as_they_come(target: Path) -> bool:
    """Tell whether rows are written to what is there, a pipe or a device, and not to a file that takes its name."""
    return target.exists() and not target.is_file()


def _partial(target: Path) -> Path:
    return target.with_name(f"{target.name}.partial")


def _kept_at(path: str) -> str:
    """Return where the rows stand that were written when the end came early."""
    if path == "-":
        return "standard output"
    target = Path(path).expanduser()
    return path if _takes_as_they_come(target) else f"{_partial(_real(target))}; {path} is as it was"


@contextmanager
def _output(path: str) -> Iterator[BinaryIO]:
    """Give what to write to, and tell a disk that is full in one line."""
    target = Path(path).expanduser()
    try:
        if path == "-":
            yield sys.stdout.buffer
        elif _takes_as_they_come(target):
            with target.open("wb") as sink:
                yield sink
        else:
            with _beside(_real(target)) as sink:
                yield sink
    except BrokenPipeError:
        raise
    except OSError as error:
        if path == "-":  # else what could not be written is tried once more when the process ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = "standard output" if path == "-" else path
        raise _OutputError(f"--output: {where} cannot be written: {error.strerror or error}") from None


@contextmanager
def _beside(target: Path) -> Iterator[BinaryIO]:
    """Give a file that takes the name ``target`` at the end of the block, or that of `_partial` if it is left early.

    Nothing is left of a file that is empty or could not be written.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as sink:
            if target.exists():  # the new one is no more open to others than the old
                shutil.copymode(target, temporary)
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    except BaseException:
        if temporary.stat().st_size:
            temporary.replace(_partial(target))
        else:
            temporary.unlink()
        raise


@contextmanager
def _progress(raw: BinaryIO | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Show in a terminal how many rows are written, and of a file how far it is read."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.fields[rows]} rows"), BarColumn(), TimeRemainingColumn())
    size = None if raw is None or not raw.seekable() else Path(raw.name).stat().st_size
    disable = not (shown and sys.stderr.isatty())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=disable) as progress:
        task = progress.add_task("", total=size, rows=0)
        rows = 0

        def told(count: int) -> None:
            nonlocal rows
            rows += count
            place = raw.tell() if raw is not None and size is not None else None
            progress.update(task, rows=rows, completed=place)

        yield told
