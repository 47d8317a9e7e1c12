"""Fetches corpora and checks them: ``python -m lightning_cse.prepare inli``; without a name it lists what is known."""

import argparse
import hashlib
import shutil
import sys
import tempfile
import urllib.parse
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lightning_cse.data import corpora as known
from lightning_cse.data.corpora import (
    CORPORA,
    DATA_DIR_VARIABLE,
    Corpus,
    CorpusFile,
    find_file,
    read_bytes,
)
from lightning_cse.errors import DataError, one_line, reported

ATTEMPTS: Final = 4


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    folder: Path = (arguments.data_dir or known.default_data_dir()).expanduser().absolute()
    corpora = [known.get_corpus(name) for name in arguments.corpus]
    if not corpora:
        list_corpora(folder)
    elif arguments.check:
        for corpus in corpora:
            check(corpus, folder)
    else:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".prepare-", dir=folder) as scratch:
                for corpus in corpora:
                    prepare(
                        corpus,
                        folder,
                        Path(scratch),
                        source=arguments.source,
                        force=arguments.force,
                    )
        except OSError as error:
            raise DataError(
                f"{error.filename or folder}: cannot be written: {error.strerror or error}"
            ) from None
    return 0


def list_corpora(folder: Path) -> None:
    """Print which corpora are known, where each split is expected and whether it is there."""
    _echo(f"data directory: {folder} (--data-dir, else {DATA_DIR_VARIABLE}, else ./data)")
    _echo("to fetch one of these: python -m lightning_cse.prepare NAME")
    for corpus in CORPORA.values():
        _echo(f"\n{corpus.name}: {corpus.title}\n  licence: {corpus.licence}\n  {corpus.prepare}")
        for split in corpus.splits:
            files = corpus.split_files(split)
            found = [
                path for path in (find_file(folder, file) for file in files) if path is not None
            ]
            lacks = next((file.path for file in files if find_file(folder, file) is None), "")
            many = f" and {len(files) - 1} more" if len(files) > 1 else ""
            state = "is there  " if not lacks else "is in part" if found else "is missing"
            state += f"  {found[0].relative_to(folder) if found else files[0].path}{many}"
            state += f"; {lacks} is missing" if lacks and found else ""
            _echo(
                f"  {split:<{max(map(len, corpus.splits))}}  {corpus.rows(split):>7} rows  {state}"
            )


def check(corpus: Corpus, folder: Path) -> None:
    """Check every file of a corpus without fetching any; raise DataError with one line per file that is not right."""
    faults = []
    paths = _by_path(corpus)
    for files in paths:
        path = find_file(folder, files[0])
        fault = (
            f"{folder / files[0].path}: missing" if path is None else _fault(corpus, files, path)
        )
        if fault:
            faults.append(fault)
        else:
            _echo(f"{path}: ok, {_rows(files)}")
    if faults:
        lines = "".join(f"\n  {fault}" for fault in faults)
        raise DataError(
            f"corpus {corpus.name!r}: {len(faults)} of {len(paths)} files failed the check:{lines}"
        )


def prepare(
    corpus: Corpus, folder: Path, scratch: Path, *, source: str | None = None, force: bool = False
) -> None:
    """Put the files of a corpus into the data directory, each complete and checked, or raise DataError."""
    _echo(f"{corpus.title}; licence: {corpus.licence}")
    for files in _by_path(corpus):
        file = files[0]
        there = find_file(folder, file)
        fault = None if there is None else _fault(corpus, files, there)
        if there is not None and fault is None:
            _echo(f"{there}: already present and ok, {_rows(files)}")
            continue
        if fault is not None and not force:
            raise DataError(f"{fault}\n  not changed; --force replaces it, or move it away")
        target, part = folder / file.path, scratch / "part"
        origin = _fetch(corpus, file, part, scratch, source=source, folder=folder)
        fault = _fault(corpus, files, part, name=origin)
        if fault is not None:
            raise DataError(f"{fault}\n  the download was discarded")
        target.parent.mkdir(parents=True, exist_ok=True)
        part.replace(target)
        _echo(f"{target}: fetched from {origin}, {_rows(files)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.prepare", description=__doc__)
    option: Any = parser.add_argument
    option(
        "corpus",
        nargs="*",
        metavar="NAME",
        help=f"what to fetch: {', '.join(CORPORA)}; default: list them",
    )
    where = f"where to put the files (default: {DATA_DIR_VARIABLE}, else ./data)"
    option("--data-dir", type=Path, metavar="DIR", help=where)
    other = (
        "a mirror or a folder with the official files; in a folder they may be gzipped or extracted"
    )
    option("--source", metavar="URL|DIR", help=other)
    option("--check", action="store_true", help="only check the files that are present")
    option("--force", action="store_true", help="replace files that differ from the official ones")
    return parser


def _by_path(corpus: Corpus) -> list[list[CorpusFile]]:
    """Return the files of a corpus, grouped by path: one file may hold several splits."""
    paths = dict.fromkeys(file.path for file in corpus.files)
    return [[file for file in corpus.files if file.path == path] for path in paths]


def _rows(files: Sequence[CorpusFile]) -> str:
    splits = ", ".join(f"{file.split} {file.rows}" for file in files)
    digest = " (its official digest is not known)" if files[0].sha256 is None else ""
    return (
        f"{sum(file.rows for file in files)} rows{f' ({splits})' if len(files) > 1 else ''}{digest}"
    )


def _fault(
    corpus: Corpus, files: Sequence[CorpusFile], path: Path, *, name: str | None = None
) -> str | None:
    """Return what is wrong with a file, which may hold several splits, or ``None``."""
    official = files[0].sha256
    try:
        data = read_bytes(path)
        digest = hashlib.sha256(data).hexdigest()
        if digest == official:
            return None
        # The hub's copy of a corpus lacks some columns, so its digest differs, and its rows are counted instead.
        if official is not None and (corpus.sources or corpus.hub is None):
            page = ", and it is an HTML page" if data.lstrip()[:1] == b"<" else ""
            found = f"({len(data)} bytes{page}): its sha256 is {digest}, expected {official}"
            return f"{name or path}: not the official file {found}"
        for file in files:
            rows = len(known.read_file(corpus, file, path))
            if rows != file.rows and not corpus.made:
                split = f" in split {file.split!r}" if len(files) > 1 else ""
                return f"{name or path}: {rows} rows{split}, expected {file.rows}"
    except DataError as error:
        return str(error).replace(str(path), name or str(path))
    return None


def _fetch(
    corpus: Corpus, file: CorpusFile, part: Path, scratch: Path, *, source: str | None, folder: Path
) -> str:
    """Write one file, unchecked, to ``part`` and return where it came from."""
    member = "" if file.member is None else f"{file.member} in "
    where = (
        f"; the official file is {member}{corpus.sources[0]}/{file.remote}"
        if corpus.sources
        else ""
    )
    by_hand = (
        f"  without a network: put the file at {folder / file.path}{where}\n"
        f"  or fetch it from a mirror or a folder: python -m lightning_cse.prepare {corpus.name} --source URL-or-folder"
    )
    if source is None and not corpus.sources:
        if corpus.hub is None:
            raise DataError(f"{file.path}: {corpus.prepare}\n{by_hand}")
        try:
            rows = known.fetch_hub(corpus, file)
        except known.HubError as error:
            raise DataError(f"{error}\n{by_hand}") from None
        with part.open(
            "w", encoding="utf-8", newline=""
        ) as official:  # in STS-B's layout: no other corpus comes here
            for number, row in enumerate(rows):
                pair = (" ".join(row[name].split()) for name in ("sentence1", "sentence2"))
                official.write(
                    "\t".join(["hub"] * 3 + [f"{number:04d}", f"{row['score']:.3f}", *pair]) + "\n"
                )
        return rows.files[0].path
    if source is not None and urllib.parse.urlsplit(source).scheme not in {"http", "https"}:
        return _copy(file, Path(source.removeprefix("file://")).expanduser().absolute(), part)
    failures = []
    for base in corpus.sources if source is None else (source,):
        url = f"{base.rstrip('/')}/{file.remote}"
        fetched = _download(url, scratch)
        if isinstance(fetched, Path):
            if file.member is not None:
                return _extract(fetched, file.member, part, name=url)
            fetched.replace(part)
            return url
        failures.append(f"  {url}: {fetched}\n")
    raise DataError(f"{file.path} could not be downloaded\n{''.join(failures)}{by_hand}")


def _copy(file: CorpusFile, folder: Path, part: Path) -> str:
    """Copy a file from a folder that has it under its own name, at its place in a data directory, or in its archive."""
    names = [
        name for plain in (file.member or file.remote, file.path) for name in (plain, f"{plain}.gz")
    ]
    for name in names:
        path = folder / name
        if path.is_file():
            part.write_bytes(read_bytes(path))
            return str(path)
    if file.member is not None:
        if (folder / file.remote).is_file():
            return _extract(folder / file.remote, file.member, part, name=str(folder / file.remote))
        names.append(file.remote)
    raise DataError(
        f"{folder}: {'has none of ' + ', '.join(names) if folder.is_dir() else 'is not a folder'}"
    )


def _extract(archive: Path, member: str, part: Path, *, name: str) -> str:
    """Write one member of a zip archive to ``part`` and return its name; ``name`` is the archive's name."""
    try:
        with zipfile.ZipFile(archive) as opened:
            info = opened.getinfo(member)
            if info.file_size > known.largest(info.compress_size):
                raise zipfile.BadZipFile(f"{member} expands to {info.file_size:,} bytes")
            with opened.open(info) as source, part.open("wb") as target:
                shutil.copyfileobj(source, target)
    # zipfile raises RuntimeError for an encrypted member or an unknown method.
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(
            f"{name}: not the official zip archive: {error.args[0]}; fetch it again"
        ) from None
    return f"{name}/{member}"


def _download(url: str, scratch: Path) -> Path | str:
    """Download a file, unless it is there; return its path or why it failed. Failures that may pass are tried again."""
    import pooch
    import requests

    def attempt(url: str, output_file: Any, store: Any) -> None:
        try:
            # The timeout counts seconds without a byte.
            pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30.0)(
                url, output_file, store
            )
        except requests.HTTPError as error:
            if error.response.status_code < 500 and error.response.status_code != 429:
                raise DataError(str(error)) from None  # pooch does not try that again
            raise

    folder, name = scratch / hashlib.sha256(url.encode()).hexdigest()[:16], url.rpartition("/")[2]
    store = pooch.create(
        folder, "", registry={name: None}, urls={name: url}, retry_if_failed=ATTEMPTS - 1
    )
    try:
        return Path(store.fetch(name, downloader=attempt))
    except DataError as error:
        return str(error).partition(" for url")[0]
    except requests.RequestException as error:
        return f"{one_line(error).partition(' for url')[0]} ({ATTEMPTS} attempts)"


def _echo(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
