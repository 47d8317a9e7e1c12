"""``python -m lightning_cse.prepare`` against a local web server, folders and a hub that gives what the test says."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import os
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pooch
import pytest

from lightning_cse import prepare
from lightning_cse.data.corpora import CORPORA, Corpus, find_file, read_corpus, sample_dir

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
    monkeypatch.setattr(pooch.core, "time", SimpleNamespace(sleep=lambda seconds: None))


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
    message = message[message.index("error: ") :]  # behind the lines of pooch
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
    assert f"{mirror.url}/inli/train.csv: HTTPError: 500 Server Error: Internal Server Error (4 attempts)" in message
    assert mirror.asked == ["/inli/train.csv"] * 4 + ["/second/train.csv"]
    assert there(tmp_path) == set()


def test_no_network_says_what_to_do(
    mirror: Mirror, dead_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(capsys, "inli", "--data-dir", str(tmp_path), "--source", dead_url)
    assert f"{dead_url}/train.csv: ConnectionRefusedError: " in message
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
    assert f"{tmp_path}/file: cannot be written: File exists" in message


def test_check_tells_all_faults_and_fetches_nothing(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "INLI").mkdir()
    (tmp_path / "INLI/val.csv").write_bytes(FILES["/inli/val.csv"])
    (tmp_path / "INLI/test.csv.gz").write_bytes(gzip.compress(FILES["/inli/test.csv"])[:-20])
    message = refused(capsys, "inli", "--data-dir", str(tmp_path), "--check")
    assert "corpus 'inli': 2 of 3 files failed the check" in message
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
    assert f"data directory: {tmp_path} " in output
    assert "  val       1000 rows  is there    INLI/val.csv.gz\n" in output
    assert "  train     8000 rows  is missing  INLI/train.csv\n" in output
    assert "  dev       1500 rows  is missing  STS/STSBenchmark/sts-dev.csv\n" in output


def test_a_split_of_several_files_is_one_line_of_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "SNLI/senteval").mkdir(parents=True)
    for name in ("s1.dev", "s2.dev.gz", "labels.dev", "s2.test"):
        (tmp_path / "SNLI/senteval" / name).write_bytes(b"")
    assert prepare.main(["--data-dir", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "  dev      9842 rows  is there    SNLI/senteval/s1.dev and 2 more\n" in output
    part = "  test     9824 rows  is in part  SNLI/senteval/s2.test and 2 more; SNLI/senteval/s1.test is missing\n"
    assert part in output


def test_every_corpus_has_its_place_in_the_list_and_no_line_is_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare.main(["--data-dir", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    for corpus in CORPORA.values():
        assert output.count(f"\n\n{corpus.name}: {corpus.title}\n") == 1
    assert output.count("\n  ") == sum(2 + len(corpus.splits) for corpus in CORPORA.values())
    assert max(map(len, output.splitlines()[1:])) <= 160


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
    assert len(rows) == 1500
    assert [rows[7][name] for name in rows.names] == ["One 7.", "Two 7.", 2.5]
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
    assert "offline mode is on (HF_HUB_OFFLINE=1)" in message
    assert f"put the file at {tmp_path}/STS/STSBenchmark/sts-train.csv" in message


def test_as_a_command_without_traceback_and_without_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lightning_cse.prepare", "inly", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"error: unknown corpus 'inly' - did you mean 'inli'?; known: {', '.join(CORPORA)}\n"
    code = "import sys, lightning_cse.prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Zip archives


MEMBERS = {
    f"snli_1.0/snli_1.0_{split}.jsonl": (sample_dir() / f"SNLI/snli_1.0/snli_1.0_{split}.jsonl").read_bytes()
    for split in ("train", "dev", "test")
}
ARCHIVE = "/snli/snli_1.0.zip"


def packed(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("snli_1.0")
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def give_snli(monkeypatch: pytest.MonkeyPatch, mirror: Mirror, **changes: object) -> None:
    """Make the sample the official SNLI, with 60 rows a split and an archive on the server."""
    files = tuple(dataclasses.replace(file, rows=60, **changes) for file in CORPORA["snli"].files)
    sources = (f"{mirror.url}/first", f"{mirror.url}/snli")
    monkeypatch.setitem(CORPORA, "snli", dataclasses.replace(CORPORA["snli"], files=files, sources=sources))
    mirror.files[ARCHIVE] = packed({"snli_1.0/README.txt": b"Read me.", **MEMBERS})


@pytest.fixture
def archive(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    give_snli(monkeypatch, mirror)
    return mirror


def test_an_archive_is_fetched_once_a_run_and_not_kept(
    archive: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tuple(dataclasses.replace(file, path=f"again/{file.member}") for file in CORPORA["snli"].files)
    monkeypatch.setitem(CORPORA, "again", dataclasses.replace(CORPORA["snli"], name="again", files=files))
    assert prepare.main(["snli", "again", "--data-dir", str(tmp_path)]) == 0
    assert archive.asked.count(ARCHIVE) == 1
    assert there(tmp_path) == {f"{folder}/{member}" for folder in ("SNLI", "again") for member in MEMBERS}
    for member, data in MEMBERS.items():
        assert (tmp_path / "SNLI" / member).read_bytes() == data
    output = capsys.readouterr().out
    fetched = f"{tmp_path}/SNLI/snli_1.0/snli_1.0_dev.jsonl: fetched from {archive.url}{ARCHIVE}/snli_1.0/"
    assert f"{fetched}snli_1.0_dev.jsonl, 60 rows (its official digest is not known)" in output


def test_an_archive_is_not_fetched_where_its_files_are_right(archive: Mirror, tmp_path: Path) -> None:
    assert prepare.main(["snli", "--data-dir", str(tmp_path)]) == 0
    archive.asked.clear()
    assert prepare.main(["snli", "--data-dir", str(tmp_path)]) == 0
    assert prepare.main(["snli", "--data-dir", str(tmp_path), "--check"]) == 0
    assert archive.asked == []


def test_what_comes_out_of_an_archive_is_counted(
    archive: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dev = "snli_1.0/snli_1.0_dev.jsonl"
    archive.files[ARCHIVE] = packed(MEMBERS | {dev: b"".join(MEMBERS[dev].splitlines(keepends=True)[:59])})
    message = refused(capsys, "snli", "--data-dir", str(tmp_path))
    assert message.startswith(f"error: {archive.url}{ARCHIVE}/{dev}: 59 rows, expected 60\n")
    assert there(tmp_path) == {"SNLI/snli_1.0/snli_1.0_train.jsonl"}
    archive.files[ARCHIVE] = packed(MEMBERS | {dev: MEMBERS[dev] + b"{}\n"})
    message = refused(capsys, "snli", "--data-dir", str(tmp_path))
    assert message.startswith(f"error: {archive.url}{ARCHIVE}/{dev}:61: missing key 'sentence1'")


def test_the_digest_of_what_comes_out_of_an_archive_decides_where_it_is_known(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = "snli_1.0/snli_1.0_train.jsonl"
    give_snli(monkeypatch, mirror, sha256=hashlib.sha256(MEMBERS[train]).hexdigest())
    message = refused(capsys, "snli", "--data-dir", str(tmp_path))  # 60 rows each, but only train has that digest
    assert "snli_1.0_dev.jsonl: not the official file" in message
    assert there(tmp_path) == {f"SNLI/{train}"}


def test_an_archive_that_lacks_a_file(archive: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = "snli_1.0/snli_1.0_test.jsonl"
    archive.files[ARCHIVE] = packed({name: data for name, data in MEMBERS.items() if name != test})
    message = refused(capsys, "snli", "--data-dir", str(tmp_path))
    assert message.startswith(f"error: {archive.url}{ARCHIVE}: not the official zip archive: There is no item named")
    assert there(tmp_path) == {f"SNLI/{member}" for member in MEMBERS if member != test}


@pytest.mark.parametrize("fault", ["page", "cut", "flipped"])
def test_a_broken_archive(archive: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str) -> None:
    whole = archive.files[ARCHIVE]
    middle = len(whole) // 2
    body = {
        "page": b"<html>moved</html>",
        "cut": whole[:middle],
        "flipped": whole[:1000] + bytes(255 - byte for byte in whole[1000:1100]) + whole[1100:],
    }[fault]
    archive.files[ARCHIVE] = body
    message = refused(capsys, "snli", "--data-dir", str(tmp_path))
    assert message.startswith(f"error: {archive.url}{ARCHIVE}: not the official zip archive: ")
    assert there(tmp_path) == set()


def test_an_archive_that_no_address_has(archive: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del archive.files[ARCHIVE]
    message = refused(capsys, "snli", "--data-dir", str(tmp_path))
    assert f"{archive.url}/first/snli_1.0.zip: 404 Client Error" in message
    assert f"{archive.url}{ARCHIVE}: 404 Client Error" in message
    assert f"put the file at {tmp_path}/SNLI/snli_1.0/snli_1.0_train.jsonl; the official file is snli_1.0/" in message
    assert f"snli_1.0_train.jsonl in {archive.url}/first/snli_1.0.zip\n" in message
    assert there(tmp_path) == set()


def test_an_archive_whose_body_breaks_off_is_fetched_again(archive: Mirror, tmp_path: Path) -> None:
    archive.faults[ARCHIVE] = ["cut", 500]
    assert prepare.main(["snli", "--data-dir", str(tmp_path)]) == 0
    assert archive.asked.count(ARCHIVE) == 3
    assert there(tmp_path) == {f"SNLI/{member}" for member in MEMBERS}


@pytest.mark.parametrize("layout", ["snli_1.0.zip", "snli_1.0", "SNLI/snli_1.0"])
def test_a_folder_may_hold_the_archive_or_what_was_in_it(archive: Mirror, tmp_path: Path, layout: str) -> None:
    source = tmp_path / "stick"
    source.mkdir()
    if layout.endswith(".zip"):
        (source / layout).write_bytes(archive.files[ARCHIVE])
    else:
        (source / layout).mkdir(parents=True)
        for member, data in MEMBERS.items():
            name = member.rpartition("/")[2]
            (source / layout / f"{name}.gz").write_bytes(gzip.compress(data))
    folder = tmp_path / "data"
    assert prepare.main(["snli", "--data-dir", str(folder), "--source", str(source)]) == 0
    assert {name: (folder / "SNLI" / name).read_bytes() for name in MEMBERS} == MEMBERS
    assert there(folder) == {f"SNLI/{member}" for member in MEMBERS}
    assert archive.asked == []
    assert not layout.endswith(".zip") or there(source) == {layout}


def test_a_folder_without_the_archive(archive: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "snli", "--data-dir", str(tmp_path / "data"), "--source", str(tmp_path))
    assert message.startswith(f"error: {tmp_path}: has none of snli_1.0/snli_1.0_train.jsonl, ")
    assert message.endswith("SNLI/snli_1.0/snli_1.0_train.jsonl.gz, snli_1.0.zip\n")


# Files of several splits, splits of several files


@pytest.fixture
def shared(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A corpus of two files: one with three splits, which a column tells apart, and one with a fourth."""
    dev, test = CORPORA["snli"].files[1:]
    labels = {"entailment": 20, "neutral": 18, "contradiction": 20}
    known = {"remote": "all.jsonl", "member": None, "sha256": hashlib.sha256(MEMBERS[dev.member or ""]).hexdigest()}
    parts = (
        dataclasses.replace(dev, split=label, rows=rows, only=("label", label), **known)
        for label, rows in labels.items()
    )
    rest = dataclasses.replace(test, rows=60, remote="rest.jsonl", member=None)
    sources = (f"{mirror.url}/shared",)
    corpus = dataclasses.replace(CORPORA["snli"], name="shared", files=(*parts, rest), sources=sources, hub=None)
    monkeypatch.setitem(CORPORA, "shared", corpus)
    mirror.files |= {"/shared/all.jsonl": MEMBERS[dev.member or ""], "/shared/rest.jsonl": MEMBERS[test.member or ""]}
    return corpus


def test_a_file_of_several_splits_is_fetched_and_told_once(
    mirror: Mirror, shared: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shared.files[0].path
    assert prepare.main(["shared", "--data-dir", str(tmp_path)]) == 0
    assert mirror.asked == ["/shared/all.jsonl", "/shared/rest.jsonl"]
    told = "58 rows (entailment 20, neutral 18, contradiction 20)\n"
    assert f"{tmp_path}/{path}: fetched from {mirror.url}/shared/all.jsonl, {told}" in capsys.readouterr().out
    assert prepare.main(["shared", "--data-dir", str(tmp_path), "--check"]) == 0
    right = capsys.readouterr().out.splitlines()
    assert right[0] == f"{tmp_path}/{path}: ok, {told.strip()}"
    assert len(right) == 2
    (tmp_path / path).unlink()
    assert "corpus 'shared': 1 of 2 files failed the check" in refused(
        capsys, "shared", "--data-dir", str(tmp_path), "--check"
    )


def test_each_split_of_a_file_is_counted_where_the_digest_is_not_known(
    mirror: Mirror, shared: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tuple(dataclasses.replace(file, sha256=None) for file in shared.files)
    monkeypatch.setitem(CORPORA, "shared", dataclasses.replace(shared, files=files))
    rows = mirror.files["/shared/all.jsonl"].splitlines(keepends=True)
    last = max(number for number, row in enumerate(rows) if b'"gold_label": "neutral"' in row)
    mirror.files["/shared/all.jsonl"] = b"".join(rows[:last] + rows[last + 1 :])
    message = refused(capsys, "shared", "--data-dir", str(tmp_path))
    assert f"{mirror.url}/shared/all.jsonl: 17 rows in split 'neutral', expected 18" in message
    assert there(tmp_path) == set()


def test_all_files_of_a_split_are_fetched(mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    official = CORPORA["snli_senteval"]
    sample = {file.path: (sample_dir() / file.path).read_bytes() for file in official.files}
    files = tuple(
        dataclasses.replace(file, rows=58, sha256=hashlib.sha256(sample[file.path]).hexdigest())
        for file in official.files
    )
    changed = dataclasses.replace(official, files=files, sources=(f"{mirror.url}/senteval",))
    monkeypatch.setitem(CORPORA, "snli_senteval", changed)
    mirror.files |= {f"/senteval/{file.remote}": sample[file.path] for file in files}
    assert prepare.main(["snli_senteval", "--data-dir", str(tmp_path)]) == 0
    assert mirror.asked == [f"/senteval/{name}.{split}" for split in ("dev", "test") for name in ("s1", "s2", "labels")]
    assert {path: (tmp_path / path).read_bytes() for path in there(tmp_path)} == sample
    assert len(read_corpus("snli_senteval", "dev", tmp_path)) == 58


def test_what_cannot_be_fetched_is_told_with_where_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(capsys, "sts12", "--data-dir", str(tmp_path))
    assert message.startswith("error: STS/STS12-en-train/STS.input.MSRpar.txt: fetches nothing: unpack SemEval's")
    assert f"put the file at {tmp_path}/STS/STS12-en-train/STS.input.MSRpar.txt\n" in message
    assert "lightning_cse.prepare sts12 --source URL-or-folder" in message
    message = refused(capsys, "ngcse", "--data-dir", str(tmp_path))
    assert "put the rows there, a JSON object a line" in message
    assert there(tmp_path) == set()


def test_the_digest_decides_also_where_nothing_can_be_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = "STS/STS12-en-train/STS.input.MSRvid.txt"
    (tmp_path / pairs).parent.mkdir(parents=True)
    (tmp_path / pairs).write_bytes(b"A plane .\tPlanes .\n" * 750)  # as many rows, another text
    message = refused(capsys, "sts12", "--data-dir", str(tmp_path), "--check")
    assert f"{tmp_path}/{pairs}: not the official file" in message
    assert f"{tmp_path}/STS/STS12-en-train/STS.gs.MSRvid.txt: missing" in message
    assert "16 of 16 files failed the check" in message


@pytest.mark.skipif(not REAL_DATA, reason="LIGHTNING_CSE_DATA is not set: no real corpora")
def test_real_corpora_are_right() -> None:
    found = [name for name, corpus in CORPORA.items() if any(find_file(Path(REAL_DATA), file) for file in corpus.files)]
    assert {"sts12", "sts13", "sts14", "sts15", "sts16", "mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"} <= set(
        found
    )
    assert {"inli", "stsb", "snli_senteval", "snli_partial", "snli_sample", "snli_counterfactual"} <= set(found)
    assert prepare.main([*found, "--check", "--data-dir", REAL_DATA]) == 0
