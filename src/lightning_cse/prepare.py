"""Fetches corpora and checks them: ``python -m lightning_cse.prepare inli``; without a name it lists what is known."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import os
import shutil
import sys
import time
import urllib.parse
import zipfile
import zlib
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
from lightning_cse.errors import DataError, reported

if TYPE_CHECKING:
    from requests import RequestException

ATTEMPTS = 4
FIRST_PAUSE = 0.5  # seconds before the second attempt; doubled each time
TIMEOUT = 30.0  # seconds without a byte
MANY = 4  # files of one folder that are still told by name


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    folder: Path = (arguments.data_dir or default_data_dir()).expanduser().absolute()
    corpora = [get_corpus(name) for name in arguments.corpus]
    if not corpora:
        list_corpora(folder)
    with Archives() as archives:
        for corpus in corpora:
            if arguments.check:
                check(corpus, folder)
            else:
                prepare(corpus, folder, archives, source=arguments.source, force=arguments.force)
    return 0


class Archives:
    """The zip archives of one run: each is downloaded once, however many files are taken out of it, then removed."""

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}

    def __enter__(self) -> Archives:
        return self

    def __exit__(self, *exception: object) -> None:
        for path in self._paths.values():
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def path(self, url: str, folder: Path) -> Path:
        """Return where the archive of an address is or, before :meth:`download`, will be: in ``folder``, hidden."""
        name = f".{len(self._paths)}.{url.rpartition('/')[2]}.{os.getpid()}.part"
        return self._paths.setdefault(url, folder / name)

    def download(self, url: str, folder: Path) -> str | None:
        """Download an archive unless it is there; return ``None``, or why that failed."""
        path = self.path(url, folder)
        if path.exists():
            return None
        failure = _download(url, path)
        if failure is not None:
            path.unlink(missing_ok=True)
        return failure


def list_corpora(folder: Path) -> None:
    """Say which corpora are known, where each split is expected and whether it is there."""
    _echo(f"data directory: {folder} (--data-dir, else {DATA_DIR_VARIABLE}, else ./data)")
    _echo("to fetch one of these: python -m lightning_cse.prepare NAME")
    for corpus in CORPORA.values():
        _echo(f"\n{corpus.name}: {corpus.title}\n  licence: {corpus.licence}\n  {corpus.prepare}")
        width = max(map(len, corpus.splits))
        for split in corpus.splits:
            files = corpus.split_files(split)
            found = {file.path: find_file(folder, file) for file in files}
            missing = [name for name, path in found.items() if path is None]
            state = "is missing" if len(missing) == len(found) else "is in part" if missing else "is there  "
            names = _braces([name if path is None else str(path.relative_to(folder)) for name, path in found.items()])
            lacking = f", {_braces(missing)} is missing" if 0 < len(missing) < len(found) else ""
            _echo(f"  {split:<{width}}  {corpus.rows(split):>7} rows  {state}  {names}{lacking}")


def check(corpus: Corpus, folder: Path) -> None:
    """Check every file of a corpus without fetching any.

    Raises:
        DataError: With one line for each file that is missing or not right.
    """
    faults = []
    paths = _by_path(corpus)
    for files in paths:
        path = find_file(folder, files[0])
        fault = f"{folder / files[0].path}: missing" if path is None else _fault(corpus, files, path)
        if fault:
            faults.append(fault)
        else:
            _echo(f"{path}: right, {_rows(files)}")
    if faults:
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise DataError(f"corpus {corpus.name!r}: {len(faults)} of {len(paths)} files are not right:{lines}")


def prepare(
    corpus: Corpus, folder: Path, archives: Archives, *, source: str | None = None, force: bool = False
) -> None:
    """Put the files of a corpus into the data directory; right ones that are there are kept.

    A file is fetched under a temporary name, checked, and renamed, so that one with its proper name is always whole.

    Args:
        corpus: What to fetch.
        folder: The data directory.
        archives: The zip archives that were downloaded so far.
        source: A folder, or the base address of a mirror, in place of the official address.
        force: Whether to replace files that differ from the official ones.

    Raises:
        DataError: If a file cannot be had or is not the official one; nothing of it is kept then.
    """
    _echo(f"{corpus.title}; licence: {corpus.licence}")
    for files in _by_path(corpus):
        file = files[0]
        there = find_file(folder, file)
        fault = None if there is None else _fault(corpus, files, there)
        if there is not None and fault is None:
            _echo(f"{there}: is there and right, {_rows(files)}")
            continue
        if fault is not None and not force:
            raise DataError(f"{fault}\n  it is left as it is; --force replaces it, or move it away")
        target = folder / file.path
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            origin = _fetch(corpus, file, part, archives, source=source, folder=folder)
            fault = _fault(corpus, files, part, name=origin)
            if fault is not None:
                raise DataError(f"{fault}\n  nothing was kept of it")
            part.replace(target)
        except OSError as error:
            raise DataError(f"{target}: cannot be written: {error.strerror or error}") from None
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        _echo(f"{target}: fetched from {origin}, {_rows(files)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.prepare", description=__doc__)
    parser.add_argument(
        "corpus", nargs="*", metavar="NAME", help=f"what to fetch: {', '.join(CORPORA)}; none: list them"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"where to put the files (default: {DATA_DIR_VARIABLE}, else ./data)",
    )
    parser.add_argument(
        "--source",
        metavar="URL|DIR",
        help="a mirror or a folder with the official files; in a folder they may be .gz or taken out of their archive",
    )
    parser.add_argument("--check", action="store_true", help="only check the files that are there")
    parser.add_argument("--force", action="store_true", help="replace files that differ from the official ones")
    return parser


def _by_path(corpus: Corpus) -> list[list[CorpusFile]]:
    """Return the files of a corpus, each once, with all splits that it holds."""
    paths: dict[str, list[CorpusFile]] = {}
    for file in corpus.files:
        paths.setdefault(file.path, []).append(file)
    return list(paths.values())


def _rows(files: Sequence[CorpusFile]) -> str:
    """Say how many rows a right file has."""
    splits = ", ".join(f"{file.split} {file.rows}" for file in files)
    digest = " (its official digest is not known)" if files[0].sha256 is None else ""
    return f"{sum(file.rows for file in files)} rows{f' ({splits})' if len(files) > 1 else ''}{digest}"


def _braces(paths: Sequence[str]) -> str:
    """Write several paths as a shell would, those of one folder as ``folder/{one,other}``, many as ``folder/*``."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, slash, name = path.rpartition("/")
        folders.setdefault(folder + slash, []).append(name)
    joined = (
        names[0] if len(names) == 1 else f"{{{','.join(names)}}}" if len(names) <= MANY else f"* ({len(names)} files)"
        for names in folders.values()
    )
    return ", ".join(folder + names for folder, names in zip(folders, joined, strict=True))


def _fault(corpus: Corpus, files: Sequence[CorpusFile], path: Path, *, name: str | None = None) -> str | None:
    """Say what is wrong with a file, which may hold several splits, or return ``None``.

    The digest decides where it is known. Only a corpus whose one address is the hub may have another digest, as the
    hub's copy lacks some columns: its rows are counted.
    """
    official = files[0].sha256
    try:
        data = read_bytes(path)
        digest = hashlib.sha256(data).hexdigest()
        if digest == official:
            return None
        if official is not None and (corpus.sources or corpus.hub is None):
            return (
                f"{name or path}: not the official file ({len(data)} bytes{_looks(data)}): "
                f"its sha256 is {digest}, expected {official}"
            )
        for file in files:
            rows = len(read_file(corpus, file, path))
            if rows != file.rows:
                split = f" in split {file.split!r}" if len(files) > 1 else ""
                return f"{name or path}: {rows} rows{split}, expected {file.rows}"
    except DataError as error:
        return str(error).replace(str(path), name or str(path))
    return None


def _looks(data: bytes) -> str:
    return ", and it is an HTML page" if data.lstrip()[:1] == b"<" else ""


def _fetch(
    corpus: Corpus, file: CorpusFile, part: Path, archives: Archives, *, source: str | None, folder: Path
) -> str:
    """Write one file, unchecked, to ``part`` and return where it came from."""
    if source is None and not corpus.sources:
        if corpus.hub is None:
            raise DataError(f"{file.path}: {corpus.prepare}\n{_by_hand(corpus, file, folder)}")
        try:
            data, origin = fetch_hub(corpus, file)
        except HubError as error:
            raise DataError(f"{error}\n{_by_hand(corpus, file, folder)}") from None
        part.write_bytes(data)
        return origin
    if source is not None and urllib.parse.urlsplit(source).scheme not in {"http", "https"}:
        return _copy(file, Path(source.removeprefix("file://")).expanduser().absolute(), part)
    bases = (source,) if source is not None else corpus.sources
    failures = []
    for base in bases:
        url = f"{base.rstrip('/')}/{file.remote}"
        failure = _download(url, part) if file.member is None else archives.download(url, folder)
        if failure is None:
            return url if file.member is None else _extract(archives.path(url, folder), file.member, part, name=url)
        failures.append(f"{url}: {failure}")
        if not failure.startswith("404 "):
            break
    lines = "".join(f"  {failure}\n" for failure in failures)
    raise DataError(f"{file.path} could not be downloaded\n{lines}{_by_hand(corpus, file, folder)}")


def _copy(file: CorpusFile, folder: Path, part: Path) -> str:
    """Copy a file from a folder that has it by its own name, in the layout of a data directory, or in its archive."""
    names = [name for plain in (file.member or file.remote, file.path) for name in (plain, f"{plain}.gz")]
    for name in names:
        path = folder / name
        if path.is_file():
            part.write_bytes(read_bytes(path))
            return str(path)
    if file.member is not None:
        path = folder / file.remote
        if path.is_file():
            return _extract(path, file.member, part, name=str(path))
        names.append(file.remote)
    raise DataError(f"{folder}: {'has none of ' + ', '.join(names) if folder.is_dir() else 'is no folder'}")


def _extract(archive: Path, member: str, part: Path, *, name: str) -> str:
    """Write one member of a zip archive to ``part`` and return what to call it; ``name`` is that of the archive."""
    try:
        with zipfile.ZipFile(archive) as opened:
            if member not in opened.namelist():
                files = [info.filename for info in opened.infolist() if not info.is_dir()]
                more = f" and {len(files) - 10} more" if len(files) > 10 else ""
                raise DataError(f"{name}: the archive has no {member}; it has: {', '.join(files[:10])}{more}")
            with opened.open(member) as source, part.open("wb") as target:
                shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        size = archive.stat().st_size
        with archive.open("rb") as start:
            looks = _looks(start.read(100))
        raise DataError(f"{name}: not a whole zip archive ({size} bytes{looks}): {error}\n  fetch it again") from None
    return f"{name}/{member}"


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


def _by_hand(corpus: Corpus, file: CorpusFile, folder: Path) -> str:
    member = "" if file.member is None else f"{file.member} in "
    where = f"; the official file is {member}{corpus.sources[0]}/{file.remote}" if corpus.sources else ""
    return (
        f"  without a network: put the file at {folder / file.path}{where}\n"
        f"  or fetch it from a mirror or a folder: python -m lightning_cse.prepare {corpus.name} --source URL-or-folder"
    )


def _echo(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
