"""Fetches and checks corpora: ``python -m lightning_cse.prepare inli``; without a name: a list."""

import argparse
import hashlib
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lightning_cse.data.corpora import (
    CORPORA,
    DATA_DIR_VARIABLE,
    Corpus,
    CorpusFile,
    HubError,
    default_data_dir,
    fetch_hub,
    find_file,
    get_corpus,
    read_file,
    register_corpora,
)
from lightning_cse.data.files import read_bytes
from lightning_cse.errors import DataError, one_line, reported

ATTEMPTS: Final = 4


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.config_dir is not None:
        register_corpora(arguments.config_dir)

    folder: Path = (arguments.data_dir or default_data_dir()).expanduser().absolute()
    corpora = [get_corpus(name) for name in arguments.corpus]
    if not corpora:
        list_corpora(folder)
        return 0

    if arguments.check:
        for corpus in corpora:
            check(corpus, folder)
        return 0

    folder.mkdir(
        parents=True,
        exist_ok=True,
    )

    with tempfile.TemporaryDirectory(
        prefix=".prepare-",
        dir=folder,
    ) as scratch:
        for corpus in corpora:
            source = Source(
                corpus,
                folder,
                Path(scratch),
                arguments.source,
            )
            prepare(
                corpus,
                folder,
                source,
                force=arguments.force,
            )

    return 0


def list_corpora(folder: Path) -> None:
    """Print which corpora are known, where each split is expected and whether it is there."""
    _echo(f"data directory: {folder} (--data-dir, else {DATA_DIR_VARIABLE}, else ./data)")
    _echo("to fetch one of these: python -m lightning_cse.prepare NAME")

    for corpus in CORPORA.values():
        _echo(f"\n{corpus.name}: {corpus.title}\n  licence: {corpus.licence}\n  {corpus.prepare}")
        width = max(map(len, corpus.splits))
        for split in corpus.splits:
            files = corpus.split_files(split)
            missing = [file.path for file in files if find_file(folder, file) is None]
            state = f"{missing[0]} is missing" if missing else f"{files[0].path} is there"
            more = f" ({len(files)} files)" if len(files) > 1 else ""
            _echo(f"  {split:<{width}}  {corpus.rows(split) or 'any':>7} rows  {state}{more}")


def check(corpus: Corpus, folder: Path) -> None:
    """Check every file of a corpus; raise DataError with one line per file that is not right."""
    faults = []
    groups = _by_path(corpus)

    for files in groups:
        path = find_file(folder, files[0])
        fault = _fault(
            corpus,
            files,
            path or folder / files[0].path,
        )
        if fault is None:
            _echo(f"{path}: ok, {_rows(files)}")
        else:
            faults.append(f"\n  {fault}")

    if faults:
        count = f"{len(faults)} of {len(groups)} files failed the check"
        raise DataError(f"corpus {corpus.name!r}: {count}:{''.join(faults)}")


def prepare(
    corpus: Corpus,
    folder: Path,
    source: "Source",
    *,
    force: bool = False,
) -> None:
    """Put the files of a corpus into the data directory, checked, or raise DataError."""
    _echo(f"{corpus.title}; licence: {corpus.licence}")

    for files in _by_path(corpus):
        path = find_file(folder, files[0])
        fault = (
            _fault(
                corpus,
                files,
                path,
            )
            if path
            else None
        )
        if fault is not None and not force:
            raise DataError(f"{fault}\n  not changed; --force replaces it, or move it away")

        if path is not None and fault is None:
            _echo(f"{path}: already present and ok, {_rows(files)}")
            continue

        part = source.scratch / "part"
        origin = source.fetch(files[0], part)
        fault = _fault(
            corpus,
            files,
            part,
        )
        if fault is not None:
            fault = fault.replace(str(part), origin)
            raise DataError(f"{fault}\n  the download was discarded")

        target = folder / files[0].path
        target.parent.mkdir(
            parents=True,
            exist_ok=True,
        )
        part.replace(target)
        _echo(f"{target}: fetched from {origin}, {_rows(files)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.prepare",
        description=__doc__,
    )
    known = f"what to fetch: {', '.join(CORPORA)}; default: list them"
    parser.add_argument(
        "corpus",
        nargs="*",
        metavar="NAME",
        help=known,
    )

    for name, options in _OPTIONS.items():
        parser.add_argument(name, **options)

    return parser


_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "--data-dir": {
        "type": Path,
        "metavar": "DIR",
        "help": f"where to put the files (default: {DATA_DIR_VARIABLE}, else ./data)",
    },
    "--config-dir": {
        "type": Path,
        "metavar": "DIR",
        "help": "folder with a corpora.yaml of your own",
    },
    "--source": {
        "metavar": "URL|DIR",
        "help": "a mirror, or a folder that has the official files or archives",
    },
    "--check": {
        "action": "store_true",
        "help": "only check the files that are present",
    },
    "--force": {
        "action": "store_true",
        "help": "replace files that differ from the official ones",
    },
}


def _by_path(corpus: Corpus) -> list[list[CorpusFile]]:
    """Return the files of a corpus, grouped by path: one file may hold several splits."""
    groups: dict[str, list[CorpusFile]] = {}

    for file in corpus.files:
        groups.setdefault(file.path, []).append(file)

    return list(groups.values())


def _rows(files: Sequence[CorpusFile]) -> str:
    counts = [f"{file.rows or 'any'} rows of {file.split}" for file in files]
    note = "" if files[0].sha256 else " (its official digest is not known)"
    return f"{', '.join(counts)}{note}"


def _fault(
    corpus: Corpus,
    files: Sequence[CorpusFile],
    path: Path,
) -> str | None:
    """Return what is wrong with a file, which may hold several splits, or ``None``."""
    official = files[0].sha256

    try:
        data = read_bytes(path)
        digest = hashlib.sha256(data).hexdigest()
        if digest == official:
            return None
        # The hub's copy of a corpus lacks some columns, so its digest differs, and its rows are
        # counted instead.
        if official is not None and (corpus.sources or corpus.hub is None):
            found = f"({len(data)} bytes): its sha256 is {digest}, expected {official}"
            return f"{path}: not the official file {found}"
        for file in files:
            rows = len(
                read_file(
                    corpus,
                    file,
                    path,
                )
            )
            if file.rows not in (None, rows):
                return f"{path}: {rows} rows in split {file.split!r}, expected {file.rows}"
    except DataError as error:
        return str(error)

    return None


@dataclass
class Source:
    """Where the files of a corpus come from: its own sources, or ``place``, a mirror or folder."""

    corpus: Corpus
    folder: Path
    scratch: Path
    place: str | None = None

    def fetch(
        self,
        file: CorpusFile,
        part: Path,
    ) -> str:
        """Write one file, unchecked, to ``part``; return its origin, or raise DataError."""
        if self.place is None and not self.corpus.sources:
            return self._from_hub(file, part)

        failures = []

        for base in self.corpus.sources if self.place is None else (self.place,):
            origin = f"{base.rstrip('/')}/{file.remote_path}"
            try:
                fetched = self._opened(origin)
            except OSError as error:
                failures.append(f"  {origin}: {one_line(error)}\n")
                continue

            if file.member is not None:
                return _extract(
                    fetched,
                    file.member,
                    part,
                    origin,
                )

            part.write_bytes(read_bytes(fetched))
            return origin

        raise DataError(
            f"{file.path} could not be fetched\n{''.join(failures)}{self._by_hand(file)}"
        )

    def _opened(self, origin: str) -> Path:
        """Return the path of a file of a folder, or of a downloaded one, or raise OSError."""
        if origin.startswith(("http://", "https://")):
            return _download(origin, self.scratch)

        path = Path(origin.removeprefix("file://")).expanduser().absolute()
        path.stat()
        return path

    def _from_hub(
        self,
        file: CorpusFile,
        part: Path,
    ) -> str:
        # Only STS-B has an official layout that can be written from its copy on the hub.
        if self.corpus.hub is None or "score" not in self.corpus.hub.columns:
            raise DataError(f"{file.path}: {self.corpus.prepare}\n{self._by_hand(file)}")

        try:
            rows = fetch_hub(self.corpus, file)
        except HubError as error:
            raise DataError(f"{error}\n{self._by_hand(file)}") from None

        with part.open(
            "w",
            encoding="utf-8",
            newline="",
        ) as official:
            for number, row in enumerate(rows):
                score = f"{row['score']:.3f}"
                pair = [" ".join(row[name].split()) for name in ("sentence1", "sentence2")]
                cells = [
                    "hub",
                    "hub",
                    "hub",
                    f"{number:04d}",
                    score,
                    *pair,
                ]
                official.write("\t".join(cells) + "\n")

        return rows.files[0].path

    def _by_hand(self, file: CorpusFile) -> str:
        where = ""
        if self.corpus.sources:
            member = f"{file.member} in " if file.member else ""
            where = f"; the official file is {member}{self.corpus.sources[0]}/{file.remote_path}"

        command = f"python -m lightning_cse.prepare {self.corpus.name} --source URL-or-folder"
        return (
            f"  without a network: put the file at {self.folder / file.path}{where}\n"
            f"  or fetch it from a mirror or a folder: {command}"
        )


def _extract(
    archive: Path,
    member: str,
    part: Path,
    name: str,
) -> str:
    """Write one member of the zip archive ``name`` to ``part``, and return its name."""
    try:
        with zipfile.ZipFile(archive) as opened:
            part.write_bytes(opened.read(member))
    except (KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{name}: not the official zip archive: {error.args[0]}") from None

    return f"{name}/{member}"


def _download(url: str, scratch: Path) -> Path:
    """Return the path of a downloaded file; what fails is tried again, and then an OSError."""
    import pooch

    name = url.rpartition("/")[2]
    store = pooch.create(
        scratch / hashlib.sha256(url.encode()).hexdigest()[:16],
        "",
        registry={name: None},
        urls={name: url},
        retry_if_failed=ATTEMPTS - 1,
    )
    # The timeout counts seconds without a byte.
    downloader = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        timeout=30.0,
    )
    return Path(store.fetch(name, downloader=downloader))


def _echo(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
