"""Fetches corpora and checks them: ``python -m lightning_cse.prepare inli``; without a name it lists what is known."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import os
import sys
import time
import urllib.parse
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_cse.data.corpora import CORPORA, Corpus, CorpusFile, get_corpus
from lightning_cse.data.readers import (
    DATA_DIR_VARIABLE,
    HubError,
    default_data_dir,
    fetch_hub,
    find_file,
    read_bytes,
    read_file,
)
from lightning_cse.errors import DataError, LightningCSEError

if TYPE_CHECKING:
    from requests import RequestException

ATTEMPTS = 4
FIRST_PAUSE = 0.5  # seconds before the second attempt; doubled each time
TIMEOUT = 30.0  # seconds without a byte


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 2 for what the user can mend."""
    arguments = _parser().parse_args(argv)
    folder: Path = (arguments.data_dir or default_data_dir()).expanduser().absolute()
    try:
        corpora = [get_corpus(name) for name in arguments.corpus]
        if not corpora:
            list_corpora(folder)
        for corpus in corpora:
            if arguments.check:
                check(corpus, folder)
            else:
                prepare(corpus, folder, source=arguments.source, force=arguments.force)
    except LightningCSEError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped; files that were finished are kept, run the same command to go on\n")
        return 130
    return 0


def list_corpora(folder: Path) -> None:
    """Say which corpora are known, where each is expected and whether it is there."""
    _echo(f"data directory: {folder} (--data-dir, else {DATA_DIR_VARIABLE}, else ./data)")
    for corpus in CORPORA.values():
        _echo(f"\n{corpus.name}: {corpus.title}; licence: {corpus.licence}")
        _echo(f"  python -m lightning_cse.prepare {corpus.name}: {corpus.prepare}")
        for file in corpus.files:
            path = find_file(folder, file)
            _echo(f"  {file.split}: {path or folder / file.path} {'is there' if path else 'is missing'}")


def check(corpus: Corpus, folder: Path) -> None:
    """Check every file of a corpus without fetching any.

    Raises:
        DataError: With one line for each file that is missing or not right.
    """
    faults = []
    for file in corpus.files:
        path = find_file(folder, file)
        fault = f"{folder / file.path}: missing" if path is None else _fault(corpus, file, path)
        if fault:
            faults.append(fault)
        else:
            _echo(f"{path}: right, {file.rows} rows")
    if faults:
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise DataError(f"corpus {corpus.name!r}: {len(faults)} of {len(corpus.files)} files are not right:{lines}")


def prepare(corpus: Corpus, folder: Path, *, source: str | None = None, force: bool = False) -> None:
    """Put the files of a corpus into the data directory; right ones that are there are kept.

    A file is fetched under a temporary name, checked, and renamed, so that one with its proper name is always whole.

    Args:
        corpus: What to fetch.
        folder: The data directory.
        source: A folder, or the base address of a mirror, in place of the official address.
        force: Whether to replace files that differ from the official ones.

    Raises:
        DataError: If a file cannot be had or is not the official one; nothing of it is kept then.
    """
    _echo(f"{corpus.title}; licence: {corpus.licence}")
    for file in corpus.files:
        there = find_file(folder, file)
        fault = None if there is None else _fault(corpus, file, there)
        if there is not None and fault is None:
            _echo(f"{there}: is there and right, {file.rows} rows")
            continue
        if fault is not None and not force:
            raise DataError(f"{fault}\n  it is left as it is; --force replaces it, or move it away")
        target = folder / file.path
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            origin = _fetch(corpus, file, part, source=source, target=target)
            fault = _fault(corpus, file, part, name=origin)
            if fault is not None:
                raise DataError(f"{fault}\n  nothing was kept of it")
            part.replace(target)
        except OSError as error:
            raise DataError(f"{target}: cannot be written: {error.strerror or error}") from None
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        _echo(f"{target}: fetched from {origin}, {file.rows} rows")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.prepare", description=__doc__)
    parser.add_argument("corpus", nargs="*", help=f"what to fetch: {', '.join(CORPORA)}; none: list them")
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"where to put the files (default: {DATA_DIR_VARIABLE}, else ./data)",
    )
    parser.add_argument(
        "--source", metavar="URL|DIR", help="a mirror or a folder with the official files, plain or .gz in a folder"
    )
    parser.add_argument("--check", action="store_true", help="only check the files that are there")
    parser.add_argument("--force", action="store_true", help="replace files that differ from the official ones")
    return parser


def _fault(corpus: Corpus, file: CorpusFile, path: Path, *, name: str | None = None) -> str | None:
    """Say what is wrong with a file, or return ``None``.

    The digest decides. Only a corpus without a plain official address may have another digest, as its hub copy lacks
    some columns: its rows are counted.
    """
    try:
        data = read_bytes(path)
        digest = hashlib.sha256(data).hexdigest()
        if digest == file.sha256:
            return None
        if corpus.sources:
            looks = ", and it is an HTML page" if data.lstrip()[:1] == b"<" else ""
            return (
                f"{name or path}: not the official file ({len(data)} bytes{looks}): "
                f"its sha256 is {digest}, expected {file.sha256}"
            )
        rows = len(read_file(corpus, file, path))
    except DataError as error:
        return str(error).replace(str(path), name or str(path))
    return None if rows == file.rows else f"{name or path}: {rows} rows, expected {file.rows}"


def _fetch(corpus: Corpus, file: CorpusFile, part: Path, *, source: str | None, target: Path) -> str:
    """Write one file, unchecked, to ``part`` and return where it came from."""
    if source is None and not corpus.sources:
        try:
            data, origin = fetch_hub(corpus, file)
        except HubError as error:
            raise DataError(f"{error}\n{_by_hand(corpus, file, target)}") from None
        part.write_bytes(data)
        return origin
    if source is not None and urllib.parse.urlsplit(source).scheme not in {"http", "https"}:
        return _copy(file, Path(source.removeprefix("file://")).expanduser().absolute(), part)
    bases = (source,) if source is not None else corpus.sources
    failures = []
    for base in bases:
        url = f"{base.rstrip('/')}/{file.remote}"
        failure = _download(url, part)
        if failure is None:
            return url
        failures.append(f"{url}: {failure}")
        if not failure.startswith("404 "):
            break
    lines = "".join(f"  {failure}\n" for failure in failures)
    raise DataError(f"{file.path} could not be downloaded\n{lines}{_by_hand(corpus, file, target)}")


def _copy(file: CorpusFile, folder: Path, part: Path) -> str:
    """Copy a file from a folder that has it by its own name or in the layout of a data directory."""
    names = [name for plain in (file.remote, file.path) for name in (plain, f"{plain}.gz")]
    for name in names:
        path = folder / name
        if path.is_file():
            part.write_bytes(read_bytes(path))
            return str(path)
    raise DataError(f"{folder}: {'has none of ' + ', '.join(names) if folder.is_dir() else 'is no folder'}")


def _download(url: str, part: Path) -> str | None:
    """Download to ``part``; return ``None``, or why it failed. Server errors and broken connections are tried again."""
    import requests

    pooch = importlib.import_module("pooch")
    bar = sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None
    fetch: Callable[..., object] = pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT)
    _echo(f"downloading {url}")
    pause = FIRST_PAUSE
    for attempt in range(1, ATTEMPTS + 1):
        try:
            fetch(url=url, output_file=str(part), pooch=None)
        except requests.HTTPError as error:
            status = 0 if error.response is None else error.response.status_code
            failure = str(error).partition(" for url")[0]
            again = status >= 500 or status == 429
        except requests.RequestException as error:
            failure = _reason(error)
            broken = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
            again = isinstance(error, broken)
        else:
            return None
        if not again:
            return failure
        if attempt < ATTEMPTS:
            _echo(f"  {failure}; attempt {attempt + 1} of {ATTEMPTS} in {pause:g} s")
            time.sleep(pause)
            pause *= 2
    return f"{failure} ({ATTEMPTS} attempts)"


def _reason(error: RequestException) -> str:
    """Return the innermost reason of a network error, without the layers around it."""
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__ or inner
    return f"{type(error).__name__}: {inner}"


def _by_hand(corpus: Corpus, file: CorpusFile, target: Path) -> str:
    where = f"; the official file is {corpus.sources[0]}/{file.remote}" if corpus.sources else ""
    return (
        f"  without a network: put the file at {target}{where}\n"
        f"  or fetch it from a mirror or a folder: python -m lightning_cse.prepare {corpus.name} --source URL-or-folder"
    )


def _echo(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
