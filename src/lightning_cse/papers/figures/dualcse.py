"""DualCSE's Table 3, the sentences nearest to a premise by each of its vectors, and Table 6, the sizes of the data."""

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
from lightning_cse.papers.figures import Made, Material, data_config, made, markdown_table
from lightning_cse.similarity import cosine_matrix

if TYPE_CHECKING:
    from lightning_cse.evaluation.task import Answers
    from lightning_cse.papers.records import Found

log = logging.getLogger(__name__)

_QUERIES, _QUERY_SEED, _NEAREST = 5, 0, 3  # five queries: our choice, the paper shows a few
_PAIRS: Final = {"INLI": "inli", "Wang et al.": "impscore"}
_COLUMNS: Final = ["query", "view", "rank", "found", "kind", "cosine"]


def data_statistics(material: Material) -> Made:
    """Make DualCSE's Table 6: the number of pairs in each corpus whose files exist, beside the paper's numbers."""
    data_dir = Path(data_config(material).paths.data_dir)
    sampled = data_dir == sample_dir()
    notes = [
        "Counted in the sample corpus, which is a small part."
        if sampled
        else "Counted in the official files."
    ]
    titles = [column.title for column in material.artefact.columns]
    printed = {(each.row, each.column): each.value for each in material.artefact.published}
    rows, cells = [], []
    for line in material.lines:
        counts: dict[str, int] = {}
        try:
            counts = pair_counts(_PAIRS[line.name], data_dir)
        except DataError as error:
            notes.append(f"{line.label} is not counted: {str(error).splitlines()[0]}.")
        cells.append([line.label])
        for title in titles:
            pairs, paper = counts.get(title), printed.get((line.name, title))
            rows.append({"row": line.label, "column": title, "pairs": pairs, "published": paper})
            ours, theirs = (
                "-" if number is None else f"{number:,.0f}" for number in (pairs, paper)
            )
            cells[-1].append(f"{ours} (paper {theirs})")
    return made({}, [markdown_table(["", *titles], cells), " ".join(notes)], pairs=rows)


def pair_counts(corpus: str, data_dir: Path) -> dict[str, int]:
    """Return the number of sentence pairs by split; a premise forms one pair with each of its hypotheses.

    A row of implicit and explicit sentences forms two pairs, one that matches and one that does not.
    """
    counts = {}
    for split in dict.fromkeys(file.split for file in get_corpus(corpus).files):
        rows = read_corpus(corpus, split, data_dir)
        texts = rows.table.select([name for name in rows.names if name in HYPOTHESES]).columns
        pairs = (
            2 * len(rows)
            if "pos_implicit" in rows.names
            else sum(len(text) - text.null_count for text in texts)
        )
        counts["dev" if split == "val" else split] = pairs
    return counts


def retrieval(material: Material) -> Made:
    """Make DualCSE's Table 3 from the best run of each line; the text quotes INLI, the table names file and line."""
    parts, table = material.missing(), []
    for line in material.lines:
        runs = [
            run for run in material.runs(line) if run.folder and (run.folder / CHECKPOINT).is_file()
        ]
        if runs:
            best = max(
                runs, key=lambda run: float((run.record.get("best") or {}).get("score") or 0)
            )
            data_dir = Path(data_config(material).paths.data_dir)
            dev, train = (read_corpus("inli", split, data_dir) for split in ("val", "train"))
            answers = load(str(best.folder)).answers
            queries = dev.select(sorted(seeded_order(len(dev), _QUERY_SEED)[:_QUERIES]))
            found = nearest(answers, queries, hypotheses(train))
            parts += _quoted(material.title(line), best, found)
            table += [
                {"row": line.label, "encoder": line.encoder, **row}
                for row in found[_COLUMNS].to_dict("records")
            ]
        elif material.runs(line):
            parts.append(
                f"{material.title(line)}: the checkpoints of its runs were not kept; none can be loaded."
            )
    return replace(made({}, parts, nearest=table), quotes=True)


def hypotheses(rows: Rows) -> pd.DataFrame:
    """Return the distinct hypotheses, each at its first occurrence: ``sentence``, ``kind`` and ``found``."""
    columns = [name for name in rows.names if name in HYPOTHESES]
    table = rows.table.to_pandas().assign(found=_places(rows))
    long = table.melt("found", columns, "kind", "sentence", ignore_index=False).sort_index(
        kind="stable"
    )
    return long.dropna(subset="sentence").drop_duplicates("sentence")


def nearest(answers: Answers, queries: Rows, corpus: pd.DataFrame) -> pd.DataFrame:
    """Return the sentences of a corpus nearest to each premise by each of its views, one row each, best first.

    Source: DualCSE, table 3: premises of INLI's dev split, hypotheses of its train split, the three nearest by cosine.
    Differs: the paper does not say which vector of a hypothesis is compared; as in training, both vectors of a premise
    are compared with the hypothesis's explicit vector, the primary view.
    """
    log.info("embedding %d sentences", len(corpus))
    primary = next(iter(finite(answers.embed(corpus["sentence"].tolist())).views().values()))
    premises, hits = queries.column("premise"), []
    views = {
        name: cosine_matrix(view, primary)
        for name, view in finite(answers.embed(premises)).views().items()
    }
    for number, (query, premise) in enumerate(zip(_places(queries), premises, strict=True)):
        for view, cosines in views.items():
            scores, places = (
                best.tolist() for best in cosines[number].topk(min(_NEAREST, len(corpus)))
            )
            hit = {
                "query": query,
                "premise": premise,
                "view": view,
                "rank": range(1, len(places) + 1),
            }
            hits.append(corpus.iloc[places].assign(**hit, cosine=scores))
    return pd.concat(hits)


def _places(rows: Rows) -> list[str]:
    """Return ``file:line`` for each row, with the file names of the official layout."""
    names = {file.path: file.name for file in rows.files}
    return [
        f"{names[file]}:{line}"
        for file, line in zip(rows.column("file"), rows.column("line"), strict=True)
    ]


def _quoted(title: str, run: Found, found: pd.DataFrame) -> Iterator[str]:
    """Yield the Markdown of a run: a heading, and one table per query with one column per view."""
    best: dict[str, Any] = run.record.get("best") or {}
    score = (
        f", {best['monitor']} {100 * float(best['score']):.2f}"
        if best.get("score") is not None
        else ""
    )
    yield f"## {title}: seed {run.record.get('seed')}{score}"
    cells = [
        f"{_plain(hit.sentence)} ({hit.kind.replace('_', ' ')}, {hit.cosine:.3f})"
        for hit in found.itertuples()
    ]
    for (where, premise), hits in found.assign(cell=cells).groupby(
        ["query", "premise"], sort=False
    ):
        yield f"**{_plain(premise)}** ({where})"
        shown = hits.pivot(index="rank", columns="view", values="cell")[hits["view"].unique()]
        yield markdown_table(
            ["", *(f"by its {view} vector" for view in shown)], shown.itertuples(), left=3
        )


def _plain(sentence: str) -> str:
    """Return a sentence that Markdown shows as it is."""
    return " ".join(re.sub(r"([\\|*_`<\[])", r"\\\1", sentence).split())
