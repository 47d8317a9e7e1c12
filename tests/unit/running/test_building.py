"""Points of one process share what is read, and nothing that a run changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from safetensors.torch import load_file, save_file

from lightning_cse.data import readers
from lightning_cse.running.building import Parts, build

Compose = Callable[..., DictConfig]


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Start with nothing kept, and note each corpus file that is opened."""
    paths: list[Path] = []

    def noting(path: Path, real: Any = readers.read_bytes) -> bytes:
        paths.append(path)
        data: bytes = real(path)
        return data

    monkeypatch.setattr(readers, "read_bytes", noting)
    monkeypatch.setattr(readers, "_KEPT", readers._Kept(most=1_000_000))
    return paths


@pytest.fixture
def point(compose: Compose, speaking_encoder: Path) -> Callable[[int], Parts]:
    """Build the parts of a tiny point from weights on the disk, as a multirun does one after the other."""

    def built(seed: int) -> Parts:
        cfg = compose("+experiment=gausscse", "+debug=tiny", "encoder=bert_base", f"seed={seed}", "trainer.max_steps=1")
        cfg.encoder.source = str(speaking_encoder)
        cfg.encoder.max_length = 32
        cfg.paths.cache_dir = None
        torch.manual_seed(seed)
        return build(cfg)

    return built


def test_a_later_point_opens_no_corpus_again_and_is_the_same_to_the_last_bit(
    point: Callable[[int], Parts], opened: list[Path]
) -> None:
    cold = point(3)
    after_cold = torch.get_rng_state()
    assert len(opened) == len(set(opened)) > 3
    opened.clear()
    warm = point(3)
    assert opened == []
    assert torch.equal(torch.get_rng_state(), after_cold)
    states = cold.method.state_dict(), warm.method.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert list(cold.data.train) == list(warm.data.train)
    assert list(cold.data.held_out) == list(warm.data.held_out)
    assert (cold.data.counts, cold.digests, cold.encoder.digests) == (
        warm.data.counts,
        warm.digests,
        warm.encoder.digests,
    )


def test_what_training_changes_is_each_points_own(point: Callable[[int], Parts]) -> None:
    first = point(0)
    kept = {name: weight.clone() for name, weight in first.encoder.state_dict().items()}
    with torch.no_grad():
        for weight in first.method.parameters():
            weight.zero_()
    first.data.counts.clear()
    second = point(0)
    assert all(torch.equal(weight, kept[name]) for name, weight in second.encoder.state_dict().items())
    places = {weight.data_ptr() for weight in first.method.parameters()}
    assert places.isdisjoint(weight.data_ptr() for weight in second.method.parameters())
    assert second.data.counts["read"] > 0


def test_other_weights_in_the_same_place_are_seen(point: Callable[[int], Parts], speaking_encoder: Path) -> None:
    before = point(0)
    weights = speaking_encoder / "model.safetensors"
    content = load_file(weights)
    content["embeddings.word_embeddings.weight"][7] += 1.0
    save_file(content, weights, metadata={"format": "pt"})
    after = point(0)
    assert before.encoder.digests["weights"] != after.encoder.digests["weights"]
    states = before.encoder.state_dict(), after.encoder.state_dict()
    assert sum(not torch.equal(states[0][name], states[1][name]) for name in states[0]) == 1
