"""``python -m lightning_cse.prepare`` against a local web server, folders and a fake hub."""

import gzip
import hashlib
import io
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pooch
import pytest

from lightning_cse import prepare
from lightning_cse.data.corpora import CORPORA, read_corpus, sample_dir

Prepare = Callable[..., str]
Change = Callable[..., None]

SPLITS = ("train", "val", "test")
INLI = {f"INLI/{split}.csv": (sample_dir() / f"INLI/{split}.csv").read_bytes() for split in SPLITS}
TRAIN = INLI["INLI/train.csv"]
MEMBERS = {
    f"snli_1.0/snli_1.0_{split}.jsonl": (
        sample_dir() / f"SNLI/snli_1.0/snli_1.0_{split}.jsonl"
    ).read_bytes()
    for split in ("train", "dev", "test")
}
SNLI = {f"SNLI/{member}": data for member, data in MEMBERS.items()}
ARCHIVE = "/snli/snli_1.0.zip"


class Mirror(ThreadingHTTPServer):
    """Serves files; ``faults[path]`` holds answers to give first: a status, or ``"cut"`` for a body
    that breaks off.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {f"/{path.lower()}": data for path, data in INLI.items()}
        self.files[ARCHIVE] = packed({"snli_1.0/README.txt": b"Read me.", **MEMBERS})
        self.faults: dict[str, list[int | str]] = {}
        self.requested: list[str] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Any

    def do_GET(self):
        self.server.requested.append(self.path)
        faults = self.server.faults.get(self.path, [])
        fault = faults.pop(0) if faults else None
        body = self.server.files.get(self.path)
        status = fault if isinstance(fault, int) else 404 if body is None else 200
        content = body if status == 200 and body is not None else b"no"
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)

    def log_message(self, format, *args):
        pass


def packed(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(
        stream,
        "w",
        zipfile.ZIP_DEFLATED,
    ) as archive:
        archive.mkdir("snli_1.0")
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("LIGHTNING_CSE_DATA", raising=False)
    monkeypatch.setattr(
        pooch.core,
        "time",
        SimpleNamespace(sleep=lambda seconds: None),
    )


@pytest.fixture
def change(monkeypatch):
    """Change a corpus, and fields of all its files, for the time of the test."""

    def changed(corpus, fields, **others):
        files = []
        for file in others.pop("files", corpus.files):
            values = {key: of(file) if callable(of) else of for key, of in fields.items()}
            files.append(file.model_copy(update=values))
        new = corpus.model_copy(update={**others, "files": tuple(files)})
        monkeypatch.setitem(
            CORPORA,
            new.name,
            new,
        )

    return changed


@pytest.fixture
def mirror(change):
    """A web server with samples, which are the official INLI and SNLI for the time of the test."""
    server = Mirror()
    fields = {
        "rows": lambda file: len(
            read_corpus(
                "inli",
                file.split,
                sample_dir(),
            )
        ),
        "sha256": lambda file: hashlib.sha256(INLI[file.path]).hexdigest(),
    }
    change(
        CORPORA["inli"],
        fields,
        sources=(f"{server.url}/inli", f"{server.url}/second"),
    )
    change(
        CORPORA["snli"],
        {"rows": 60},
        sources=(f"{server.url}/first", f"{server.url}/snli"),
    )
    thread = threading.Thread(
        target=server.serve_forever,
        kwargs={"poll_interval": 0.01},
    )
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def data(tmp_path):
    """The data directory."""
    folder = tmp_path / "data"
    (folder / "INLI").mkdir(parents=True)
    return folder


@pytest.fixture
def run(data, capsys):
    """Run the command on the data directory; return what it prints, or its error where it must exit
    with 2.
    """

    def prepared(*arguments, code=0):
        assert (
            prepare.main(
                [
                    *arguments,
                    "--data-dir",
                    str(data),
                ]
            )
            == code
        )
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return (
            shown.out if code == 0 else shown.err[shown.err.index("error: ") :]
        )  # behind the lines of pooch

    return prepared


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# Files


def test_files_are_fetched_from_the_official_address_or_a_mirror(mirror, run, data, monkeypatch):
    output = run("inli")
    assert mirror.requested == [f"/inli/{split}.csv" for split in SPLITS]
    assert files_of(data) == INLI
    assert "CC BY-SA 4.0" in output
    assert (
        f"{data}/INLI/train.csv: fetched from {mirror.url}/inli/train.csv, 595 rows of train"
        in output
    )

    for split in SPLITS:
        mirror.files[f"/deep/er/{split}.csv"] = mirror.files[f"/inli/{split}.csv"]
    monkeypatch.setenv("LIGHTNING_CSE_DATA", str(data / "corpora"))
    assert (
        prepare.main(
            [
                "inli",
                "--source",
                f"{mirror.url}/deep/er/",
            ]
        )
        == 0
    )
    assert mirror.requested[3:] == [f"/deep/er/{split}.csv" for split in SPLITS]
    assert files_of(data / "corpora") == INLI


def test_right_files_are_kept_after_a_failure(mirror, run, data):
    body = mirror.files.pop("/inli/test.csv")
    message = run("inli", code=2)
    for address in ("inli", "second"):
        assert f"{mirror.url}/{address}/test.csv: HTTPError: 404 Client Error" in message
    assert f"put the file at {data}/INLI/test.csv" in message
    assert files_of(data).keys() == {"INLI/train.csv", "INLI/val.csv"}
    mirror.files["/second/test.csv"] = body
    mirror.requested.clear()
    run("inli")
    assert set(mirror.requested) == {"/inli/test.csv", "/second/test.csv"}
    assert files_of(data) == INLI


def test_a_wrong_digest_keeps_nothing(mirror, run, data):
    body = b"<html>please log in</html>"
    mirror.files["/inli/train.csv"] = body
    message = run("inli", code=2)
    assert f"{mirror.url}/inli/train.csv: not the official file (26 bytes)" in message
    assert hashlib.sha256(body).hexdigest() in message
    assert hashlib.sha256(TRAIN).hexdigest() in message
    assert files_of(data) == {}


def test_a_differing_file_is_replaced_only_with_force(mirror, run, data):
    path = data / "INLI/train.csv"
    path.write_text("mine")
    message = run("inli", code=2)
    assert f"{path}: not the official file (4 bytes)" in message
    assert "--force" in message
    assert path.read_text() == "mine"
    assert mirror.requested == []
    run("inli", "--force")
    assert path.read_bytes() == TRAIN


@pytest.mark.parametrize("faults", [[503, 429, 502], ["cut", 500, "cut"]])
def test_server_errors_and_cut_bodies_are_tried_again(mirror, run, data, faults):
    mirror.faults["/inli/train.csv"] = list(faults)
    run("inli")
    assert mirror.requested.count("/inli/train.csv") == len(faults) + 1
    assert files_of(data) == INLI


@pytest.mark.parametrize("scheme", ["file://", ""])
def test_a_folder_as_source(mirror, run, data, tmp_path, scheme):
    source = tmp_path / "stick"
    source.mkdir()
    for name, content in INLI.items():
        (source / Path(name).name).write_bytes(content)
    run(
        "inli",
        "--source",
        f"{scheme}{source}",
    )
    assert files_of(data) == INLI
    assert f"{source}/snli_1.0.zip: No such file" in run(
        "snli",
        "--source",
        str(source),
        code=2,
    )
    (source / "snli_1.0.zip").write_bytes(WHOLE)
    run(
        "snli",
        "--source",
        str(source),
    )
    assert files_of(data) == INLI | SNLI
    assert mirror.requested == []


def test_check_reports_all_faults_and_fetches_nothing(mirror, run, data):
    (data / "INLI/val.csv").write_bytes(INLI["INLI/val.csv"])
    (data / "INLI/test.csv.gz").write_bytes(gzip.compress(INLI["INLI/test.csv"])[:-20])
    message = run(
        "inli",
        "--check",
        code=2,
    )
    assert "corpus 'inli': 2 of 3 files failed the check" in message
    assert f"{data}/INLI/train.csv: cannot be read: No such file" in message
    assert f"{data}/INLI/test.csv.gz: the compressed data is cut off" in message
    assert mirror.requested == []
    (data / "INLI/test.csv.gz").unlink()
    run("inli")
    assert f"{data}/INLI/val.csv: ok, " in run("inli", "--check")


def test_without_a_name_the_corpora_are_listed(run, data):
    (data / "SNLI/senteval").mkdir(parents=True)
    for name in ("INLI/val.csv.gz", "SNLI/senteval/s1.dev"):
        (data / name).write_bytes(b"")
    output = run()
    assert f"data directory: {data} " in output
    assert "  val       1000 rows  INLI/val.csv is there\n" in output
    assert "  train     8000 rows  INLI/train.csv is missing\n" in output
    assert "  dev      9842 rows  SNLI/senteval/s2.dev is missing (3 files)\n" in output
    for corpus in CORPORA.values():
        assert f"\n\n{corpus.name}: {corpus.title}\n" in output


def test_an_unknown_name_is_reported_without_torch():
    code = "import sys; from lightning_cse.prepare import main; sys.exit(10 * ('torch' in sys.modules) + main())"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            "inly",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown corpus 'inly' - did you mean 'inli'?")


def test_stsb_from_the_hub_in_the_official_layout(run, data, monkeypatch):
    sizes = {
        "train": 5749,
        "validation": 1500,
        "test": 1379,
    }

    def load_dataset(name, *, split, revision):
        row = {"sentence2": "Two.", "score": 0.5}
        return [row | {"sentence1": f"One {number}."} for number in range(sizes[split])]

    message = run("stsb", code=2)
    assert "OfflineMode" in message
    assert f"put the file at {data}/STS/STSBenchmark/sts-train.csv" in message
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setitem(
        sys.modules,
        "datasets",
        SimpleNamespace(load_dataset=load_dataset),
    )
    run("stsb")
    rows = read_corpus(
        "stsb",
        "dev",
        data,
    )
    assert len(rows) == 1500
    assert [rows[7][name] for name in rows.names] == ["One 7.", "Two.", 2.5]
    run("stsb", "--check")


def test_corpora_that_are_not_fetched(run, data):
    message = run("sts12", code=2)
    first = "STS/STS12-en-train/STS.input.MSRpar.txt"
    assert message.startswith(f"error: {first}: fetches nothing: unpack SemEval's")
    assert f"put the file at {data}/{first}\n" in message
    assert "put the rows there, one JSON object per line" in run("ngcse", code=2)


# Zip archives


def test_an_archive_is_fetched_once_per_call(mirror, run, data, change):
    change(
        CORPORA["snli"],
        {"path": lambda file: f"again/{file.member}"},
        name="again",
    )
    mirror.faults[ARCHIVE] = ["cut", 500]
    output = run("snli", "again")
    assert mirror.requested.count(ARCHIVE) == 3
    again = {f"again/{member}": content for member, content in MEMBERS.items()}
    assert files_of(data) == SNLI | again
    fetched = f"{data}/SNLI/{DEV}: fetched from {mirror.url}{ARCHIVE}/{DEV}, 60 rows"
    assert f"{fetched} of dev (its official digest is not known)" in output
    mirror.requested.clear()
    run("snli")
    run("snli", "--check")
    assert mirror.requested == []


DEV, TEST = "snli_1.0/snli_1.0_dev.jsonl", "snli_1.0/snli_1.0_test.jsonl"
WHOLE = packed({"snli_1.0/README.txt": b"Read me.", **MEMBERS})
SHORTER = b"".join(MEMBERS[DEV].splitlines(keepends=True)[:59])


@pytest.mark.parametrize(
    ("body", "message", "kept"),
    [
        (packed(MEMBERS | {DEV: SHORTER}), f"/{DEV}: 59 rows in split 'dev', expected 60\n", 1),
        (packed(MEMBERS | {DEV: MEMBERS[DEV] + b"{}\n"}), f"/{DEV}:61: no column 'sentence1'", 1),
        (packed({DEV: MEMBERS[DEV]}), ": not the official zip archive: There is no item named", 0),
        (b"<html>moved</html>", ": not the official zip archive: ", 0),
        (WHOLE[: len(WHOLE) // 2], ": not the official zip archive: ", 0),
    ],
)
def test_a_wrong_archive(mirror, run, data, body, message, kept):
    mirror.files[ARCHIVE] = body
    assert run("snli", code=2).startswith(f"error: {mirror.url}{ARCHIVE}{message}")
    assert len(files_of(data)) == kept
