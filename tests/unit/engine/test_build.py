"""The objects of a run, and what the points of one process share."""

import pytest
import torch

from lightning_cse.engine.build import build
from lightning_cse.errors import ConfigError

# Points of one process


@pytest.fixture
def point(compose, speaking_encoder):
    """Build the parts of a tiny point from weights on the disk, as a multirun does one after the
    other.
    """

    def built(seed):
        cfg = compose(
            "+experiment=gausscse",
            "+debug=tiny",
            "encoder=bert_base",
            f"seed={seed}",
            "trainer.max_steps=1",
        )

        cfg.encoder.source = str(speaking_encoder)
        cfg.encoder.max_length = 32
        cfg.paths.cache_dir = None
        torch.manual_seed(seed)

        return build(cfg)

    return built


def differing(model, reference):
    """The names of the parameters that two modules do not share, bit for bit."""
    first = model.state_dict()
    second = reference.state_dict()

    assert first.keys() == second.keys()

    return [name for name in first if not torch.equal(first[name], second[name])]


def test_a_later_point_of_a_process_is_identical(point):
    cold = point(3)
    state = torch.get_rng_state()

    warm = point(3)
    assert torch.equal(torch.get_rng_state(), state)
    assert differing(cold.method, warm.method) == []

    for rows in ("train", "held_out", "counts"):
        assert list(getattr(cold.data, rows)) == list(getattr(warm.data, rows))

    assert (cold.digests, cold.encoder.digests) == (warm.digests, warm.encoder.digests)


# Tasks that are left out


def test_tasks_that_do_not_suit_the_method_are_left_out(compose):
    cfg = compose("+experiment=simcse_inli", "+debug=tiny", "suite=implicitness")
    cfg.paths.cache_dir = None
    cfg.monitor = "val/eis/accuracy"
    message = r"'val/eis/accuracy' is not a dev score: it needs implicitness.*\(choose from: val/"
    with pytest.raises(ConfigError, match=message):
        build(cfg)

    cfg.monitor = "val/rte/accuracy_all"
    reason = "it needs implicitness, which SimCSE does not give"
    assert build(cfg).left_out == {"eis": reason, "eis_wang": reason}
