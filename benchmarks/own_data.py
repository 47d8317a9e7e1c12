"""Does training on data of one's own help? Three kinds of rows, trained with the recipe of
``data=file``, against the untrained encoder.

    python benchmarks/own_data.py           # MiniLM: about half an hour on two cores
    python benchmarks/own_data.py --encoder minilm_l6 mpnet_base --rows 1000 300 --tested 500 200

It needs the corpora under LIGHTNING_CSE_DATA; mpnet_base is read from LIGHTNING_CSE_ENCODERS, or
the hub, and trained in bfloat16 where the machine multiplies it fast. Finished runs are kept in the
folder of ``--runs``. ``--write`` puts the table into docs/data.md.
"""

import argparse
import csv
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import lightning_cse
from lightning_cse.data import read_corpus
from lightning_cse.metrics import auc, reciprocal_rank_at, spearman
from lightning_cse.runs import Run, read_predictions

DOCS: Final = Path(__file__).resolve().parents[1] / "docs" / "data.md"
BLOCK: Final = re.compile(r"(<!-- own_data -->\n).*?(<!-- /own_data -->)", re.DOTALL)
RESAMPLES: Final = 1000
PAIR: Final = ("anchor", "positive")
LABELLED: Final = ("premise", "hypothesis", "label")
SCORED: Final = ("sentence1", "sentence2", "score")
TRIPLETS: Final = ("snli_sample/train", "snli_sample/extra", "snli_counterfactual/original_train")

SETTINGS: Final = {"mpnet_base": ("trainer.precision=auto",)}
"""Overrides by encoder."""

METRICS: Final[dict[str, tuple[str, Callable[[Any], float]]]] = {
    "own_pairs": ("MRR@10", lambda rows: reciprocal_rank_at(rows["rank"], 10)),
    "own_nli": ("AUC", lambda rows: auc(rows["label"], rows["score"])),
    "own_sts": ("Spearman", lambda rows: spearman(rows["gold"], rows["score"])),
}
"""The metric of each task, from the columns of its predictions."""


class Files:
    """Files of one's own in a folder, made of the corpora."""

    def __init__(self, folder: Path, rows: int, tested: int) -> None:
        self.folder = folder
        self.rows = rows
        self.tested = tested
        folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = os.environ["LIGHTNING_CSE_DATA"]
        self.sts = self.write("sts.csv", SCORED, self.read("stsb/test", SCORED))

    def read(self, source: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return columns of a split, row by row."""
        corpus, split = source.split("/")
        rows = read_corpus(corpus, split, self.data_dir)
        return list(zip(*(rows[name][:] for name in columns), strict=True))

    def write(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
        """Write a CSV file."""
        path = self.folder / name
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([columns, *rows])

        return path

    def sets(self, name: str, columns: Sequence[str], sources: dict[str, list[Any]]) -> str:
        """Write dev and test set, and return the value of their override."""
        paths = {
            split: self.write(f"{name}_{split}.csv", columns, rows[: self.tested])
            for split, rows in sources.items()
        }
        return f"{{dev: {paths['dev']}, test: {paths['test']}}}"

    def questions(self) -> list[str]:
        """INLI: which sentence does a text imply?"""
        columns = ("premise", "implied_entailment")
        rows = self.read("inli/train", columns)[: self.rows]
        train = self.write("questions.csv", PAIR, rows)
        splits = {"dev": "inli/val", "test": "inli/test"}
        tested = {split: self.read(source, columns) for split, source in splits.items()}

        return [f"data.train={train}", f"own.pairs={self.sets('questions', PAIR, tested)}"]

    def triplets(self) -> list[str]:
        """SNLI: a premise, an entailment, and all contradictions and neutral hypotheses."""
        hypotheses: dict[str, dict[str, list[str]]] = {}
        for source in TRIPLETS:
            for premise, hypothesis, label in self.read(source, LABELLED):
                hypotheses.setdefault(premise, {}).setdefault(label, []).append(hypothesis)

        rows = []
        for premise, by_label in hypotheses.items():
            negatives = by_label.get("contradiction", []) + by_label.get("neutral", [])
            if "entailment" in by_label and negatives:
                rows.append((premise, by_label["entailment"][0], *(negatives + 2 * [""])[:3]))

        columns = (*PAIR, "negative_1", "negative_2", "negative_3")
        train = self.write("triplets.csv", columns, rows[: self.rows])
        tested = {split: self.read(f"snli_senteval/{split}", LABELLED) for split in ("dev", "test")}

        return [f"data.train={train}", f"own.nli={self.sets('triplets', LABELLED, tested)}"]

    def sentences(self) -> list[str]:
        """Wikipedia: sentences, each tested with a simpler sentence that was split off from it."""
        train = self.folder / "sentences.txt"
        rows = self.read("wiki1m_part/train", ("sentence",))[: 2 * self.rows]
        train.write_text("".join(f"{sentence}\n" for (sentence,) in rows), encoding="utf-8")
        columns = ("sentence", "simple2")
        tested = {split: self.read(f"wiki_split/{split}", columns) for split in ("dev", "test")}

        return [f"data.train={train}", f"own.pairs={self.sets('sentences', PAIR, tested)}"]


KINDS: Final = {
    "questions": ("INLI, text and what it implies", "simcse_sup", Files.questions),
    "triplets": ("SNLI, with several negatives", "simcse_sup", Files.triplets),
    "sentences": ("Wikipedia, plain sentences", "simcse_unsup", Files.sentences),
}


def cell(run: Run, task: str) -> str:
    """Return a metric before and after training, and the 95 % interval of the difference by a
    paired bootstrap over the rows.
    """
    name, metric = METRICS[task]
    paths = (run.predictions / f"{prefix}{task}.parquet" for prefix in ("untrained-", ""))
    predictions = [read_predictions(path) for path in paths]

    count = len(predictions[0])
    generator = np.random.default_rng(0)
    differences = []
    for _ in range(RESAMPLES):
        chosen = generator.integers(count, size=count)
        before, after = (metric(columns.iloc[chosen]) for columns in predictions)
        differences.append(100 * (after - before))

    before, after = (100 * metric(columns) for columns in predictions)
    low, high = np.percentile(differences, (2.5, 97.5))

    return f"{name} {before:.1f} → {after:.1f} ({low:+.1f} to {high:+.1f})"


def main() -> None:
    """Train what is not trained yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", nargs="+", default=["minilm_l6"])
    parser.add_argument("--kind", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        default=[1000],
        help="training rows, of all encoders or of each; twice as many sentences",
    )
    parser.add_argument(
        "--tested",
        type=int,
        nargs="+",
        default=[500],
        help="rows of dev and of test, of all encoders or of each",
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/own_data"))
    parser.add_argument("--write", action="store_true", help="put the table into docs/data.md")
    parser.add_argument("--set", nargs="+", default=[], help="further overrides")
    options = parser.parse_args()

    count = len(options.encoder)
    sizes = (
        numbers * count if len(numbers) == 1 else numbers
        for numbers in (options.rows, options.tested)
    )
    lines = ["| your data | encoder | the same kind, test | STS-B test |", "|---|---|---|---|"]
    for encoder, rows, tested in zip(options.encoder, *sizes, strict=True):
        files = Files(options.runs.absolute() / f"files-{rows}", rows, tested)
        for corpus in options.kind:
            title, experiment, make = KINDS[corpus]
            run = lightning_cse.train(
                overrides=[
                    *(f"+experiment={experiment}", f"encoder={encoder}", "data=file"),
                    *(*make(files), f"own.sts={files.sts}"),
                    *("logger=csv", "figures=false", f"paths.runs_dir={options.runs}"),
                    *SETTINGS.get(encoder, ()),
                    *options.set,
                ]
            )
            assert run is not None  # noqa: S101 - without fast_dev_run
            task = "own_nli" if corpus == "triplets" else "own_pairs"
            cells = [cell(run, name) for name in (task, "own_sts")]
            number = 2 * rows if corpus == "sentences" else rows
            lines.append(f"| {title}, {number:,} rows | `{encoder}` | {' | '.join(cells)} |")
            sys.stdout.write(f"{lines[-1]}\n")

    table = "\n".join([*lines, ""])
    sys.stdout.write(table)
    if options.write:
        DOCS.write_text(BLOCK.sub(rf"\g<1>\n{table}\n\g<2>", DOCS.read_text()), encoding="utf-8")


if __name__ == "__main__":
    main()
