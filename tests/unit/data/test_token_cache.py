"""Token ids on the disk; what training relies on stands in the integration tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_cse.data.token_cache import tokenise
from lightning_cse.errors import DataError


class Words:
    """A tokenizer with a token a word, its length."""

    digest = "words"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, sentences: list[str]) -> list[list[int]]:
        self.calls += 1
        return [[len(word) for word in sentence.split()] for sentence in sentences]

    def decode(self, ids: list[list[int]]) -> list[str]:
        return [" ".join("x" * token for token in sentence) for sentence in ids]


def test_a_sentence_without_tokens_is_refused_unless_it_may_be_empty(tmp_path: Path) -> None:
    words = Words()
    for _ in range(2):  # made, and then from the disk
        tokens = tokenise(["a bc", " ", "d"], words, tmp_path, may_be_empty=True)
        assert tokens.lengths.tolist() == [2, 0, 1]
        assert (tokens[0], tokens[1]) == ([1, 2], [])
        with pytest.raises(DataError, match="the sentence ' ' has no tokens"):
            tokenise(["a bc", " ", "d"], words, tmp_path)
    assert words.calls == 1
    with pytest.raises(DataError, match="the sentence '' has no tokens"):
        tokenise(["", "d"], words, tmp_path)
    assert len(list((tmp_path / "tokens").iterdir())) == 1  # what is refused is not kept


def test_no_sentence_at_all(tmp_path: Path) -> None:
    assert len(tokenise([], Words(), tmp_path)) == 0
