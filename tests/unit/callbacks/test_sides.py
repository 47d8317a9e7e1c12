"""The evaluation side is STS-B dev as the authors of NGCSE count it."""

from __future__ import annotations

from pathlib import Path

from lightning_cse.callbacks.sides import _stsb_dev

OPTIONS = {"positive_score": 4.0, "negative_score": 1.0, "sentences": 1000}


def test_the_counts_are_those_of_the_authors(real_data: Path) -> None:
    """NGCSE's plotting code: 264 pairs of gold at least 4; of 1,306 sentences the first 1,000, 975 distinct."""
    side = _stsb_dev(["explicit"], OPTIONS, str(real_data))
    assert len(side.pairs["explicit"][0]) == 264
    assert len(side.sentences) == 1000
    assert len(set(side.sentences)) == 975
    everything = _stsb_dev(["explicit"], OPTIONS | {"sentences": 10**6}, str(real_data))
    assert len(everything.sentences) == 1306
