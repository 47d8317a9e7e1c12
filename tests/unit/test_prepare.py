"""``python -m lightning_cse.prepare`` against a local web server and folders."""

import gzip
import hashlib
import io
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pooch
import pytest

from lightning_cse import prepare
from lightning_cse.data.corpora import CORPORA, sample_dir

INLI = {f"INLI/{name}.csv": b"" for name in ("train", "val", "test")}
INLI = {name: (sample_dir() / name).read_bytes() for name in INLI}
MEMBERS = {f"snli_1.0/snli_1.0_{name}.jsonl": b"" for name in ("train", "dev", "test")}
MEMBERS = {name: (sample_dir() / "SNLI" / name).read_bytes() for name in MEMBERS}
SNLI = {f"SNLI/{name}": data for name, data in MEMBERS.items()}
DEV = "snli_1.0/snli_1.0_dev.jsonl"
ARCHIVE = "/second/snli_1.0.zip"


class Mirror(ThreadingHTTPServer):
    """Serves files; ``faults[path]`` holds answers to give first: a status, or 0 for a body that
    breaks off.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.files = {f"/first/{path[5:]}": data for path, data in INLI.items()}
        self.files[ARCHIVE] = packed(MEMBERS)
        self.faults = {}
        self.requested = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requested.append(self.path)
        faults = self.server.faults.get(self.path)
        fault = faults.pop(0) if faults else None
        body = self.server.files.get(self.path, b"no")
        self.send_response(fault or (200 if self.path in self.server.files else 404))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if fault == 0 else body)

    def log_message(self, format, *args):
        pass


def packed(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


@pytest.fixture
def mirror(monkeypatch):
    """A web server with samples, which are the official INLI and SNLI for the time of the test."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(pooch.core, "time", SimpleNamespace(sleep=lambda seconds: None))
    server = Mirror()
    sources = (f"{server.url}/first", f"{server.url}/second")
    for name in ("inli", "snli"):
        files = []
        for file in CORPORA[name].files:
            data = INLI.get(file.path)
            sha256 = data and hashlib.sha256(data).hexdigest()
            files.append(file.model_copy(update={"rows": 60, "sha256": sha256}))
        fields = {"sources": sources, "files": tuple(files)}
        monkeypatch.setitem(CORPORA, name, CORPORA[name].model_copy(update=fields))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def data(tmp_path):
    """The data directory."""
    (tmp_path / "data/INLI").mkdir(parents=True)
    return tmp_path / "data"


@pytest.fixture
def run(data, capsys):
    """Run the command on the data directory; return what it prints."""

    def prepared(*arguments, code=0):
        assert prepare.main([*arguments, "--data-dir", str(data)]) == code
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return shown.err if code else shown.out

    return prepared


def files_of(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_files_are_fetched_and_kept_after_a_failure(mirror, run, data):
    body = mirror.files.pop("/first/test.csv")
    message = run("inli", code=2)
    for address in ("first", "second"):
        assert f"{mirror.url}/{address}/test.csv: HTTPError: 404 Client Error" in message
    assert f"put the file at {data}/INLI/test.csv" in message
    assert files_of(data).keys() == {"INLI/train.csv", "INLI/val.csv"}
    mirror.files["/second/test.csv"] = body
    mirror.requested.clear()
    output = run("inli")
    assert set(mirror.requested) == {"/first/test.csv", "/second/test.csv"}
    assert files_of(data) == INLI
    assert f"{data}/INLI/test.csv: fetched from {mirror.url}/second/test.csv" in output
    assert "CC BY-SA 4.0" in output


def test_wrong_files_are_replaced_only_with_force_and_by_official_ones(mirror, run, data):
    path = data / "INLI/train.csv"
    path.write_text("mine")
    message = run("inli", code=2)
    assert f"{path}: not the official file" in message
    assert "--force" in message
    assert mirror.requested == []
    official = mirror.files["/first/train.csv"]
    mirror.files["/first/train.csv"] = b"<html>please log in</html>"
    message = run("inli", "--force", code=2)
    assert f"{mirror.url}/first/train.csv: not the official file" in message
    assert hashlib.sha256(official).hexdigest() in message
    assert files_of(data) == {"INLI/train.csv": b"mine"}
    mirror.files["/first/train.csv"] = official
    mirror.faults["/first/train.csv"] = [503, 0, 429]
    run("inli", "--force")
    assert files_of(data) == INLI


def test_a_folder_as_source(mirror, run, data, tmp_path):
    for name, content in INLI.items():
        (tmp_path / name[5:]).write_bytes(content)
    run("inli", "--source", str(tmp_path))
    assert files_of(data) == INLI
    assert "snli_1.0.zip: No such file" in run("snli", "--source", str(tmp_path), code=2)
    (tmp_path / "snli_1.0.zip").write_bytes(packed(MEMBERS))
    run("snli", "--source", str(tmp_path))
    assert files_of(data) == INLI | SNLI
    assert mirror.requested == []


def test_check_reports_all_faults_and_fetches_nothing(mirror, run, data):
    (data / "INLI/val.csv").write_bytes(INLI["INLI/val.csv"])
    (data / "INLI/test.csv.gz").write_bytes(gzip.compress(INLI["INLI/test.csv"])[:-20])
    message = run("inli", "--check", code=2)
    assert f"{data}/INLI/train.csv: cannot be read: No such file" in message
    assert f"{data}/INLI/test.csv.gz: the compressed data is cut off" in message
    (data / "INLI/test.csv.gz").unlink()
    assert mirror.requested == []
    run("inli")
    assert f"{data}/INLI/val.csv: ok, " in run("inli", "--check")


def test_without_a_name_the_corpora_are_listed(run, data):
    (data / "INLI/val.csv.gz").write_bytes(b"")
    lines = [line.split() for line in run().splitlines()]
    assert ["val", "1000", "rows", "INLI/val.csv", "is", "there"] in lines
    assert ["train", "8000", "rows", "INLI/train.csv", "is", "missing"] in lines
    assert {f"{name}:" for name in CORPORA} <= {line[0] for line in lines if line}
    assert "fetches nothing: unpack SemEval's" in run("sts12", code=2)


def test_an_unknown_name_is_reported_without_torch():
    code = "import sys; from lightning_cse.prepare import main; sys.exit(main() + 10 * ('torch' in sys.modules))"
    command = [sys.executable, "-c", code, "inly"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown corpus 'inly' - did you mean 'inli'?")


def test_an_archive_is_fetched_once(mirror, run, data):
    mirror.faults[ARCHIVE] = [0, 500]
    output = run("snli")
    assert mirror.requested.count(ARCHIVE) == 3
    assert files_of(data) == SNLI
    assert f"{data}/SNLI/{DEV}: fetched from {mirror.url}{ARCHIVE}/{DEV}, 60 rows" in output
    mirror.requested.clear()
    run("snli")
    assert mirror.requested == []


SHORTER = b"".join(MEMBERS[DEV].splitlines(keepends=True)[:59])


@pytest.mark.parametrize(
    ("body", "message", "kept"),
    [
        (packed(MEMBERS | {DEV: SHORTER}), f"/{DEV}: 59 rows in split 'dev', expected 60\n", 1),
        (packed({DEV: b"{}\n"}), ": not the official zip archive: There is no item named", 0),
        (packed(MEMBERS)[:900], ": not the official zip archive: ", 0),
    ],
)
def test_a_wrong_archive(mirror, run, data, body, message, kept):
    mirror.files[ARCHIVE] = body
    assert f"error: {mirror.url}{ARCHIVE}{message}" in run("snli", code=2)
    assert len(files_of(data)) == kept
