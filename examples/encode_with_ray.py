"""Encode a corpus of any size with Ray Data: Parquet files in, Parquet files with vectors out.

    python examples/encode_with_ray.py corpus vectors --model minilm_l6 --column text --models 2

Each file of ``corpus`` becomes a file of the same name in ``vectors``, with its columns and a
``vector`` for each row. Ray keeps a pool of models; each encodes a file at a time, in constant
memory. A file is put in place as a whole, so the same command continues after a kill: it encodes
the files that are missing. Give each model and view a folder of its own.

This needs Ray: pip install 'lightning_cse[ray]'. It starts on this machine, or RAY_ADDRESS names
a cluster, whose machines must see both folders.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray

from lightning_cse import load  # a worker can be sent this function, but not a module
from lightning_cse.runs import atomic_file

ROWS = 10_000
"""The rows of a file that are in memory at a time."""


class Encoder:
    """A model of the pool."""

    def __init__(self, model: str, column: str, view: str | None, output: Path) -> None:
        self.model = load(model)
        self.column = column
        self.view = view
        self.output = output

    def __call__(self, files: dict[str, np.ndarray]) -> dict[str, list]:
        """Encode files, and return the number of their rows."""
        counts = [self.encode(Path(path)) for path in files["path"]]
        return {"path": list(files["path"]), "rows": counts}

    def encode(self, path: Path) -> int:
        """Write the rows of a file with their vectors, and return their number."""
        width = self.model.encode("", self.view).shape[0]
        vectors = pa.field("vector", pa.list_(pa.float32(), width))
        with pq.ParquetFile(path) as source, atomic_file(self.output / path.name) as target:
            schema = source.schema_arrow.append(vectors)
            with pq.ParquetWriter(target, schema) as writer:
                for batch in source.iter_batches(ROWS):
                    sentences = batch[self.column].to_pylist()
                    values = self.model.encode(sentences, self.view, show_progress_bar=False)
                    column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), width)
                    writer.write_batch(batch.append_column(vectors, column).cast(schema))

            return source.metadata.num_rows


def main() -> None:
    """Encode the files that have no vectors yet."""
    parser = argparse.ArgumentParser(description="Encode a corpus with Ray Data.")
    parser.add_argument("corpus", type=Path, help="a folder of Parquet files")
    parser.add_argument("vectors", type=Path, help="the folder for their vectors")
    parser.add_argument("--model", default="minilm_l6", help="what lightning_cse.load takes")
    parser.add_argument("--column", default="text", help="the column of the sentences")
    parser.add_argument("--view", help="one of model.views; the primary one by default")
    parser.add_argument("--models", type=int, default=1, help="the size of the pool")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of each model")
    options = parser.parse_args()

    files = sorted(options.corpus.absolute().glob("*.parquet"))
    output = options.vectors.absolute()
    missing = [file for file in files if not (output / file.name).is_file()]
    print(f"{len(files)} files, {len(missing)} of them to encode")
    if not missing:
        return

    encoded = ray.data.from_items([{"path": str(file)} for file in missing]).map_batches(
        Encoder,
        fn_constructor_args=(options.model, options.column, options.view, output),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=options.models),
        num_gpus=options.gpus,
    )
    rows = sum(row["rows"] for row in encoded.iter_rows())
    print(f"{rows:,} sentences encoded")


if __name__ == "__main__":
    main()
