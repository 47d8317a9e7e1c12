"""Measures of embeddings and scores: tensors or arrays in, plain floats out, computed in float64."""

from lightning_cse.metrics.alignment_uniformity import alignment, uniformity
from lightning_cse.metrics.correlation import spearman, spearman_all, spearman_mean, spearman_wmean
from lightning_cse.metrics.edit import match_error_rate, match_error_rates
from lightning_cse.metrics.precision_recall import auprc
from lightning_cse.metrics.rfd import mean_of_best, relative_fitting_difficulty
from lightning_cse.metrics.significance import (
    McNemar,
    PairedBootstrap,
    bootstrap_statistics,
    holm,
    majority_vote,
    mcnemar,
    paired_bootstrap,
    spearman_of_draws,
)
from lightning_cse.metrics.threshold import best_threshold, threshold_accuracy

__all__ = [
    "McNemar",
    "PairedBootstrap",
    "alignment",
    "auprc",
    "best_threshold",
    "bootstrap_statistics",
    "holm",
    "majority_vote",
    "match_error_rate",
    "match_error_rates",
    "mcnemar",
    "mean_of_best",
    "paired_bootstrap",
    "relative_fitting_difficulty",
    "spearman",
    "spearman_all",
    "spearman_mean",
    "spearman_of_draws",
    "spearman_wmean",
    "threshold_accuracy",
    "uniformity",
]
