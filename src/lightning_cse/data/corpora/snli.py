"""SNLI, captions of photographs with hypotheses, and the public files that hold parts of it."""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Iterable, Iterator, Mapping

from lightning_cse.data.corpora.nli import LABELS, NO_LABEL, checked_label, labelled, parse_jsonl
from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Hub, Table
from lightning_cse.data.corpora.tables import checked_sentence
from lightning_cse.errors import DataError

SNLI_LICENCE = "CC BY-SA 4.0"
HUB_LABELS = {0: "entailment", 1: "neutral", 2: "contradiction", -1: NO_LABEL}
CAT_LABELS = {"1": "neutral", "2": "contradiction", "3": "entailment"}
COUNTERFACTUAL_HEADER = ["sentence1", "sentence2", "gold_label"]


def to_official(rows: Iterable[Mapping[str, object]], path: str) -> bytes:
    """Write the hub's rows (``premise``, ``hypothesis``, ``label`` as a number, -1 for none) as JSON lines.

    Of the ten native keys those three are written that are read.

    Raises:
        DataError: At the first bad row, with its number.
    """
    lines = []
    for number, row in enumerate(rows, start=1):
        where = f"{path}:{number}"
        absent = [name for name in ("premise", "hypothesis", "label") if name not in row]
        if absent:
            raise DataError(f"{where}: missing column {absent[0]!r}; columns found: {', '.join(row)}")
        label = row["label"]
        if not isinstance(label, int) or label not in HUB_LABELS:
            raise DataError(f"{where}: label {label!r} is not one of {', '.join(map(str, HUB_LABELS))}")
        pair = {
            "gold_label": HUB_LABELS[label],
            "sentence1": checked_sentence(row["premise"], "premise", where),
            "sentence2": checked_sentence(row["hypothesis"], "hypothesis", where),
        }
        lines.append(json.dumps(pair))
    return "".join(f"{line}\n" for line in lines).encode()


def parse_column(text: str, path: str, *, column: str) -> Table:
    """Parse a file of SentEval's layout, one cell of one column a line; outer white space is removed.

    Raises:
        DataError: At the first fault, with file and line.
    """
    cells = [
        checked_sentence(cell, column, f"{path}:{line}")
        for line, cell in enumerate(text.rstrip("\r\n").split("\n"), start=1)
    ]
    table = Table({column: cells}, list(range(1, len(cells) + 1)))
    return labelled(table, path) if column == "label" else table


def parse_cat(text: str, path: str) -> Table:
    """Parse a file of ``cat``: no header; the label as a number, the same again, premise, hypothesis.

    Nowhere is said which number means which label; the pairs that are in another copy of SNLI tell.

    Raises:
        DataError: At the first fault, with file and line.
    """
    columns: dict[str, list[str]] = {"premise": [], "hypothesis": [], "label": []}
    lines = []
    for line, cells in _tab_rows(text, path, width=4):
        where = f"{path}:{line}"
        if cells[0] != cells[1]:
            raise DataError(f"{where}: the two labels differ: {cells[0]!r} and {cells[1]!r}")
        columns["label"].append(checked_label(cells[0], where, CAT_LABELS))
        columns["premise"].append(checked_sentence(cells[2], "premise", where))
        columns["hypothesis"].append(checked_sentence(cells[3], "hypothesis", where))
        lines.append(line)
    if not lines:
        raise DataError(f"{path}: no rows")
    return Table(dict(columns), lines)


def parse_counterfactual(text: str, path: str) -> Table:
    """Parse a file of the counterfactually augmented pairs: a header, then premise, hypothesis, label.

    Raises:
        DataError: At the first fault, with file and line.
    """
    columns: dict[str, list[str]] = {"premise": [], "hypothesis": [], "label": []}
    lines = []
    rows = _tab_rows(text, path, width=len(COUNTERFACTUAL_HEADER))
    line, header = next(rows, (1, []))
    if header != COUNTERFACTUAL_HEADER:
        raise DataError(f"{path}:{line}: the header is {header}, expected {COUNTERFACTUAL_HEADER}")
    for line, cells in rows:
        where = f"{path}:{line}"
        columns["premise"].append(checked_sentence(cells[0], "sentence1", where))
        columns["hypothesis"].append(checked_sentence(cells[1], "sentence2", where))
        columns["label"].append(checked_label(cells[2], where, {label: label for label in LABELS[:3]}))
        lines.append(line)
    if not lines:
        raise DataError(f"{path}: a header but no rows")
    return Table(dict(columns), lines)


def _tab_rows(text: str, path: str, *, width: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of tab-separated text in which ``"`` quotes a cell, and the line that each starts on."""
    reader = csv.reader(io.StringIO(text.rstrip("\r\n"), newline=""), delimiter="\t", strict=True)
    line = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{path}:{line}: the row that starts here is not valid: {error}") from None
        if cells is None:
            return
        if len(cells) != width:
            raise DataError(f"{path}:{line}: {len(cells)} cells between tabs, {width} are needed")
        yield line, cells
        line = reader.line_num + 1


def _senteval(split: str, rows: int, digests: Mapping[str, str]) -> tuple[CorpusFile, ...]:
    """Return the three files of one split, of which each holds one column."""
    return tuple(
        CorpusFile(
            split=split,
            path=f"SNLI/senteval/{name}.{split}",
            rows=rows,
            sha256=digests[name],
            remote=f"{name}.{split}",
            parse=functools.partial(parse_column, column=column),
        )
        for name, column in (("s1", "premise"), ("s2", "hypothesis"), ("labels", "label"))
    )


def _counterfactual(folder: str, split: str, rows: int, sha256: str) -> CorpusFile:
    return CorpusFile(
        split=f"{folder.partition('_')[0]}_{split}",
        path=f"SNLI/counterfactually-augmented/{folder}/{split}.tsv",
        rows=rows,
        sha256=sha256,
        remote=f"{folder}/{split}.tsv",
    )


SNLI = Corpus(
    name="snli",
    title="SNLI 1.0 (Bowman et al. 2015)",
    files=tuple(
        CorpusFile(
            split=split,
            path=f"SNLI/snli_1.0/snli_1.0_{split}.jsonl",
            rows=rows,
            sha256=None,  # the official archive could not be had; the rows are counted
            remote="snli_1.0.zip",
            member=f"snli_1.0/snli_1.0_{split}.jsonl",
        )
        for split, rows in (("train", 550_152), ("dev", 10_000), ("test", 10_000))
    ),
    parse=parse_jsonl,
    licence=SNLI_LICENCE,
    prepare="downloads the official archive (90 MB), takes three files out of it, checks row counts",
    sources=("https://nlp.stanford.edu/projects/snli",),
    hub=Hub(
        id="stanfordnlp/snli",
        revision="cdb5c3d5eed6ead6e5a341c8e56e669bb666725b",
        splits={"train": "train", "dev": "validation", "test": "test"},
        to_official=to_official,
    ),
)

SNLI_SENTEVAL = Corpus(
    name="snli_senteval",
    title="SNLI, the labelled pairs of dev and test, tokenised",
    files=(
        *_senteval(
            "dev",
            9842,
            {
                "s1": "28a398b5478b10b4b851d4bb5b2e5767171519add6586015ed50b9436df11d00",
                "s2": "a8c59709630b64ba103f7784c0cb7104a6baf23234562487264d9634714f5d2b",
                "labels": "d164d72435c3289fe53cb01e983f7c06e104bf192c0cae9caf2e99bf2e15f974",
            },
        ),
        *_senteval(
            "test",
            9824,
            {
                "s1": "62cb8107dc3c56a4376e5e521842be24e0d61c92c346b94917da2bbf2a47d8be",
                "s2": "1174f3ad30a3c30fc0f9eeffc1b3b6a79e0514026c5a658968a8e2a324b311a1",
                "labels": "e25c363e5cc70d5494d6e6555d8053eced22dca836e0f03067530eaad3d4f5f5",
            },
        ),
    ),
    parse=functools.partial(parse_column, column="premise"),
    licence=SNLI_LICENCE,
    prepare="downloads six files that e-SNLI carries, checks digests and row counts",
    sources=(
        "https://raw.githubusercontent.com/OanaMariaCamburu/e-SNLI/7b585a3f077f/dataset/eSNLI",
        "https://raw.githubusercontent.com/OanaMariaCamburu/e-SNLI/HEAD/dataset/eSNLI",
    ),
)

SNLI_PARTIAL = Corpus(
    name="snli_partial",
    # SNLI_SENTEVAL tells: its dev has every labelled pair of both files, its test none.
    title="SNLI 1.0, two eighths of dev as released, one of them under the name of test",
    files=(
        CorpusFile(
            split="dev",
            path="SNLI/snli_1.0_partial/snli_1.0_dev.jsonl",
            rows=1289,
            sha256="d28f65fc66b8943787b53ff1db0a8e69a9ca86ebafd1a140c741323402f3cf34",
            remote="snli_1.0_dev.jsonl",
        ),
        CorpusFile(
            split="test",
            path="SNLI/snli_1.0_partial/snli_1.0_test.jsonl",
            rows=1277,
            sha256="032b2d5720d402c7c521fb92363ba0d435839ad1bb822308ddec5b247be0482e",
            remote="snli_1.0_test.jsonl",
        ),
    ),
    parse=parse_jsonl,
    licence=SNLI_LICENCE,
    prepare="downloads two cut-off files that sBiMPM carries, checks digests and row counts",
    sources=(
        "https://raw.githubusercontent.com/Deltaus/sBiMPM/8f1b040cd1a4/snli_1.0",
        "https://raw.githubusercontent.com/Deltaus/sBiMPM/HEAD/snli_1.0",
    ),
)

SNLI_SAMPLE = Corpus(
    name="snli_sample",
    title="SNLI, 20,000 pairs of train (both splits are for training)",
    files=(
        CorpusFile(
            split="train",
            path="SNLI/cat/train.csv",
            rows=18_000,
            sha256="f1bca476f3011e031e634862b2a42294a1e5bcd6187daae82b1187f529d60613",
            remote="train.csv",
        ),
        CorpusFile(
            split="extra",
            path="SNLI/cat/test.csv",
            rows=2000,
            sha256="89d5aa158b10c3212c6f1c59e3996327e7c6ee6ea83da2527c99ee5a4817326a",
            remote="test.csv",
        ),
    ),
    parse=parse_cat,
    licence=SNLI_LICENCE,
    prepare="downloads two files that the project cat carries, checks digests and row counts",
    sources=(
        "https://raw.githubusercontent.com/academic-repository/cat/9c98ebb0d26e/data/snli",
        "https://raw.githubusercontent.com/academic-repository/cat/HEAD/data/snli",
    ),
)

SNLI_COUNTERFACTUAL = Corpus(
    name="snli_counterfactual",
    title="SNLI, pairs changed by hand until the label changes (Kaushik et al. 2020)",
    files=(
        _counterfactual("original", "train", 1666, "016b1657b1c0eb89e163aa194e5e2da6ca890fd6e97ee42c33de914e7e0a7ce6"),
        _counterfactual("original", "dev", 200, "27ef042f87b7181c79609b56734caed8fb9c09ba2627d0fe876f7248141fdff7"),
        _counterfactual("original", "test", 400, "07154b31ea7cf1bb0ac33e37bec143b928edbf2c964a73988973e5c0fe039b07"),
        _counterfactual(
            "revised_combined", "train", 6664, "054a8cf808bcd4a5b3a849eba4e6c1fb49f2f789e3a0f88d21e05f3f38fa5428"
        ),
        _counterfactual(
            "revised_combined", "dev", 800, "ff7d6d40a26c5bca5b9d9030db14000a42fbf5bc8a0e6d0d86cc9b378198eb88"
        ),
        _counterfactual(
            "revised_combined", "test", 1600, "e5a3e55f7df0319decbb34dfa8ab4a4820be1b5ae4af9ee54aeaba539b9636f5"
        ),
    ),
    parse=parse_counterfactual,
    licence="Apache-2.0; the original pairs CC BY-SA 4.0",
    prepare="downloads the six official files and checks digests and row counts",
    sources=(
        "https://raw.githubusercontent.com/acmi-lab/counterfactually-augmented-data/6f232a1d2a11/NLI",
        "https://raw.githubusercontent.com/acmi-lab/counterfactually-augmented-data/HEAD/NLI",
    ),
)
