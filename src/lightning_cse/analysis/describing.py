"""The pairs of a training set: drawn, measured in words and by an encoder, summarised and shown."""

import copy
import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lightning_cse import runs
from lightning_cse.analysis.difficulty import build_encoder, read_stsb
from lightning_cse.analysis.difficulty import measure as fitting_difficulty
from lightning_cse.analysis.histograms import Kind, Pairs, histograms_figure, quartiles
from lightning_cse.analysis.ranking import frame_of, ranking_table
from lightning_cse.config.compose import in_sweep, task_overrides
from lightning_cse.data import ContrastiveData, ContrastiveDataModule
from lightning_cse.data.preparation import Tables, read_tables
from lightning_cse.data.rows import check_column, digests_of, has
from lightning_cse.data.split import seeded_order
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.engine.build import built, encoder_values, plain
from lightning_cse.evaluation import Embedded
from lightning_cse.metrics import match_error_rate
from lightning_cse.models import PointModel
from lightning_cse.models.base import finite
from lightning_cse.plots import save_figures
from lightning_cse.runs.machine import device_of
from lightning_cse.runs.redaction import portable

Described = tuple[dict[str, Any], list[Pairs]]
"""A data set's entry in ``summary.json``, and its pairs."""

ROLES: dict[Kind, tuple[str, ...]] = {
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


def run(cfg: DictConfig) -> runs.Outcome:
    """Describe the data set of a command line, and print the tables."""
    hydra = HydraConfig.get()
    folder = describe(cfg, str(hydra.runtime.choices["data"]), task_overrides())
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    sys.stdout.write(shown_summary(summary, folder))

    return runs.Outcome("finished", str(folder))


def describe(cfg: DictConfig, name: str, overrides: Sequence[str] = ()) -> Path:
    """Describe a training set, and STS-B for comparison; return the folder of ``summary.json`` and
    the figure.

    Sentences and pairs are those that training would see, drawn by ``seed``; anchors of other rows
    replace missing hard negatives. If the data augments word pieces, the anchor also goes through
    the tokenizer.

    Source: NGCSE, figure 7 and its text.  Differs: the paper's numbers of pairs and its split of
    STS-B are not known.
    """
    tables = read_tables(built(cfg.data))
    encoder = build_encoder(cfg)
    trained = copy.deepcopy(encoder) if cfg.probe_steps else encoder
    own_account = replace(tables, account=tables.account.copy())
    difficulty = fitting_difficulty(cfg, own_account, trained)
    sets = _measured(encoder, {name: cfg}, {name: tables})
    files = dict(difficulty["data"])
    for about, _ in sets:
        files |= about["data"]

    about_encoder = {"name": encoder.name, **encoder.digests}
    resolved = encoder_values(cfg, encoder)
    options = plain(cfg) | {"draw": cfg.seed}
    decisive = runs.decisive(options, data=files, encoder=about_encoder, resolved=resolved)
    identity = runs.config_hash(decisive)
    folder = Path(cfg.paths.runs_dir).expanduser() / "describe"
    folder /= f"{name.replace('/', '_')}-{identity}"
    summary = {
        "name": name,
        "config_hash": identity,
        "seed": cfg.seed,
        "measured": cfg.rows,
        "encoder": about_encoder | {"pooling": encoder.pooling, "max_length": encoder.max_length},
        "sets": [
            about | {"pairs": [pair_summary(measured) for measured in pairs]}
            for about, pairs in sets
        ],
        "rfd": difficulty,
        "device": device_of().type,
        "figure": "histograms.png",
        "environment": runs.environment(),
        "overrides": portable(overrides),
    }
    figure = histograms_figure({about["name"]: pairs for about, pairs in sets})
    runs.remove_leftovers(folder)
    save_figures({"histograms.png": figure}, folder)
    config = runs.public(OmegaConf.to_yaml(cfg, resolve=True))
    runs.write_atomic(folder / "config.yaml", config)
    runs.write_json(folder / "summary.json", runs.public(summary))

    return folder


def pair_sets(configs: Mapping[str, DictConfig]) -> dict[str, list[Pairs]]:
    """Return the pairs of several training sets by name, as `describe` measures them, followed by
    those of STS-B.

    The encoder, the seed and STS-B are those of the first config.
    """
    first = next(iter(configs.values()))
    tables = {name: read_tables(built(cfg.data)) for name, cfg in configs.items()}
    sets = _measured(build_encoder(first), configs, tables)

    return {about["name"]: pairs for about, pairs in sets}


def _measured(
    encoder: SentenceEncoder, configs: Mapping[str, DictConfig], tables: Mapping[str, Tables]
) -> list[Described]:
    """Return, for each data set, its entry in ``summary.json`` and its measured pairs."""
    first = next(iter(configs.values()))
    described = [
        _training_set(cfg, name, built(cfg.data), tables[name], encoder)
        for name, cfg in configs.items()
    ]
    described.append(_stsb(first))
    measured = measure(encoder, [pairs for _, pairs in described], first.seed)

    return [(about, pairs) for (about, _), pairs in zip(described, measured, strict=True)]


def _training_set(
    cfg: DictConfig, name: str, settings: ContrastiveData, tables: Tables, encoder: SentenceEncoder
) -> Described:
    """Return the pairs that a training set gives: of the first role with each other role, or with
    its dropout pass.
    """
    data = ContrastiveDataModule(settings, tokenize=encoder.tokenizer, seed=cfg.seed, tables=tables)
    rows = data.train.select(seeded_order(len(data.train), cfg.seed))
    anchor = data.roles[0]
    first = list(rows[anchor])
    if data.settings.augmentation is not None:
        # As augmentation does, so that only its changes are measured.
        first[: cfg.rows] = data.tokenize.decode(data.tokenize(first[: cfg.rows]))

    pairs = []
    for kind, role in _kinds(cfg, data.roles):
        label = f"{anchor} - {role}" if role != anchor else f"{anchor}, two dropout passes"
        check_column(rows, role)
        second = list(rows[role]) if role != anchor else first
        sentences = zip(first, second, strict=True)
        pairs.append(drawn_pairs(kind, label, sentences, cfg.rows, dropout=role == anchor))

    if pairs[-1].kind == "positive":
        pairs.append(_random_negatives(anchor, first, cfg.rows))

    about = {
        "name": name,
        "rows": len(rows),
        "roles": {role: int(has(rows, role).sum()) for role in data.roles},
        "counts": data.counts,
        "data": data.digests,
    }

    return about, pairs


def _random_negatives(anchor: str, texts: Sequence[str], most: int) -> Pairs:
    """Return the pairs of each anchor with the next distinct one."""
    distinct = list(dict.fromkeys(texts[:most]))
    shifted = [*distinct[1:], *distinct[:1]]
    label = f"{anchor} - random other {anchor}"

    return Pairs("negative", label, distinct, shifted, len(texts))


def _kinds(cfg: DictConfig, roles: Sequence[str]) -> list[tuple[Kind, str]]:
    """Return the roles that are paired with the first one, as chosen or as methods know them."""
    paired: list[tuple[Kind, str]] = []
    for kind, names in ROLES.items():
        chosen = [role for role in roles if role in names] if cfg[kind] is None else [cfg[kind]]
        paired += [(kind, role) for role in chosen]
        paired = paired or [("positive", roles[0])]

    return paired


def _stsb(cfg: DictConfig) -> Described:
    split = cfg.beside.split
    high = cfg.beside.positive_score
    low = cfg.beside.negative_score
    rows, name = read_stsb(split, cfg.paths.data_dir)
    scored = list(rows.select(seeded_order(len(rows), cfg.seed)))
    near = [(row["sentence1"], row["sentence2"]) for row in scored if row["score"] > high]
    far = [(row["sentence1"], row["sentence2"]) for row in scored if row["score"] < low]
    about = {"name": name, "rows": len(rows), "data": digests_of([rows])}

    return about, [
        drawn_pairs("positive", f"score > {high}", near, cfg.rows),
        drawn_pairs("negative", f"score < {low}", far, cfg.rows),
    ]


def drawn_pairs(
    kind: Kind, label: str, pairs: Iterable[Sequence[Any]], most: int, *, dropout: bool = False
) -> Pairs:
    """Return at most the first ``most`` of the pairs that have both sentences."""
    complete = [pair for pair in pairs if None not in pair]
    first = [a for a, _ in complete[:most]]
    second = [b for _, b in complete[:most]]

    return Pairs(kind, label, first, second, len(complete), dropout)


def measure(
    encoder: SentenceEncoder | None, sets: Sequence[Sequence[Pairs]], seed: int
) -> list[list[Pairs]]:
    """Return the pairs with match error rates and, with an encoder, cosines; each distinct sentence
    is embedded once.

    ``seed`` decides the dropout of dropout pairs. Raises EncoderError if an embedding is not
    finite.
    """
    model = None if encoder is None else PointModel(encoder.to(device_of())).eval()
    sentences: dict[str, None] = {}
    for pairs in itertools.chain.from_iterable(sets):
        if not pairs.dropout:
            sentences |= dict.fromkeys(pairs.first) | dict.fromkeys(pairs.second)

    embedded: Any = Embedded(model, sentences) if model is not None and sentences else {}

    def measured(pairs: Pairs) -> Pairs:
        rates = [match_error_rate(a, b) for a, b in zip(pairs.first, pairs.second, strict=True)]
        if model is None or not rates:
            return replace(pairs, mer=rates)

        if pairs.dropout:
            first, second = _two_passes(model, pairs.first, seed)
        else:
            first, second = embedded[pairs.first], embedded[pairs.second]

        scores = model.similarity(finite(first), finite(second))

        return replace(pairs, mer=rates, cosine=scores.tolist())

    return [[measured(pairs) for pairs in of_set] for of_set in sets]


def _two_passes(model: PointModel, sentences: Sequence[str], seed: int) -> tuple[Any, Any]:
    """Embed sentences twice with dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.encoder.train()
        first = model.embed(sentences)
        second = model.embed(sentences)
        model.encoder.eval()

    return first, second


def pair_summary(pairs: Pairs) -> dict[str, Any]:
    """Return the number of pairs, and the mean and quartiles of their values."""
    return {
        "kind": pairs.kind,
        "label": pairs.label,
        "dropout": pairs.dropout,
        "pairs": pairs.total,
        "measured": len(pairs.first),
        "mer": quartiles(pairs.mer),
        "cosine": quartiles(pairs.cosine),
    }


def shown_summary(summary: Mapping[str, Any], folder: Path) -> str:
    """Return the content of ``summary.json`` as a table of pairs, that of RFD, and notes; in a
    sweep, the table of RFD comes at the end of all.
    """
    encoder = summary["encoder"]
    described = summary["sets"][0]
    roles = ", ".join(f"{role} {number:,}" for role, number in described["roles"].items())
    frame = frame_of({described["name"]: summary["rfd"]})
    difficulty = "" if in_sweep() else f"\n{ranking_table(frame)}\n"

    return f"""{pairs_table(summary["sets"])}
{difficulty}
{described["name"]}: {described["rows"]:,} rows; {roles}
sampled: at most {summary["measured"]} pairs per kind, seed {summary["seed"]}
MER: match error rate of words; cosine: {encoder["name"]}, pooling {encoder["pooling"]}
figure: {folder / summary["figure"]}
summary: {folder / "summary.json"}
"""


def pairs_table(sets: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the means of all pairs of the sets of a summary."""
    rows = []
    for described in sets:
        for pairs in described["pairs"]:
            spreads = (pairs["mer"], pairs["cosine"])
            means = [f"{spread['mean']:.3f}" if spread else "-" for spread in spreads]
            number = f"{pairs['pairs']:,}"
            rows.append((described["name"], pairs["kind"], pairs["label"], number, *means))

    columns = ("data set", "pairs", "", "number", "MER", "cosine")

    return str(pd.DataFrame(rows, columns=columns).to_string(index=False))
