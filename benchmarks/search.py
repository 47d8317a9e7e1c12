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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_cse.embeddings import Embedding, PointEmbedding
from lightning_cse.index import IndexFolder, SentenceFile, build_index, open_index
from lightning_cse.records import environment
from lightning_cse.running.searching import Comparison, Searcher
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


def answer(folder: IndexFolder, kind: str, embed: Clusters, queries: Sequence[str]) -> tuple[Any, list[float]]:
    """Return what an index finds for each query, and the milliseconds it takes."""
    views = ("primary", "primary")
    compared = Comparison("similar", lambda a, b: cosine(a.vector, b.vector), views)
    searcher = Searcher(embed, folder, open_index(folder, kind), compared)
    searcher.search(queries, COUNT)
    found, took = [], []
    for query in queries:
        begun = time.perf_counter()
        found.append([hit.line for hit in searcher.search([query], COUNT)[0]])
        took.append(1000 * (time.perf_counter() - begun))
    return found, took


def shared(found: Sequence[int], truth: Sequence[int]) -> int:
    """Return how many of the nearest were found."""
    return len(set(found) & set(truth))


def bench(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Build and ask an index of every kind, and return what was measured."""
    embed = Clusters(arguments.n, arguments.width, arguments.noise)
    write_sentences(scratch / "sentences.txt", arguments.n)
    result: dict[str, Any] = {"n": arguments.n, "width": arguments.width, "noise": arguments.noise, "kinds": {}}
    with measured() as vectors:
        corpus = SentenceFile(scratch / "sentences.txt")
        folder = build_index(scratch / "index", corpus, embed, model={"name": "clusters", "decides": {}})
    size = sum(file.stat().st_size for file in folder.path.iterdir()) / MIB
    result["vectors"] = {**vectors, "size_mib": round(size, 1)}
    begun = time.perf_counter()
    embed([f"again {number}" for number in range(2000)])
    result["vectors"]["of_which_made_up_s"] = round((time.perf_counter() - begun) * arguments.n / 2000, 2)
    queries = [f"query {arguments.n + number}" for number in range(arguments.queries)]
    truth, _ = answer(folder, "exact", embed, queries)
    for kind in dict.fromkeys(["exact", *arguments.kinds]):
        with measured() as built:
            open_index(folder, kind, lambda line: sys.stderr.write(f"{line}\n") and None)
        folder = IndexFolder.open(folder.path)
        with measured() as asked:
            found, took = answer(folder, kind, embed, queries)
        facts = folder.about["kinds"].get(kind, {})
        told = {
            "median_ms": round(statistics.median(took), 2),
            "p95_ms": round(statistics.quantiles(took, n=20)[-1], 2),
            "search_peak_mib": asked["peak_mib"],
            "recall@10": round(sum(map(shared, found, truth)) / COUNT / len(queries), 4),
        }
        if facts:
            told |= {"build_s": built["seconds"], "build_peak_mib": built["peak_mib"], "noted": facts}
            told["size_mib"] = round((folder.path / facts["file"]).stat().st_size / MIB, 1)
        result["kinds"][kind] = told
    return result


def main() -> None:
    """Read the command line, measure, and print or write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100_000, help="sentences (default: 100000)")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument(
        "--noise", type=float, default=0.8, help="of a sentence around its centre, of 1 between centres"
    )
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", choices=("ivf", "hnsw"), default=["ivf"])
    parser.add_argument(
        "--scratch", type=Path, help="where the index is built for the while; default: a temporary folder"
    )
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        result = bench(arguments, Path(folder))
    result["environment"] = environment()
    result["threads"] = torch.get_num_threads()
    result["load"] = os.getloadavg()[0]
    text = json.dumps(result, indent=2) + "\n"
    sys.stdout.write(text)
    if arguments.json:
        arguments.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
