"""Diagnostics: the values of the metrics, their keys, and the two sides."""

from functools import partial
from typing import Any

import pytest
import torch

from lightning_cse.callbacks import Diagnostics, Side, build_diagnostics
from lightning_cse.callbacks.diagnostics import stsb_dev
from lightning_cse.data import (
    ContrastiveData,
    ContrastiveDataModule,
    NLITriplets,
    Sentences,
    sample_dir,
)
from lightning_cse.embeddings import DualEmbedding
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Embedded
from lightning_cse.losses import InfoNCE
from lightning_cse.methods import Schedule, SimCSE, UnsupervisedSimCSE
from lightning_cse.metrics import alignment, uniformity

OPTIONS = {"positive_score": 4.0, "negative_score": 1.0, "sentences": 1000}
A = ["a", "b", "c"]
B = ["d", "e", "f"]
C = ["g", "h"]
COMMON: dict[str, Any] = {"optimizer": partial(torch.optim.AdamW, lr=1e-3), "schedule": Schedule()}


class Fixed:
    """Embeds every sentence as a fixed random pair of vectors, moved by ``shift``."""

    def __init__(self, shift=0.0):
        vectors = torch.randn(8, 2, 5, generator=torch.Generator().manual_seed(0)) + shift
        self.table = dict(zip("abcdefgh", vectors, strict=True))

    def embed(self, sentences):
        return DualEmbedding(*torch.stack([self.table[s] for s in sentences]).unbind(1))


def make():
    views = ("explicit", "implicit")
    held_out = Side(dict.fromkeys(views, (A, B)), A + B)
    evaluation = Side(dict.fromkeys(views, (A[:2], C)), A[:2] + C)

    return Diagnostics(held_out, evaluation)


def measure(diagnostics, model, step):
    """Measure with one pass over all sentences, as without dropout."""
    embedded = Embedded(model, diagnostics.sentences() or ["a"])
    return diagnostics.measure(embedded, embedded, step)


def test_values_are_those_of_the_metrics_with_seconds_from_the_second_pass():
    diagnostics = make()
    first = Fixed()
    second = Fixed(0.3)
    passes = (Embedded(first, diagnostics.sentences()), Embedded(second, diagnostics.seconds()))
    values = diagnostics.measure(*passes, step=0)
    want = {}  # without RFD, since this is step 0
    for name, a, b in (("held_out", A, B), ("eval", A[:2], C)):
        for view, prefix in (("explicit", "diag"), ("implicit", "diag/implicit")):
            pair = (first.embed(a).views()[view], second.embed(b).views()[view])
            want[f"{prefix}/{name}/alignment"] = alignment(*pair)
            want[f"{prefix}/{name}/uniformity"] = uniformity(first.embed(a + b).views()[view])

    assert values == pytest.approx(want)


def test_rfd_is_the_running_mean_after_step_zero():
    diagnostics = make()
    differences = []
    for step, shift in enumerate((5.0, 0.5, 1.0, 2.0)):
        values = measure(diagnostics, Fixed(shift), step)
        if step:
            differences.append(values["diag/held_out/alignment"] - values["diag/eval/alignment"])
            want = sum(differences) / len(differences)
            assert values["diag/rfd_alignment"] == pytest.approx(want)


def build(method, **options):
    """Return the diagnostics of a method on its kind of data in the sample corpus, and the data."""
    unsupervised = issubclass(method, UnsupervisedSimCSE)
    encoder = tiny_encoder(layers=1)
    settings = ContrastiveData(
        train=["wiki1m/train" if unsupervised else "simcse_nli/train"],
        rows=Sentences() if unsupervised else NLITriplets(),
        batch_size=8,
        drop_last=False,
        data_dir=str(sample_dir()),
        held_out_share=options.pop("held_out_share", 0.2),
    )
    data = ContrastiveDataModule(settings, tokenize=encoder.tokenizer, seed=0)
    options = OPTIONS | {"evaluation": "none", "dropout": False} | options
    built = method(encoder, InfoNCE(), **COMMON)

    return build_diagnostics(built, data, options, str(sample_dir())), data


def test_pairs_of_a_sentence_with_itself_need_dropout():
    with pytest.raises(ConfigError, match=r"diag\.dropout: UnsupervisedSimCSE .* set it to true"):
        build(UnsupervisedSimCSE)

    diagnostics, data = build(UnsupervisedSimCSE, dropout=True)
    sentences = data.held_out["anchor"][:]
    assert diagnostics.held_out.pairs == {"primary": (sentences, sentences)}
    assert diagnostics.held_out.sentences == diagnostics.seconds() == sentences


def test_held_out_side_has_all_pairs_and_the_first_sentences():
    diagnostics, data = build(SimCSE, sentences=7)
    roles = ("premise", "entailment", "contradiction")
    columns = [data.held_out[role][:] for role in roles]
    sentences = [sentence for row in zip(*columns, strict=True) for sentence in row]
    assert diagnostics.held_out.pairs == {"primary": (columns[0], columns[1])}
    assert diagnostics.held_out.sentences == sentences[:7]
    pairs = {"primary": len(columns[0])}
    assert diagnostics.sizes == {"held_out": {"pairs": pairs, "sentences": 7}}


def test_counts_are_those_of_the_authors(real_data):
    """NGCSE's plotting code: 264 similar pairs; of 1,306 sentences the first 1,000, 975
    distinct.
    """
    side = stsb_dev(["explicit"], OPTIONS, str(real_data))
    assert len(side.pairs["explicit"][0]) == 264
    assert (len(side.sentences), len(set(side.sentences))) == (1000, 975)
    everything = stsb_dev(["explicit"], OPTIONS | {"sentences": 10**6}, str(real_data))
    assert len(everything.sentences) == 1306


def test_a_score_that_no_pair_has_is_refused():
    with pytest.raises(ConfigError, match=r"diag\.positive_score: no pair of .*sts-dev\.csv"):
        stsb_dev(["explicit"], OPTIONS | {"positive_score": 9}, str(sample_dir()))
