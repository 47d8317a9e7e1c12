"""From a config to the description of its training set: words, shares of roles, match error rates, cosines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lightning_cse import runs
from lightning_cse.analysis.histograms import Pairs, PairSet, draw_histograms
from lightning_cse.analysis.measuring import (
    ROLES,
    Drawn,
    Kind,
    draw,
    mean_cell,
    measure,
    pair_set,
    pair_summary,
    print_tables,
    table,
)
from lightning_cse.data import ContrastiveData, Rows, read_corpus
from lightning_cse.data.drawing import seeded_order
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.engine.build import automatic_reading, built, check_nodes, plain
from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.runs.machine import device_of

__all__ = ["describe", "pair_sets", "run"]

_BATCHING: Final = ("batch_size", "drop_last", "llm_rows_together")  # what no row, and so no number here, depends on


def run(cfg: DictConfig) -> None:
    """Describe what the command line asks for, and print the tables."""
    hydra = HydraConfig.get()
    folder = describe(cfg, str(hydra.runtime.choices["data"]), list(hydra.overrides.task))
    _print(json.loads((folder / "summary.json").read_text(encoding="utf-8")), folder)


def describe(cfg: DictConfig, name: str, overrides: Sequence[str] = ()) -> Path:
    """Describe a training set and STS-B beside it, and return the folder of ``summary.json`` and the figure.

    Sentences and pairs are those that training would see, held-out rows left out, drawn by ``seed``. Where an
    augmentation makes the positive from word pieces, the anchor goes through the tokenizer as well, so that case and
    white space do not count as errors. Cosines are those of the encoder as it was loaded, without dropout; but a
    sentence beside itself is a dropout pair, and its two passes have dropout.

    Source: NGCSE, figure 7 and its text.  Differs: the paper's numbers of pairs and its split of STS-B are not known.

    Args:
        cfg: the config of ``describe``.
        name: what the data set is called.
        overrides: the command line, for the summary.

    Raises:
        LightningCSEError: for whatever is the user's to mend.
    """
    check_nodes(cfg)
    encoder: SentenceEncoder = built(cfg.encoder)
    data: ContrastiveData = built(cfg.data, tokenize=encoder.tokenizer, seed=cfg.seed)
    described = [_training_set(cfg, name, data), _stsb(cfg)]
    measured = _measure(cfg, encoder, described)
    options = plain(cfg)
    decisive: dict[str, Any] = {
        "data": {file: digest for each in described for file, digest in each.digests.items()},
        "encoder": {"name": encoder.name, **encoder.digests},
        "resolved": automatic_reading(cfg, encoder),
    }
    chosen = {key: options[key] for key in ("encoder", "rows", "positive", "negative", "beside")}
    chosen["data"] = {key: value for key, value in options["data"].items() if key not in _BATCHING}
    identity = runs.config_hash({**chosen, "draw": cfg.seed}, **decisive)
    folder = Path(cfg.paths.runs_dir).expanduser() / "describe" / f"{name.replace('/', '_')}-{identity}"
    sets = []
    for each, pairs in zip(described, measured, strict=True):
        found = [pair_summary(one, values) for one, values in zip(each.pairs, pairs, strict=True)]
        sets.append({"name": each.name, "rows": each.count, **_sentences(cfg, encoder, each), "pairs": found})
    summary = {
        "name": name,
        "config_hash": identity,
        "seed": cfg.seed,
        "looked_at": cfg.rows,
        "encoder": {**decisive["encoder"], "pooling": encoder.pooling, "max_length": encoder.max_length},
        "sets": sets,
        "counts": data.counts,
        "data": decisive["data"],
        "device": device_of().type,
        "figure": "histograms.png",
        "environment": runs.environment(),
        "overrides": list(overrides),
    }
    draw_histograms(
        [_drawn(each, pairs) for each, pairs in zip(described, measured, strict=True)], folder / "histograms.png"
    )
    runs.write_atomic(folder / "config.yaml", OmegaConf.to_yaml(cfg, resolve=True))
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    runs.write_atomic(folder / "summary.json", text + "\n")
    return folder


def pair_sets(configs: Mapping[str, DictConfig]) -> list[PairSet]:
    """Return the pairs of several training sets as `describe` looks at them, and those of STS-B after them.

    The encoder, the seed and STS-B are those of the first config.

    Args:
        configs: configs of ``describe`` by what their data sets are called; at least one.

    Raises:
        LightningCSEError: for whatever is the user's to mend.
    """
    for cfg in configs.values():
        check_nodes(cfg)
    first = next(iter(configs.values()))
    encoder: SentenceEncoder = built(first.encoder)
    described = []
    for name, cfg in configs.items():
        data: ContrastiveData = built(cfg.data, tokenize=encoder.tokenizer, seed=cfg.seed)
        described.append(_training_set(cfg, name, data))
    described.append(_stsb(first))
    return [_drawn(each, pairs) for each, pairs in zip(described, _measure(first, encoder, described), strict=True)]


# ------------------------------------------------------------------------------------------------- what is looked at


@dataclass(frozen=True)
class Described:
    """A data set: how many sentences each role has, those that are looked at, and the pairs.

    ``limit`` is ``data.max_tokens``, the number of word pieces that its sentences are cut to.
    """

    name: str
    count: int
    there: dict[str, int]
    sentences: dict[str, list[str]]
    pairs: list[Drawn]
    digests: dict[str, str]
    limit: int | None = None


def _training_set(cfg: DictConfig, name: str, data: ContrastiveData) -> Described:
    rows, roles = data.train, data.roles
    anchor = roles[0]
    asked: dict[Kind, str | None] = {"positive": cfg.positive, "negative": cfg.negative}
    faults = []
    for kind, role in asked.items():
        if role is not None and (role not in rows.names or (kind == "negative" and role == anchor)):
            known = [other for other in roles if kind == "positive" or other != anchor]
            near = did_you_mean(str(role), known)
            faults.append(f"{kind}: {role!r} is no {kind} that data={name} has{near} (roles: {', '.join(roles)})")
    if faults:
        raise ConfigError(faults)
    columns: dict[str, list[str | None]] = {
        role: rows.column(role) for role in dict.fromkeys([*roles, *filter(None, asked.values())])
    }
    order = seeded_order(len(rows), cfg.seed)
    if OmegaConf.select(cfg, "data.augmentation") is not None:
        columns[anchor] = _through_tokenizer(data, columns[anchor], order[: cfg.rows])
    kinds: list[tuple[Kind, str]] = []
    for kind, role in asked.items():
        found = [role] if role is not None else [other for other in roles if other in ROLES[kind]]
        kinds += [(kind, each) for each in found]
    if not any(kind == "positive" for kind, _ in kinds):
        kinds.insert(0, ("positive", anchor))
    pairs = []
    for kind, role in kinds:
        both = [row for row in order if columns[anchor][row] is not None and columns[role][row] is not None]
        drawn = draw(kind, f"{anchor} - {role}", columns[anchor], columns[role], both, cfg.rows)
        pairs.append(replace(drawn, label=f"{anchor}, two dropout passes", dropout=True) if role == anchor else drawn)
    return Described(
        name,
        len(rows),
        {role: sum(sentence is not None for sentence in columns[role]) for role in roles},
        {role: _first(columns[role], order, cfg.rows) for role in roles},
        pairs,
        data.digests,
        data.max_tokens,
    )


def _through_tokenizer(data: ContrastiveData, column: Sequence[str | None], rows: Sequence[int]) -> list[str | None]:
    """Return the column with the sentences of these rows as the tokenizer gives them back."""
    through = list(column)
    chosen = [row for row in rows if column[row] is not None]
    for row, text in zip(chosen, data.tokenize.decode(data.tokenize([str(column[r]) for r in chosen])), strict=True):
        through[row] = text
    return through


def _stsb(cfg: DictConfig) -> Described:
    split = cfg.beside.split
    rows = read_corpus("stsb", split, Path(cfg.paths.data_dir))
    high, low = cfg.beside.positive_score, cfg.beside.negative_score
    first, second, scores = (rows.column(name) for name in ("sentence1", "sentence2", "score"))
    order = seeded_order(len(rows), cfg.seed)
    pairs = [
        draw("positive", f"score > {high}", first, second, [row for row in order if scores[row] > high], cfg.rows),
        draw("negative", f"score < {low}", first, second, [row for row in order if scores[row] < low], cfg.rows),
    ]
    names = ("sentence1", "sentence2")
    return Described(
        f"STS-B {split}",
        len(rows),
        dict.fromkeys(names, len(rows)),
        {role: _first(column, order, cfg.rows) for role, column in zip(names, (first, second), strict=True)},
        pairs,
        _digests(rows),
    )


def _first(column: Sequence[str | None], order: Sequence[int], most: int) -> list[str]:
    return [sentence for row in order if (sentence := column[row]) is not None][:most]


def _digests(rows: Rows) -> dict[str, str]:
    return {file.name: file.sha256 for file in rows.files}


# ------------------------------------------------------------------------------------------------- what is measured


def _measure(cfg: DictConfig, encoder: SentenceEncoder, described: Sequence[Described]) -> list[list[Pairs]]:
    return measure(encoder, [each.pairs for each in described], cfg.seed)


def _drawn(each: Described, measured: Sequence[Pairs]) -> PairSet:
    return pair_set(each.name, each.pairs, measured)


def _sentences(cfg: DictConfig, encoder: SentenceEncoder, each: Described) -> dict[str, Any]:
    """Return what is to be said of the sentences of each role: how many, how long, and how many are cut."""
    room = encoder.max_length - max(len(template) for template in encoder.templates)
    limit = room if each.limit is None else min(room, each.limit)
    by = "encoder.max_length" if limit == room else "data.max_tokens"
    roles = {}
    for role, sentences in each.sentences.items():
        words = [len(sentence.split()) for sentence in sentences]
        cut = sum(len(ids) > limit for ids in encoder.tokenizer(sentences))
        roles[role] = {
            "sentences": each.there[role],
            "share_of_rows": each.there[role] / each.count,
            "looked_at": len(sentences),
            "words_mean": float(np.mean(words)) if words else None,
            "words_95th_percentile": float(np.percentile(words, 95)) if words else None,
            "share_cut": cut / len(sentences) if sentences else None,
        }
    return {"word_pieces": limit, "limited_by": by, "roles": roles}


# ------------------------------------------------------------------------------------------------------ what is shown


def _print(summary: Mapping[str, Any], folder: Path) -> None:
    console = Console(highlight=False)
    print_tables([_sentence_table(summary), _pair_table(summary)], console)
    seen = dict.fromkeys(f"{each['word_pieces']} word pieces ({each['limited_by']})" for each in summary["sets"])
    encoder = summary["encoder"]
    notes = [
        f"looked at: {summary['looked_at']} sentences a role and pairs a kind or all there are, seed {summary['seed']}",
        f"MER: match error rate of words; cosine: {encoder['name']}, pooling {encoder['pooling']}; cut: longer than "
        + " and ".join(seen),
        f"figure: {folder / summary['figure']}",
        f"summary: {folder / 'summary.json'}",
    ]
    for note in notes:
        console.print(Text(note), soft_wrap=True)


def _sentence_table(summary: Mapping[str, Any]) -> Table:
    made = table("data set", "role", "sentences", "of rows", "words, mean", "95th percentile", "cut", left=2)
    for each in summary["sets"]:
        for number, (role, found) in enumerate(each["roles"].items()):
            name = Text(each["name"] if number == 0 else "")
            cells = [f"{found['sentences']:,}", f"{100 * found['share_of_rows']:.1f} %"]
            if found["looked_at"]:
                cells += [f"{found['words_mean']:.1f}", f"{found['words_95th_percentile']:.0f}"]
                cells.append(f"{100 * found['share_cut']:.1f} %")
            made.add_row(name, role, *cells)
    return made


def _pair_table(summary: Mapping[str, Any]) -> Table:
    made = table("data set", "pairs", "", "number", "MER", "quartiles", "cosine", "quartiles", left=3)
    for each in summary["sets"]:
        for number, found in enumerate(each["pairs"]):
            cells = [cell for key in ("mer", "cosine") for cell in _cells(found[key])]
            name = Text(each["name"] if number == 0 else "")
            made.add_row(name, found["kind"], Text(found["label"]), f"{found['pairs']:,}", *cells)
    return made


def _cells(spread: Mapping[str, float] | None) -> tuple[str, str]:
    if spread is None:
        return "-", "-"
    quartiles = " ".join(f"{spread[key]:.2f}" for key in ("lower_quartile", "median", "upper_quartile"))
    return mean_cell(spread), quartiles
