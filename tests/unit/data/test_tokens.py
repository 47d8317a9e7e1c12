"""Token ids on the disk: made once, mapped into memory, shared; what is wrong with them costs time only."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from datasets import Dataset

from lightning_cse.data import ContrastiveData, INLIQuadruples, Sentences, sample_dir
from lightning_cse.data.datamodule import token_table, tokenise
from lightning_cse.errors import DataError
from lightning_cse.tokens import Tokens, TokenTable

SENTENCES = ["She left early.", None, "Nobody knew why she had", "No"]
IDS = [[3, 4, 6], [], [6, 4, 3, 3, 3], [2]]


class Counting:
    """A tokenize function with a token a word, its length, that counts its calls."""

    def __init__(self, digest: str = "one") -> None:
        self.digest = digest
        self.calls = 0

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        self.calls += 1
        return [[len(word) for word in sentence.split()] for sentence in sentences]


def tokens(sentences: Sequence[str | None], tokenize: Counting, folder: Path | None) -> Dataset:
    return tokenise(pa.chunked_array([pa.array(sentences, pa.string())]), tokenize, folder)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "tokens").iterdir())


def test_tokens_are_made_once_and_again_when_anything_changes(tmp_path: Path) -> None:
    tokenize, changed = Counting(), Counting("other")
    for _ in range(3):
        found = tokens(SENTENCES, tokenize, tmp_path)
        assert found["ids"][:] == IDS
        assert [file["filename"] for file in found.cache_files] == [
            str(file) for file in files(tmp_path)
        ]
    # However a column lies in memory.
    parts = [pa.array(["left out", *SENTENCES[:1]]).slice(1), pa.array(SENTENCES[1:])]
    assert tokenise(pa.chunked_array(parts), tokenize, tmp_path)["ids"][:] == IDS
    assert tokenize.calls == 1
    for others in (
        [*SENTENCES[:3], "Na"],
        SENTENCES[::-1],
        ["", *SENTENCES[1:]],
        ["She left early.None"],
    ):
        tokens(others, tokenize, tmp_path)
    tokens(SENTENCES, changed, tmp_path)
    assert (tokenize.calls, changed.calls) == (5, 1)
    assert [file.suffix for file in files(tmp_path)] == [".arrow"] * 6, "nothing half written"
    assert tokens(SENTENCES, tokenize, None).cache_files == []


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "short": lambda content: content[:-5],
    "flipped": lambda content: (
        content[:100] + bytes(byte ^ 255 for byte in content[100:200]) + content[200:]
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_file_is_made_again(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenize = Counting()
    tokens(SENTENCES, tokenize, tmp_path)
    (file,) = files(tmp_path)
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(DAMAGES[damage](content))
    with caplog.at_level(logging.WARNING):
        assert tokens(SENTENCES, tokenize, tmp_path)["ids"][:] == IDS
    assert f"{file} cannot be used" in caplog.text
    assert tokenize.calls == 2
    for _ in range(2):
        assert tokens(SENTENCES, tokenize, tmp_path)["ids"][:] == IDS
    assert tokenize.calls == 3, "the first of the two has made the file again"


def test_a_cache_that_cannot_be_written_costs_time_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tokens").write_text("a file where the folder would be")
    assert tokens(SENTENCES, Counting(), tmp_path)["ids"][:] == IDS
    assert "cannot be used" in caplog.text


def test_two_writers_at_once(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=60)

    class Waiting(Counting):
        """Returns only once the other one is at it too."""

        def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
            both.wait()
            return super().__call__(sentences)

    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(tokens, SENTENCES, Waiting(), tmp_path) for _ in range(2)]
        assert [found.result()["ids"][:] for found in made] == [IDS, IDS]
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("most", [1, 2, 9])
def test_a_table_gives_what_the_tokenizer_gives(cached: bool, most: int, tmp_path: Path) -> None:
    sentences, tokenize = ["a bc", " ", "d", "ee f ggg"], Counting()
    table = (
        token_table(sentences, tokenize, tmp_path) if cached else TokenTable.of(sentences, tokenize)
    )
    assert table.lengths.tolist() == [2, 0, 1, 3]
    for asked in (
        ["d", "a bc", "d"],
        [" "],
        sentences[::-1],
    ):  # a sentence without a token stays in its place
        found, want = (
            table.tokens(asked, most),
            Tokens.pad([ids[:most] for ids in Counting()(asked)]),
        )
        assert all(
            torch.equal(getattr(found, name), getattr(want, name))
            for name in ("ids", "mask", "rows")
        )
        assert table.has(asked)
    assert not table.has(["d", "new"])
    assert tokenize.calls == 1


def test_a_table_of_nothing() -> None:
    for table in (token_table([], Counting(), None), TokenTable.of([], Counting())):
        assert table.lengths.tolist() == []
        assert len(table.tokens([], 5)) == 0


def data(tokenize: Counting, **options: object) -> ContrastiveData:
    given = {
        "train": ["inli/train"],
        "held_out": ["inli/val"],
        "rows": INLIQuadruples(),
        "data_dir": str(sample_dir()),
    }
    given |= {"batch_size": 8, "drop_last": False, "seed": 0}
    return ContrastiveData(tokenize=tokenize, **given | options)


def test_runs_share_the_tokens_of_a_role(tmp_path: Path) -> None:
    tokenize = Counting()
    first = data(tokenize, cache_dir=str(tmp_path))
    first.setup()
    assert tokenize.calls == len(files(tmp_path)) == 4
    second = data(tokenize, cache_dir=str(tmp_path), batch_size=4, seed=1, max_tokens=3)
    batches = [
        made.collate(torch.tensor([7, 0, 300]))["roles"]
        for made in (first, second, data(Counting()))
    ]
    assert tokenize.calls == 4
    for role, whole in batches[0].items():
        assert whole.ids.equal(batches[2][role].ids)
        assert whole.ids[:, :3].equal(batches[1][role].ids)


def test_a_sentence_without_a_token_is_an_error_that_names_its_place(tmp_path: Path) -> None:
    class Silent(Counting):
        def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
            return [ids if len(ids) < 4 else [] for ids in super().__call__(sentences)]

    (tmp_path / "own.txt").write_text("One two.\nThree.\nFour five six seven.\nEight.\nNine.\n")
    own = [str(tmp_path / "own.txt")]
    made = data(Silent(), train=own, held_out=own, rows=Sentences(), cache_dir=str(tmp_path))
    for _ in range(2):  # made, and then from the disk
        with pytest.raises(
            DataError, match=r"own\.txt:3: anchor 'Four five six seven\.' has no token"
        ):
            made.setup()
