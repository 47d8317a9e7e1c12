"""The token cache: made once, memory-mapped and shared."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch
from data_modules import data_module

from lightning_cse.data import INLIQuadruples, Sentences
from lightning_cse.data.token_cache import token_table, tokenise
from lightning_cse.errors import DataError
from lightning_cse.tokens import Tokens, TokenTable

SENTENCES = ["She left early.", None, "Nobody knew why she had", "No"]
IDS = [
    [3, 4, 6],
    [],
    [6, 4, 3, 3, 3],
    [2],
]


class Counting:
    """A tokenize function with a token per word, its length, that counts its calls."""

    def __init__(self, digest="one"):
        self.digest = digest
        self.calls = 0

    def __call__(self, sentences):
        self.calls += 1
        return [[len(word) for word in sentence.split()] for sentence in sentences]


def tokens(sentences, tokenize, folder):
    return tokenise(
        pa.chunked_array([pa.array(sentences, pa.string())]),
        tokenize,
        folder,
    )


def cached(folder):
    return sorted(str(file) for file in (folder / "tokens").iterdir())


def test_tokens_are_cached_by_sentences_and_tokenizer(tmp_path):
    tokenize = Counting()
    for _ in range(3):
        found = tokens(
            SENTENCES,
            tokenize,
            tmp_path,
        )

        assert found["ids"][:] == IDS
        assert [file["filename"] for file in found.cache_files] == cached(tmp_path)

    parts = [pa.array(["left out", *SENTENCES[:1]]).slice(1), pa.array(SENTENCES[1:])]

    assert (
        tokenise(
            pa.chunked_array(parts),
            tokenize,
            tmp_path,
        )["ids"][:]
        == IDS
    )
    assert tokenize.calls == 1

    others = [
        [*SENTENCES[:3], "Na"],
        SENTENCES[::-1],
        ["", *SENTENCES[1:]],
        ["She left early.None"],
    ]

    for sentences in others:
        tokens(
            sentences,
            tokenize,
            tmp_path,
        )

    changed = Counting("other")
    tokens(
        SENTENCES,
        changed,
        tmp_path,
    )

    assert (tokenize.calls, changed.calls) == (5, 1)
    assert [name.endswith(".arrow") for name in cached(tmp_path)] == [True] * 6
    assert (
        tokens(
            SENTENCES,
            tokenize,
            None,
        ).cache_files
        == []
    )


def test_unusable_cache_is_reported(tmp_path):
    tokens(
        SENTENCES,
        Counting(),
        tmp_path,
    )
    (name,) = cached(tmp_path)
    content = Path(name).read_bytes()
    Path(name).unlink()
    Path(name).write_bytes(content[: len(content) // 2])

    with pytest.raises(
        DataError, match=rf"{name} cannot be used .*: remove the file, or set paths"
    ):
        tokens(
            SENTENCES,
            Counting(),
            tmp_path,
        )

    (tmp_path / "file").write_text("where the folder would be")
    with pytest.raises(DataError, match=r"cannot be used .*paths\.cache_dir"):
        tokens(
            SENTENCES,
            Counting(),
            tmp_path / "file",
        )


@pytest.mark.parametrize("from_cache", [True, False])
@pytest.mark.parametrize("most", [2, 9])
def test_table_equals_tokenizer(from_cache, most, tmp_path):
    sentences = ["a bc", " ", "d", "ee f ggg"]
    tokenize = Counting()

    if from_cache:
        table = token_table(
            sentences,
            tokenize,
            tmp_path,
        )
    else:
        table = TokenTable.of(sentences, tokenize)

    assert table.lengths.tolist() == [2, 0, 1, 3]

    for asked in (
        ["d", "a bc", "d"],
        [" "],
        sentences[::-1],
    ):
        found = table.tokens(asked, most)
        want = Tokens.pad([ids[:most] for ids in Counting()(asked)])

        for name in ("ids", "mask", "rows"):
            assert torch.equal(getattr(found, name), getattr(want, name))

        assert table.has(asked)

    assert not table.has(["d", "new"])
    assert tokenize.calls == 1


def test_runs_share_the_tokens_of_a_role(tmp_path):
    tokenize = Counting()
    cache = {
        "cache_dir": str(tmp_path),
        "held_out": ["inli/val"],
    }
    index = torch.tensor([7, 0, 300])
    first = data_module(
        ["inli/train"],
        INLIQuadruples(),
        tokenize=tokenize,
        **cache,
    )
    first.setup()

    assert tokenize.calls == len(cached(tmp_path)) == 4

    second = data_module(
        ["inli/train"],
        INLIQuadruples(),
        tokenize=tokenize,
        max_tokens=3,
        **cache,
    )
    cut = second.collate(index)["roles"]
    plain = data_module(
        ["inli/train"],
        INLIQuadruples(),
        tokenize=Counting(),
        held_out=["inli/val"],
    )
    uncached = plain.collate(index)["roles"]

    assert tokenize.calls == 4

    for role, whole in first.collate(index)["roles"].items():
        assert whole.ids.equal(uncached[role].ids)
        assert whole.ids[:, :3].equal(cut[role].ids)


def test_sentence_without_tokens_is_refused(tmp_path):
    class Silent(Counting):
        def __call__(self, sentences):
            return [ids if len(ids) < 4 else [] for ids in super().__call__(sentences)]

    own = tmp_path / "own.txt"
    own.write_text("One two.\nThree.\nFour five six seven.\nEight.\nNine.\n")
    data = data_module(
        str(own),
        Sentences(),
        tokenize=Silent(),
        held_out=str(own),
        cache_dir=str(tmp_path),
    )

    for _ in range(2):  # tokenised, and then from the cache
        with pytest.raises(DataError, match=r"own\.txt:3: anchor 'Four five .* has no token"):
            data.setup()
