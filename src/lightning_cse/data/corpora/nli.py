"""What the corpora of natural language inference share: labels, and the two layouts that most of them have."""

from __future__ import annotations

from collections.abc import Mapping

from lightning_cse.data.corpora.spec import Table
from lightning_cse.data.corpora.tables import checked_sentence, parse_object, parse_tsv
from lightning_cse.errors import DataError, did_you_mean

NO_LABEL = "-"
"""The gold label of pairs on which the annotators did not agree; evaluation counts it as "not entailed"."""

LABELS = ("entailment", "neutral", "contradiction", NO_LABEL)
SAME = {label: label for label in LABELS}


def checked_label(cell: object, where: str, names: Mapping[str, str] = SAME) -> str:
    """Return the label that a cell stands for.

    Args:
        cell: What the file has.
        where: File and line, for the error.
        names: The file's labels, and ours for each.

    Raises:
        DataError: If it is no label.
    """
    if not isinstance(cell, str) or cell not in names:
        raise DataError(f"{where}: label {cell!r} is not one of {', '.join(names)}{did_you_mean(str(cell), names)}")
    return names[cell]


def labelled(table: Table, path: str, names: Mapping[str, str] = SAME) -> Table:
    """Return a table with the labels of its column ``label`` checked and in our names.

    Raises:
        DataError: At the first that is no label, with file and line.
    """
    cells = zip(table.columns["label"], table.lines, strict=True)
    labels = [checked_label(cell, f"{path}:{line}", names) for cell, line in cells]
    return table._replace(columns=table.columns | {"label": labels})


def parse_jsonl(text: str, path: str) -> Table:
    """Parse a file of SNLI 1.0 or MultiNLI 1.0: a JSON object a line, of which pair and gold label are read.

    Raises:
        DataError: At the first fault, with file and line.
    """
    premises: list[str] = []
    hypotheses: list[str] = []
    labels: list[str] = []
    rows = text.rstrip("\r\n").split("\n")
    for line, row in enumerate(rows, start=1):
        where = f"{path}:{line}"
        cells = parse_object(row, where)
        absent = [key for key in ("gold_label", "sentence1", "sentence2") if key not in cells]
        if absent:
            raise DataError(f"{where}: missing key {absent[0]!r}; keys found: {', '.join(cells)}")
        premises.append(checked_sentence(cells["sentence1"], "sentence1", where))
        hypotheses.append(checked_sentence(cells["sentence2"], "sentence2", where))
        labels.append(checked_label(cells["gold_label"], where))
    return Table({"premise": premises, "hypothesis": hypotheses, "label": labels}, list(range(1, len(rows) + 1)))


def parse_labelled_tsv(text: str, path: str, *, label: str) -> Table:
    """Parse tab-separated text with the columns ``sentence1``, ``sentence2`` and one of labels.

    Raises:
        DataError: At the first fault, with file and line.
    """
    table = parse_tsv(
        text, path, sentences={"sentence1": "premise", "sentence2": "hypothesis"}, others={label: "label"}
    )
    return labelled(table, path)
