"""The pairs of a training set: drawn, measured in words and by an encoder, summarised and shown."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lightning_cse import runs
from lightning_cse.analysis.histograms import Kind, Pairs, draw_histograms
from lightning_cse.analysis.searching import finite
from lightning_cse.config.compose import portable
from lightning_cse.data import ContrastiveData, read_corpus
from lightning_cse.data.drawing import seeded_order
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.engine.build import automatic_reading, built, check_nodes, plain
from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.evaluation import Embedded
from lightning_cse.metrics import match_error_rate
from lightning_cse.models import PointModel
from lightning_cse.runs.machine import device_of

log = logging.getLogger(__name__)

# Options of the data that affect no number here.
BATCHING: Final = ("batch_size", "drop_last", "llm_rows_together", "distinct_in_batch")

ROLES: Final[dict[Kind, tuple[str, ...]]] = {
    "positive": (
        "positive",
        "intermediate",
        "entailment",
        "explicit_entailment",
        "implied_entailment",
    ),
    "negative": ("negative", "contradiction"),
}
"""The roles that methods pull towards the first role, and those that they push away from it."""


def run(cfg: DictConfig) -> None:
    """Describe the data set of a command line, and print the tables."""
    hydra = HydraConfig.get()
    folder = describe(cfg, str(hydra.runtime.choices["data"]), list(hydra.overrides.task))
    print_summary(json.loads((folder / "summary.json").read_text(encoding="utf-8")), folder)


def describe(cfg: DictConfig, name: str, overrides: Sequence[str] = ()) -> Path:
    """Describe a training set, and STS-B for comparison; return the folder of ``summary.json`` and the figure.

    Sentences and pairs are those that training would see, drawn by ``seed``; anchors of other rows replace missing hard
    negatives. If the data augments word pieces, the anchor also goes through the tokenizer.

    Source: NGCSE, figure 7 and its text.  Differs: the paper's numbers of pairs and its split of STS-B are not known.
    """
    encoder, sets = _measured({name: cfg})
    options = plain(cfg)
    decisive: dict[str, Any] = {
        "data": {file: digest for about, _ in sets for file, digest in about["data"].items()},
        "encoder": {"name": encoder.name, **encoder.digests},
        "resolved": automatic_reading(cfg, encoder),
    }
    chosen = {key: options[key] for key in ("encoder", "rows", "positive", "negative", "beside")}
    chosen["data"] = {key: value for key, value in options["data"].items() if key not in BATCHING}
    identity = runs.config_hash({**chosen, "draw": cfg.seed}, **decisive)
    folder = (
        Path(cfg.paths.runs_dir).expanduser() / "describe" / f"{name.replace('/', '_')}-{identity}"
    )
    summary = {
        "name": name,
        "config_hash": identity,
        "seed": cfg.seed,
        "looked_at": cfg.rows,
        "encoder": {
            **decisive["encoder"],
            "pooling": encoder.pooling,
            "max_length": encoder.max_length,
        },
        "sets": [{**about, "pairs": list(map(pair_summary, pairs))} for about, pairs in sets],
        "device": device_of().type,
        "figure": "histograms.png",
        "environment": runs.environment(),
        "overrides": portable(overrides),
    }
    draw_histograms({about["name"]: pairs for about, pairs in sets}, folder / "histograms.png")
    runs.write_atomic(folder / "config.yaml", OmegaConf.to_yaml(cfg, resolve=True))
    runs.write_atomic(
        folder / "summary.json",
        json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    )
    return folder


def pair_sets(configs: Mapping[str, DictConfig]) -> dict[str, list[Pairs]]:
    """Return the pairs of several training sets by name, as `describe` measures them, followed by those of STS-B.

    The encoder, the seed and STS-B are those of the first config.
    """
    return {about["name"]: pairs for about, pairs in _measured(configs)[1]}


def _measured(
    configs: Mapping[str, DictConfig],
) -> tuple[SentenceEncoder, list[tuple[dict[str, Any], list[Pairs]]]]:
    """Return the encoder and, for each data set, its entry in ``summary.json`` and its measured pairs."""
    for cfg in configs.values():
        check_nodes(cfg)
    first = next(iter(configs.values()))
    encoder: SentenceEncoder = built(first.encoder)
    described = [
        *(_training_set(cfg, name, encoder) for name, cfg in configs.items()),
        _stsb(first),
    ]
    abouts, drawn = zip(*described, strict=True)
    return encoder, list(zip(abouts, measure(encoder, drawn, first.seed), strict=True))


def _training_set(
    cfg: DictConfig, name: str, encoder: SentenceEncoder
) -> tuple[dict[str, Any], list[Pairs]]:
    data: ContrastiveData = built(cfg.data, tokenize=encoder.tokenizer, seed=cfg.seed)
    rows, roles = data.train.select(seeded_order(len(data.train), cfg.seed)), data.roles
    anchor, kinds = roles[0], list[tuple[Kind, str]]()
    for kind, known in ROLES.items():
        wanted = cfg[kind]
        if wanted is not None and (
            wanted not in rows.names or (kind, wanted) == ("negative", anchor)
        ):
            near = f"{did_you_mean(wanted, roles)} (choose from: {', '.join(roles)})"
            raise ConfigError([f"{kind}: data={name} has no {kind} {wanted!r}{near}"])
        kinds += [
            (kind, role) for role in ([wanted] if wanted else roles) if wanted or role in known
        ]
    if not any(kind == "positive" for kind, _ in kinds):
        kinds.insert(0, ("positive", anchor))
    columns = {role: rows.column(role) for role in (*roles, *(role for _, role in kinds))}
    if OmegaConf.select(cfg, "data.augmentation") is not None:
        ids = data.tokenize([text or "" for text in columns[anchor][: cfg.rows]])
        columns[anchor][: cfg.rows] = [text or None for text in data.tokenize.decode(ids)]
    pairs = []
    for kind, role in kinds:
        label = f"{anchor} - {role}" if role != anchor else f"{anchor}, two dropout passes"
        both = zip(columns[anchor], columns[role], strict=True)
        pairs.append(drawn_pairs(kind, label, both, cfg.rows, dropout=role == anchor))
    texts = [text for text in columns[anchor] if text is not None]
    some = list(dict.fromkeys(texts[: cfg.rows]))
    if len(some) > 1 and pairs[-1].kind == "positive":
        pairs.append(
            Pairs(
                "negative",
                f"{anchor} - random other {anchor}",
                some,
                some[1:] + some[:1],
                len(texts),
            )
        )
    filled = {role: sum(text is not None for text in columns[role]) for role in roles}
    about = {
        "name": name,
        "rows": len(rows),
        "roles": filled,
        "counts": data.counts,
        "data": data.digests,
    }
    return about, pairs


def _stsb(cfg: DictConfig) -> tuple[dict[str, Any], list[Pairs]]:
    split, high, low = cfg.beside.split, cfg.beside.positive_score, cfg.beside.negative_score
    rows = read_corpus("stsb", split, Path(cfg.paths.data_dir))
    rows = rows.select(seeded_order(len(rows), cfg.seed))
    rated = list(
        zip(*(rows.column(name) for name in ("sentence1", "sentence2", "score")), strict=True)
    )
    near, far = (
        [pair for *pair, score in rated if score > high],
        [pair for *pair, score in rated if score < low],
    )
    pairs = [
        drawn_pairs("positive", f"score > {high}", near, cfg.rows),
        drawn_pairs("negative", f"score < {low}", far, cfg.rows),
    ]
    about = {"name": f"STS-B {split}", "rows": len(rows), "counts": rows.counts}
    return about | {"data": {file.name: file.sha256 for file in rows.files}}, pairs


def drawn_pairs(
    kind: Kind, label: str, pairs: Iterable[Sequence[Any]], most: int, *, dropout: bool = False
) -> Pairs:
    """Return at most the first ``most`` of the pairs that have both sentences."""
    whole = [pair for pair in pairs if None not in pair]
    return Pairs(
        kind, label, [a for a, _ in whole[:most]], [b for _, b in whole[:most]], len(whole), dropout
    )


def kind_of(role: str) -> Kind:
    """Return the kind of pair that a role makes with the first role; a role that no method knows is a positive."""
    return "negative" if role in ROLES["negative"] else "positive"


def measure(
    encoder: SentenceEncoder | None, sets: Sequence[Sequence[Pairs]], seed: int
) -> list[list[Pairs]]:
    """Return the pairs with match error rates and, with an encoder, cosines; each distinct sentence is embedded once.

    ``seed`` decides the dropout of dropout pairs. Raises EncoderError if an embedding is not finite.
    """
    model = None if encoder is None else PointModel(encoder.to(device_of())).eval()
    sentences = [
        s
        for drawn in sets
        for pairs in drawn
        if not pairs.dropout
        for s in (*pairs.first, *pairs.second)
    ]
    embedded: Any = Embedded(model, sentences) if model is not None and sentences else {}

    def measured(pairs: Pairs) -> Pairs:
        rates = list(map(match_error_rate, pairs.first, pairs.second))
        if model is None or not rates:
            return replace(pairs, mer=rates)
        if pairs.dropout:
            if not model.encoder.has_dropout:
                log.warning(
                    "the encoder %s has no dropout, so the cosine of its dropout pairs is 1",
                    model.encoder.name,
                )
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                model.encoder.train()
                sides: list[Any] = [model.embed(pairs.first), model.embed(pairs.first)]
                model.encoder.eval()
        else:
            sides = [embedded[pairs.first], embedded[pairs.second]]
        sides = [finite(side) for side in sides]
        return replace(pairs, mer=rates, cosine=model.similarity(*sides).tolist())

    return [list(map(measured, drawn)) for drawn in sets]


def pair_summary(pairs: Pairs) -> dict[str, Any]:
    """Return the number of pairs, and the mean and quartiles of their values."""
    about = {
        "kind": pairs.kind,
        "label": pairs.label,
        "dropout": pairs.dropout,
        "pairs": pairs.there,
    }
    return {
        **about,
        "looked_at": len(pairs.first),
        "mer": _spread(pairs.mer),
        "cosine": _spread(pairs.cosine),
    }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not len(values):
        return None
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return {
        "mean": float(np.mean(values)),
        "lower_quartile": low,
        "median": middle,
        "upper_quartile": high,
    }


def print_summary(summary: Mapping[str, Any], folder: Path) -> None:
    """Print the content of ``summary.json``: a table of pairs, and notes."""
    shown = table(
        "data set", "pairs", "", "number", "MER", "quartiles", "cosine", "quartiles", left=3
    )
    for each in summary["sets"]:
        for number, found in enumerate(each["pairs"]):
            cells = [f"{found['pairs']:,}"]
            for spread in (found["mer"], found["cosine"]):
                quartiles = (
                    "{lower_quartile:.2f} {median:.2f} {upper_quartile:.2f}".format(**spread)
                    if spread
                    else ""
                )
                cells += [mean_cell(spread), quartiles]
            shown.add_row(
                Text("" if number else each["name"]), found["kind"], Text(found["label"]), *cells
            )
    print_tables([shown], console := Console(highlight=False))
    encoder, mine = summary["encoder"], summary["sets"][0]
    shares = (
        f"{role} {number:,} ({number / mine['rows']:.1%})" for role, number in mine["roles"].items()
    )
    for note in (
        f"{mine['name']}: {mine['rows']:,} rows; {', '.join(shares)}",
        f"sampled: at most {summary['looked_at']} pairs per kind, seed {summary['seed']}",
        f"MER: match error rate of words; cosine: {encoder['name']}, pooling {encoder['pooling']}",
        f"figure: {folder / summary['figure']}",
        f"summary: {folder / 'summary.json'}",
    ):
        console.print(Text(note), soft_wrap=True)


def table(*columns: str, left: int) -> Table:
    """Return an empty table whose first ``left`` columns are text and whose other columns are numbers."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number < left else "right", no_wrap=True)
    return made


def print_tables(tables: Sequence[Table], console: Console) -> None:
    """Print tables without cutting a cell, however narrow the console is: a pipe has 80 columns."""
    wide = console.options.update(width=1000)
    console.width = max(
        console.width, *(console.measure(each, options=wide).maximum for each in tables)
    )
    for each in tables:
        console.print(each, "")


def mean_cell(values: Mapping[str, float] | None) -> str:
    """Return the mean of the values of a `pair_summary`, or a dash."""
    return "-" if values is None else f"{values['mean']:.3f}"
