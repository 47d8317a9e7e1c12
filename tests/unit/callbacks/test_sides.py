"""The held-out side is what the data holds out; the evaluation side is STS-B dev as the authors of NGCSE count it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_cse.callbacks import Diagnostics, build_diagnostics
from lightning_cse.callbacks.sides import _stsb_dev
from lightning_cse.data import ContrastiveData, NLITriplets, Sentences, sample_dir
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import ConfigError
from lightning_cse.losses import InfoNCE
from lightning_cse.methods import Schedule, SimCSE, UnsupervisedSimCSE

OPTIONS = {"positive_score": 4.0, "negative_score": 1.0, "sentences": 1000}


def build(method: type[SimCSE | UnsupervisedSimCSE], **options: Any) -> tuple[Diagnostics, ContrastiveData]:
    """Return the diagnostics of a method on its kind of data in the sample corpus, and the data."""
    unsupervised = issubclass(method, UnsupervisedSimCSE)
    encoder = tiny_encoder(layers=1)
    data = ContrastiveData(
        train=["wiki1m/train" if unsupervised else "simcse_nli/train"],
        rows=Sentences() if unsupervised else NLITriplets(),
        tokenize=encoder.tokenizer,
        batch_size=8,
        drop_last=False,
        seed=0,
        data_dir=str(sample_dir()),
        held_out_share=0.2,
    )
    optimizer = partial(torch.optim.AdamW, lr=1e-3)
    given = OPTIONS | {"evaluation": "none", "dropout": False} | options
    built = method(encoder, InfoNCE(), optimizer=optimizer, schedule=Schedule())
    return build_diagnostics(built, data, given, str(sample_dir())), data


def test_pairs_of_a_sentence_with_itself_need_dropout() -> None:
    with pytest.raises(ConfigError, match=r"diag\.dropout: the pairs of UnsupervisedSimCSE .* diag\.dropout=true"):
        build(UnsupervisedSimCSE)
    diagnostics, data = build(UnsupervisedSimCSE, dropout=True)
    sentences = data.held_out.column("anchor")
    assert diagnostics.held_out.pairs == {"primary": (sentences, sentences)}
    assert diagnostics.held_out.sentences == diagnostics.seconds() == sentences


@pytest.mark.parametrize("dropout", [True, False])
def test_other_pairs_do_with_and_without(dropout: bool) -> None:
    diagnostics, data = build(SimCSE, dropout=dropout, sentences=7)
    premises, entailments, contradictions = (
        data.held_out.column(role) for role in ("premise", "entailment", "contradiction")
    )
    assert diagnostics.held_out.pairs == {"primary": (premises, entailments)}, "all held-out pairs"
    flat = [sentence for row in zip(premises, entailments, contradictions, strict=True) for sentence in row]
    assert diagnostics.held_out.sentences == flat[:7], "row by row, the first so many"
    assert list(diagnostics.sides) == ["held_out"]


def test_the_evaluation_side_tells_the_file_that_it_alone_reads() -> None:
    diagnostics, data = build(SimCSE, evaluation="stsb_dev")
    side = diagnostics.sides["eval"]
    assert list(side.digests) == ["STS/STSBenchmark/sts-dev.csv"]
    assert not side.digests.keys() & data.digests.keys()
    assert len(side.pairs["primary"][0]) >= 18


def test_the_counts_are_those_of_the_authors(real_data: Path) -> None:
    """NGCSE's plotting code: 264 pairs of gold at least 4; of 1,306 sentences the first 1,000, 975 distinct."""
    side = _stsb_dev(["explicit"], OPTIONS, str(real_data))
    assert len(side.pairs["explicit"][0]) == 264
    assert len(side.sentences) == 1000
    assert len(set(side.sentences)) == 975
    everything = _stsb_dev(["explicit"], OPTIONS | {"sentences": 10**6}, str(real_data))
    assert len(everything.sentences) == 1306
