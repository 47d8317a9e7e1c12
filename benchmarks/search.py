"""Measure build time, size, query time and recall of faiss indices, compared with the exact search.

    make bench-search                                  # or: python benchmarks/search.py
    make bench-search ARGS="--n 1000000 --index IVF1024,Flat HNSW32"

Embeddings are made up from a seed, so that no encoder is measured: Gaussian centres in 24 dimensions, one per hundred
sentences, with noise that makes neighbouring clusters overlap, are projected to the width, and a little noise is added
there. Queries are further draws around the same centres. Recall is the share of the ten best that are found.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lightning_cse.analysis.searching import Comparison, Vectors, faiss_index, search
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.runs import environment
from lightning_cse.similarity import cosine_matrix

COUNT = 10


def clusters(
    numbers: Sequence[int], centres: torch.Tensor, width: int, noise: float
) -> PointEmbedding:
    """Return the vector of each number, which does not depend on the batch."""
    out = torch.randn(centres.shape[1], width, generator=torch.Generator().manual_seed(1))
    rows = []
    for number in numbers:
        draws = torch.Generator().manual_seed(number)
        centre = centres[int(torch.randint(len(centres), (1,), generator=draws))]
        inner = centre + noise * torch.randn(len(centre), generator=draws)
        rows.append(inner @ out + 0.5 * torch.randn(width, generator=draws))
    return PointEmbedding(torch.stack(rows))


def main() -> None:
    """Read the command line, measure, and print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=100_000, help="sentences (default: 100000)")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument(
        "--noise", type=float, default=0.8, help="of a sentence; the centres have 1"
    )
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument(
        "--index", nargs="+", default=["IVF256,Flat"], help="factory strings of faiss"
    )
    options = parser.parse_args()
    centres = torch.randn(max(2, options.n // 100), 24, generator=torch.Generator().manual_seed(0))

    def embed(numbers: Any) -> PointEmbedding:
        return clusters(numbers, centres, options.width, options.noise)

    queries = embed(range(options.n, options.n + options.queries))
    compared = Comparison(lambda a, b: cosine_matrix(a.vector, b.vector), ("primary", "primary"))
    result: dict[str, Any] = vars(options) | {"found": {}, "environment": environment()}
    with tempfile.TemporaryDirectory() as folder:
        vectors = Vectors(Path(folder) / "vectors.npy", range(options.n), embed)  # type: ignore[arg-type]
        truth: list[set[int]] = []
        for factory in (None, *options.index):
            path, begun = Path(folder) / f"{factory}.faiss", time.perf_counter()
            index = None if factory is None else faiss_index(factory, path, vectors, "primary")
            built = time.perf_counter()
            found = [
                {row for row, _ in hits}
                for hits in search(vectors, compared, queries, COUNT, index)
            ]
            truth = truth or found
            result["found"][factory or "exact"] = {
                "build_s": round(built - begun, 2),
                "query_ms": round(1000 * (time.perf_counter() - built) / options.queries, 2),
                "size_mib": round(path.stat().st_size / 2**20, 1) if path.exists() else None,
                "recall@10": sum(len(a & b) for a, b in zip(truth, found, strict=True))
                / COUNT
                / options.queries,
            }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
