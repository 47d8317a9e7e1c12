"""Diagnostics: the values of the metrics, their keys, and the two sides."""

import pytest
import torch

from lightning_cse.callbacks import Diagnostics, Side, scored_pairs
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.embeddings import DualEmbedding
from lightning_cse.engine.build import build
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Embedded
from lightning_cse.metrics import alignment, uniformity

OPTIONS = {"positive_score": 4.0, "negative_score": 1.0, "sentences": 1000}
A = ["a", "b", "c"]
B = ["d", "e", "f"]
C = ["g", "h"]


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


@pytest.fixture
def parts(compose):
    """Build an experiment with the tiny encoder, and without an evaluation side."""

    def built(*overrides):
        return build(
            compose("+debug=tiny", "paths.cache_dir=null", "diag.evaluation=none", *overrides)
        )

    return built


def test_pairs_of_a_sentence_with_itself_need_dropout(parts):
    with pytest.raises(ConfigError, match=r"diag\.dropout: UnsupervisedSimCSE .* set it to true"):
        parts("+experiment=simcse_unsup", "diag.dropout=false")

    built = parts("+experiment=simcse_unsup", "diag.dropout=true")
    sentences = built.data.held_out["anchor"][:]
    (side,) = built.diagnostics.sides.values()
    assert side.pairs == {"primary": (sentences, sentences)}
    assert side.sentences == built.diagnostics.seconds() == sentences


def test_held_out_side_has_all_pairs_and_the_first_sentences(parts):
    built = parts("+experiment=simcse_sup", "diag.sentences=7", "data.held_out_rows=null")
    roles = ("premise", "entailment", "contradiction")
    columns = [built.data.held_out[role][:] for role in roles]
    sentences = [sentence for row in zip(*columns, strict=True) for sentence in row]
    (side,) = built.diagnostics.sides.values()
    assert side.pairs == {"primary": (columns[0], columns[1])}
    assert side.sentences == sentences[:7]
    pairs = {"primary": len(columns[0])}
    assert built.diagnostics.sizes == {"held_out": {"pairs": pairs, "sentences": 7}}


def stsb_dev(folder, **options):
    return scored_pairs(read_corpus("stsb", "dev", str(folder)), ["explicit"], OPTIONS | options)


def test_counts_are_those_of_the_authors(real_data):
    """NGCSE's plotting code: 264 similar pairs; of 1,306 sentences the first 1,000, 975
    distinct.
    """
    side = stsb_dev(real_data)
    assert len(side.pairs["explicit"][0]) == 264
    assert (len(side.sentences), len(set(side.sentences))) == (1000, 975)
    assert len(stsb_dev(real_data, sentences=10**6).sentences) == 1306


def test_a_score_that_no_pair_has_is_refused():
    with pytest.raises(ConfigError, match=r"diag\.positive_score: no pair of .*sts-dev\.csv"):
        stsb_dev(sample_dir(), positive_score=9)
