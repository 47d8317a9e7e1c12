"""Measure the memory and the time until the first batch of training data by rows, compared with
sentence-transformers.

    make bench-data                               # or: python benchmarks/data.py; 1e3 to 1e6 rows
    make bench-data ARGS="--rows 1000 10000000 --sides ours --encoder tiny"
    make bench-data ARGS="--data labelled hybrid --sides ours"

The sentences are made up, as long as those of Wikipedia, and read from a file
(+experiment=simcse_unsup); on the other side, `datasets` reads the file, and the loader of
sentence-transformers' trainer tokenises each batch. Other data sets are of our side alone: labelled
pairs that become triplets (+experiment=simcse_sup; three pairs per premise, one of them neutral),
and a hybrid in which one of 50 sentences has LLM rows (+experiment=ngcse_wiki_sts_ht). Each case is
a fresh process that builds the data and iterates over some batches, as training does, without
training. The first time, it fills the caches; the second time, it reads from them.

Memory is the peak of the proportional set size of the process and its children without pages of
files (``Pss_Anon`` of ``/proc/PID/smaps_rollup``, every 20 ms, or less often where looking takes
more than a millisecond): the system reclaims the pages of mapped files when it needs them. It is
shown above that of the same case with the fewest rows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

from measuring import console, machine, save, table_of

ROWS = (1_000, 10_000, 100_000, 1_000_000)
GOAL_MIB = 100
GOAL_SECONDS = 5
BATCHES = 200
SIDES = ("ours", "theirs")
DATA = {
    "sentences": ("+experiment=simcse_unsup",),
    "labelled": ("+experiment=simcse_sup", "data=file"),
    "hybrid": ("+experiment=ngcse_wiki_sts_ht", "data.watched_in=[]"),
}
NAMES = {"ours": "lightning_cse", "theirs": "sentence-transformers"}


def sentences(count: int) -> Iterator[str]:
    """Yield made-up sentences of 12 to 34 words (on average 23, about 130 characters), like those
    of Wikipedia.
    """
    draw = random.Random(0)  # noqa: S311 - no secret
    syllables = [
        a + b for a in "bcdfglmnprstv" for b in ("a", "e", "i", "o", "u", "an", "er", "in")
    ]
    words = [
        "".join(draw.choices(syllables, k=draw.choice((1, 2, 2, 3, 4)))) for _ in range(50_000)
    ]
    for number in range(count):
        yield " ".join((str(number), *draw.choices(words, k=draw.randint(12, 34)), "."))


def labelled(count: int) -> Iterator[str]:
    """Yield lines of CSV with labelled sentence pairs, three per premise."""
    yield "premise,hypothesis,label"
    for number, sentence in enumerate(sentences(-(-count // 3))):
        for label in ("entailment", "neutral", "contradiction")[: count - 3 * number]:
            yield f"{sentence},{label} {sentence[:-20]},{label}"


def llm_rows(count: int) -> Iterator[str]:
    """Yield LLM rows of every fiftieth sentence, as JSON lines."""
    for sentence in islice(sentences(count), None, None, 50):
        prefixes = {"positive": "The same.", "intermediate": "Alike.", "negative": "Another."}
        words = {name: f"{prefix} {sentence[:-20]}" for name, prefix in prefixes.items()}
        yield json.dumps({"anchor": sentence, **words})


def write(data: str, count: int, folder: Path) -> dict[str, Path]:
    """Write the files of a data set; return them by the config key that names them."""
    contents = {"data.train": ("txt", sentences)}
    if data == "labelled":
        contents = {"data.train": ("csv", labelled)}
    elif data == "hybrid":
        contents["data.rows.llm"] = ("jsonl", llm_rows)

    files = {key: folder / f"{data}-{count}.{end}" for key, (end, _) in contents.items()}
    for key, (_, lines) in contents.items():
        with files[key].open("w", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines(count))

    return files


# In the process of a case ---------------------------------------------------------------------


def measure(side: str, encoder: str, cache: str, *overrides: str) -> dict[str, float]:
    """Build the data of a config and iterate over batches; return the seconds."""
    from hydra.utils import instantiate

    from lightning_cse.config.compose import compose_run

    settings = ["suite=stsb", f"encoder={encoder}", f"paths.cache_dir='{cache}'"]
    cfg = compose_run("train", [*settings, *overrides])
    size = cfg.data.batch_size
    model = instantiate(cfg.encoder)
    start = time.perf_counter()
    rows, batches = (ours if side == "ours" else theirs)(cfg, model)
    next(batches)
    ready = time.perf_counter()
    times = []
    for _ in range(min(BATCHES, rows // size - 1)):
        begun = time.perf_counter()
        next(batches)
        times.append(time.perf_counter() - begun)
    return {"first_batch_seconds": ready - start, "batch_ms": 1000 * statistics.median(times)}


def ours(cfg: Any, encoder: Any) -> tuple[int, Iterator[Any]]:
    """Return the number of training rows and their batches."""
    from hydra.utils import instantiate

    from lightning_cse.data import ContrastiveDataModule

    method = instantiate(cfg.method, encoder=encoder)
    data = ContrastiveDataModule(
        instantiate(cfg.data),
        tokenize=encoder.tokenizer,
        seed=0,
        roles=method.roles,
        optional=method.optional,
    )
    data.setup()
    return len(data.train), iter(data.train_dataloader())


def theirs(cfg: Any, encoder: Any) -> tuple[int, Iterator[Any]]:
    """Return the same for a data set of `datasets` and the tokenizer of sentence-transformers."""
    import datasets
    from sentence_transformers import SentenceTransformer
    from torch.utils.data import DataLoader

    from lightning_cse.encoders.find import find_encoder

    folder = find_encoder(cfg.encoder.name, cfg.encoder.source, cfg.encoder.package)
    model = SentenceTransformer(str(folder), device="cpu")
    rows = datasets.load_dataset(
        "text",
        data_files=list(cfg.data.train),
        split="train",
        cache_dir=f"{cfg.paths.cache_dir}/other",
    )
    collate: Callable[[Any], Any] = lambda part: model.preprocess([row["text"] for row in part])  # noqa: E731
    return len(rows), iter(DataLoader(rows, cfg.data.batch_size, shuffle=True, collate_fn=collate))


# In the process of the command ----------------------------------------------------------------


def memory_of(pid: int) -> float:
    """Return the memory of a process and its children without the pages of files, in MiB."""
    with contextlib.suppress(OSError):  # it has just ended
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        anonymous = next(
            int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss_Anon")
        )
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        return anonymous + sum(memory_of(int(child)) for child in children)
    return 0.0


def run(
    side: str,
    data: str,
    files: dict[str, Path],
    cache: str,
    *,
    encoder: str = "minilm_l6",
    batch_size: int = 64,
) -> dict[str, Any]:
    """Measure a case in a process of its own."""
    overrides = [*DATA[data], f"data.batch_size={batch_size}"]
    overrides += [f"{key}=['{file}']" for key, file in files.items()]
    command = [sys.executable, __file__, "--measure", side, encoder, cache, *overrides]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0.0
        while process.poll() is None:
            begun = time.perf_counter()
            peak = max(peak, memory_of(process.pid))
            # The look at a large process takes time from it.
            time.sleep(max(0.02, 20 * (time.perf_counter() - begun)))
        out = process.stdout.read() if process.stdout else ""
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return {**json.loads(out.splitlines()[-1]), "peak_mib": peak}


def bench(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure each number of rows of each data set and side, first without and then with its
    cache.
    """
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        for data, count in product(args.data, args.rows):
            files = write(data, count, Path(scratch))
            time.sleep(3)  # the state of a file that was just written is not remembered
            for side in args.sides if data == "sentences" else ("ours",):
                for cached in (False, True):
                    measurement = run(
                        side,
                        data,
                        files,
                        f"{scratch}/{side}",
                        encoder=args.encoder,
                        batch_size=args.batch_size,
                    )
                    case = {"side": side, "data": data, "sentences": count, "cached": cached}
                    yield case | measurement

            for file in files.values():
                file.unlink()


def row_of(case: dict[str, Any], smallest: dict[str, Any]) -> dict[str, str]:
    """Return the cells of a case: its memory and seconds also above those of the fewest rows."""
    seconds, memory = case["first_batch_seconds"], case["peak_mib"]
    is_larger = case is not smallest

    return {
        "side": NAMES[case["side"]],
        "data": case["data"],
        "rows": f"{case['sentences']:,}",
        "cache": "read" if case["cached"] else "filled",
        "first batch s": f"{seconds:,.1f}",
        "above": f"{seconds - smallest['first_batch_seconds']:,.1f}" if is_larger else "",
        "a batch ms": f"{case['batch_ms']:.2f}",
        "peak MiB": f"{memory:,.0f}",
        "MiB above": f"{memory - smallest['peak_mib']:,.0f}" if is_larger else "",
    }


def main() -> None:
    """Measure and print; see the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--data", nargs="+", choices=DATA, default=["sentences"])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--encoder", default="minilm_l6", help="whose tokenizer is used")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--folder", help="of the temporary files: 1 GB per million rows")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", default=Path(__file__).with_suffix(".json")
    )
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        sys.stdout.write(f"{json.dumps(measure(*args.measure))}\n")
        return
    about = machine()
    smallest: dict[tuple[str, str, bool], dict[str, Any]] = {}
    cases, rows = [], []
    for case in bench(args):
        first = smallest.setdefault((case["side"], case["data"], case["cached"]), case)
        cases.append(case)
        rows.append(row_of(case, first))

    goal = f"{GOAL_MIB} MiB, and from the cache {GOAL_SECONDS} s, above the fewest rows"
    console().print(table_of(rows), f"goal for any number of rows: at most {goal}")
    save(args.json, {"environment": about, "cases": cases})


if __name__ == "__main__":
    main()
