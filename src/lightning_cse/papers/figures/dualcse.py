"""DualCSE's Table 3, the sentences nearest to a premise by each of its vectors, and Table 6, the
sizes of the data.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from lightning_cse.data import Rows, read_corpus, sample_dir
from lightning_cse.data.corpora import get_corpus
from lightning_cse.data.drawing import seeded_order
from lightning_cse.data.sources import HYPOTHESES
from lightning_cse.engine.load import CHECKPOINT, load
from lightning_cse.errors import DataError
from lightning_cse.models.base import finite
from lightning_cse.papers.figures import Inputs, Result, data_config, made, markdown_table
from lightning_cse.papers.nested import value_at
from lightning_cse.similarity import cosine_matrix

if TYPE_CHECKING:
    from lightning_cse.evaluation.task import Answers
    from lightning_cse.papers.records import Found

log = logging.getLogger(__name__)

_QUERIES: Final = 5  # our choice, the paper shows a few
_QUERY_SEED: Final = 0
_NEAREST: Final = 3
_CORPORA: Final = {"INLI": "inli", "Wang et al.": "impscore"}
_COLUMNS: Final = [
    "query",
    "view",
    "rank",
    "found",
    "kind",
    "cosine",
]


def data_statistics(material: Inputs) -> Result:
    """Make DualCSE's Table 6: the number of pairs in each corpus whose files exist, beside the
    paper's numbers.
    """
    data_dir = Path(data_config(material).paths.data_dir)
    is_sample = data_dir == sample_dir()
    counted = "sample corpus, which is a small part" if is_sample else "official files"
    notes = [f"Counted in the {counted}."]
    titles = [column.title for column in material.artefact.columns]
    published = {(each.row, each.column): each.value for each in material.artefact.published}
    rows = []
    cells = []
    for line in material.lines:
        counts: dict[str, int] = {}
        try:
            counts = pair_counts(_CORPORA[line.name], data_dir)
        except DataError as error:
            notes.append(f"{line.label} is not counted: {str(error).splitlines()[0]}.")
        cells.append([line.label])
        for title in titles:
            row = {
                "row": line.label,
                "column": title,
                "pairs": counts.get(title),
                "published": published.get((line.name, title)),
            }
            rows.append(row)
            cells[-1].append(f"{_count(row['pairs'])} (paper {_count(row['published'])})")
    return made(
        {},
        [markdown_table(["", *titles], cells), " ".join(notes)],
        pairs=rows,
    )


def _count(number: Any) -> str:
    return "-" if number is None else f"{number:,.0f}"


def pair_counts(corpus: str, data_dir: Path) -> dict[str, int]:
    """Return the number of sentence pairs by split; a premise forms one pair with each of its
    hypotheses.

    A row of implicit and explicit sentences forms two pairs, one that matches and one that does
    not.
    """
    counts = {}
    for split in dict.fromkeys(file.split for file in get_corpus(corpus).files):
        rows = read_corpus(corpus, split, data_dir)
        texts = rows.table.select([name for name in rows.names if name in HYPOTHESES])
        pairs = int(texts.to_pandas().count().sum())
        if "pos_implicit" in rows.names:
            pairs = 2 * len(rows)
        counts["dev" if split == "val" else split] = pairs
    return counts


def retrieval(material: Inputs) -> Result:
    """Make DualCSE's Table 3 from the best run of each line; the text quotes INLI, the table names
    file and line.
    """
    parts = material.missing()
    rows = []
    for line in material.lines:
        runs = [run for run in material.runs(line) if _has_checkpoint(run)]
        if runs:
            best = max(runs, key=_best_score)
            hits = _nearest_of_run(best, Path(data_config(material).paths.data_dir))
            parts += _quoted(material.title(line), best, hits)
            found = hits[_COLUMNS].to_dict("records")
            rows += [
                {
                    "row": line.label,
                    "encoder": line.encoder,
                    **hit,
                }
                for hit in found
            ]
        elif material.runs(line):
            title = material.title(line)
            parts.append(f"{title}: the checkpoints of its runs were not kept; none can be loaded.")
    return replace(made({}, parts, nearest=rows), quotes=True)


def _has_checkpoint(run: Found) -> bool:
    return run.folder is not None and (run.folder / CHECKPOINT).is_file()


def _best_score(run: Found) -> float:
    return float(value_at(run.record, "best.score") or 0)


def _nearest_of_run(run: Found, data_dir: Path) -> pd.DataFrame:
    dev = read_corpus("inli", "val", data_dir)
    train = read_corpus("inli", "train", data_dir)
    queries = dev.select(sorted(seeded_order(len(dev), _QUERY_SEED)[:_QUERIES]))
    answers = load(str(run.folder)).answers
    return nearest(answers, queries, hypotheses(train))


def hypotheses(rows: Rows) -> pd.DataFrame:
    """Return the distinct hypotheses, each at its first occurrence: ``sentence``, ``kind`` and
    ``found``.
    """
    columns = [name for name in rows.names if name in HYPOTHESES]
    table = rows.table.to_pandas().assign(found=_places(rows))
    long = table.melt(
        "found",
        columns,
        "kind",
        "sentence",
        ignore_index=False,
    )
    in_order = long.sort_index(kind="stable")
    return in_order.dropna(subset="sentence").drop_duplicates("sentence")


def nearest(
    answers: Answers,
    queries: Rows,
    corpus: pd.DataFrame,
) -> pd.DataFrame:
    """Return the sentences of a corpus nearest to each premise by each of its views, one row each,
    best first.

    Source: DualCSE, table 3: premises of INLI's dev split, hypotheses of its train split, the three
    nearest by cosine. Differs: the paper does not say which vector of a hypothesis is compared; as
    in training, both vectors of a premise are compared with the hypothesis's explicit vector, the
    primary view.
    """
    log.info("embedding %d sentences", len(corpus))
    embedded = finite(answers.embed(corpus["sentence"].tolist())).views()
    primary = next(iter(embedded.values()))
    premises = queries.column("premise")
    cosines = {
        view: cosine_matrix(vectors, primary)
        for view, vectors in finite(answers.embed(premises)).views().items()
    }
    count = min(_NEAREST, len(corpus))
    hits = []
    for number, place in enumerate(_places(queries)):
        for view, matrix in cosines.items():
            best = matrix[number].topk(count)
            found = corpus.iloc[best.indices.tolist()].assign(
                query=place,
                premise=premises[number],
                view=view,
                rank=range(1, count + 1),
                cosine=best.values.tolist(),
            )
            hits.append(found)
    return pd.concat(hits)


def _places(rows: Rows) -> list[str]:
    """Return ``file:line`` for each row, with the file names of the official layout."""
    names = {file.path: file.name for file in rows.files}
    places = zip(
        rows.column("file"),
        rows.column("line"),
        strict=True,
    )
    return [f"{names[file]}:{line}" for file, line in places]


def _quoted(
    title: str,
    run: Found,
    found: pd.DataFrame,
) -> Iterator[str]:
    """Yield the Markdown of a run: a heading, and one table per query with one column per view."""
    best: dict[str, Any] = run.record.get("best") or {}
    score = ""
    if best.get("score") is not None:
        score = f", {best['monitor']} {100 * float(best['score']):.2f}"
    yield f"## {title}: seed {run.record.get('seed')}{score}"
    cells = [
        f"{_plain(hit.sentence)} ({hit.kind.replace('_', ' ')}, {hit.cosine:.3f})"
        for hit in found.itertuples()
    ]
    queries = found.assign(cell=cells).groupby(["query", "premise"], sort=False)
    for (place, premise), hits in queries:
        yield f"**{_plain(premise)}** ({place})"
        views = hits["view"].unique()
        shown = hits.pivot(
            index="rank",
            columns="view",
            values="cell",
        )[views]
        heads = ["", *(f"by its {view} vector" for view in views)]
        yield markdown_table(heads, shown.itertuples(), left=3)


def _plain(sentence: str) -> str:
    """Return a sentence that Markdown shows as it is."""
    return " ".join(re.sub(r"([\\|*_`<\[])", r"\\\1", sentence).split())
