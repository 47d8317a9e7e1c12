"""DualCSE's Table 3, the sentences nearest to a premise by each of its vectors, a figure of how
often they are its own hypotheses, and Table 6, the sizes of the data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.data.declarations import find_file, get_corpus
from lightning_cse.data.leaks import SECOND_SENTENCES
from lightning_cse.data.rows import files_of
from lightning_cse.data.split import seeded_order
from lightning_cse.engine.load import CHECKPOINT, load
from lightning_cse.models.base import finite
from lightning_cse.plots import BLUE, GREY, VERMILION, blank_figure, plot_style
from lightning_cse.similarity import cosine_matrix
from lightning_cse.tables.figures import Result, data_config, markdown_table, result
from lightning_cse.tables.nested import value_at
from lightning_cse.tables.statistics import mean_interval
from lightning_cse.tables.table import Table

if TYPE_CHECKING:
    from datasets import Dataset
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lightning_cse.evaluation.task import Answers
    from lightning_cse.tables.records import FinishedRun

log = logging.getLogger(__name__)

_QUERIES = 5  # our choice, the paper shows a few
_QUERY_SEED = 0
_NEAREST = 3
_CORPORA = {"INLI": "inli", "Wang et al.": "impscore"}
_COLUMNS = ["row", "encoder", "query", "view", "rank", "found", "kind", "cosine"]
_SHOWN = ["view", "rank", "cosine", "kind", "sentence"]
_KINDS = {"explicit": "its explicit hypothesis", "implied": "its implied hypothesis"}
_VECTORS = {  # colour, marker, and place beside the middle of the row
    "explicit": (BLUE, "o", -0.12),
    "implicit": (VERMILION, "s", 0.12),
    "only": (GREY, "D", 0.0),
}


def data_statistics(table: Table) -> Result:
    """Make DualCSE's Table 6: the number of pairs in each corpus, beside the paper's numbers.

    A corpus that is not there has no counts, and the text names the file that is missing.
    """
    data_dir = Path(data_config(table).paths.data_dir)
    is_sample = data_dir == sample_dir()
    counted = "sample corpus, which is a small part" if is_sample else "official files"
    published = table.spec.published.set_index(["row", "column"])["value"].astype(int)
    rows = []
    notes = [f"Counted in the {counted}."]
    for line in table.lines.itertuples():
        corpus = get_corpus(_CORPORA[line.name])
        missing = [file.path for file in corpus.files if find_file(data_dir, file) is None]
        if missing and corpus.hub is None:
            notes.append(f"{line.label} is not counted: {missing[0]} is not in the data folder.")
            counts = {}
        else:
            counts = pair_counts(corpus.name, data_dir)

        rows += [
            {
                "row": line.label,
                "column": column.title,
                "pairs": counts.get(column.title),
                "published": published.get((line.name, column.title)),
            }
            for column in table.spec.columns
        ]

    if not any(row["pairs"] for row in rows):
        return result({}, notes[1:])

    return result({}, [markdown_table(rows), *notes], pairs=rows)


def pair_counts(corpus: str, data_dir: Path) -> dict[str, int]:
    """Return the number of sentence pairs by split; a premise forms one pair with each of its
    hypotheses.

    A row of implicit and explicit sentences forms two pairs, one that matches and one that does
    not.
    """
    counts = {}
    for split in dict.fromkeys(file.split for file in get_corpus(corpus).files):
        rows = read_corpus(corpus, split, data_dir)
        pairs = 2 * len(rows)
        if "pos_implicit" not in rows.column_names:
            pairs = int(rows.to_pandas()[_hypothesis_columns(rows)].count().sum())

        counts["dev" if split == "val" else split] = pairs

    return counts


def _hypothesis_columns(rows: Dataset) -> list[str]:
    return [name for name in rows.column_names if name in SECOND_SENTENCES]


def retrieval(table: Table) -> Result:
    """Make DualCSE's Table 3 from the best run of each line; the text quotes INLI, the table names
    file and line.
    """
    parts: list[str] = []
    rows: list[dict[Any, Any]] = []
    for line in table.lines.itertuples():
        found = table.finished(line)
        runs = [run for run in found if run.folder and (run.folder / CHECKPOINT).is_file()]
        if runs:
            best = max(runs, key=lambda run: float(value_at(run.record, "best.score") or 0))
            data_dir = Path(data_config(table).paths.data_dir)
            dev = read_corpus("inli", "val", data_dir)
            queries = dev.select(sorted(seeded_order(len(dev), _QUERY_SEED)[:_QUERIES]))
            corpus = hypotheses(read_corpus("inli", "train", data_dir))
            hits = nearest(load(str(best.folder)).answers, queries, corpus)
            parts += _quoted(line.label, best, hits)
            hits = hits.assign(row=line.label, encoder=line.encoder)
            rows += hits[_COLUMNS].to_dict("records")
        elif found:
            parts.append(f"{line.label}: the checkpoints of its runs were not kept.")

    return result({}, parts, quotes=True, nearest=rows)


def hypotheses(rows: Dataset) -> pd.DataFrame:
    """Return the distinct hypotheses, each at its first occurrence: ``sentence``, ``kind`` and
    ``found``.
    """
    table = rows.to_pandas().assign(found=_places(rows))
    columns = _hypothesis_columns(rows)
    long = table.melt("found", columns, "kind", "sentence", ignore_index=False)
    in_order = long.sort_index(kind="stable")

    return in_order.dropna(subset="sentence").drop_duplicates("sentence")


def nearest(answers: Answers, queries: Dataset, corpus: pd.DataFrame) -> pd.DataFrame:
    """Return the sentences of a corpus nearest to each premise by each of its views, one row each,
    best first.

    Source: DualCSE, table 3: premises of INLI's dev split, hypotheses of its train split, the three
    nearest by cosine. Differs: the paper does not say which vector of a hypothesis is compared; as
    in training, both vectors of a premise are compared with the hypothesis's explicit vector, the
    primary view.
    """
    log.info("embedding %d sentences", len(corpus))
    primary, *_ = finite(answers.embed(corpus["sentence"].tolist())).views().values()
    premises = list(queries["premise"])
    views = finite(answers.embed(premises)).views()
    count = min(_NEAREST, len(corpus))
    best = {view: cosine_matrix(each, primary).topk(count) for view, each in views.items()}
    hits = []
    for number, place in enumerate(_places(queries)):
        for view, (cosines, indices) in best.items():
            found = corpus.iloc[indices[number].tolist()].assign(
                query=place,
                premise=premises[number],
                view=view,
                rank=range(1, count + 1),
                cosine=cosines[number].tolist(),
            )
            hits.append(found)

    return pd.concat(hits)


def _places(rows: Dataset) -> list[str]:
    """Return ``file:line`` for each row, with the file names of the official layout."""
    names = {file.path: file.name for file in files_of(rows)}
    places = zip(rows["file"], rows["line"], strict=True)

    return [f"{names[file]}:{line}" for file, line in places]


def _quoted(title: str, run: FinishedRun, found: pd.DataFrame) -> Iterator[str]:
    """Yield the Markdown of a run: a heading, and one table per query."""
    score = value_at(run.record, "best.score")
    yield f"## {title}: seed {run.record['seed']}, dev score {score}"
    sentences = found["sentence"].str.replace("|", r"\|", regex=False)  # it ends a cell
    shown = found.assign(sentence=sentences)
    for (place, premise), hits in shown.groupby(["query", "premise"], sort=False):
        yield f"**{premise}** ({place})"
        yield markdown_table(hits[_SHOWN].to_dict("records"))


def found_by_vector(table: Table) -> Result:
    """Draw how often a premise's own hypothesis is among the nearest to each of its vectors, for
    each kind of hypothesis, from the columns "<kind> by <vector>".
    """
    values = table.values.set_index(["line", "column"])["value"].sort_index()
    rows: list[dict[str, Any]] = []
    for line in table.lines.itertuples():
        for kind in _KINDS:
            by_vector = {
                vector: values[values.index.isin([(line.Index, f"{kind} by {vector}")])].to_numpy()
                for vector in ("explicit", "implicit")
            }
            if np.array_equal(by_vector["explicit"], by_vector["implicit"]):
                by_vector = {"only": by_vector["explicit"]}

            for vector, shares in by_vector.items():
                if len(shares):
                    mean, low, high = mean_interval(shares)
                    row = {"row": line.label, "hypothesis": kind, "vector": vector}
                    rows.append(
                        row | {"seeds": len(shares), "mean": mean, "low": low, "high": high}
                    )

    if not rows:
        return result({}, ["No run is finished."])

    figure = vectors_figure(pd.DataFrame(rows), [*table.lines["label"]])

    return result({"found_by_vector": figure}, [], found=rows)


def vectors_figure(found: pd.DataFrame, labels: Sequence[str]) -> Figure:
    """Draw one panel for each kind of hypothesis, one row for each model, and its vectors in
    colours, with 95 % intervals over the seeds (Student's t).
    """
    with plot_style():
        figure = blank_figure(7.6, 1.5 + 0.4 * len(labels))
        panels = figure.subplots(1, len(_KINDS), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (kind, title) in zip(panels, _KINDS.items(), strict=True):
            _draw_vectors(axes, found[found["hypothesis"] == kind], labels)
            axes.set_title(title)
            axes.set_xlabel(f"among the {_NEAREST} nearest, % of premises")

        panels[0].set_yticks(range(len(labels)), labels)
        panels[0].invert_yaxis()
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names))

    return figure


def _draw_vectors(axes: Axes, found: pd.DataFrame, labels: Sequence[str]) -> None:
    for vector, (color, marker, beside) in _VECTORS.items():
        some = found[found["vector"] == vector]
        if some.empty:
            continue

        axes.errorbar(
            some["mean"],
            [labels.index(row) + beside for row in some["row"]],
            xerr=(some["high"] - some["mean"]).fillna(0),
            color=color,
            marker=marker,
            markersize=5,
            linestyle="none",
            capsize=3,
            label=f"by its {vector} vector",
        )
