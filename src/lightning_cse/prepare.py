"""Fetches and checks corpora: ``python -m lightning_cse.prepare inli``; without a name: a list.

``--tokenise`` with the overrides of a training command tokenises its sentences ahead of it.
"""

import argparse
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from lightning_cse.config.compose import use_config_dir
from lightning_cse.config.launch import call
from lightning_cse.data.declarations import (
    CORPORA,
    DATA_DIR_VARIABLE,
    Corpus,
    CorpusFile,
    default_data_dir,
    find_file,
    get_corpus,
    register_corpora,
)
from lightning_cse.data.files import read_bytes, sha256_of
from lightning_cse.errors import ConfigError, DataError, one_line, reported
from lightning_cse.runs import public


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_intermixed_args(argv)
    if arguments.tokenise:
        tokenise(arguments.corpus, arguments.data_dir, arguments.config_dir)
        return 0

    if arguments.config_dir is not None:
        register_corpora(arguments.config_dir)

    folder: Path = (arguments.data_dir or default_data_dir()).expanduser().absolute()
    corpora = [get_corpus(name) for name in arguments.corpus]
    if not corpora:
        list_corpora(folder)
        return 0

    if not arguments.check:
        for corpus in corpora:
            check_paths(corpus)

        folder.mkdir(parents=True, exist_ok=True)

    scratch_parent = None if arguments.check else folder

    with tempfile.TemporaryDirectory(prefix=".prepare-", dir=scratch_parent) as scratch:
        for corpus in corpora:
            if arguments.source is not None:
                corpus = corpus.model_copy(update={"sources": (arguments.source,)})

            part = Path(scratch) / "part"
            prepare(corpus, folder, part, force=arguments.force, only_check=arguments.check)

    return 0


def tokenise(
    overrides: Sequence[str], data_dir: Path | None = None, config_dir: str | None = None
) -> None:
    """Read and tokenise the data of a training command into the cache, without training."""
    if config_dir is not None:
        use_config_dir(Path(config_dir).expanduser())

    words = list(overrides)
    if data_dir is not None:
        quoted = str(data_dir).replace("'", r"\'")
        words.append(f"paths.data_dir='{quoted}'")

    call("lightning_cse.engine.train:tokenise", "train", words)


def list_corpora(folder: Path) -> None:
    """Print which corpora are known, where each split is expected and whether it is there."""
    _echo(f"data directory: {folder} (--data-dir, else {DATA_DIR_VARIABLE}, else ./data)")
    _echo("to fetch one of these: python -m lightning_cse.prepare NAME")

    for corpus in CORPORA.values():
        _echo(f"\n{corpus.name}: {corpus.title}\n  licence: {corpus.licence}\n  {corpus.prepare}")

        for split in corpus.splits:
            files = corpus.split_files(split)
            missing = [file.path for file in files if find_file(folder, file) is None]
            state = f"{missing[0]} is missing" if missing else f"{files[0].path} is there"
            _echo(f"  {split:<14}  {corpus.rows(split) or 'any':>7} rows  {state}")


def check_paths(corpus: Corpus) -> None:
    """Raise ConfigError if a file of a corpus would be outside the data directory."""
    outside = [
        file.path
        for file in corpus.files
        if Path(file.path).is_absolute() or ".." in Path(file.path).parts
    ]
    if outside:
        fault = "leaves the data directory, where nothing is fetched to; --check only checks it"
        raise ConfigError([f"corpus {corpus.name!r}: {path} {fault}" for path in outside])


def prepare(
    corpus: Corpus, folder: Path, part: Path, *, force: bool = False, only_check: bool = False
) -> None:
    """Put the files of a corpus into the data directory, checked, or raise DataError.

    A file is first written to ``part``. ``only_check`` fetches nothing, and raises DataError with
    one line per file that is not right.
    """
    _echo(f"{corpus.title}; licence: {corpus.licence}")
    faults = []
    groups: dict[str, list[CorpusFile]] = {}

    for file in corpus.files:  # one file may hold several splits
        groups.setdefault(file.path, []).append(file)

    for files in groups.values():
        path = find_file(folder, files[0])
        fault = _fault(corpus, files, path or folder / files[0].path)

        if fault is None:
            _echo(f"{path}: ok, {_rows(files)}")
        elif only_check:
            faults.append(f"\n  {fault}")
        elif path is not None and not force:
            raise DataError(f"{fault}\n  not changed; --force replaces it, or move it away")
        else:
            target = folder / files[0].path
            origin = _fetch(corpus, files[0], part, target)
            fault = _fault(corpus, files, part)
            if fault is not None:
                fault = fault.replace(str(part), origin)
                raise DataError(f"{fault}\n  the download was discarded")

            target.parent.mkdir(parents=True, exist_ok=True)
            part.replace(target)
            _echo(f"{target}: fetched from {origin}, {_rows(files)}")

    if faults:
        raise DataError(f"corpus {corpus.name!r}: {len(faults)} wrong files:{''.join(faults)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m lightning_cse.prepare", description=__doc__)
    add = parser.add_argument
    add(
        "corpus",
        nargs="*",
        metavar="NAME",
        help=f"what to fetch: {', '.join(CORPORA)}; default: list them",
    )
    add(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"where to put the files (default: {DATA_DIR_VARIABLE}, else ./data)",
    )
    add("--config-dir", metavar="DIR", help="folder with your own corpora.yaml")
    add(
        "--source",
        metavar="URL|DIR",
        help="a mirror, or a folder that has the official files or archives",
    )
    add(
        "--tokenise",
        action="store_true",
        help="NAME... are overrides of a training command: read and tokenise its data into the cache",
    )
    add("--check", action="store_true", help="only check the files")
    add("--force", action="store_true", help="replace files that differ from the official ones")

    return parser


def _rows(files: Sequence[CorpusFile]) -> str:
    note = "" if files[0].sha256 else " (its official digest is not known)"
    return ", ".join(f"{file.rows or 'any'} rows of {file.split}" for file in files) + note


def _fault(corpus: Corpus, files: Sequence[CorpusFile], path: Path) -> str | None:
    """Return what is wrong with a file, which may hold several splits, or ``None``."""
    from lightning_cse.data.corpora import parse_file  # it imports `datasets`

    official = files[0].sha256

    try:
        digest = sha256_of(path)
        if official is not None:
            wrong = f"{path}: not the official file: its sha256 is {digest}, expected {official}"
            return None if digest == official else wrong

        for file in files:
            rows = len(parse_file(corpus, file, path))
            if file.rows not in (None, rows):
                return f"{path}: {rows} rows in split {file.split!r}, expected {file.rows}"
    except DataError as error:
        return str(error)

    return None


def _fetch(corpus: Corpus, file: CorpusFile, part: Path, target: Path) -> str:
    """Write one file, unchecked, to ``part``; return its origin, or raise DataError."""
    failures = [] if corpus.sources else [f"{file.path}: {corpus.prepare}"]

    for base in corpus.sources:
        origin = f"{base.rstrip('/')}/{file.remote or Path(file.path).name}"
        try:
            fetched = _opened(origin, part.parent)
        except OSError as error:
            failures.append(public(f"{origin}: {one_line(error)}"))
            continue

        if file.member is None:
            part.write_bytes(read_bytes(fetched))
            return public(origin)

        try:
            with zipfile.ZipFile(fetched) as archive:
                part.write_bytes(archive.read(file.member))
        except (KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            fault = f"not the official zip archive: {error.args[0]}"
            raise DataError(f"{public(origin)}: {fault}") from None

        return f"{public(origin)}/{file.member}"

    messages = "\n".join(failures)
    raise DataError(
        f"{messages}\n  without a network: put the file at {target}\n"
        f"  or fetch it from a mirror or a folder: --source URL-or-folder"
    )


def _opened(origin: str, scratch: Path) -> Path:
    """Return the path of a file of a folder, or of a downloaded one, or raise OSError."""
    if not origin.startswith(("http://", "https://")):
        path = Path(origin).expanduser().absolute()
        path.stat()
        return path

    import pooch

    # The timeout counts seconds without a byte.
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30.0)
    pooch.get_logger().setLevel("WARNING")

    return Path(pooch.retrieve(origin, None, path=scratch, downloader=downloader))


def _echo(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
