"""The token cache: made once, memory-mapped and shared."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from data_modules import data_module

from lightning_cse.data import Sentences, token_cache
from lightning_cse.data.token_cache import token_table, tokenise
from lightning_cse.errors import DataError
from lightning_cse.tokens import Tokens

SENTENCES = ["She left early.", None, "Nobody knew why she had", "No"]
IDS = [[3, 4, 6], [], [6, 4, 3, 3, 3], [2]]


class Counting:
    """A tokenize function with a token per word, its length, that counts its calls."""

    def __init__(self, digest="one"):
        self.digest = digest
        self.calls = 0

    def __call__(self, sentences):
        self.calls += 1
        return [[len(word) for word in sentence.split()] for sentence in sentences]


def tokens(sentences, tokenize, folder, *parts):
    return tokenise(pa.chunked_array([sentences, *parts], pa.string()), tokenize, folder)


def cached(folder):
    return sorted(str(file) for file in (folder / "tokens").iterdir())


KILLED = """
import os, signal, sys
from pathlib import Path
import pyarrow as pa
from lightning_cse.data.token_cache import tokenise

def kill(sentences):
    os.kill(os.getpid(), signal.SIGKILL)

kill.digest = "one"
tokenise(pa.chunked_array([["a", "b"]], pa.string()), kill, Path(sys.argv[1]))
"""


def test_the_next_run_removes_what_a_killed_one_left(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert any("tmp" in name for name in cached(tmp_path))
    assert tokens(["a", "b"], Counting(), tmp_path)["ids"][:] == [[1], [1]]
    assert [Path(name).suffix for name in cached(tmp_path)] == [".arrow"]


def test_tokens_are_cached_by_sentences_and_tokenizer(tmp_path):
    tokenize = Counting()
    for parts in ([SENTENCES], [SENTENCES], [SENTENCES[:1], SENTENCES[1:]]):
        found = tokens(parts[0], tokenize, tmp_path, *parts[1:])

        assert found["ids"][:] == IDS
        assert [file["filename"] for file in found.cache_files] == cached(tmp_path)

    assert tokenize.calls == 1

    for sentences in (SENTENCES[::-1], ["", *SENTENCES[1:]], ["She left early.None"]):
        tokens(sentences, tokenize, tmp_path)

    changed = Counting("other")
    tokens(SENTENCES, changed, tmp_path)

    assert (tokenize.calls, changed.calls) == (4, 1)
    assert [Path(name).suffix for name in cached(tmp_path)] == [".arrow"] * 5
    assert tokens(SENTENCES, tokenize, None).cache_files == []


def test_unusable_cache_is_reported(tmp_path):
    tokens(SENTENCES, Counting(), tmp_path)
    (name,) = cached(tmp_path)
    content = Path(name).read_bytes()
    Path(name).unlink()
    Path(name).write_bytes(content[: len(content) // 2])

    with pytest.raises(DataError, match=rf"{name} cannot be used .*: remove the file, or set"):
        tokens(SENTENCES, Counting(), tmp_path)


def test_table_equals_tokenizer(tmp_path):
    sentences = ["a bc", " ", "d", "ee f ggg"]
    table = token_table(sentences, Counting(), tmp_path)

    assert table.lengths.tolist() == [2, 0, 1, 3]

    for asked in (["d", "a bc", "d"], [" "], sentences[::-1]):
        found = table.tokens(asked, 2)
        want = Tokens.pad([ids[:2] for ids in Counting()(asked)])

        assert torch.equal(found.ids, want.ids)
        assert np.array_equal(found.lengths, want.lengths)
        assert table.has(asked)

    assert not table.has(["d", "new"])


def test_sentence_without_tokens_is_refused(tmp_path, put):
    class Silent(Counting):
        def __call__(self, sentences):
            return [ids if len(ids) < 4 else [] for ids in super().__call__(sentences)]

    own = str(put("own.txt", "One two.\nThree.\nFour five six seven.\nEight.\nNine.\n"))
    options = {"tokenize": Silent(), "held_out": own, "cache_dir": str(tmp_path)}
    data = data_module(own, Sentences(), **options)

    for _ in range(2):  # tokenised, and then from the cache
        with pytest.raises(DataError, match=r"own\.txt:3: anchor 'Four five .* has no token"):
            data.setup()


# Many sentences, in shards


@pytest.mark.parametrize("num_proc", [None, 2])
def test_finished_shards_are_kept(num_proc, tmp_path, monkeypatch):
    class Stopping(Counting):
        def __call__(self, sentences):
            if "stop" in sentences and not (tmp_path / "go").exists():
                raise RuntimeError("stopped")

            with (tmp_path / "calls").open("a") as calls:
                calls.write("".join(f"{sentence}\n" for sentence in sentences))

            return super().__call__(sentences)

    monkeypatch.setattr(token_cache, "SHARD", 4)
    sentences = ["a", "bb", None, "ccc", "d", "e", "", "ff", "stop", "gg"]
    numbers = np.arange(9, dtype=np.uint32)[::-1]
    column = pa.chunked_array([sentences[::-1]])

    def made(**options):
        found = tokenise(column, Stopping(), tmp_path, numbers=numbers, **options)
        return found["ids"][:], (tmp_path / "calls").read_text().splitlines()

    with pytest.raises(RuntimeError, match="stopped"):
        made(num_proc=num_proc)

    (tmp_path / "go").touch()
    found, calls = made(num_proc=num_proc)

    assert found == [[len(word) for word in (text or "").split()] for text in sentences[1:]]
    assert [calls.count(text) for text in ("bb", "ccc", "d")] == [1, 1, 1]
    assert made(num_proc=1) == (found, calls)
    assert tokenise(column, Counting(), None, numbers=numbers)["ids"][:] == found


@pytest.mark.parametrize(("num_proc", "threads"), [(None, "true"), (1, "false")])
def test_one_process_has_a_thread_for_each_core(num_proc, threads, tmp_path, monkeypatch):
    seen = []

    class Seeing(Counting):
        def __call__(self, sentences):
            seen.append(os.environ[token_cache.PARALLELISM])
            return super().__call__(sentences)

    monkeypatch.setenv(token_cache.PARALLELISM, "false")
    tokenise(pa.chunked_array([["a", "bb"]]), Seeing(), tmp_path, num_proc=num_proc)

    assert seen == [threads]
    assert os.environ[token_cache.PARALLELISM] == "false"


def test_bar_and_log_show_the_speed(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(token_cache, "AT_ONCE", 2)
    caplog.set_level("INFO")
    tokens(SENTENCES, Counting(), tmp_path)

    assert "tokenised 4 sentences in 0 s: " in caplog.text
    caplog.clear()
    tokens(SENTENCES, Counting(), tmp_path)

    assert caplog.text == ""
