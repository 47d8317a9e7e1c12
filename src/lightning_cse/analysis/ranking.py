"""Rank training sets before training, by their relative fitting difficulty (RFD)."""

import itertools
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from datasets import Dataset
from matplotlib.figure import Figure
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor, nn

from lightning_cse.callbacks import Diagnostics, Side, held_out_side, scored_pairs
from lightning_cse.callbacks.diagnostics import RFD_SIDES
from lightning_cse.config.launch import call
from lightning_cse.data import ContrastiveDataModule, read_corpus, sample_dir
from lightning_cse.data.declarations import SAMPLE, find_file, get_corpus
from lightning_cse.data.preparation import Tables
from lightning_cse.data.rows import files_of
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.engine.build import build_data, built, plain
from lightning_cse.errors import ConfigError, DataError, one_line
from lightning_cse.evaluation import Embedded
from lightning_cse.evaluation.files import OwnFiles
from lightning_cse.evaluation.task import Split
from lightning_cse.methods import Method
from lightning_cse.metrics import relative_fitting_difficulty
from lightning_cse.metrics.representation import pair_distances
from lightning_cse.plots import BLUE, GREY, blank_figure, plot_style, save_figures
from lightning_cse.runs import read_object, write_atomic
from lightning_cse.runs.sweep import PointOutcome, settings_of

log = logging.getLogger(__name__)

MEASURES = {
    "rfd_alignment": "RFD of alignment",
    "rfd_uniformity": "RFD of uniformity",
    "rfd": "sum",
}
"""What training sets are ranked by, and the titles in tables and figures."""
_BASIS = ("rows", "pairs", "sentences", "nearer", "evaluation")
LEAST_NEARER = 0.8
"""A smaller share of ``nearer`` is reported, since positives may be wrong: our choice, made after
the runs of ``ngcse/before_training``, whose wrong positives are all below it.
"""
FEWEST_PAIRS = 10
"""Fewer held-out pairs give no interval worth the name: our choice."""
RESAMPLES = 1000
EVALUATIONS = 10
"""The evaluations of a probe: our choice; NGCSE has 23 to 28."""

Values = NDArray[np.float64]


class Resampled(Diagnostics):
    """Diagnostics that keep the RFD of every evaluation, and of resampled held-out rows.

    A resample draws as many rows as there are, with replacement. A row brings its pair and all of
    its sentences. The evaluation side is not resampled, since it is the same for all training sets.
    By step, ``rfd`` has the values of `MEASURES`, ``resampled`` those of the resamples,
    ``(resamples,)`` each, and ``nearer`` the value of `nearer_than_others`.
    """

    def __init__(self, held_out: Side, evaluation: Side, *, seed: int) -> None:
        super().__init__(held_out, evaluation)
        (first, _), *_ = held_out.pairs.values()
        rows = len(first)
        rng = np.random.default_rng(seed)
        self._counts = rng.multinomial(rows, np.full(rows, 1 / rows), size=RESAMPLES).astype(float)
        self.rfd: dict[int, dict[str, float]] = {}
        self.resampled: dict[int, dict[str, Values]] = {}
        self.nearer: dict[int, float] = {}

    def measure(self, embedded: Embedded, second: Embedded, step: int) -> dict[str, float]:
        """Return the values of this evaluation, and keep its RFD."""
        values = super().measure(embedded, second, step)
        watched = self.sides["held_out"]
        view, (a, b) = next(iter(watched.pairs.items()))

        def vectors(sentences: Sequence[str]) -> Tensor:
            return embedded[sentences].views()[view]

        distances = pair_distances(vectors(a), vectors(b)).cpu().numpy()
        row_of = np.arange(len(watched.sentences)) // watched.sentences_a_row
        held_out = {
            "alignment": self._counts @ distances / len(distances),
            "uniformity": resampled_uniformity(vectors(watched.sentences), self._counts[:, row_of]),
        }
        rfd: dict[str, float] = {}
        resampled: dict[str, Values] = {}
        for name, drawn in held_out.items():
            sides = [[values[f"diag/{side}/{name}"]] for side in RFD_SIDES]
            rfd[f"rfd_{name}"] = relative_fitting_difficulty(*sides)
            resampled[f"rfd_{name}"] = drawn - values[f"diag/eval/{name}"]

        self.nearer[step] = nearer_than_others(vectors(a), vectors(b))
        self.rfd[step] = rfd | {"rfd": sum(rfd.values())}
        self.resampled[step] = resampled | {"rfd": sum(resampled.values(), np.zeros(RESAMPLES))}

        return values

    def mean(self, steps: Sequence[int]) -> dict[str, float]:
        """Return the means over some evaluations, with the ends of their 95 % intervals."""
        means: dict[str, float] = {}
        for name in MEASURES:
            resampled = np.mean([self.resampled[step][name] for step in steps], axis=0)
            low, high = np.quantile(resampled, (0.025, 0.975))
            mean = float(np.mean([self.rfd[step][name] for step in steps]))
            means |= {name: mean, f"{name}_low": float(low), f"{name}_high": float(high)}

        return means


def resampled_uniformity(vectors: Tensor, counts: Values, t: float = 2) -> Values:
    r"""Return the uniformity of resamples of sentences: ``(resamples,)``.

    .. math:: \log \frac{\sum_{i \ne j} c_i c_j \, e^{-t \, \lVert z_i - z_j \rVert^2}}
              {\sum_{i \ne j} c_i c_j}

    with ``vectors`` of shape ``(n, d)``, and ``counts`` (resamples, n): how often each sentence is
    drawn. A sentence and its copy are no pair. With all counts 1, it is `metrics.uniformity`.
    """
    z = nn.functional.normalize(vectors.cpu().double(), dim=1)
    kernel = torch.cdist(z, z).square().mul(-t).exp().fill_diagonal_(0).numpy()
    similar = ((counts @ kernel) * counts).sum(axis=1)
    pairs = counts.sum(axis=1) ** 2 - (counts**2).sum(axis=1)

    return np.asarray(np.log(similar / pairs))


def nearer_than_others(x: Tensor, y: Tensor) -> float:
    """Return how often a positive is nearer to its anchor than the positive of another row is.

    Of ``x`` and ``y``, both ``(n, d)``, row ``i`` of one belongs to row ``i`` of the other. The
    value is the mean over all ``i != j``; a tie counts one half. Wrong positives have 0.5.
    """
    first, second = (nn.functional.normalize(each.cpu().double(), dim=1) for each in (x, y))
    similarity = first @ second.T
    of_pair = similarity.diagonal()[:, None]
    wins = (similarity < of_pair).double() + 0.5 * (similarity == of_pair).double()
    n = len(wins)

    return float((wins.sum() - 0.5 * n) / (n * (n - 1)))


# One training set --------------------------------------------------------------------------------


def measure(cfg: DictConfig, tables: Tables | None = None) -> dict[str, Any]:
    """Return the RFD of the training set of a ``describe`` config, and what it rests on.

    The values are those that a training of ``method`` logs at step 0. With ``probe_steps``, the
    method is trained for so many steps, and ``probe`` has the mean over their evaluations, as the
    paper defines RFD. A set that cannot be compared has a ``reason`` in place of the values.
    ``tables`` are the sources of the data, if they have been read.

    Raises:
        LightningCSEError: if the config, a file or the encoder is at fault.
    """
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    encoder: SentenceEncoder = built(cfg.encoder, _convert_="all")
    method: Method = built(cfg.method, encoder=encoder)
    evaluation, name = evaluation_side(cfg, list(method.pairs))
    entries: dict[str, Any] = {"evaluation": name, "data": evaluation.digests}
    settings = cfg.copy()
    settings.data.held_out_rows = cfg.data.get("held_out_rows") or cfg.rows
    try:
        data = build_data(settings, encoder, method, tables)
        entries["rows"] = len(data.train)
        held_out = _held_out(method, data, cfg.rfd.sentences)
    except (ConfigError, DataError) as error:
        return entries | {"reason": one_line(error)}

    diagnostics = Resampled(held_out, evaluation, seed=cfg.seed)
    sizes = diagnostics.sizes["held_out"]
    entries |= {"pairs": next(iter(sizes["pairs"].values())), "sentences": sizes["sentences"]}
    data.watched_sentences = diagnostics.sentences()
    trainer = _trainer(cfg.probe_steps, diagnostics)
    trainer.validate(method, data, verbose=False)
    entries |= {"nearer": diagnostics.nearer[0], "step_0": diagnostics.mean([0])}
    if cfg.probe_steps:
        trainer.fit(method, data)
        steps = [step for step in diagnostics.rfd if step]
        entries["probe"] = {"steps": cfg.probe_steps, **diagnostics.mean(steps)}

    return entries


def _held_out(method: Method, data: ContrastiveDataModule, sentences: int) -> Side:
    """Return the held-out side of a training set; raise ConfigError or DataError if it has none."""
    a, b = next(iter(method.pairs.values()))
    if a == b:
        name = type(method).__name__
        raise ConfigError([f"method: {name} has no positives but dropout; choose method=simcse"])
    if not len(data.held_out):
        raise DataError("data.held_out_share: no row is held out, on which RFD is measured")

    side = held_out_side(method, data, sentences)
    pairs = len(next(iter(side.pairs.values()))[0])
    if pairs < FEWEST_PAIRS:
        raise DataError(
            f"data: only {pairs} held-out rows have a {b}, and an interval needs {FEWEST_PAIRS}: "
            "raise data.held_out_share, or add rows"
        )

    return side


def _trainer(steps: int, diagnostics: Diagnostics) -> pl.Trainer:
    """Return the Trainer that measures step 0, and trains for some steps."""
    return pl.Trainer(
        max_epochs=-1,
        max_steps=steps,
        val_check_interval=max(1, steps // EVALUATIONS),
        check_val_every_n_epoch=None,
        gradient_clip_val=1.0,  # as in conf/trainer/default.yaml
        callbacks=[diagnostics],
        devices=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=sys.stderr.isatty(),
    )


# The evaluation side -----------------------------------------------------------------------------


def evaluation_side(cfg: DictConfig, views: Sequence[str]) -> tuple[Side, str]:
    """Return the pairs that training sets are compared with, and their name: those of ``own.sts``,
    or else STS-B dev.

    Of your own pairs, those in the highest fifth of the range of scores are similar, and those in
    the lowest fifth dissimilar, as 4 and 1 are of STS-B's 0 to 5.
    """
    if not cfg.own.sts:
        rows, name = read_stsb("dev", cfg.paths.data_dir)
        return scored_pairs(rows, views, cfg.rfd, "rfd"), name

    own = plain(cfg.own)
    form = {key: own[key] for key in ("columns", "delimiter", "encoding")}
    files = OwnFiles(key="own.sts", files=own["sts"], **form)
    split: Split = "dev" if "dev" in files.sources else "test"
    rows = files.read(split, ("sentence1", "sentence2", "score"))
    low, high = min(rows["score"]), max(rows["score"])
    if low == high:
        raise DataError(f"own.sts: all scores are {low:g}; RFD needs similar and other pairs")

    ends = {"positive_score": low + 0.8 * (high - low), "negative_score": low + 0.2 * (high - low)}
    side = scored_pairs(rows, views, {**cfg.rfd, **ends})

    return side, f"own.sts, {split}: {Path(files_of(rows)[0].path).name}"


def read_stsb(split: str, data_dir: str) -> tuple[Dataset, str]:
    """Return a split of STS-B and its name; of its sample, with a warning, where the corpus is
    unavailable.
    """
    folder = Path(data_dir).expanduser()
    try:
        rows = read_corpus("stsb", split, folder)
    except DataError as error:
        if any(find_file(folder, file) for file in get_corpus("stsb").split_files(split)):
            raise

        log.warning("compared with the sample of STS-B in the package: %s", error)
        folder = sample_dir()
        rows = read_corpus("stsb", split, folder)

    of_sample = f", sample of {len(rows)} pairs" if (folder / SAMPLE).exists() else ""

    return rows, f"STS-B {split}{of_sample}"


# Several training sets ---------------------------------------------------------------------------


def rank_training_sets(
    sets: Mapping[str, str | Path | Sequence[str]],
    encoder: str = "minilm_l4",
    *,
    own_sts: str | Path | None = None,
    probe_steps: int = 0,
    overrides: Sequence[str] = (),
) -> pd.DataFrame:
    r"""Rank training sets by RFD before training: the sum of RFD of alignment and of uniformity.

    .. math:: \text{RFD} = \text{held-out rows} - \text{evaluation pairs}

    for each measure, by the untrained encoder. Above 0, the held-out rows of the training set fit
    worse than the evaluation pairs. One row for each set, the highest sum first: ``rows``,
    ``pairs`` and ``sentences`` that RFD rests on, ``rfd_alignment``, ``rfd_uniformity`` and
    ``rfd``, each with the ends of its 95 % interval over the held-out rows (``..._low``,
    ``..._high``), ``order``, and ``reason`` for a set that cannot be compared. With
    ``probe_steps``, the order is that of the mean over training, and the columns of step 0 begin
    with ``step_0_``. ``docs/choosing_data.md`` says where the order may be trusted.

    Args:
        sets: for each name, a file of training rows, or the words of a command line such as
            ``["data=nli_triplets"]``.
        encoder: a name of ``conf/encoder``, a folder, or a hub id.
        own_sts: pairs with scores to compare with, in place of STS-B dev.
        probe_steps: train each set for so many steps, and average over them.
        overrides: words for every set, such as ``["data.held_out_share=0.1"]``.

    Source: NGCSE, section on relative fitting difficulty.  Differs: step 0, which the paper leaves
    out; with ``probe_steps``, the steps after it, as in the paper.

    Raises:
        ConfigError: if ``sets`` is empty, or an override is wrong.
    """
    if not sets:
        raise ConfigError(["sets: must have at least one training set"])

    shared = [f"encoder={encoder}", f"probe_steps={probe_steps}", *overrides]
    if own_sts is not None:
        shared.append(f"own.sts={_quoted(own_sts)}")

    measured = {}
    for number, (name, source) in enumerate(sets.items(), 1):
        log.info("%s: training set %d of %d", name, number, len(sets))
        if isinstance(source, str | Path):
            words = ["data=file", f"data.train={_quoted(source)}"]
        else:
            words = list(source)

        try:
            measured[name] = call(f"{__name__}:measure", "describe", [*words, *shared])
        except DataError as error:
            measured[name] = {"reason": one_line(error)}

    return frame_of(measured)


def _quoted(path: str | Path) -> str:
    """Return a path as a value of Hydra's grammar."""
    text = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def frame_of(measured: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return the values of `measure` by name as one row each, the highest sum first."""
    rows = {}
    for name, entries in measured.items():
        row = {key: entries.get(key) for key in _BASIS}
        start, probe = (entries.get(key) or {} for key in ("step_0", "probe"))
        if probe:
            row |= {f"step_0_{key}": value for key, value in start.items()}

        rows[name] = row | dict(probe or start) | {"reason": entries.get("reason", "")}

    frame = pd.DataFrame.from_dict(rows, orient="index")
    if "rfd" not in frame:
        return frame

    frame = frame.sort_values("rfd", ascending=False, kind="stable")
    frame.insert(0, "order", frame["rfd"].rank(ascending=False, method="first").astype("Int64"))

    return frame


def sweep_ranking(points: Sequence[PointOutcome], folder: Path) -> str:
    """Return the ranking of the training sets of a multirun of ``describe`` as a table, and write
    ``ranking.csv`` and ``ranking.png`` into the folder of the sweep.
    """
    measured: dict[str, dict[str, Any]] = {}
    for name, point in zip(settings_of(points), points, strict=True):
        entries = {"reason": f"{point.status}: {point.reason}"}
        if point.folder is not None:
            advice = "the same command describes the set again"
            summary = read_object(Path(point.folder, "summary.json"), advice=advice)
            entries = summary["rfd"]

        measured[name] = entries

    frame = frame_of(measured)
    lines = ["", ranking_table(frame)]
    if "rfd" in frame:
        write_atomic(folder / "ranking.csv", frame.to_csv(index_label="training set"))
        save_figures({"ranking.png": ranking_figure(frame)}, folder)
        lines += [f"figure: {folder / 'ranking.png'}", f"table: {folder / 'ranking.csv'}"]

    return "\n".join([*lines, ""])


def ranking_table(frame: pd.DataFrame) -> str:
    """Return the ranking as text: a line for each training set, and how to read it."""
    ranked = frame.dropna(subset=["rfd"]) if "rfd" in frame else frame[:0]
    cells = []
    for name, row in ranked.iterrows():
        spreads = [
            f"{row[key]:+.3f} [{row[f'{key}_low']:+.3f}, {row[f'{key}_high']:+.3f}]"
            for key in MEASURES
        ]
        counts = [f"{row[key]:,.0f}" for key in ("rows", "pairs", "sentences")]
        cells.append((row["order"], name, *counts, f"{row['nearer']:.0%}", *spreads))

    columns = [
        "",
        "training set",
        "rows",
        "held-out pairs",
        "sentences",
        "nearer",
        *MEASURES.values(),
    ]
    lines = []
    if cells:
        lines.append(pd.DataFrame(cells, columns=columns).to_string(index=False))
        lines += ["", *_notes(ranked)]

    others = frame.drop(ranked.index)
    lines += [f"{name}: not compared: {row['reason']}" for name, row in others.iterrows()]

    return "\n".join(lines)


def _notes(ranked: pd.DataFrame) -> list[str]:
    """Return what the values are, and where two neighbours are not told apart."""
    is_probed = "steps" in ranked
    steps = ranked["steps"].max() if is_probed else 0
    when = f"mean over {steps:.0f} training steps" if is_probed else "before training"
    notes = [
        f"RFD {when}: held-out rows minus {' / '.join(ranked['evaluation'].unique())}, with 95 % "
        "intervals over the held-out rows.",
        "Above 0, the training rows fit worse than these pairs: the set is harder, because it teaches "
        "more or because its positives are wrong.",
        "RFD does not tell which, so the first is not the best by itself: docs/choosing_data.md says "
        "what the order was worth in a test.",
        "nearer: how often a positive is nearer to its anchor than another row's positive is.",
    ]
    suspects = ranked[ranked["nearer"] < LEAST_NEARER].index
    if len(suspects):
        notes.append(
            f"Positives hardly nearer to their anchors than those of other rows, so perhaps wrong: "
            f"{', '.join(map(str, suspects))}."
        )

    neighbours = itertools.pairwise(ranked.iterrows())
    ties = [f"{a} and {b}" for (a, x), (b, y) in neighbours if y["rfd_high"] > x["rfd_low"]]
    if ties:
        notes.append(f"Their intervals overlap, so their order is open: {'; '.join(ties)}.")

    return notes


def ranking_figure(frame: pd.DataFrame) -> Figure:
    """Draw RFD of alignment, of uniformity and their sum for each training set, with 95 %
    intervals.
    """
    ranked = frame.dropna(subset=["rfd"])[::-1]
    with plot_style():
        figure = blank_figure(9.0, 1.2 + 0.34 * len(ranked))
        panels = figure.subplots(1, len(MEASURES), sharey=True)
        for axes, (key, title) in zip(panels, MEASURES.items(), strict=True):
            ends = [ranked[key] - ranked[f"{key}_low"], ranked[f"{key}_high"] - ranked[key]]
            axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
            axes.errorbar(
                ranked[key],
                range(len(ranked)),
                xerr=ends,
                color=BLUE,
                fmt="o",
                markersize=5,
                capsize=3,
            )
            axes.set(xlabel=title, ylim=(-0.6, len(ranked) - 0.4))

        panels[0].set_yticks(range(len(ranked)), [str(name) for name in ranked.index])

    return figure
