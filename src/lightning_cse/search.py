"""Searches sentences: ``python -m lightning_cse.search --model RUN --corpus sentences.txt --query "Are you here?"``."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lightning_cse.arguments import count, path
from lightning_cse.engine.load import check_device, check_model
from lightning_cse.errors import DataError, reported

if TYPE_CHECKING:
    from lightning_cse.analysis.searching import Found, Searcher

RELATIONS: Final = ("similar", "entails", "entailed_by")
KINDS: Final = ("auto", "exact", "ivf", "hnsw")
STDIN: Final = "-"
DIGITS: Final = 6  # of a score that is printed; float32 has no more


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    _check(parser, arguments)
    search(arguments)
    return 0


def search(arguments: argparse.Namespace) -> None:
    """Open or build the index that a command line asks for, and answer its queries.

    Raises:
        LightningCSEError: if something given is wrong; the message says what.
    """
    queries = _given_queries(arguments)  # before anything slow: a file that is not there is told at once
    corpus_path: Path | None = arguments.corpus
    if corpus_path is None and arguments.index is None:
        raise DataError("give --corpus, or --index with an index that is there")
    if corpus_path is not None and not corpus_path.is_file():
        raise DataError(f"--corpus: {corpus_path}: {'no file' if corpus_path.exists() else 'no such file'}")

    check_model(arguments.model, pooling=arguments.pooling)

    from lightning_cse.analysis.searching import (
        Searcher,
        check_index,
        comparison,
        default_folder,
        embedder,
        open_folder,
    )
    from lightning_cse.index import SentenceFile, open_index

    check_device(arguments.device)
    corpus = None if corpus_path is None else SentenceFile(corpus_path, arguments.column)
    check_index(arguments.index, corpus, arguments.kind, rebuild=arguments.rebuild)

    from lightning_cse.engine.load import load_model  # heavier than all before

    _quiet()
    model = load_model(arguments.model, pooling=arguments.pooling)
    embed = embedder(model, arguments.precision, arguments.device)
    # Before an index is built, which may take hours: what the model does not answer is told at once.
    compared = comparison(model.answers, embed(["a"]), arguments.relation, arguments.view, arguments.against)
    if arguments.index is None and corpus is not None:
        arguments.index = default_folder(_cache(), corpus, model, arguments.precision)
    path: Path = arguments.index
    folder = open_folder(
        path, corpus, model, precision=arguments.precision, embed=embed, tell=_tell, rebuild=arguments.rebuild
    )
    searcher = Searcher(embed, folder, open_index(folder, arguments.kind, _tell), compared)
    if searcher.looks_at_all and searcher.index.kind != "exact":
        _tell(f"{compared.name}: the {searcher.index.kind} is built over another view, so all sentences are compared")
    if queries is None and arguments.queries is None:
        _tell("no query was given: the index is ready")
        sys.stdout.write(f"{folder.path}\n")
        return
    if queries is None:
        _answer_lines(searcher, arguments.k)
    else:
        found = searcher.search(queries, arguments.k)
        sys.stdout.write(FORMATS[arguments.format or "table"](queries, found))
    sys.stdout.flush()


def _answer_lines(searcher: Searcher, count: int) -> None:
    """Answer the lines of standard input as they come, one line of JSON each, so that a client keeps in step.

    An empty line, of which there is nothing to find, is answered with no hits and says so.
    """
    nothing = json.dumps({"query": "", "hits": [], "error": "the line is empty; give a sentence"}) + "\n"
    for query in _lines(sys.stdin.buffer, "standard input"):
        sys.stdout.write(as_json([query], searcher.search([query], count)) if query else nothing)
        sys.stdout.flush()


def as_table(queries: Sequence[str], found: Sequence[Sequence[Found]]) -> str:
    """Return tables for the eye, one a query, as wide as the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, file=sys.stdout)
    with console.capture() as capture:
        for query, hits in zip(queries, found, strict=True):
            console.print(Text(query, style="bold"))
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
            for title in ("", "score"):
                table.add_column(title, justify="right", no_wrap=True)
            table.add_column("sentence", overflow="fold")
            table.add_column("line", justify="right", no_wrap=True)
            for rank, hit in enumerate(hits, start=1):
                more = f" (x{hit.times})" if hit.times > 1 else ""
                table.add_row(str(rank), f"{hit.score:.4f}", Text(hit.sentence), f"{hit.line}{more}")
            console.print(table)
            console.print()
    return capture.get()


def as_json(queries: Sequence[str], found: Sequence[Sequence[Found]]) -> str:
    """Return a line a query, with its hits."""
    lines = []
    for query, hits in zip(queries, found, strict=True):
        told = [
            {
                "rank": rank,
                "score": round(hit.score, DIGITS),
                "sentence": hit.sentence,
                "line": hit.line,
                "times": hit.times,
            }
            for rank, hit in enumerate(hits, start=1)
        ]
        lines.append(json.dumps({"query": query, "hits": told}, ensure_ascii=False) + "\n")
    return "".join(lines)


def as_csv(queries: Sequence[str], found: Sequence[Sequence[Found]]) -> str:
    """Return a line a hit."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(("query", "rank", "score", "sentence", "line", "times"))
    for query, hits in zip(queries, found, strict=True):
        for rank, hit in enumerate(hits, start=1):
            writer.writerow((query, rank, round(hit.score, DIGITS), hit.sentence, hit.line, hit.times))
    return sink.getvalue()


FORMATS: Final = {"table": as_table, "json": as_json, "csv": as_csv}


def _given_queries(arguments: argparse.Namespace) -> list[str] | None:
    """Return the queries of the command line or of a file; None where they come by standard input, or there are none.

    Raises:
        DataError: if one is empty, or the file cannot be read or holds none.
    """
    if arguments.query:
        for number, query in enumerate(arguments.query, start=1):
            if not query.strip():
                raise DataError(f"--query: number {number} is empty; give a sentence")
        return [query.strip() for query in arguments.query]
    if arguments.queries is None or arguments.queries == STDIN:
        return None
    path = Path(arguments.queries).expanduser()
    try:
        with path.open("rb") as file:
            queries = [line for line in _lines(file, str(path)) if line]
    except OSError as error:
        raise DataError(f"--queries: {path}: {error.strerror}; give a file with a sentence a line, or -") from error
    if not queries:
        raise DataError(f"--queries: {path} holds no sentence; give one a line")
    return queries


def _lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    for number, raw in enumerate(file, start=1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise DataError(f"{name}:{number}: not UTF-8; convert it, with iconv for example") from None


def _cache() -> Path:
    return Path(os.environ.get("LIGHTNING_CSE_CACHE") or "~/.cache/lightning_cse").expanduser()


def _quiet() -> None:
    """Keep the library's bars off the terminal: loading weights takes a second."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuse what argparse cannot see by itself."""
    if arguments.corpus is None and (arguments.rebuild or arguments.column is not None):
        parser.error(f"{'--rebuild' if arguments.rebuild else '--column'} needs --corpus")
    if arguments.relation != "similar" and (arguments.view is not None or arguments.against is not None):
        parser.error(
            f"--relation {arguments.relation} is a question about whole embeddings: leave --view and --against out"
        )
    if arguments.queries == STDIN and arguments.format not in (None, "json"):
        parser.error(f"--queries - is answered in lines of JSON, not as {arguments.format}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.search",
        description=__doc__,
        epilog="Without --index, the index lies under LIGHTNING_CSE_CACHE (else ~/.cache/lightning_cse), by a name "
        "made of the digests of corpus and model, and is found again there. A build that is stopped goes on when the "
        "same command is given again.",
    )
    add = parser.add_argument
    add("--model", required=True, metavar="RUN|ENCODER", help="a run's folder, or an encoder: name, folder, hub name")
    add("--pooling", default="auto", metavar="NAME", help="of an encoder, instead of its own")
    add("--corpus", type=path, metavar="FILE", help="a sentence a line, or .csv, .tsv, .jsonl with --column; or .gz")
    add("--column", metavar="NAME", help="the column, or key, that holds the sentences")
    add("--index", type=path, metavar="FOLDER", help="where the index is or shall be")
    add("--rebuild", action="store_true", help="build it again even if there is one")
    add(
        "--kind",
        choices=KINDS,
        default="auto",
        help="how it is searched: exact compares all; ivf and hnsw are quick and approximate (faiss); auto: what is "
        "there, else exact, from 50,000 sentences on ivf",
    )
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--query", action="append", metavar="TEXT", help="what to look for; may be given again")
    asked.add_argument(
        "--queries", metavar="FILE|-", help="a query a line; -: standard input, answered line for line in JSON"
    )
    add(
        "--view",
        metavar="NAME",
        help="of the query: explicit or implicit (DualCSE, DualGauss), pragmatic or semantic (ImpScore); default: the "
        "model's similarity",
    )
    add("--against", metavar="NAME", help="the view of the sentences that it is compared with; default: their primary")
    add(
        "--relation",
        choices=RELATIONS,
        default="similar",
        help="what is sought: sentences similar to the query, that it entails, or that entail it (entailed_by); the "
        "last two only by models whose score has a direction: GaussCSE, DualGauss, DualCSE",
    )
    add("-k", type=count, default=10, metavar="N", help="how many sentences a query (default: 10)")
    add("--format", choices=tuple(FORMATS), help="default: table; json is a line a query")
    add("--precision", choices=("32-true", "bf16-mixed"), default="32-true", help="of the encoder; default: 32-true")
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="default: a GPU where there is one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
