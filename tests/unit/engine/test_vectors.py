"""Folders of vectors: written in shards, continued after a kill, shared by processes, searched."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import datasets
import numpy as np
import pytest
from oracles import save_tiny, untrained

import lightning_cse
from lightning_cse.data.sentences import stream
from lightning_cse.errors import ConfigError, DataError, EncoderError, TaskError
from lightning_cse.models import DualModel, GaussianModel, PointModel

SENTENCES = [f"{word} {number}." for number in range(7) for word in ("Gate", "the sea is", "no")]
SENTENCES[4] = ""
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
SCRIPT = """
import sys
import lightning_cse

model = lightning_cse.load(sys.argv[1], pooling="mean")
print(model.encode_to(sys.argv[2], sys.argv[3], shard_size=int(sys.argv[4])))
"""


def rows_of(folder, column="vector"):
    return datasets.load_from_disk(folder)[column][:]


def shards(folder):
    return sorted(folder.glob("data-*.arrow"))


def test_columns_are_those_of_embed_in_the_order_of_the_sentences(tmp_path):
    model = untrained(GaussianModel)
    folder = tmp_path / "new" / "vectors"
    assert model.encode_to(folder, iter(SENTENCES), shard_size=8) == len(SENTENCES)
    assert len(shards(folder)) == 3
    for name, values in model.embed(SENTENCES).fields().items():
        np.testing.assert_allclose(rows_of(folder, name), values, **CLOSE)


def test_a_view_normalised_in_half_precision(tmp_path):
    model = untrained(DualModel)
    options = {"view": "implicit", "normalize_embeddings": True, "dtype": "float16"}
    model.encode_to(tmp_path / "v", SENTENCES, **options)
    vectors = rows_of(tmp_path / "v")
    assert vectors.dtype == np.float16
    expected = model.encode(SENTENCES, "implicit", normalize_embeddings=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-3)


def test_numbers_that_the_dtype_cannot_hold(tmp_path, monkeypatch):
    model = untrained(PointModel)
    monkeypatch.setattr(model, "_columns", lambda embedded, *_: {"vector": embedded.vector * 1e6})
    with pytest.raises(EncoderError, match="float16 cannot hold the numbers of vector"):
        model.encode_to(tmp_path / "v", SENTENCES, dtype="float16")

    # Nothing was written, so that another dtype is no contradiction.
    assert model.encode_to(tmp_path / "v", SENTENCES) == len(SENTENCES)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The sentences as files of every kind."""
    folder = tmp_path_factory.mktemp("files")
    odd = [*SENTENCES[5:], "NA", "1", 'a, "b"']
    rows = datasets.Dataset.from_dict({"id": list(range(len(odd))), "text": odd})
    rows.to_csv(folder / "rows.csv")
    rows.to_parquet(folder / "rows.parquet")
    rows.to_json(folder / "rows.jsonl")
    rows.save_to_disk(folder / "saved")
    (folder / "rows.txt").write_text("".join(f"{line}\n" for line in odd))
    for name in ("rows.txt", "rows.jsonl", "rows.parquet"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))

    return folder, odd, rows


@pytest.mark.parametrize(
    "name",
    [
        "rows.csv",
        "rows.jsonl",
        "rows.jsonl.gz",
        "rows.parquet",
        "rows.parquet.gz",
        "rows.txt",
        "rows.txt.gz",
        "saved",
    ],
)
def test_files_are_read_row_by_row(files, name, tmp_path):
    folder, odd, _ = files
    model = untrained(PointModel)
    assert model.encode_to(tmp_path / "v", folder / name, shard_size=5) == len(odd)
    np.testing.assert_allclose(rows_of(tmp_path / "v"), model.encode(odd), **CLOSE)


def test_tables_are_read_as_in_training(tmp_path):
    long = "word " * 40_000
    (tmp_path / "a.csv").write_text(f"id;text\n1;A, a.\n2;{long}\n")
    assert list(stream(tmp_path / "a.csv")) == ["A, a.", long]
    (tmp_path / "a.jsonl").write_text('{"text": "A."}\n{"text": "B."}\n\n')
    assert list(stream(tmp_path / "a.jsonl")) == ["A.", "B."]


def test_no_more_than_a_shard_is_read_ahead(tmp_path):
    model = untrained(PointModel)
    read = []
    ahead = []
    embed = model.answers.embed

    def sentences():
        for sentence in SENTENCES:
            read.append(sentence)
            yield sentence

    def embedded(texts, tokens):
        ahead.append(len(read))
        return embed(texts, tokens)

    assert model.views == ["primary"]  # which embeds an example
    model.answers.embed = embedded
    model.encode_to(tmp_path / "v", sentences(), shard_size=8)
    assert ahead == [8, 16, 21]


def test_an_error_of_the_own_iterable_is_not_hidden(tmp_path):
    def sentences():
        yield "a"
        raise OSError("the connection is lost")

    with pytest.raises(OSError, match="the connection is lost"):
        untrained(PointModel).encode_to(tmp_path / "v", sentences())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n["b"]\n', ":2: expected a JSON object"),
        ("a.jsonl", b'{"text": "a"}\n{"text\n', ":2: not valid JSON"),
        ("a.csv", b'text\na\n"b\n', "row 2 cannot be read"),
        ("a.txt", b"a\n\xff\n", "cannot be read"),
        ("a.txt.gz", gzip.compress(b"a\n", mtime=0)[:-4], "cannot be read"),
        ("a.txt.gz", gzip.compress(b"a\n", mtime=0)[:10] + b"\xff" * 20, "cannot be read"),
        ("a.parquet", b"PAR1", "cannot be (loaded|read)"),
    ],
)
def test_files_that_are_broken(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        untrained(PointModel).encode_to(tmp_path / "v", tmp_path / name)


def test_data_sets_and_their_columns(files, tmp_path):
    folder, odd, rows = files
    model = untrained(PointModel)
    assert model.encode_to(tmp_path / "v", rows) == len(odd)
    assert model.encode_to(tmp_path / "lazy", rows.to_iterable_dataset()) == len(odd)
    np.testing.assert_array_equal(rows_of(tmp_path / "v"), rows_of(tmp_path / "lazy"))
    for source, options, message in (
        (rows, {"column": "txt"}, "no 'txt' - did you mean 'text'"),
        (rows.rename_column("text", "body"), {}, "column: choose one of id, body"),
        (rows, {"column": "id"}, "row 1 is not text"),
        (["a", None], {}, "row 2 is not text"),
        (folder / "no.txt", {}, "there is no such file"),
        (folder / "saved" / "state.json", {}, "a file of your own ends in"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            model.encode_to(tmp_path / "refused", source, **options)


def test_other_vectors_are_refused(tmp_path):
    model = untrained(PointModel)
    folder = tmp_path / "v"
    model.encode_to(folder, SENTENCES, shard_size=8)
    before = [file.stat().st_mtime_ns for file in shards(folder)]
    assert model.encode_to(folder, SENTENCES, shard_size=8) == len(SENTENCES)
    assert [file.stat().st_mtime_ns for file in shards(folder)] == before

    changed = [*SENTENCES[:9], "Other.", *SENTENCES[10:]]
    for sentences, options, message in (
        (changed, {}, "data-00001.arrow has the vectors of other sentences"),
        ([*SENTENCES, "More."], {}, "data-00002.arrow has the vectors of other sentences"),
        (SENTENCES[:16], {}, "data-00002.arrow is beyond the input"),
        (SENTENCES, {"dtype": "float16"}, "have dtype 'float32', not 'float16'"),
        (SENTENCES, {"normalize_embeddings": True}, "have normalize False, not True"),
        (SENTENCES, {"shard_size": 7}, "have shard_size 8, not 7"),
    ):
        with pytest.raises(ConfigError, match=message):
            model.encode_to(folder, sentences, **{"shard_size": 8} | options)

    model.digests = {**model.digests, "weights": "others"}
    with pytest.raises(ConfigError, match=r"have weights .*, not 'others'"):
        model.encode_to(folder, SENTENCES, shard_size=8)
    with pytest.raises(ConfigError, match=r"have weights .*search with the model that wrote them"):
        model.search("a", folder)

    model.encode_to(tmp_path / "gap", SENTENCES, shard_size=8)
    (tmp_path / "gap" / "data-00001.arrow").unlink()  # as of a process that was killed first
    with pytest.raises(ConfigError, match=r"data-00002\.arrow is beyond the input"):
        model.encode_to(tmp_path / "gap", SENTENCES[:8], shard_size=8)

    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty and has no"):
        model.encode_to(tmp_path / "full", SENTENCES)

    for path in (tmp_path / "vectors.npy", tmp_path / "full" / "notes.txt"):
        with pytest.raises(ConfigError, match="give a folder's name"):
            model.encode_to(path, SENTENCES)

    for options in ({"dtype": "float64"}, {"shard_size": 0}, {"shard_size": 1.5}, {"use": "title"}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            model.encode_to(tmp_path / "none", SENTENCES, **options)

    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", [PointModel, GaussianModel, DualModel])
def test_search_of_a_folder_is_that_of_the_list(kind, tmp_path):
    model = untrained(kind)
    model.encode_to(tmp_path / "v", SENTENCES, shard_size=6, use="document")
    queries = ["The gate.", "no sea"]
    relations = ["similar", "entails"] if "direction" in model.questions else ["similar"]
    for relation in relations:
        got = model.search(queries, tmp_path / "v", 9, relation=relation)
        want = model.search(queries, SENTENCES, 9, relation=relation)
        for found, expected in zip(got, want, strict=True):
            assert [hit.row for hit in found] == [hit.row for hit in expected]
            scores = [hit.score for hit in expected]
            np.testing.assert_allclose([hit.score for hit in found], scores, **CLOSE)


def test_search_of_one_view(tmp_path):
    model = untrained(DualModel)
    model.encode_to(tmp_path / "v", SENTENCES, "explicit", normalize_embeddings=True)
    options = {"view": "implicit", "against": "explicit"}
    got = model.search("the gate", tmp_path / "v", 4, **options)[0]
    want = model.search("the gate", SENTENCES, 4, **options)[0]
    assert [hit.row for hit in got] == [hit.row for hit in want]
    with pytest.raises(TaskError, match="has the view explicit alone"):
        model.search("the gate", tmp_path / "v", 4, view="explicit", against="implicit")
    with pytest.raises(ConfigError, match=r"has no vectors\.json"):
        model.search("a", tmp_path)

    assert model.encode_to(tmp_path / "none", []) == 0
    assert rows_of(tmp_path / "none", "explicit").shape[0] == 0
    assert model.search("a", tmp_path / "none") == [[]]

    (tmp_path / "v" / "state.json").unlink()
    with pytest.raises(ConfigError, match="is not complete"):
        model.search("a", tmp_path / "v")


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A model's folder, a script, 3,000 sentences as a file, and their vectors."""
    folder = tmp_path_factory.mktemp("corpus")
    model = save_tiny(folder / "model")
    (folder / "script.py").write_text(SCRIPT)
    file = folder / "rows.txt"
    file.write_text("".join(f"Gate {n} is {n % 7} miles from the sea.\n" for n in range(3000)))
    sentences = file.read_text().splitlines()

    return folder, model, file, lightning_cse.load(model, pooling="mean").encode(sentences)


@pytest.mark.timeout(900)
def test_a_killed_call_is_continued_without_a_row_twice_or_lost(corpus, tmp_path):
    folder, model, file, expected = corpus
    arguments = (folder / "script.py", model, tmp_path / "v", file, 100)
    process = start(*arguments)
    while len(shards(tmp_path / "v")) < 3:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)

    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {file.name: file.stat().st_mtime_ns for file in shards(tmp_path / "v")}
    assert 3 <= len(kept) < 30
    assert not (tmp_path / "v" / "state.json").exists()

    done = start(*arguments)
    assert done.communicate()[0].strip() == "3000"
    for name, changed in kept.items():
        assert (tmp_path / "v" / name).stat().st_mtime_ns == changed

    np.testing.assert_allclose(rows_of(tmp_path / "v"), expected, **CLOSE)
    assert not list((tmp_path / "v").glob(".*.tmp"))


@pytest.mark.timeout(900)
def test_processes_of_torchrun_share_the_shards(corpus, tmp_path):
    folder, model, file, expected = corpus
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    done = start(*launcher, folder / "script.py", model, tmp_path / "v", file, 400)
    assert done.communicate()[0].split() == ["3000", "3000"]
    np.testing.assert_allclose(rows_of(tmp_path / "v"), expected, **CLOSE)
    state = json.loads((tmp_path / "v" / "state.json").read_text())
    assert len(state["_data_files"]) == 8
