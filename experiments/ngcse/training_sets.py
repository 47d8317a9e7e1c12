"""The training sets of `before_training.yaml`, written as files from the corpora.

python experiments/ngcse/training_sets.py     # with LIGHTNING_CSE_DATA; writes runs/training_sets/
"""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from lightning_cse.data import NLITriplets, read_corpus

FOLDER = Path("runs", "training_sets")
SPLITS = {"train": (2000, "train"), "held_out": (500, "val")}
"""The number of INLI's premises in a file, the first ones, and the split that they are from."""
PAIRS = {"train": 2000, "held_out": 500}
TRIPLETS = {"train": 420, "held_out": 80}
"""The numbers of rows of SNLI and of MNLI: the partial corpora have 506 triplets of MNLI."""
NLI = {
    "snli": [
        ("snli_sample", "train"),
        ("snli_sample", "extra"),
        ("snli_counterfactual", "original_train"),
        ("snli_counterfactual", "revised_train"),
    ],
    "mnli": [("mnli_nyu", "train"), ("mnli_llmsknow", "train")],
}

Row = dict[str, str]


def inli_sets(data_dir: str, split: str, number: int) -> Iterator[tuple[str, list[Row]]]:
    """Yield the name and rows of each set that is made from the premises of a split of INLI."""
    source = list(read_corpus("inli", split, data_dir).select(range(number)))
    premises = [row["premise"] for row in source]
    explicit = [row["explicit_entailment"] for row in source]
    implied = [row["implied_entailment"] for row in source]
    negatives = [row["contradiction"] for row in source]
    both = [(explicit, implied)[i % 2][i] for i in range(number)]
    for name, positives in {"explicit": explicit, "implied": implied, "both": both}.items():
        yield name, rows(premises, positives, negatives)
        yield f"{name}_pairs", rows(premises, positives)

    rng = np.random.default_rng(0)
    order = rng.permutation(number)
    partner = np.empty(number, dtype=int)
    partner[order] = np.roll(order, 1)  # nobody is their own
    yield "neutral", rows(premises, [row["neutral"] for row in source])
    yield "random", rows(premises, [explicit[i] for i in partner])
    yield "overlap", rows(premises, [explicit[i] for i in nearest_by_words(premises, explicit)])
    halves = [shuffled_halves(premise, rng) for premise in premises]
    yield "halves", rows([first for first, _ in halves], [second for _, second in halves])


def rows(
    anchors: Sequence[str], positives: Sequence[str], negatives: Sequence[str] | None = None
) -> list[Row]:
    """Return rows of two or three sentences."""
    made = [
        {"anchor": anchor, "positive": positive}
        for anchor, positive in zip(anchors, positives, strict=True)
    ]
    for row, negative in zip(made, negatives or (), strict=negatives is not None):
        row["negative"] = negative

    return made


def nearest_by_words(sentences: Sequence[str], others: Sequence[str]) -> list[int]:
    """Return for each sentence the number of the most similar other, not that of the same row, by
    the Jaccard index of lower-case words.
    """
    words = [
        [set(re.findall(r"\w+", text.lower())) for text in texts] for texts in (sentences, others)
    ]
    nearest = []
    for i, own in enumerate(words[0]):
        overlap = [len(own & other) / len(own | other) for other in words[1]]
        overlap[i] = -1.0
        nearest.append(int(np.argmax(overlap)))

    return nearest


def shuffled_halves(sentence: str, rng: np.random.Generator) -> tuple[str, str]:
    """Return the words of a sentence in random order, cut into two halves."""
    words = rng.permutation(sentence.split()).tolist()
    middle = (len(words) + 1) // 2

    return " ".join(words[:middle]), " ".join(words[middle:])


def nli_sets(data_dir: str) -> Iterator[tuple[str, dict[str, list[Row]]]]:
    """Yield the name and rows, by file, of pairs and of triplets from SNLI and from MNLI."""
    for name, corpora in NLI.items():
        tables = [read_corpus(corpus, split, data_dir) for corpus, split in corpora]
        for suffix, numbers in (("", TRIPLETS), ("_pairs", PAIRS)):
            made = NLITriplets(contradiction=not suffix)(tables, Counter())
            order = np.random.default_rng(0).permutation(len(made))
            files = {}
            for split, number in numbers.items():
                chosen, order = made.select(order[:number]), order[number:]
                negatives = None if suffix else chosen["negative"]
                files[split] = rows(chosen["anchor"], chosen["positive"], negatives)

            yield name + suffix, files


def main() -> None:
    """Write a file of training rows and one of held-out rows for each set."""
    data_dir = os.environ["LIGHTNING_CSE_DATA"]
    sets: dict[str, dict[str, list[Row]]] = {}
    for split, (number, corpus_split) in SPLITS.items():
        for name, made in inli_sets(data_dir, corpus_split, number):
            sets.setdefault(name, {})[split] = made

    sets.update(nli_sets(data_dir))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, files in sets.items():
        for split, made in files.items():
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
            (FOLDER / f"{name}.{split}.jsonl").write_text(lines, encoding="utf-8")

        sys.stdout.write(f"{name}: {len(files['train'])} rows, {len(files['held_out'])} held out\n")


if __name__ == "__main__":
    main()
