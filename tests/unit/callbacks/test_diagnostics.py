"""The diagnostics give what the metrics give, under the keys that tables and figures look for."""

from __future__ import annotations

import pytest
import torch

from lightning_cse.callbacks import Diagnostics, Side
from lightning_cse.embeddings import DualEmbedding, PointEmbedding
from lightning_cse.evaluation import Embedded
from lightning_cse.metrics import alignment, uniformity

A, B, C = ["a", "b", "c"], ["d", "e", "f"], ["g", "h"]


class Fixed:
    """Embeds every sentence as a fixed random pair of vectors, moved by ``shift``."""

    def __init__(self, shift: float = 0.0, dual: bool = True) -> None:
        generator = torch.Generator().manual_seed(0)
        self.table = {s: torch.randn(2, 5, generator=generator) + shift for s in "abcdefgh"}
        self.dual = dual

    def embed(self, sentences: list[str]) -> DualEmbedding | PointEmbedding:
        stacked = torch.stack([self.table[s] for s in sentences])
        return DualEmbedding(stacked[:, 0], stacked[:, 1]) if self.dual else PointEmbedding(stacked[:, 0])


def make(dual: bool = True) -> Diagnostics:
    views = ("explicit", "implicit") if dual else ("primary",)
    held_out = Side(dict.fromkeys(views, (A, B)), A + B)
    evaluation = Side(dict.fromkeys(views, (A[:2], C)), A[:2] + C)
    return Diagnostics(held_out, evaluation)


def test_values_are_those_of_the_metrics() -> None:
    diagnostics, answers = make(), Fixed()
    values = diagnostics.measure(Embedded(answers, diagnostics.sentences()), step=0)
    a, b = answers.embed(A), answers.embed(B)
    assert values["diag/held_out/alignment"] == pytest.approx(float(alignment(a.explicit, b.explicit)))
    assert values["diag/implicit/held_out/alignment"] == pytest.approx(float(alignment(a.implicit, b.implicit)))
    everything = answers.embed(A[:2] + C)
    assert values["diag/eval/uniformity"] == pytest.approx(float(uniformity(everything.explicit)))
    assert not [key for key in values if "rfd" in key], "step 0 has no RFD"


def test_rfd_is_the_running_mean_after_step_zero() -> None:
    diagnostics = make(dual=False)
    differences = []
    for step, shift in enumerate((5.0, 0.5, 1.0, 2.0)):
        values = diagnostics.measure(Embedded(Fixed(shift, dual=False), diagnostics.sentences()), step)
        if step:
            differences.append(values["diag/held_out/alignment"] - values["diag/eval/alignment"])
            assert values["diag/rfd_alignment"] == pytest.approx(sum(differences) / len(differences))


def test_state_continues_the_mean() -> None:
    straight, first, second = make(), make(), make()
    for step, shift in enumerate((0.0, 0.5, 1.0, 2.0)):
        want = straight.measure(Embedded(Fixed(shift), straight.sentences()), step)
    for step, shift in enumerate((0.0, 0.5)):
        first.measure(Embedded(Fixed(shift), first.sentences()), step)
    second.load_state_dict(first.state_dict())
    for step, shift in ((2, 1.0), (3, 2.0)):
        got = second.measure(Embedded(Fixed(shift), second.sentences()), step)
    assert got == want


def test_without_an_evaluation_side_there_is_no_rfd() -> None:
    diagnostics = Diagnostics(make().held_out, None)
    values = diagnostics.measure(Embedded(Fixed(), diagnostics.sentences()), step=3)
    assert set(values) == {
        f"diag/{view}held_out/{measure}" for view in ("", "implicit/") for measure in ("alignment", "uniformity")
    }
