"""Relative fitting difficulty (RFD) of one training set, measured before training."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from datasets import Dataset
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor, nn

from lightning_cse.callbacks import Diagnostics, Side, held_out_side, scored_pairs
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
from lightning_cse.metrics.representation import pair_distances

log = logging.getLogger(__name__)

MEASURES = {
    "rfd_alignment": "RFD of alignment",
    "rfd_uniformity": "RFD of uniformity",
    "rfd": "sum",
}
"""What training sets are ranked by, and the titles in tables and figures."""
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
    By step, ``rfd`` has the values of `MEASURES`, ``(1 + resamples,)`` each, of which the first is
    that of all rows, and ``nearer`` the value of `nearer_than_others`.
    """

    def __init__(self, held_out: Side, evaluation: Side, *, seed: int) -> None:
        super().__init__(held_out, evaluation)
        (first, _), *_ = held_out.pairs.values()
        rows = len(first)
        draws = np.random.default_rng(seed).multinomial(rows, np.full(rows, 1 / rows), RESAMPLES)
        self._counts = np.vstack([np.ones(rows), draws])
        self.rfd: dict[int, dict[str, Values]] = {}
        self.nearer: dict[int, float] = {}

    def measure(self, embedded: Embedded, second: Embedded, step: int) -> dict[str, float]:
        """Return the values of this evaluation, and keep its RFD."""
        values = super().measure(embedded, second, step)
        side = self.sides["held_out"]
        view, (first, positive) = next(iter(side.pairs.items()))
        x, y, z = (embedded[texts].views()[view] for texts in (first, positive, side.sentences))
        distances = pair_distances(x, y).cpu().numpy()
        row_of = np.arange(len(side.sentences)) // side.sentences_a_row
        alignment = self._counts @ distances / len(distances)
        uniformity = resampled_uniformity(z, self._counts[:, row_of])
        rfd = {
            "rfd_alignment": alignment - values["diag/eval/alignment"],
            "rfd_uniformity": uniformity - values["diag/eval/uniformity"],
        }
        self.rfd[step] = rfd | {"rfd": rfd["rfd_alignment"] + rfd["rfd_uniformity"]}
        self.nearer[step] = nearer_than_others(x, y)

        return values

    def mean(self, steps: Sequence[int]) -> dict[str, float]:
        """Return the means over some evaluations, with the ends of their 95 % intervals."""
        means: dict[str, float] = {}
        for name in MEASURES:
            value, *resampled = np.mean([self.rfd[step][name] for step in steps], axis=0)
            low, high = np.quantile(resampled, (0.025, 0.975))
            means |= {name: float(value), f"{name}_low": float(low), f"{name}_high": float(high)}

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
    first, second = (nn.functional.normalize(side.cpu().double(), dim=1) for side in (x, y))
    similarity = first @ second.T
    of_pair = similarity.diagonal()[:, None]
    wins = (similarity < of_pair).double() + 0.5 * (similarity == of_pair).double()
    n = len(wins)

    return float((wins.sum() - 0.5 * n) / (n * (n - 1)))


# One training set --------------------------------------------------------------------------------


def build_encoder(cfg: DictConfig) -> SentenceEncoder:
    """Return the encoder of a config, and set the seed as a training does before it."""
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    encoder: SentenceEncoder = built(cfg.encoder, _convert_="all")

    return encoder


def measure(
    cfg: DictConfig, tables: Tables | None = None, encoder: SentenceEncoder | None = None
) -> dict[str, Any]:
    """Return the RFD of the training set of a ``describe`` config, and what it rests on.

    The values are those that a training of ``method`` logs at step 0. With ``probe_steps``, the
    method is trained for so many steps, the values are the means over their evaluations, as the
    paper defines RFD, and the names of those at step 0 begin with ``step_0_``. A set that cannot be
    compared has a ``reason`` in place of the values.

    Args:
        cfg: the config.
        tables: the sources of the data, if they have been read.
        encoder: that of `build_encoder`, which a probe trains.

    Raises:
        LightningCSEError: if the config, a file or the encoder is at fault.
    """
    encoder = build_encoder(cfg) if encoder is None else encoder
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
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
    entries["nearer"] = diagnostics.nearer[0]
    start = diagnostics.mean([0])
    if not cfg.probe_steps:
        return entries | start

    trainer.fit(method, data)
    entries |= {f"step_0_{key}": value for key, value in start.items()}
    means = diagnostics.mean([step for step in diagnostics.rfd if step])

    return entries | {"steps": cfg.probe_steps, **means}


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
    files = OwnFiles(key="own.sts", files=own["sts"], columns=own["columns"])
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
