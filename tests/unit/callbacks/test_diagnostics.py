"""The diagnostics give the values of the metrics, under the keys of tables and figures, on the sides of NGCSE."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_cse.callbacks import Diagnostics, Side, build_diagnostics
from lightning_cse.callbacks.diagnostics import stsb_dev
from lightning_cse.data import (
    ContrastiveData,
    ContrastiveDataModule,
    NLITriplets,
    OwnRows,
    Sentences,
    sample_dir,
)
from lightning_cse.embeddings import DualEmbedding, PointEmbedding
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Embedded
from lightning_cse.losses import DualContrastive, InfoNCE
from lightning_cse.methods import DualCSE, Schedule, SimCSE, UnsupervisedSimCSE
from lightning_cse.metrics import alignment, uniformity
from lightning_cse.models import PointModel

OPTIONS = {"positive_score": 4.0, "negative_score": 1.0, "sentences": 1000}
A, B, C = ["a", "b", "c"], ["d", "e", "f"], ["g", "h"]


class Fixed:
    """Embeds every sentence as a fixed random pair of vectors, moved by ``shift``."""

    def __init__(self, shift: float = 0.0, dual: bool = True) -> None:
        generator = torch.Generator().manual_seed(0)
        self.table = {s: torch.randn(2, 5, generator=generator) + shift for s in "abcdefgh"}
        self.dual = dual

    def embed(self, sentences: list[str]) -> DualEmbedding | PointEmbedding:
        stacked = torch.stack([self.table[s] for s in sentences])
        return (
            DualEmbedding(stacked[:, 0], stacked[:, 1])
            if self.dual
            else PointEmbedding(stacked[:, 0])
        )


def make(dual: bool = True) -> Diagnostics:
    views = ("explicit", "implicit") if dual else ("primary",)
    held_out = Side(dict.fromkeys(views, (A, B)), A + B)
    evaluation = Side(dict.fromkeys(views, (A[:2], C)), A[:2] + C)
    return Diagnostics(held_out, evaluation)


def measure(diagnostics: Diagnostics, answers: Fixed, step: int) -> dict[str, float]:
    """Measure with one pass over all sentences, as without dropout."""
    embedded = Embedded(answers, diagnostics.sentences())
    return diagnostics.measure(embedded, embedded, step)


@pytest.mark.parametrize("dual", [True, False])
def test_the_second_sentence_of_a_pair_is_looked_up_in_the_second_pass(dual: bool) -> None:
    diagnostics, first, second = make(dual), Fixed(dual=dual), Fixed(0.3, dual=dual)
    assert set(diagnostics.seconds()) == {*B, *C}
    passes = Embedded(first, diagnostics.sentences()), Embedded(second, diagnostics.seconds())
    values = diagnostics.measure(*passes, step=0)
    assert not [key for key in values if "rfd" in key], "step 0 has no RFD"
    for name, a, b, everything in (("held_out", A, B, A + B), ("eval", A[:2], C, A[:2] + C)):
        for view, prefix in zip(first.embed(A).views(), ("diag/", "diag/implicit/"), strict=False):
            want = alignment(first.embed(a).views()[view], second.embed(b).views()[view])
            assert values[f"{prefix}{name}/alignment"] == pytest.approx(float(want))
            spread = uniformity(first.embed(everything).views()[view])
            assert values[f"{prefix}{name}/uniformity"] == pytest.approx(float(spread)), (
                "of the first pass alone"
            )


def test_rfd_is_the_running_mean_after_step_zero() -> None:
    diagnostics = make(dual=False)
    differences = []
    for step, shift in enumerate((5.0, 0.5, 1.0, 2.0)):
        values = measure(diagnostics, Fixed(shift, dual=False), step)
        if step:
            differences.append(values["diag/held_out/alignment"] - values["diag/eval/alignment"])
            assert values["diag/rfd_alignment"] == pytest.approx(
                sum(differences) / len(differences)
            )


def test_without_an_evaluation_side_there_is_no_rfd() -> None:
    diagnostics = Diagnostics(make().held_out, None)
    values = measure(diagnostics, Fixed(), step=3)
    assert set(values) == {
        f"diag/{view}held_out/{measure}"
        for view in ("", "implicit/")
        for measure in ("alignment", "uniformity")
    }


def test_a_view_without_a_pair_on_one_side_has_uniformity_there_alone() -> None:
    held_out = Side({"implicit": (A, B)}, A + B)
    values = measure(Diagnostics(held_out, make().evaluation), Fixed(), step=3)
    assert "diag/held_out/alignment" not in values
    assert "diag/rfd_alignment" not in values
    assert {
        "diag/held_out/uniformity",
        "diag/rfd_uniformity",
        "diag/implicit/rfd_alignment",
    } <= set(values)


def test_roles_that_no_held_out_row_has_are_not_watched(tmp_path: Path) -> None:
    rows = [f"premise {n} is long,hypothesis {n} is short" for n in range(20)]
    (tmp_path / "mine.csv").write_text("\n".join(["premise,implied_entailment", *rows]) + "\n")
    encoder = tiny_encoder(layers=1)
    optimizer = partial(torch.optim.AdamW, lr=1e-3)
    method = DualCSE(
        encoder, DualContrastive(), architecture="cross", optimizer=optimizer, schedule=Schedule()
    )
    settings = ContrastiveData(
        train=[str(tmp_path / "mine.csv")],
        rows=OwnRows(),
        batch_size=8,
        drop_last=False,
        data_dir=str(sample_dir()),
        held_out_share=0.2,
    )
    data = ContrastiveDataModule(
        settings,
        tokenize=encoder.tokenizer,
        seed=0,
        roles=method.roles,
        optional=method.optional,
    )
    options = OPTIONS | {"evaluation": "none", "dropout": False}
    diagnostics = build_diagnostics(method, data, options, str(sample_dir()))
    premises, implied = data.held_out.column("premise"), data.held_out.column("implied_entailment")
    assert diagnostics.held_out.pairs == {"implicit": (premises, implied)}


def build(
    method: type[SimCSE | UnsupervisedSimCSE], **options: Any
) -> tuple[Diagnostics, ContrastiveDataModule]:
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
    optimizer = partial(torch.optim.AdamW, lr=1e-3)
    given = OPTIONS | {"evaluation": "none", "dropout": False} | options
    built = method(encoder, InfoNCE(), optimizer=optimizer, schedule=Schedule())
    return build_diagnostics(built, data, given, str(sample_dir())), data


def test_pairs_of_a_sentence_with_itself_need_dropout() -> None:
    with pytest.raises(ConfigError, match=r"diag\.dropout: UnsupervisedSimCSE .* set it to true"):
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
    flat = [
        sentence
        for row in zip(premises, entailments, contradictions, strict=True)
        for sentence in row
    ]
    assert diagnostics.held_out.sentences == flat[:7], "row by row, the first so many"
    assert list(diagnostics.sides) == ["held_out"]


def test_the_evaluation_side_tells_the_file_that_it_alone_reads() -> None:
    diagnostics, data = build(SimCSE, evaluation="stsb_dev")
    side = diagnostics.sides["eval"]
    assert list(side.digests) == ["STS/STSBenchmark/sts-dev.csv"]
    assert not side.digests.keys() & data.digests.keys()
    assert len(side.pairs["primary"][0]) >= 18


@pytest.mark.parametrize("evaluation", ["stsb_dev", "none"])
def test_without_held_out_rows_the_evaluation_side_alone_is_logged(evaluation: str) -> None:
    diagnostics, _ = build(SimCSE, evaluation=evaluation, held_out_share=0)
    embedded = Embedded(PointModel(tiny_encoder(layers=1)), diagnostics.sentences() or ["a"])
    values = diagnostics.measure(embedded, embedded, step=3)
    assert set(values) == (
        {"diag/eval/alignment", "diag/eval/uniformity"} if evaluation == "stsb_dev" else set()
    )


def test_the_counts_are_those_of_the_authors(real_data: Path) -> None:
    """NGCSE's plotting code: 264 pairs of gold at least 4; of 1,306 sentences the first 1,000, 975 distinct."""
    side = stsb_dev(["explicit"], OPTIONS, str(real_data))
    assert len(side.pairs["explicit"][0]) == 264
    assert len(side.sentences) == 1000
    assert len(set(side.sentences)) == 975
    everything = stsb_dev(["explicit"], OPTIONS | {"sentences": 10**6}, str(real_data))
    assert len(everything.sentences) == 1306
