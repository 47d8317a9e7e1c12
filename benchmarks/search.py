"""How long a search index takes to build, how large and how lean it is, and how fast and how well it finds.

    make bench-search                                  # or: python benchmarks/search.py
    make bench-search ARGS="--n 1000000 --json search.json"

The sentences are numbered lines, and their embeddings are made up and seeded, so that what is measured is the index and
no encoder: Gaussian centres in 24 dimensions, one for every hundred sentences, noise around them by which neighbouring
clusters overlap, projected to the width, and a little noise there. (Clusters that lie apart in all 384 dimensions would
be found by looking at one list, and sentences are not like that.) It is built as the command builds it: vectors and
sentences appended to disk chunk by chunk, then the faiss index over the map of them. Queries are further draws around
the same centres. Recall is the share of the ten nearest by the exact search that are found. Memory is what the process
holds beyond what it held before, without pages of mapped files (RssAnon of Linux), looked at every 20 ms; times are of
one query at a time, with its embedding, the sentences found and their scores in float64, after one pass that is not
counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_cse.analysis.searching import Comparison, Found, Searcher
from lightning_cse.embeddings import Embedding, PointEmbedding
from lightning_cse.index import IndexFolder, SentenceFile, build_index, open_index
from lightning_cse.runs import environment
from lightning_cse.similarity import cosine

COUNT = 10
MIB = 2**20


class Clusters:
    """Embeddings of numbered sentences: each around one of many centres of a space that is narrower than they are."""

    latent = 24

    def __init__(self, sentences: int, width: int, noise: float) -> None:
        draws = torch.Generator().manual_seed(0)
        self.centres = torch.randn(max(2, sentences // 100), self.latent, generator=draws)
        self.out = torch.randn(self.latent, width, generator=draws)
        self.noise = noise

    def __call__(self, sentences: Sequence[str]) -> Embedding:
        """Return the vectors of sentences ``<word> <number>``; the same ones in whatever batch."""
        inner, outer = zip(*(self._draw(int(sentence.split()[-1])) for sentence in sentences), strict=True)
        return PointEmbedding(torch.stack(inner) @ self.out + torch.stack(outer))

    def _draw(self, number: int) -> tuple[Tensor, Tensor]:
        draws = torch.Generator().manual_seed(number)
        centre = int(torch.randint(len(self.centres), (1,), generator=draws))
        inner = self.centres[centre] + self.noise * torch.randn(self.latent, generator=draws)
        return inner, 0.5 * torch.randn(self.out.shape[1], generator=draws)


def anonymous() -> float:
    """Return the memory of this process that is no mapped file, in MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("no RssAnon in /proc/self/status: this measure needs Linux")


@contextlib.contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Measure seconds and peak memory of what runs inside."""
    before, begun, done = anonymous(), time.perf_counter(), threading.Event()
    found = {"seconds": 0.0, "peak_mib": 0.0}

    def watch() -> None:
        while not done.wait(0.02):
            found["peak_mib"] = max(found["peak_mib"], anonymous() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        found["seconds"] = round(time.perf_counter() - begun, 2)
        done.set()
        watcher.join()
        found["peak_mib"] = round(found["peak_mib"], 1)


def write_sentences(path: Path, count: int) -> None:
    """Write a file of numbered sentences."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"This is the made up sentence with the number {number}\n" for number in range(count))


def searcher(folder: IndexFolder, kind: str, embed: Clusters) -> Searcher:
    """Return what answers queries with an index of a kind."""
    compared = Comparison("similar", lambda a, b: cosine(a.vector, b.vector), ("primary", "primary"))
    return Searcher(embed, folder, open_index(folder, kind), compared)


def times(asked: Searcher, queries: Sequence[str]) -> dict[str, float]:
    """Return what one query takes, in milliseconds."""
    took = []
    for query in queries:
        begun = time.perf_counter()
        asked.search([query], COUNT)
        took.append(1000 * (time.perf_counter() - begun))
    return {
        "median_ms": round(statistics.median(took), 2),
        "p95_ms": round(statistics.quantiles(took, n=20)[-1], 2),
        "queries": len(took),
    }


def lines(hits: Iterable[Iterable[Found]]) -> list[set[int]]:
    """Return the lines that were found for each query."""
    return [{hit.line for hit in some} for some in hits]


def bench(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Build and ask an index of every kind, and return what was measured."""
    embed = Clusters(arguments.n, arguments.width, arguments.noise)
    write_sentences(scratch / "sentences.txt", arguments.n)
    result: dict[str, Any] = {"n": arguments.n, "width": arguments.width, "noise": arguments.noise, "kinds": {}}
    embedded: list[int] = []
    with measured() as vectors:
        folder = build_index(
            scratch / "index",
            SentenceFile(scratch / "sentences.txt"),
            embed,
            model={"name": "clusters", "decides": {"noise": arguments.noise, "width": arguments.width}},
            advance=lambda done, total: embedded.append(done),
            replace=True,
        )
    size = sum(file.stat().st_size for file in folder.path.iterdir()) / MIB
    result["vectors"] = {**vectors, "embedded": embedded[-1] - embedded[0], "size_mib": round(size, 1)}
    queries = [f"query {arguments.n + number}" for number in range(arguments.queries)]
    exact = searcher(folder, "exact", embed)
    with measured() as asked:
        truth = lines(exact.search(queries, COUNT))
    result["kinds"]["exact"] = {
        **times(exact, queries[: arguments.exact_queries]),
        "all_at_once_ms": round(1000 * asked["seconds"] / len(queries), 2),
        "peak_mib": asked["peak_mib"],
    }
    for kind in arguments.kinds:
        with measured() as built:
            open_index(folder, kind, tell)
        folder = IndexFolder.open(folder.path)
        with measured() as asked:
            finder = searcher(folder, kind, embed)
            found = lines(finder.search(queries, COUNT))
            took = times(finder, queries)
        facts = folder.about["kinds"][kind]
        result["kinds"][kind] = {
            "build_s": built["seconds"],
            "build_peak_mib": built["peak_mib"],
            "size_mib": round((folder.path / facts["file"]).stat().st_size / MIB, 1),
            **took,
            "search_peak_mib": asked["peak_mib"],
            "recall@10": round(sum(len(a & b) for a, b in zip(found, truth, strict=True)) / COUNT / len(queries), 4),
            "noted": facts,
        }
    return result


def tell(line: str) -> None:
    """Say how far it is."""
    sys.stderr.write(f"{line}\n")


def main() -> None:
    """Read the command line, measure, and print or write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100_000, help="sentences (default: 100000)")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument(
        "--noise", type=float, default=0.8, help="of a sentence around its centre, of 1 between centres"
    )
    parser.add_argument("--queries", type=int, default=100, help="default: 100")
    parser.add_argument("--exact-queries", type=int, default=20, help="of them, how many the exact search is timed by")
    parser.add_argument("--kinds", nargs="+", choices=("ivf", "hnsw"), default=["ivf"])
    parser.add_argument(
        "--scratch", type=Path, help="a folder where the index is built and kept; one begun there is gone on with"
    )
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = arguments.scratch or Path(folder)
        scratch.mkdir(parents=True, exist_ok=True)
        result = bench(arguments, scratch)
    result["environment"] = environment()
    result["threads"] = torch.get_num_threads()
    result["load"] = os.getloadavg()[0]
    text = json.dumps(result, indent=2) + "\n"
    sys.stdout.write(text)
    if arguments.json:
        arguments.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
