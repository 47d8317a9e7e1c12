"""DualCSE's Table 3, the sentences nearest to a premise by each of its vectors, and Table 6, the
sizes of the data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from lightning_cse.data import Rows, read_corpus, sample_dir
from lightning_cse.data.corpora import find_file, get_corpus
from lightning_cse.data.preparation import seeded_order
from lightning_cse.data.sources import SECOND_SENTENCES
from lightning_cse.engine.load import CHECKPOINT, load
from lightning_cse.models.base import finite
from lightning_cse.papers.figures import Result, data_config, markdown_table, result
from lightning_cse.papers.nested import value_at
from lightning_cse.papers.plan import Plan
from lightning_cse.similarity import cosine_matrix

if TYPE_CHECKING:
    from lightning_cse.evaluation.task import Answers
    from lightning_cse.papers.records import FinishedRun

log = logging.getLogger(__name__)

_QUERIES = 5  # our choice, the paper shows a few
_QUERY_SEED = 0
_NEAREST = 3
_CORPORA = {"INLI": "inli", "Wang et al.": "impscore"}
_COLUMNS = ["row", "encoder", "query", "view", "rank", "found", "kind", "cosine"]
_SHOWN = ["view", "rank", "cosine", "kind", "sentence"]


def data_statistics(plan: Plan) -> Result:
    """Make DualCSE's Table 6: the number of pairs in each corpus, beside the paper's numbers.

    A corpus that is not there has no counts, and the text names the file that is missing.
    """
    data_dir = Path(data_config(plan).paths.data_dir)
    is_sample = data_dir == sample_dir()
    counted = "sample corpus, which is a small part" if is_sample else "official files"
    published = {(each.row, each.column): int(each.value) for each in plan.artefact.published}
    rows = []
    notes = [f"Counted in the {counted}."]
    for line in plan.lines:
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
            for column in plan.artefact.columns
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
        if "pos_implicit" not in rows.names:
            pairs = int(rows.table.to_pandas()[_hypothesis_columns(rows)].count().sum())

        counts["dev" if split == "val" else split] = pairs

    return counts


def _hypothesis_columns(rows: Rows) -> list[str]:
    return [name for name in rows.names if name in SECOND_SENTENCES]


def retrieval(plan: Plan) -> Result:
    """Make DualCSE's Table 3 from the best run of each line; the text quotes INLI, the table names
    file and line.
    """
    parts: list[str] = []
    rows: list[dict[Any, Any]] = []
    for line in plan.lines:
        found = plan.finished(line)
        runs = [run for run in found if run.folder and (run.folder / CHECKPOINT).is_file()]
        if runs:
            best = max(runs, key=lambda run: float(value_at(run.record, "best.score") or 0))
            data_dir = Path(data_config(plan).paths.data_dir)
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


def hypotheses(rows: Rows) -> pd.DataFrame:
    """Return the distinct hypotheses, each at its first occurrence: ``sentence``, ``kind`` and
    ``found``.
    """
    table = rows.table.to_pandas().assign(found=_places(rows))
    columns = _hypothesis_columns(rows)
    long = table.melt(
        "found",
        columns,
        "kind",
        "sentence",
        ignore_index=False,
    )
    in_order = long.sort_index(kind="stable")

    return in_order.dropna(subset="sentence").drop_duplicates("sentence")


def nearest(answers: Answers, queries: Rows, corpus: pd.DataFrame) -> pd.DataFrame:
    """Return the sentences of a corpus nearest to each premise by each of its views, one row each,
    best first.

    Source: DualCSE, table 3: premises of INLI's dev split, hypotheses of its train split, the three
    nearest by cosine. Differs: the paper does not say which vector of a hypothesis is compared; as
    in training, both vectors of a premise are compared with the hypothesis's explicit vector, the
    primary view.
    """
    log.info("embedding %d sentences", len(corpus))
    primary, *_ = finite(answers.embed(corpus["sentence"].tolist())).views().values()
    premises = queries.column("premise")
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


def _places(rows: Rows) -> list[str]:
    """Return ``file:line`` for each row, with the file names of the official layout."""
    names = {file.path: file.name for file in rows.files}
    places = zip(rows.column("file"), rows.column("line"), strict=True)

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
