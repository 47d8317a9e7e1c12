"""The user's own files as tables of one layout: CSV, TSV, JSON lines, Parquet, text, `datasets` folders, the hub."""

import glob
import hashlib
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset

from lightning_cse.data.columns import HYPOTHESES, canonical, layout_of, negatives, recognise
from lightning_cse.data.corpora import CORPORA, decoded, offline_mode, read_bytes
from lightning_cse.data.parsers import NLI_LABELS, READERS, Row, account, columns_of, listed, quoted
from lightning_cse.data.rows import Rows, SourceFile
from lightning_cse.errors import ConfigError, DataError, did_you_mean

HUB: Final = "hub:"
SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".parquet", ".txt")  # each also followed by ``.gz``
FORMS: Final = f"a file of your own ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, optionally followed by .gz"
LABELS: Final = {label: label for label in (*NLI_LABELS, "not_entailment")} | {
    1: "1",
    "1": "1",
    0: "0",
    "0": "0",
}
AT_ONCE: Final = 50_000  # rows that are held as Python objects at a time

log = logging.getLogger(__name__)


def is_own(name: str) -> bool:
    """Return whether a name means the user's own file, folder or data set, and not ``corpus/split``."""
    if name.startswith(HUB) or name.removesuffix(".gz").endswith(SUFFIXES):
        return True
    return name.partition("/")[0] not in CORPORA and (
        glob.has_magic(name) or Path(name).expanduser().is_dir()
    )


def read_table(
    sources: str | Sequence[str],
    *,
    columns: Mapping[str, str] | None = None,
    key: str,
    takes: str = "",
) -> Rows:
    """Read the user's own files into one table with the columns of one of `columns.LAYOUTS`.

    A source is a path (relative to the working directory), a glob, a folder that `datasets` saved, or
    ``hub:user/name[/config][:split]`` (by default the split ``train``). ``columns`` maps our names to columns of the
    files, besides those that are recognised. Several hard negatives per row become ``negative``, ``negative_2``, ...,
    with null where a row has fewer. Error messages begin with ``key``, the config key of the sources; the key of
    ``columns`` is ``data.columns`` or ``own.columns``. ``takes`` says, for messages, which columns the method takes.
    """
    names = [sources] if isinstance(sources, str) else [str(source) for source in sources]
    has_mapping = key in ("data.train", "data.held_out") or key.startswith("own.")
    mapped_by = f"{key.partition('.')[0]}.columns" if has_mapping else ""
    if not isinstance(columns, Mapping | None):
        raise ConfigError(
            [f"{mapped_by}: must map roles to columns, as {{anchor: question}}, got {columns!r}"]
        )
    mapping = (
        None if columns is None else {str(ours): str(column) for ours, column in columns.items()}
    )
    tables: list[Rows] = []
    try:
        for path in itertools.chain.from_iterable(map(_paths, names)):
            tables.append(_read(path, mapping, mapped_by, takes))
            if (
                len({frozenset(table.names) - set(negatives(table.names)[1:]) for table in tables})
                > 1
            ):
                one, other = (
                    f"{table.origin} has {listed(table.names)}" for table in (tables[0], tables[-1])
                )
                raise DataError(
                    f"files that are read together need the same columns: {one}; {other}"
                )
    except DataError as error:
        raise DataError(f"{key}: {error}") from None
    if not tables:
        raise ConfigError([f"{key}: names no file; {FORMS}"])
    return tables[0] if len(tables) == 1 else Rows.cat(tables, fill=True)


def _paths(name: str) -> Iterator[str]:
    """Yield the files that a source names: itself, or those that a glob finds."""
    path = Path(name).expanduser()
    if name.startswith(HUB) or path.exists():
        yield name
    elif glob.has_magic(name) and (found := sorted(glob.glob(str(path), recursive=True))):  # noqa: PTH207 - of any path
        yield from found
    else:
        near = did_you_mean(path.name, [one.name for one in path.parent.glob("*")])
        start = f"relative paths start at the working directory, {Path.cwd()}"
        raise DataError(f"{path.absolute()}: there is no such file{near}; {start}")


def _read(name: str, mapping: Mapping[str, str] | None, key: str, takes: str) -> Rows:
    """Read one file, some rows at a time."""
    path = name if name.startswith(HUB) else str(Path(name).expanduser().absolute())
    rows, found, digest = _opened(path, set((mapping or {}).values()))
    names: dict[str, str] = {}
    parts: list[pa.Table] = []
    lines: list[int] = []
    dropped: Counter[str] = Counter()
    content = hashlib.sha256()

    def recognised() -> dict[str, str]:
        try:
            return recognise(list(found), mapping, key, takes)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    while some := list(itertools.islice(rows, AT_ONCE)):
        dropped.update(row for _, row in some if isinstance(row, str))
        if not (some := [(line, row) for line, row in some if isinstance(row, dict)]):
            continue
        new = dict.fromkeys(itertools.chain.from_iterable(row for _, row in some))
        if (
            not names or not new.keys() <= found.keys()
        ):  # later rows of JSON lines may have further columns
            found |= new
            names = recognised()
        values, at = _checked(some, names, path)
        parts.append(pa.table({ours: pa.array(cells) for ours, cells in values.items()}))
        lines += at
        if digest is None:
            content.update(json.dumps(values).encode())
    if not parts:
        if found:  # a data set without any known column has no rows left
            recognised()
        raise DataError(
            f"{path}: no rows{''.join(f', only {count} {reason}s' for reason, count in dropped.items())}"
        )
    if unused := [column for column in found if column not in names.values()]:
        log.info("%s: columns that are not used: %s", path, listed(unused))
    table = pa.concat_tables(parts, promote_options="default")
    for start, part in zip(itertools.accumulate(map(len, parts), initial=0), parts, strict=False):
        if lacking := set(table.column_names) - {
            *part.column_names,
            *_may_lack(table.column_names),
        }:
            raise DataError(
                f"{path}:{lines[start]}: no {', '.join(lacking)}, which other rows have"
            )
    source = SourceFile(name.removesuffix(".gz"), path, digest or content.hexdigest())
    columns = dict(zip(table.column_names, table.columns, strict=True))
    return Rows.of(columns, files=[source], lines=lines, counts=account(len(lines), dropped))


def _opened(
    path: str, mapped: Collection[str]
) -> tuple[Iterator[Row], dict[str, None], str | None]:
    """Return the rows of a file, the columns that are known beforehand, and the digest of its bytes, if any."""
    if path.startswith(HUB) or Path(path).is_dir():
        return *_dataset_rows(_dataset(path), mapped), None
    data, suffix = read_bytes(Path(path)), Path(path.removesuffix(".gz")).suffix
    digest = hashlib.sha256(data).hexdigest()
    if suffix == ".parquet":
        return *_dataset_rows(_dataset(path, data), mapped), digest
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: {FORMS}")
    text = decoded(data, path)
    if suffix == ".txt":
        return READERS["lines"](text, path, ["text"], blank="blank line"), {}, digest
    reader = {".csv": "csv", ".tsv": "quoted_tsv", ".jsonl": "json"}[suffix]
    if (
        reader == "json"
        and '"split"' in text[: text.find("\n")]
        and re.search(r'"split": *"aigen"', text)
    ):
        reader = "llm"  # LLM rows in the layout of NGCSE's authors
    return READERS[reader](text, path, []), {}, digest


def _dataset(path: str, data: bytes | None = None) -> Dataset:
    """Load a data set from the hub, from a folder, or from the bytes of a Parquet file."""
    identity, _, split = path.removeprefix(HUB).partition(":")
    parts = identity.split("/", 2)
    try:
        if data is not None:
            return Rows(pq.read_table(pa.BufferReader(data)))
        if path.startswith(HUB):
            return datasets.load_dataset("/".join(parts[:2]), *parts[2:], split=split or "train")
        found = datasets.load_from_disk(path)
    except Exception as error:  # noqa: BLE001 - the hub's client raises whatever its many layers raise
        offline = f"; {offline_mode()}" if path.startswith(HUB) and offline_mode() else ""
        why = f"{type(error).__name__}: {' '.join(str(error).split())}{offline}"
        raise DataError(f"{path}: cannot be loaded: {why}") from None
    if isinstance(found, datasets.DatasetDict):
        raise DataError(
            f"{path}: has several splits; choose one of: {', '.join(f'{path}/{split}' for split in found)}"
        )
    return found


def _dataset_rows(
    dataset: Dataset, mapped: Collection[str]
) -> tuple[Iterator[Row], dict[str, None]]:
    """Return the rows of a data set, with only the columns that may be meant, and the names of all its columns."""
    chosen = [name for name in dataset.column_names if canonical(name) or name in mapped]
    classes = {name: getattr(dataset.features[name], "names", None) for name in chosen}
    words = {name: dict(enumerate(names)) | {-1: "-"} for name, names in classes.items() if names}

    def rows() -> Iterator[Row]:
        numbers = itertools.count(1)
        for some in dataset.select_columns(chosen).with_format("arrow").iter(AT_ONCE):
            for row in some.to_pylist():
                yield (
                    next(numbers),
                    row | {name: known.get(row[name], row[name]) for name, known in words.items()},
                )

    return rows(), dict.fromkeys(dataset.column_names)


def _checked(
    some: Sequence[Row], names: Mapping[str, str], path: str
) -> tuple[dict[str, list[Any]], list[int]]:
    """Return the checked columns of some rows, and their lines; lists become columns or rows."""
    lists = [names[ours] for ours in ("positive", *negatives(names)) if ours in names]
    may_lack = _may_lack(names) if len(negatives(names)) > 1 else _may_lack(names) - {"negative"}
    if any(_is_list(row.get(column)) for _, row in some for column in lists):
        some = list(_unrolled(some, names, path))
        names = {
            ours: ours
            for ours in dict.fromkeys([*names, *(ours for _, row in some for ours in row)])
        }
        may_lack = _may_lack(names)
    kinds = {
        ours: "optional" if ours in may_lack else "score" if ours == "score" else "sentence"
        for ours in names
    }
    plan: dict[str, dict[str, Any]] = {ours: {kind: names[ours]} for ours, kind in kinds.items()}
    if "label" in names:
        plan["label"] = {"label": names["label"], "values": LABELS}
    empty = dict.fromkeys(names[ours] for ours in may_lack)
    some = [(line, row if row.keys() >= empty.keys() else empty | row) for line, row in some]
    values, lines, _ = columns_of(some, plan, path)
    if one_of := {names[ours]: values[ours] for ours in HYPOTHESES if ours in may_lack}:
        for line, *cells in zip(lines, *one_of.values(), strict=True):
            if not any(cells):
                raise DataError(f"{path}:{line}: no hypothesis: {', '.join(one_of)} empty")
    return values, lines


def _may_lack(names: Collection[str]) -> set[str]:
    """Return the columns whose cells may be empty: hypotheses of INLI, and hard negatives."""
    return {name for name in names if name in HYPOTHESES and layout_of(names) == "INLI"} | set(
        negatives(names)
    )


def _is_list(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell[:2] in ('["', "['", "[]") and cell.rstrip().endswith("]")
    return isinstance(cell, list)


def _unrolled(some: Iterable[Row], names: Mapping[str, str], path: str) -> Iterator[Row]:
    """Yield a row for each positive of a row, with all its hard negatives, under our names."""
    for line, row in some:
        cells = {ours: row.get(column) for ours, column in names.items()}
        try:
            wrong = [one for ours in negatives(names) for one in _items(cells.pop(ours))]
            right = _items(cells.pop("positive")) or [None]
        except ValueError as error:
            raise DataError(f"{path}:{line}: {error}") from None
        numbered = {
            f"negative_{k}" if k > 1 else "negative": one for k, one in enumerate(wrong, start=1)
        }
        yield from ((line, cells | {"positive": one} | numbered) for one in right)


def _items(cell: Any) -> list[Any]:
    if isinstance(cell, str) and _is_list(cell):
        try:
            cell = json.loads(cell)
        except ValueError:
            raise ValueError(f'{quoted(cell)} is not a JSON list, such as ["one", "two"]') from None
    return cell if isinstance(cell, list) else [] if cell in (None, "") else [cell]
