"""From a config to the description of its training set: words, shares of roles, match error rates, cosines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.text import Text

from lightning_cse import runs
from lightning_cse.analysis import measuring
from lightning_cse.analysis.histograms import Pairs, PairSet, draw_histograms
from lightning_cse.analysis.measuring import ROLES, Drawn, Kind, pair_set
from lightning_cse.config.compose import portable
from lightning_cse.data import ContrastiveData, read_corpus
from lightning_cse.data.drawing import seeded_order
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.engine.build import automatic_reading, built, check_nodes, plain
from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.runs.machine import device_of

BATCHING: Final = ("batch_size", "drop_last", "llm_rows_together")  # no number here depends on them


@dataclass(frozen=True)
class Described:
    """A data set: the sentences of its roles in the order in which they are looked at, its pairs, its word pieces."""

    name: str
    rows: int
    roles: dict[str, list[str]]
    pairs: list[Drawn]
    digests: dict[str, str]
    counts: dict[str, int]
    limit: int | None = None


def run(cfg: DictConfig) -> None:
    """Describe the data set of a command line, and print the tables."""
    hydra = HydraConfig.get()
    folder = describe(cfg, str(hydra.runtime.choices["data"]), list(hydra.overrides.task))
    print_summary(json.loads((folder / "summary.json").read_text(encoding="utf-8")), folder)


def describe(cfg: DictConfig, name: str, overrides: Sequence[str] = ()) -> Path:
    """Describe a training set and STS-B beside it, and return the folder of ``summary.json`` and the figure.

    Sentences and pairs are those that training would see, drawn by ``seed``. Where a data set has no hard negatives,
    anchors of other rows stand in for them. Where an augmentation works on word pieces, the anchor goes through the
    tokenizer as well. Cosines are those of the encoder as it was loaded, without dropout except in dropout pairs.

    Source: NGCSE, figure 7 and its text.  Differs: the paper's numbers of pairs and its split of STS-B are not known.
    """
    encoder, described, measured = _measured({name: cfg})
    options = plain(cfg)
    decisive: dict[str, Any] = {
        "data": {file: digest for each in described for file, digest in each.digests.items()},
        "encoder": {"name": encoder.name, **encoder.digests},
        "resolved": automatic_reading(cfg, encoder),
    }
    chosen = {key: options[key] for key in ("encoder", "rows", "positive", "negative", "beside")}
    chosen["data"] = {key: value for key, value in options["data"].items() if key not in BATCHING}
    identity = runs.config_hash({**chosen, "draw": cfg.seed}, **decisive)
    folder = Path(cfg.paths.runs_dir).expanduser() / "describe" / f"{name.replace('/', '_')}-{identity}"
    summary = {
        "name": name,
        "config_hash": identity,
        "seed": cfg.seed,
        "looked_at": cfg.rows,
        "encoder": {**decisive["encoder"], "pooling": encoder.pooling, "max_length": encoder.max_length},
        "sets": [
            {**_sentences(each, encoder, cfg.rows), "pairs": list(map(measuring.pair_summary, each.pairs, pairs))}
            for each, pairs in zip(described, measured, strict=True)
        ],
        "counts": described[0].counts,
        "data": decisive["data"],
        "device": device_of().type,
        "figure": "histograms.png",
        "environment": runs.environment(),
        "overrides": portable(overrides),
    }
    sets = (pair_set(each.name, each.pairs, pairs) for each, pairs in zip(described, measured, strict=True))
    draw_histograms(list(sets), folder / "histograms.png")
    runs.write_atomic(folder / "config.yaml", OmegaConf.to_yaml(cfg, resolve=True))
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    runs.write_atomic(folder / "summary.json", text + "\n")
    return folder


def pair_sets(configs: Mapping[str, DictConfig]) -> list[PairSet]:
    """Return the pairs of several training sets, by name, as `describe` looks at them, and those of STS-B after them.

    The encoder, the seed and STS-B are those of the first config.
    """
    _, described, measured = _measured(configs)
    return [pair_set(each.name, each.pairs, pairs) for each, pairs in zip(described, measured, strict=True)]


def _measured(configs: Mapping[str, DictConfig]) -> tuple[SentenceEncoder, list[Described], list[list[Pairs]]]:
    for cfg in configs.values():
        check_nodes(cfg)
    first = next(iter(configs.values()))
    encoder: SentenceEncoder = built(first.encoder)
    described = [
        _training_set(cfg, name, built(cfg.data, tokenize=encoder.tokenizer, seed=cfg.seed))
        for name, cfg in configs.items()
    ]
    described.append(_stsb(first))
    return encoder, described, measuring.measure(encoder, [each.pairs for each in described], first.seed)


def _training_set(cfg: DictConfig, name: str, data: ContrastiveData) -> Described:
    rows, roles = data.train.select(seeded_order(len(data.train), cfg.seed)), data.roles
    anchor, kinds = roles[0], list[tuple[Kind, str]]()
    asked: dict[Kind, str | None] = {"positive": cfg.positive, "negative": cfg.negative}
    for kind, wanted in asked.items():
        if wanted is not None and (wanted not in rows.names or (kind, wanted) == ("negative", anchor)):
            near = f"{did_you_mean(wanted, roles)} (roles: {', '.join(roles)})"
            raise ConfigError([f"{kind}: data={name} has no {kind} {wanted!r}{near}"])
        kinds += [(kind, role) for role in roles if role in ROLES[kind]] if wanted is None else [(kind, wanted)]
    if not any(kind == "positive" for kind, _ in kinds):
        kinds.insert(0, ("positive", anchor))
    columns = {role: rows.column(role) for role in dict.fromkeys([*roles, *(role for _, role in kinds)])}
    if OmegaConf.select(cfg, "data.augmentation") is not None:
        ids = data.tokenize([text or "" for text in columns[anchor][: cfg.rows]])
        columns[anchor][: cfg.rows] = [text or None for text in data.tokenize.decode(ids)]
    pairs = []
    for kind, role in kinds:
        label = f"{anchor} - {role}" if role != anchor else f"{anchor}, two dropout passes"
        both = zip(columns[anchor], columns[role], strict=True)
        pairs.append(_drawn(kind, label, both, cfg.rows, dropout=role == anchor))
    texts = {role: [text for text in columns[role] if text is not None] for role in roles}
    some = list(dict.fromkeys(texts[anchor][: cfg.rows]))
    if len(some) > 1 and pairs[-1].kind == "positive":
        others = [*some[1:], some[0]]
        pairs.append(Drawn("negative", f"{anchor} - random other {anchor}", some, others, len(texts[anchor])))
    return Described(name, len(rows), texts, pairs, data.digests, data.counts, data.max_tokens)


def _stsb(cfg: DictConfig) -> Described:
    split, high, low = cfg.beside.split, cfg.beside.positive_score, cfg.beside.negative_score
    rows = read_corpus("stsb", split, Path(cfg.paths.data_dir))
    rows = rows.select(seeded_order(len(rows), cfg.seed))
    first, second, scores = (rows.column(name) for name in ("sentence1", "sentence2", "score"))
    rated = list(zip(first, second, scores, strict=True))
    near, far = [pair for *pair, score in rated if score > high], [pair for *pair, score in rated if score < low]
    pairs = [_drawn("positive", f"score > {high}", near, cfg.rows), _drawn("negative", f"score < {low}", far, cfg.rows)]
    digests = {file.name: file.sha256 for file in rows.files}
    return Described(
        f"STS-B {split}", len(rows), {"sentence1": first, "sentence2": second}, pairs, digests, rows.counts
    )


def _drawn(kind: Kind, label: str, pairs: Iterable[Sequence[Any]], most: int, *, dropout: bool = False) -> Drawn:
    """Return the first pairs of which neither side is missing."""
    whole = [pair for pair in pairs if None not in pair]
    return Drawn(kind, label, [a for a, _ in whole[:most]], [b for _, b in whole[:most]], len(whole), dropout)


def _sentences(each: Described, encoder: SentenceEncoder, most: int) -> dict[str, Any]:
    """Return the numbers of the sentences of each role: how many, how long, and how many are cut."""
    room = encoder.max_length - max(len(template) for template in encoder.templates)
    limit = room if each.limit is None else min(room, each.limit)
    roles = {}
    for role, texts in each.roles.items():
        words = [len(text.split()) for text in texts[:most]]
        roles[role] = {
            "sentences": len(texts),
            "share_of_rows": len(texts) / each.rows,
            "looked_at": len(words),
            "words_mean": float(np.mean(words)) if words else None,
            "words_95th_percentile": float(np.percentile(words, 95)) if words else None,
            "share_cut": float(np.mean([len(ids) > limit for ids in encoder.tokenizer(texts[:most])]))
            if words
            else None,
        }
    by = "encoder.max_length" if limit == room else "data.max_tokens"
    return {"name": each.name, "rows": each.rows, "word_pieces": limit, "limited_by": by, "roles": roles}


def print_summary(summary: Mapping[str, Any], folder: Path) -> None:
    """Print what ``summary.json`` says: a table of sentences, a table of pairs, and notes."""
    sentences = measuring.table(
        "data set", "role", "sentences", "of rows", "words, mean", "95th percentile", "cut", left=2
    )
    pairs = measuring.table("data set", "pairs", "", "number", "MER", "quartiles", "cosine", "quartiles", left=3)
    for each in summary["sets"]:
        for number, (role, found) in enumerate(each["roles"].items()):
            cells = [f"{found['sentences']:,}", f"{100 * found['share_of_rows']:.1f} %"]
            if found["looked_at"]:
                cells += [f"{found['words_mean']:.1f}", f"{found['words_95th_percentile']:.0f}"]
                cells.append(f"{100 * found['share_cut']:.1f} %")
            sentences.add_row(Text("" if number else each["name"]), role, *cells)
        for number, found in enumerate(each["pairs"]):
            cells = [f"{found['pairs']:,}"]
            for spread in (found["mer"], found["cosine"]):
                quartiles = (spread[key] for key in ("lower_quartile", "median", "upper_quartile")) if spread else ()
                cells += [measuring.mean_cell(spread), " ".join(f"{value:.2f}" for value in quartiles)]
            pairs.add_row(Text("" if number else each["name"]), found["kind"], Text(found["label"]), *cells)
    console = Console(highlight=False)
    measuring.print_tables([sentences, pairs], console)
    limits = dict.fromkeys(f"{each['word_pieces']} word pieces ({each['limited_by']})" for each in summary["sets"])
    encoder = f"{summary['encoder']['name']}, pooling {summary['encoder']['pooling']}"
    for note in (
        f"looked at: at most {summary['looked_at']} sentences a role and pairs a kind, seed {summary['seed']}",
        f"MER: match error rate of words; cosine: {encoder}; cut: longer than {' and '.join(limits)}",
        f"figure: {folder / summary['figure']}",
        f"summary: {folder / 'summary.json'}",
    ):
        console.print(Text(note), soft_wrap=True)
