"""The token cache: made once, memory-mapped and shared."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from data_modules import data_module

from lightning_cse.data import NLITriplets, Sentences, WrittenPairs
from lightning_cse.data.rows import dataset_of
from lightning_cse.data.token_cache import lengths_of, token_table, tokenise
from lightning_cse.errors import DataError
from lightning_cse.tokens import Tokens

SENTENCES = ["She left early.", None, "Nobody knew why she had", "", "No"]
IDS = [[3, 4, 6], [], [6, 4, 3, 3, 3], [], [2]]


class Counting:
    """A tokenize function with a token per word, its length, that counts its calls."""

    def __init__(self, digest="one"):
        self.digest = digest
        self.calls = 0

    def __call__(self, sentences):
        self.calls += 1
        return [[len(word) for word in sentence.split()] for sentence in sentences]


def tokens(sentences, tokenize, folder, **options):
    return tokenise(dataset_of({"text": sentences}), {"text": tokenize}, folder, **options)


def cached(folder):
    return sorted(str(file) for file in folder.glob("tokens/*/*.arrow"))


KILLED = """
import os, signal, sys
from pathlib import Path
from lightning_cse.data.rows import dataset_of
from lightning_cse.data.token_cache import tokenise

class Kill:
    digest = "one"

    def __call__(self, sentences):
        if "kill" in sentences:
            os.kill(os.getpid(), signal.SIGKILL)

        return [[1] for _ in sentences]

tokenise(dataset_of({"text": ["a"] * 10_000 + ["kill"]}), {"text": Kill()}, Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_the_next_run_removes_what_a_killed_one_left(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False, timeout=120)
    (folder,) = tmp_path.glob("tokens/*")

    assert killed.returncode == -signal.SIGKILL
    assert any(folder.glob("tmp*"))
    assert cached(tmp_path) == []

    table = tokens(["a"] * 10_000 + ["kill"], Counting(), tmp_path)

    assert table["text"][:] == [[1]] * 10_000 + [[4]]
    assert [str(file) for file in folder.iterdir() if file.name != "lock"] == cached(tmp_path)


def test_tokens_are_cached_by_sentences_and_tokenizer(tmp_path):
    tokenize = Counting()
    for _ in range(2):
        table = tokens(SENTENCES, tokenize, tmp_path)

        assert table["text"][:] == IDS
        assert [file["filename"] for file in table.cache_files] == cached(tmp_path)

    assert tokenize.calls == 1

    for sentences in (SENTENCES[::-1], ["", *SENTENCES[1:]], ["She left early.None"]):
        tokens(sentences, tokenize, tmp_path)

    changed = Counting("other")
    tokens(SENTENCES, changed, tmp_path)

    assert (tokenize.calls, changed.calls) == (4, 1)
    assert len(cached(tmp_path)) == 5
    assert tokens(SENTENCES, tokenize, None).cache_files == []


def test_columns_have_tokenizers_of_their_own(tmp_path):
    class Letters(Counting):
        def __call__(self, sentences):
            return [list(map(ord, sentence)) for sentence in sentences]

    rows = dataset_of({"text": SENTENCES, "letters": ["a", None, "b", "", "cd"]}).select([4, 0, 4])
    tokenizers = {"text": Counting(), "letters": Letters("two")}

    for folder in (tmp_path, tmp_path, None):
        table = tokenise(rows, tokenizers, folder)

        assert table["text"][:] == [IDS[4], IDS[0], IDS[4]]
        assert table["letters"][:] == [[99, 100], [97], [99, 100]]
        assert np.concatenate(list(lengths_of(table, "letters"))).tolist() == [2, 1, 2]


def test_several_processes_give_the_tokens_of_one(tmp_path):
    for _ in range(2):
        table = tokens(SENTENCES, Counting(), tmp_path, num_proc=2)

        assert table["text"][:] == IDS
        assert [file["filename"] for file in table.cache_files] == cached(tmp_path)

    assert len(cached(tmp_path)) == 2


def test_unusable_cache_is_reported(tmp_path):
    tokens(SENTENCES, Counting(), tmp_path)
    (name,) = cached(tmp_path)
    content = Path(name).read_bytes()
    Path(name).unlink()
    Path(name).write_bytes(content[: len(content) // 2])

    with pytest.raises(DataError, match=rf"{Path(name).parent} cannot be used .*: remove it, or"):
        tokens(SENTENCES, Counting(), tmp_path)


@pytest.mark.parametrize(
    ("train", "rows"),
    [
        ("wiki1m/train", Sentences()),
        ("snli/train", NLITriplets("random")),
        ("dino", WrittenPairs()),
    ],
)
def test_runs_with_other_seeds_share_their_tokens(train, rows, tmp_path, put):
    if train == "dino":
        lines = [f"{n},{n} {like},{like}" for n in range(20) for like in (0, 1)]
        train = str(put("pairs.csv", "\n".join(["sentence1,sentence2,score", *lines])))

    first, second = Counting(), Counting()
    for seed, tokenize in enumerate((first, second)):
        options = {"held_out_share": 0.2, "train_rows": 8, "cache_dir": str(tmp_path)}
        data_module(train, rows, tokenize=tokenize, seed=seed, **options).setup()

    assert first.calls > second.calls == 0


def test_table_equals_tokenizer(tmp_path):
    sentences = ["a bc", " ", "d", "ee f ggg"]
    table = token_table(sentences, Counting(), tmp_path)

    assert table.lengths.tolist() == [2, 0, 1, 3]

    for texts in (["d", "a bc", "d"], [" "], sentences[::-1]):
        actual = table.tokens(texts, 2)
        want = Tokens.pad([ids[:2] for ids in Counting()(texts)])

        assert torch.equal(actual.ids, want.ids)
        assert np.array_equal(actual.lengths, want.lengths)
        assert table.has(texts)

    assert not table.has(["d", "new"])


def test_sentence_without_tokens_is_refused(tmp_path, put):
    class Silent(Counting):
        def __call__(self, sentences):
            return [ids if len(ids) < 4 else [] for ids in super().__call__(sentences)]

    path = str(put("own.txt", "One two.\nThree.\nFour five six seven.\nEight.\nNine.\n"))
    options = {"tokenize": Silent(), "held_out": path, "cache_dir": str(tmp_path)}
    data = data_module(path, Sentences(), **options)

    for _ in range(2):  # tokenised, and then from the cache
        with pytest.raises(DataError, match=r"own\.txt:3: anchor 'Four five .* has no token"):
            data.setup()
