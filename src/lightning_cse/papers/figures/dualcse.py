"""DualCSE's Table 3, the sentences nearest to a premise by each of its vectors, and Table 6, the sizes of the data."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from lightning_cse.data import Rows, read_corpus, sample_dir
from lightning_cse.data.corpora import get_corpus
from lightning_cse.data.drawing import seeded_order
from lightning_cse.data.sources import HYPOTHESES
from lightning_cse.engine.load import CHECKPOINT, load_model
from lightning_cse.errors import DataError, EncoderError
from lightning_cse.papers.figures import Made, Material, data_config, made, markdown_table, missing
from lightning_cse.runs.machine import device_of
from lightning_cse.similarity import cosine_matrix

if TYPE_CHECKING:
    from lightning_cse.evaluation.task import Answers
    from lightning_cse.papers.points import Found

__all__ = ["data_statistics", "hypotheses", "nearest", "pair_counts", "retrieval"]

log = logging.getLogger(__name__)

_QUERIES: Final = 5  # our choice: the paper shows a few
_QUERY_SEED: Final = 0
_NEAREST: Final = 3
_PAIRS: Final = {"INLI": "inli", "Wang et al.": "impscore"}
_SPLITS: Final = {"dev": ("dev", "val")}  # what corpora call the split of a column


def data_statistics(material: Material) -> Made:
    """Make DualCSE's Table 6: the pairs of every corpus whose files are there, beside the paper's numbers."""
    data_dir = Path(data_config(material).paths.data_dir)
    titles = [column.title for column in material.artefact.columns]
    printed = {(each.row, each.column): each.value for each in material.artefact.published}
    rows: list[dict[str, Any]] = []
    cells, notes = [], []
    for line in material.lines:
        counts: dict[str, int] = {}
        try:
            counts = pair_counts(_PAIRS[line.name], data_dir)
        except DataError as error:
            notes.append(f"{line.label} is not counted: {str(error).splitlines()[0]}.")
        cells.append([line.label])
        for title in titles:
            number = next((counts[split] for split in _SPLITS.get(title, (title,)) if split in counts), None)
            paper = printed.get((line.name, title))
            rows.append({"row": line.label, "column": title, "pairs": number, "published": paper})
            ours, theirs = ("-" if count is None else f"{count:,.0f}" for count in (number, paper))
            cells[-1].append(f"{ours} (paper {theirs})")
    sampled = data_dir == sample_dir()
    where = "Counted in the sample corpus, which is a small part." if sampled else "Counted in the official files."
    table = markdown_table(["", *titles], cells, "---|" + "|".join(["---:"] * len(titles)))
    return made({}, [table, " ".join([where, *notes])], {"pairs": rows})


def pair_counts(corpus: str, data_dir: Path) -> dict[str, int]:
    """Return the number of sentence pairs by split: a premise makes one with each of its hypotheses.

    A row of implicit and explicit sentences makes two, one that matches and one that does not.
    """
    counts = {}
    for split in dict.fromkeys(file.split for file in get_corpus(corpus).files):
        rows = read_corpus(corpus, split, data_dir)
        texts = [rows.column(name) for name in rows.names if name in HYPOTHESES]
        both = "pos_implicit" in rows.names
        counts[split] = 2 * len(rows) if both else sum(text is not None for column in texts for text in column)
    return counts


def retrieval(material: Material) -> Made:
    """Make DualCSE's Table 3 of the best run of each line; the text quotes INLI, the table names file and line."""
    parts, table = missing(material), []
    for line in material.lines:
        best = _best_loadable(material.runs(line))
        if best is None:
            if material.runs(line):
                parts.append(f"{material.title(line)}: the checkpoints of its runs were not kept; none can be loaded.")
            continue
        data_dir = Path(data_config(material).paths.data_dir)
        dev, train = (read_corpus("inli", split, data_dir) for split in ("val", "train"))
        queries = dev.select(sorted(seeded_order(len(dev), _QUERY_SEED)[:_QUERIES]))
        answers = load_model(str(best.folder)).answers
        answers.to(device_of())
        found = nearest(answers, queries, hypotheses(train))
        parts += _quoted(material.title(line), best, found)
        named = found.drop(columns=["premise", "sentence"]).to_dict("records")
        table += [{"row": line.label, "encoder": line.encoder, **row} for row in named]
    return made({}, parts, {"nearest": table}, quotes=True)


def _best_loadable(runs: Iterable[Found]) -> Found | None:
    """Return the run with the highest dev score whose checkpoint exists; of several the first."""
    there = [run for run in runs if run.folder is not None and (run.folder / CHECKPOINT).is_file()]
    return max(there, key=lambda run: float((run.record.get("best") or {}).get("score") or 0), default=None)


def hypotheses(rows: Rows) -> pd.DataFrame:
    """Return the distinct hypotheses of premises, each where it first occurs: ``sentence``, ``kind`` and ``found``."""
    columns = [name for name in rows.names if name in HYPOTHESES]
    table = rows.table.to_pandas().assign(found=_places(rows))
    long = table.melt("found", columns, "kind", "sentence", ignore_index=False).sort_index(kind="stable")
    return long.dropna(subset="sentence").drop_duplicates("sentence").reset_index(drop=True)


def nearest(answers: Answers, queries: Rows, corpus: pd.DataFrame) -> pd.DataFrame:
    """Return the sentences of a corpus nearest to each premise by each of its views, a row each, best first.

    A view of the premise (of DualCSE its explicit and its implicit vector) is compared with the primary view of what is
    searched, the explicit vector.

    Source: DualCSE, table 3: premises of INLI's dev split, hypotheses of its train split, the three nearest by cosine.
    Differs: the paper does not say which vector of a hypothesis is compared; training compares both vectors of a
    premise with the explicit one.
    """
    premises = queries.column("premise")
    log.info("embedding %d sentences", len(corpus))
    primary = next(iter(answers.embed(corpus["sentence"].tolist()).views().values()))
    rows = []
    for view, vectors in answers.embed(premises).views().items():
        cosines = cosine_matrix(vectors, primary)
        if not bool(cosines.isfinite().all()):
            raise EncoderError("some embeddings are not finite numbers: the run's weights are broken; train it again")
        best = cosines.topk(min(_NEAREST, len(corpus)))
        for number, (scores, places) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            for rank, (score, place) in enumerate(zip(scores, places, strict=True), start=1):
                rows.append((number, view, rank, place, score))
    table = pd.DataFrame(rows, columns=["query", "view", "rank", "place", "cosine"]).sort_values("query", kind="stable")
    hits = corpus.iloc[table["place"]].reset_index(drop=True)
    table = table.reset_index(drop=True).join(hits)
    table["premise"] = table["query"].map(premises.__getitem__)
    table["query"] = table["query"].map(_places(queries).__getitem__)
    return table[["premise", "sentence", "query", "view", "rank", "found", "kind", "cosine"]]


def _places(rows: Rows) -> list[str]:
    """Return file and line of each row, files as the official layout names them."""
    names = {file.path: file.name for file in rows.files}
    return [f"{names.get(file, file)}:{line}" for file, line in zip(rows.column("file"), rows.column("line"), strict=True)]


def _quoted(title: str, run: Found, found: pd.DataFrame) -> Iterator[str]:
    """Yield the Markdown of a run: a heading, and a table a query with a column a view."""
    best = run.record.get("best") or {}
    score = f", {best['monitor']} {100 * float(best['score']):.2f}" if best.get("score") is not None else ""
    yield f"## {title}: seed {run.record.get('seed')}{score}"
    views: Sequence[str] = list(found["view"].unique())
    for (where, premise), hits in found.groupby(["query", "premise"], sort=False):
        cells = [
            f"{_escaped(hit.sentence)} ({hit.kind.replace('_', ' ')}, {hit.cosine:.3f})" for hit in hits.itertuples()
        ]
        columns = hits.assign(cell=cells).pivot(index="rank", columns="view", values="cell")[views]
        yield f"**{_escaped(premise)}** ({where})"
        heads = ["", *(f"by its {view} vector" for view in views)]
        yield markdown_table(heads, columns.itertuples(), "|".join(["---"] * len(heads)))


def _escaped(sentence: str) -> str:
    """Return a sentence that Markdown shows as it is."""
    for sign in "\\|*_`<[":
        sentence = sentence.replace(sign, f"\\{sign}")
    return " ".join(sentence.split())
