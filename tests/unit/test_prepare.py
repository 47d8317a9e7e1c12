"""``python -m lightning_cse.prepare`` against a local web server, folders and a hub that gives what the test says."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_cse import prepare
from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.readers import read_corpus, sample_dir

REAL_DATA = os.environ.get("LIGHTNING_CSE_DATA", "")  # read before the tests unset it
SPLITS = ("train", "val", "test")
FILES = {f"/inli/{split}.csv": (sample_dir() / f"INLI/{split}.csv").read_bytes() for split in SPLITS}


class Mirror(ThreadingHTTPServer):
    """Serves files; ``faults[path]`` holds answers to give first: a status, or ``"cut"`` for a body that breaks off."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(FILES)
        self.faults: dict[str, list[int | str]] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Any

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        faults = self.server.faults.get(self.path, [])
        fault = faults.pop(0) if faults else None
        body = self.server.files.get(self.path)
        status = fault if isinstance(fault, int) else 404 if body is None else 200
        content = body if status == 200 and body is not None else b"no"
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("LIGHTNING_CSE_DATA", raising=False)
    monkeypatch.setattr(prepare, "FIRST_PAUSE", 0.001)


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A web server with the sample corpus, which is the official INLI for the time of the test."""
    server = Mirror()
    official = CORPORA["inli"]
    files = tuple(
        dataclasses.replace(
            file,
            rows=len(read_corpus("inli", file.split, sample_dir())),
            sha256=hashlib.sha256(FILES[f"/inli/{file.remote}"]).hexdigest(),
        )
        for file in official.files
    )
    sources = (f"{server.url}/inli", f"{server.url}/second")
    monkeypatch.setitem(CORPORA, "inli", dataclasses.replace(official, files=files, sources=sources))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def dead_url() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def there(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command, which must exit with 2, and return its message."""
    assert prepare.main(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert "Traceback" not in message
    return message


def test_all_files_are_fetched_and_checked(mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main(["inli", "--data-dir", str(tmp_path)]) == 0
    assert mirror.asked == [f"/inli/{split}.csv" for split in SPLITS]
    assert there(tmp_path) == {f"INLI/{split}.csv" for split in SPLITS}
    for split in SPLITS:
        assert (tmp_path / f"INLI/{split}.csv").read_bytes() == FILES[f"/inli/{split}.csv"]
    output = capsys.readouterr().out
    assert "CC BY-SA 4.0" in output
    assert f"{tmp_path}/INLI/train.csv: fetched from {mirror.url}/inli/train.csv, 595 rows" in output


def test_the_variable_gives_the_folder(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTNING_CSE_DATA", str(tmp_path / "corpora"))
    assert prepare.main(["inli"]) == 0
    assert there(tmp_path) == {f"corpora/INLI/{split}.csv" for split in SPLITS}


def test_right_files_are_kept_plain_or_packed(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "INLI").mkdir()
    (tmp_path / "INLI/val.csv").write_bytes(FILES["/inli/val.csv"])
    (tmp_path / "INLI/train.csv.gz").write_bytes(gzip.compress(FILES["/inli/train.csv"]))
    assert prepare.main(["inli", "--data-dir", str(tmp_path)]) == 0
    assert mirror.asked == ["/inli/test.csv"]
    assert there(tmp_path) == {"INLI/train.csv.gz", "INLI/val.csv", "INLI/test.csv"}


def test_what_was_fetched_before_a_failure_is_kept_and_not_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    body = mirror.files.pop("/inli/test.csv")
    assert prepare.main(["inli", "--data-dir", str(tmp_path)]) == 2
    assert there(tmp_path) == {"INLI/train.csv", "INLI/val.csv"}
    mirror.files["/inli/test.csv"] = body
    mirror.asked.clear()
    assert prepare.main(["inli", "--data-dir", str(tmp_path)]) == 0
    assert mirror.asked == ["/inli/test.csv"]


def test_a_wrong_digest_shows_both_and_keeps_nothing(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b"<html>please log in</html>"
    mirror.files["/inli/train.csv"] = body
    message = refused(capsys, "inli", "--data-dir", str(tmp_path))
    assert f"{mirror.url}/inli/train.csv: not the official file (26 bytes, and it is an HTML page)" in message
    assert hashlib.sha256(body).hexdigest() in message
    assert CORPORA["inli"].split_files("train")[0].sha256 in message
    assert there(tmp_path) == set()
    assert mirror.asked == ["/inli/train.csv"]


def test_a_file_that_differs_is_left_alone_unless_forced(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "INLI/train.csv"
    path.parent.mkdir()
    path.write_text("mine")
    message = refused(capsys, "inli", "--data-dir", str(tmp_path))
    assert f"{path}: not the official file (4 bytes)" in message
    assert "--force" in message
    assert path.read_text() == "mine"
    assert mirror.asked == []
    assert prepare.main(["inli", "--data-dir", str(tmp_path), "--force"]) == 0
    assert path.read_bytes() == FILES["/inli/train.csv"]


def test_404_goes_to_the_next_address_then_stops(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.files["/second/train.csv"] = mirror.files.pop("/inli/train.csv")
    del mirror.files["/inli/val.csv"]
    message = refused(capsys, "inli", "--data-dir", str(tmp_path))
    assert mirror.asked == ["/inli/train.csv", "/second/train.csv", "/inli/val.csv", "/second/val.csv"]
    assert f"{mirror.url}/inli/val.csv: 404 Client Error" in message
    assert f"{mirror.url}/second/val.csv: 404 Client Error" in message
    assert f"put the file at {tmp_path}/INLI/val.csv" in message
    assert there(tmp_path) == {"INLI/train.csv"}


@pytest.mark.parametrize("faults", [[500], [503, 429, 502], ["cut"], ["cut", 500, "cut"]])
def test_server_errors_and_cut_bodies_are_tried_again(mirror: Mirror, tmp_path: Path, faults: list[int | str]) -> None:
    mirror.faults["/inli/train.csv"] = list(faults)
    assert prepare.main(["inli", "--data-dir", str(tmp_path)]) == 0
    assert mirror.asked.count("/inli/train.csv") == len(faults) + 1
    assert (tmp_path / "INLI/train.csv").read_bytes() == FILES["/inli/train.csv"]


def test_server_errors_without_end_are_told(mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.faults["/inli/train.csv"] = [500] * 10
    message = refused(capsys, "inli", "--data-dir", str(tmp_path))
    assert f"{mirror.url}/inli/train.csv: 500 Server Error: Internal Server Error (4 attempts)" in message
    assert mirror.asked == ["/inli/train.csv"] * 4
    assert there(tmp_path) == set()


def test_no_network_says_what_to_do(
    mirror: Mirror, dead_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(capsys, "inli", "--data-dir", str(tmp_path), "--source", dead_url)
    assert f"{dead_url}/train.csv: ConnectionError: " in message
    assert "Connection refused (4 attempts)" in message
    assert f"without a network: put the file at {tmp_path}/INLI/train.csv" in message
    assert f"the official file is {mirror.url}/inli/train.csv" in message
    assert "--source" in message
    assert mirror.asked == []


def test_a_mirror_takes_the_place_of_the_official_address(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files |= {path.replace("/inli/", "/deep/er/"): body for path, body in FILES.items()}
    assert prepare.main(["inli", "--data-dir", str(tmp_path), "--source", f"{mirror.url}/deep/er/"]) == 0
    assert mirror.asked == [f"/deep/er/{split}.csv" for split in SPLITS]


@pytest.mark.parametrize("layout", ["", "INLI/"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_folder_is_a_source_too(mirror: Mirror, tmp_path: Path, layout: str, scheme: str) -> None:
    source = tmp_path / "stick"
    (source / layout).mkdir(parents=True)
    for split in ("val", "test"):
        (source / f"{layout}{split}.csv").write_bytes(FILES[f"/inli/{split}.csv"])
    (source / f"{layout}train.csv.gz").write_bytes(gzip.compress(FILES["/inli/train.csv"]))
    folder = tmp_path / "data"
    assert prepare.main(["inli", "--data-dir", str(folder), "--source", f"{scheme}{source}"]) == 0
    assert there(folder) == {f"INLI/{split}.csv" for split in SPLITS}
    assert (folder / "INLI/train.csv").read_bytes() == FILES["/inli/train.csv"]
    assert mirror.asked == []


def test_a_folder_that_lacks_the_file_or_is_none(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(capsys, "inli", "--data-dir", str(tmp_path / "data"), "--source", str(tmp_path))
    assert f"{tmp_path}: has none of train.csv, train.csv.gz, INLI/train.csv, INLI/train.csv.gz" in message
    message = refused(capsys, "inli", "--data-dir", str(tmp_path / "data"), "--source", str(tmp_path / "none"))
    assert f"{tmp_path}/none: is no folder" in message


def test_a_data_directory_that_cannot_be_made(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    message = refused(capsys, "inli", "--data-dir", str(tmp_path / "file"))
    assert f"{tmp_path}/file/INLI/train.csv: cannot be written: Not a directory" in message


def test_check_tells_all_faults_and_fetches_nothing(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "INLI").mkdir()
    (tmp_path / "INLI/val.csv").write_bytes(FILES["/inli/val.csv"])
    (tmp_path / "INLI/test.csv.gz").write_bytes(gzip.compress(FILES["/inli/test.csv"])[:-20])
    message = refused(capsys, "inli", "--data-dir", str(tmp_path), "--check")
    assert "corpus 'inli': 2 of 3 files are not right" in message
    assert f"{tmp_path}/INLI/train.csv: missing" in message
    assert f"{tmp_path}/INLI/test.csv.gz:" in message
    assert "cut off" in message
    assert mirror.asked == []
    assert prepare.main(["inli", "--data-dir", str(tmp_path)]) == 2  # the cut file is in the way
    (tmp_path / "INLI/test.csv.gz").unlink()
    assert prepare.main(["inli", "--data-dir", str(tmp_path)]) == 0
    assert prepare.main(["inli", "--data-dir", str(tmp_path), "--check"]) == 0


def test_without_a_name_the_corpora_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "INLI").mkdir()
    (tmp_path / "INLI/val.csv.gz").write_bytes(b"")
    assert prepare.main(["--data-dir", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert f"val: {tmp_path}/INLI/val.csv.gz is there" in output
    assert f"train: {tmp_path}/INLI/train.csv is missing" in output
    assert f"dev: {tmp_path}/STS/STSBenchmark/sts-dev.csv is missing" in output


def test_an_unknown_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown corpus 'inly' - did you mean 'inli'?" in refused(capsys, "inly", "--data-dir", str(tmp_path))


def give_hub(monkeypatch: pytest.MonkeyPatch, rows: dict[str, int]) -> None:
    """Put a hub client in place whose splits have so many rows."""

    def load_dataset(name: str, *, split: str, revision: str) -> list[dict[str, object]]:
        return [{"sentence1": f"One {i}.", "sentence2": f"Two {i}.", "score": 0.5} for i in range(rows[split])]

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))


def test_stsb_from_the_hub_in_the_official_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_hub(monkeypatch, {"train": 5749, "validation": 1500, "test": 1379})
    assert prepare.main(["stsb", "--data-dir", str(tmp_path)]) == 0
    assert there(tmp_path) == {f"STS/STSBenchmark/sts-{split}.csv" for split in ("train", "dev", "test")}
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = read_corpus("stsb", "dev", tmp_path)
    assert (len(rows), rows[7]) == (1500, {"sentence1": "One 7.", "sentence2": "Two 7.", "score": 2.5})
    assert prepare.main(["stsb", "--data-dir", str(tmp_path)]) == 0  # all there: the hub is not asked
    assert prepare.main(["stsb", "--data-dir", str(tmp_path), "--check"]) == 0


def test_stsb_with_a_wrong_number_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give_hub(monkeypatch, {"train": 5749, "validation": 1499, "test": 1379})
    message = refused(capsys, "stsb", "--data-dir", str(tmp_path))
    assert "/validation: 1499 rows, expected 1500" in message
    assert there(tmp_path) == {"STS/STSBenchmark/sts-train.csv"}


def test_stsb_without_the_hub(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "stsb", "--data-dir", str(tmp_path))
    assert "switched off (HF_HUB_OFFLINE=1)" in message
    assert f"put the file at {tmp_path}/STS/STSBenchmark/sts-train.csv" in message


def test_as_a_command_without_traceback_and_without_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lightning_cse.prepare", "inly", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: unknown corpus 'inly' - did you mean 'inli'?; known: inli, stsb\n"
    code = "import sys, lightning_cse.prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not REAL_DATA, reason="LIGHTNING_CSE_DATA is not set: no real corpora")
def test_real_corpora_are_right() -> None:
    assert prepare.main([*CORPORA, "--check", "--data-dir", REAL_DATA]) == 0
