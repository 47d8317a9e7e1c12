"""Rows that are read while they are trained on: every row of every shard once a pass, in an order
that a checkpoint and the number of processes do not change.
"""

import gzip
import io
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from data_modules import Words, data_module, ids_of

from lightning_cse.data import (
    ContrastiveData,
    ContrastiveDataModule,
    OwnRows,
    StreamDataModule,
    sample_dir,
    shards,
    stream,
)
from lightning_cse.errors import ConfigError, DataError

SIMCSE = ("anchor", "positive")


def pairs(first, count):
    return [
        {"anchor": f"sentence {number}", "positive": f"meaning {number}"}
        for number in range(first, first + count)
    ]


def write(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=4)
        return

    lines = "".join(json.dumps(row) + "\n" for row in rows)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write(lines)


@pytest.fixture
def folder(tmp_path):
    """Three shards of different kinds: 11, 14 and 6 rows."""
    write(tmp_path / "a.parquet", pairs(0, 11))
    write(tmp_path / "b.jsonl", pairs(11, 14))
    write(tmp_path / "c.jsonl.gz", pairs(25, 6))

    return tmp_path


def streamed(
    *train, steps=8, roles=SIMCSE, optional=(), seed=0, rows=None, kind=StreamDataModule, **settings
):
    settings = {"batch_size": 4, "drop_last": False, "shuffle_buffer": 9} | settings
    data = kind(
        ContrastiveData(
            train=list(map(str, train)),
            rows=rows or OwnRows(),
            data_dir=str(sample_dir()),
            streaming=True,
            **settings,
        ),
        tokenize=Words(),
        seed=seed,
        roles=roles,
        optional=optional,
    )
    data.trainer = SimpleNamespace(max_steps=steps, accumulate_grad_batches=1)

    return data


def flat(batches):
    return [row for batch in batches for row in batch]


def all_of(folder):
    return [folder / name for name in ("a.parquet", "b.jsonl", "c.jsonl.gz")]


def content(data, batches):
    """Return all that batches hold, with the places of the rows."""
    return [
        {role: ids_of(tokens) for role, tokens in batch["roles"].items()}
        | {"index": batch["index"].tolist()}
        | {"at": [data.where(row) for row in batch["index"].tolist()]}
        for batch in batches
    ]


def trained_on(data):
    """Return the numbers of the rows by batch."""
    decode = data.tokenize.decode
    found = []

    for batch in data.train_dataloader():
        anchors, positives = (decode(ids_of(batch["roles"][role])) for role in SIMCSE)
        numbers = [int(anchor.split()[1]) for anchor in anchors]
        assert positives == [f"meaning {number}" for number in numbers]
        found.append(numbers)

    return found


# The rows, and their order


@pytest.mark.parametrize("source", ["a.parquet", "b.jsonl", "c.jsonl.gz", "*.jsonl*"])
def test_every_row_once_a_pass(folder, source, adds_up):
    of_file = {"a.parquet": (0, 11), "b.jsonl": (11, 25), "c.jsonl.gz": (25, 31)}
    first, end = of_file.get(source, (11, 31))
    batches = -(-(end - first) // 4)
    data = streamed(folder / source, steps=2 * batches)
    found = trained_on(data)
    passes = [found[:batches], found[batches:]]

    for one in passes:
        assert sorted(flat(one)) == list(range(first, end))

    assert passes[0] != passes[1]
    assert flat(passes[0]) != list(range(first, end))
    assert data.counts["passes"] == 1
    assert data.counts["read"] == data.counts["rows in batches"] == 2 * (end - first)
    assert adds_up(data.counts)
    assert len(data.train_dataloader()) == 2 * batches


def test_the_order_depends_on_the_seed_alone(folder):
    first, again, other = (trained_on(streamed(*all_of(folder), seed=seed)) for seed in (0, 0, 1))

    assert first == again != other


def test_without_a_buffer_the_order_of_the_files_stays(folder):
    data = streamed(folder / "b.jsonl", shuffle_buffer=0, steps=4)

    assert flat(trained_on(data)) == list(range(11, 25))


def test_a_batch_has_rows_of_all_shards(folder):
    batch = trained_on(streamed(*all_of(folder), batch_size=6))[0]

    assert [sum(first <= row < end for row in batch) for first, end in ((0, 11), (11, 25))] == [
        2,
        2,
    ]


@pytest.mark.parametrize(
    ("batch_size", "drop_last", "sizes"),
    [
        (4, False, [4, 4, 3, 4]),
        (4, True, [4, 4, 4, 4]),
        (64, True, [11] * 4),  # the only batch is kept
    ],
)
def test_trailing_batch_of_a_pass(folder, batch_size, drop_last, sizes):
    data = streamed(folder / "a.parquet", batch_size=batch_size, drop_last=drop_last, steps=4)

    assert list(map(len, trained_on(data))) == sizes
    assert data.counts.get("rows in a dropped last batch", 0) == 3 * (sizes == [4] * 4)


# A position in the stream


@pytest.mark.parametrize("buffer", [0, 9])
def test_it_continues_with_the_same_batch_and_account(folder, buffer, tmp_path):
    make = partial(streamed, *all_of(folder), shuffle_buffer=buffer, steps=14)
    data = make()
    whole = []

    for number, batch in enumerate(data.train_dataloader(), start=1):
        whole += content(data, [batch])
        torch.save(data.state_dict(), tmp_path / f"{number}.pt")

    for number in (1, 3, 7, 8, 12):  # a pass has eight batches
        resumed = make()
        resumed.load_state_dict(torch.load(tmp_path / f"{number}.pt", weights_only=True))

        assert content(resumed, resumed.train_dataloader()) == whole[number:]
        assert resumed.counts == data.counts


def test_checkpoint_of_another_stream(folder):
    data = streamed(*all_of(folder))
    next(iter(data.train_dataloader()))
    other = streamed(folder / "b.jsonl")
    other.load_state_dict(data.state_dict())

    with pytest.raises(DataError, match="another stream"):
        other.train_dataloader()


class Processes:
    """Threads that exchange values as processes do."""

    def __init__(self, count):
        self.count = count
        self.local = threading.local()
        self.barrier = threading.Barrier(count)
        self.values = [None] * count

    def world(self):
        return self.local.rank, self.count

    def from_all(self, value):
        self.values[self.local.rank] = value
        self.barrier.wait(60)
        found = list(self.values)
        self.barrier.wait(60)

        return found

    def run(self, work):
        def one(rank):
            self.local.rank = rank
            try:
                return work(rank)
            except BaseException:
                self.barrier.abort()
                raise

        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(one, range(self.count)))


@pytest.mark.parametrize("count", [2, 5])
def test_processes_read_their_shards_and_have_the_batches_of_one(folder, monkeypatch, count):
    make = partial(streamed, *all_of(folder), steps=10)
    alone = make()
    expected = content(alone, alone.train_dataloader())
    processes = Processes(count)
    monkeypatch.setattr(stream, "world", processes.world)
    monkeypatch.setattr(stream, "from_all", processes.from_all)
    read = [set() for _ in range(count)]
    modules = [make() for _ in range(count)]

    def work(rank):
        data = modules[rank]
        opened = data.shards.open
        data.shards.open = lambda shard: read[rank].add(shard) or opened(shard)
        batches = iter(data.train_dataloader())
        found = content(data, itertools.islice(batches, 5))
        stopped = data.state_dict()
        found += content(data, batches)

        return stopped, (found, data.counts, data.state_dict())

    results = processes.run(work)
    monkeypatch.undo()

    for stopped, end in results:
        assert end == (expected, alone.counts, alone.state_dict())

        continued = make()
        continued.load_state_dict(stopped)

        assert content(continued, continued.train_dataloader()) == expected[5:]

    assert all(read[:3])
    assert not any(read[3:])


# A server


class Ranges(SimpleHTTPRequestHandler):
    """Serves a folder, also ranges of its files, with an ETag."""

    def log_message(self, *args):
        self.server.requests.append((self.command, self.headers.get("Range")))

    def end_headers(self):
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"first"')
        super().end_headers()

    def send_head(self):
        wanted = self.headers.get("Range")
        if wanted is None:
            return super().send_head()

        content = Path(self.translate_path(self.path)).read_bytes()

        start, end = wanted.removeprefix("bytes=").split("-")
        part = content[int(start) : int(end or len(content)) + 1]
        self.send_response(206)
        end = int(start) + len(part) - 1
        self.send_header("Content-Range", f"bytes {start}-{end}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()

        return io.BytesIO(part)


@pytest.fixture
def server(folder):
    """The shards behind URLs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranges, directory=str(folder))) as server:
        server.requests = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_server_gives_the_rows_of_the_files(folder, server):
    urls = [f"{server.url}/{path.name}" for path in all_of(folder)]
    data = streamed(*urls)

    assert trained_on(data) == trained_on(streamed(*all_of(folder)))
    assert data.where(0).startswith(server.url)
    assert any(part for _, part in server.requests)
    assert data.digests[urls[0]] == f'{(folder / "a.parquet").stat().st_size} bytes, ETag "first"'


def test_a_file_that_the_server_lacks(server):
    with pytest.raises(DataError, match=r"data\.train: http.*/none\.parquet: cannot be loaded"):
        streamed(f"{server.url}/none.parquet")


# What identifies the files


def test_files_are_identified_by_content_and_large_ones_by_size_and_ends(folder, monkeypatch):
    path = folder / "b.jsonl"
    small = streamed(path).digests
    assert small == data_module(str(path), OwnRows()).digests

    monkeypatch.setattr(shards, "LARGE", 1)
    monkeypatch.setattr(shards, "_END", 8)
    before = streamed(path).digests
    text = path.read_text()
    assert before == streamed(path).digests != small

    path.write_text(text.replace("sentence 18", "sentence 81"))  # what is promised, and no more
    assert streamed(path).digests == before

    path.write_text(text.replace("meaning 24", "meaning 42"))
    assert streamed(path).digests != before


# Rows that are not trained on


def test_first_rows_are_held_out_with_all_rows_of_their_sentences(folder, adds_up):
    again = [{"anchor": "sentence 2", "positive": "meaning 2"}, *pairs(40, 2)]
    write(folder / "d.jsonl", again)
    data = streamed(*all_of(folder), folder / "d.jsonl", held_out_rows=5, steps=7)
    found = flat(trained_on(data))

    assert data.held_out.column("anchor") == [f"sentence {number}" for number in range(5)]
    assert data.watched(["anchor", "positive"]).column("positive")[4] == "meaning 4"
    assert sorted(found) == [*range(5, 31), 40, 41]
    assert not set(data.train.column("anchor")) & set(data.held_out.column("anchor"))
    assert data.counts["dropped: held out"] == 6
    assert adds_up(data.counts)


def test_held_out_rows_of_a_file(folder):
    data = streamed(folder / "a.parquet", held_out=str(folder / "b.jsonl"), held_out_rows=3)

    assert len(data.held_out) == 14
    assert len(data.watched(["anchor"])) == 3


def test_rows_that_cannot_be_trained_on_are_dropped_and_counted(tmp_path, adds_up, caplog):
    rows = pairs(0, 12)
    rows[3]["positive"] = None
    rows[5]["anchor"] = " "
    write(tmp_path / "a.jsonl", rows)
    data = streamed(tmp_path / "a.jsonl", steps=2, shuffle_buffer=2)
    data.tokenize = lambda texts: [[] if text == "meaning 7" else [1, 2] for text in texts]
    batches = list(data.train_dataloader())

    assert [len(batch["index"]) for batch in batches] == [4, 4]
    assert data.counts["dropped: bad cell"] == 2
    assert data.counts["rows without a token"] == 1
    assert "bad rows of a.jsonl (line 4: positive is empty)" in caplog.text
    assert adds_up(data.counts)


def test_pairs_of_test_sets_are_not_trained_on(tmp_path, adds_up):
    write(tmp_path / "test.jsonl", pairs(2, 3))
    write(tmp_path / "a.parquet", pairs(0, 12))
    data = streamed(
        tmp_path / "a.parquet", excluded=[str(tmp_path / "test.jsonl")], steps=3, batch_size=3
    )

    assert sorted(flat(trained_on(data))) == [0, 1, *range(5, 12)]
    assert data.counts["dropped: pair of a dev or test set"] == 3
    assert adds_up(data.counts)


def test_sentences_that_are_cut_are_counted(folder):
    data = streamed(folder / "a.parquet", steps=3, max_tokens=1)

    assert data.cut_to(64) == {}
    assert all(batch["roles"]["anchor"].ids.shape[1] == 1 for batch in data.train_dataloader())
    assert data.counts["sentences_cut"] == 22
    assert data.counts["cut to 1 tokens: anchor"] == 11


# Other rows than pairs


def test_labels_and_scores_come_with_the_batch(tmp_path):
    nli = [
        {"premise": f"p {n}", "hypothesis": f"h {n}", "label": ("entailment", "neutral")[n % 2]}
        for n in range(6)
    ]
    write(tmp_path / "nli.parquet", nli)
    data = streamed(tmp_path / "nli.parquet", roles=("premise", "hypothesis"), steps=2)

    for batch in data.train_dataloader():
        premises = data.tokenize.decode(ids_of(batch["roles"]["premise"]))
        assert batch["targets"].tolist() == [int(one.split()[1]) % 2 for one in premises]


def test_hard_negatives_of_some_rows(tmp_path):
    rows = pairs(0, 8)
    for number in (1, 4):
        rows[number]["negative_1"] = f"other {number}"

    write(tmp_path / "a.parquet", [{"negative_1": None, **row} for row in rows])
    data = streamed(tmp_path / "a.parquet", roles=(*SIMCSE, "negative"), optional=("negative",))
    batch = next(iter(data.train_dataloader()))
    negatives = batch["roles"]["negative"]
    anchors = data.tokenize.decode(ids_of(batch["roles"]["anchor"]))

    for row, ids in zip(negatives.rows.tolist(), ids_of(negatives), strict=True):
        number = anchors[row].split()[1]
        assert data.tokenize.decode([ids]) == [f"other {number}"]


# What a stream cannot do


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out_share": 0.1}, r"held_out_share: .*data\.held_out_rows=N"),
        ({"train_rows": 8}, r"train_rows: .*trainer\.max_steps"),
        ({"weights": [1]}, "weights: cannot be combined with data.streaming"),
        ({"llm_rows": 2}, "llm_rows: cannot"),
        ({"llm_rows_together": 2}, "llm_rows_together: cannot"),
        ({"num_proc": 2}, "num_proc: .*tokenised by the batch"),
        ({"shuffle_buffer": -1}, "shuffle_buffer: must be an integer >= 0"),
    ],
)
def test_settings_that_are_refused(folder, settings, message):
    with pytest.raises(ConfigError, match=rf"data\.{message}"):
        streamed(folder / "a.parquet", **settings)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (["snli/train"], "'snli/train' is not a file that is streamed"),
        (["hub:user/name"], "'hub:user/name' is not a file that is streamed"),
        (["my/rows.csv"], "'my/rows.csv' is not a file that is streamed"),
        (["my/none.jsonl"], r".*my/none\.jsonl: there is no such file"),
        ([], "give Parquet or JSON-lines files"),
    ],
)
def test_sources_that_are_refused(train, message):
    with pytest.raises((ConfigError, DataError), match=rf"data\.train: {message}"):
        streamed(*train)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("premise", "hypothesis", "label"), r"data\.streaming: NLITriplets needs all rows"),
        (("anchor",), "missing: positive"),
    ],
)
def test_rows_that_are_refused(tmp_path, names, message):
    rows = [dict.fromkeys(names, f"text {n}") | {"label": "entailment"} for n in range(4)]
    write(tmp_path / "a.jsonl", rows)

    with pytest.raises(ConfigError, match=message):
        streamed(tmp_path / "a.jsonl")


def test_one_row_is_no_batch(tmp_path):
    write(tmp_path / "a.jsonl", pairs(0, 2))
    data = streamed(tmp_path / "a.jsonl")
    data.tokenize = lambda texts: [[] if text.endswith("1") else [1] for text in texts]

    with pytest.raises(DataError, match="1 training rows in all files cannot form a batch"):
        next(iter(data.train_dataloader()))


def test_only_training_reads_a_stream(folder):
    with pytest.raises(ConfigError, match=r"data\.streaming: only training"):
        streamed(folder / "a.parquet", kind=ContrastiveDataModule)


def test_no_number_of_steps(folder):
    with pytest.raises(ConfigError, match=r"trainer\.max_steps"):
        streamed(folder / "a.parquet", steps=-1).train_dataloader()
