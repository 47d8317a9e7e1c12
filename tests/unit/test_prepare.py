"""``python -m lightning_cse.prepare`` with folders, and a web server, in place of the official
addresses.
"""

import gzip
import hashlib
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pooch
import pytest

from lightning_cse import prepare
from lightning_cse.data.declarations import CORPORA, sample_dir

INLI = ("INLI/train.csv", "INLI/val.csv", "INLI/test.csv")
MEMBERS = [f"snli_1.0/snli_1.0_{name}.jsonl" for name in ("train", "dev", "test")]
SNLI = [f"SNLI/{name}" for name in MEMBERS]
FILES = {name: (sample_dir() / name).read_bytes() for name in (*INLI, *SNLI)}
DEV = "snli_1.0/snli_1.0_dev.jsonl"


@pytest.fixture
def official(tmp_path, monkeypatch):
    """Two folders in place of the official addresses; samples are the official files of INLI and
    SNLI for the time of the test.
    """
    sources = (tmp_path / "first", tmp_path / "second")
    for folder in sources:
        folder.mkdir()

    for name in INLI:
        (sources[0] / name[5:]).write_bytes(FILES[name])

    pack(sources[1], {name: FILES[f"SNLI/{name}"] for name in MEMBERS})
    for name in ("inli", "snli"):
        files = []
        for file in CORPORA[name].files:
            digest = hashlib.sha256(FILES[file.path]).hexdigest()
            sha256 = digest if name == "inli" else None
            files.append(file.model_copy(update={"rows": 60, "sha256": sha256}))

        fields = {"sources": tuple(map(str, sources)), "files": tuple(files)}
        monkeypatch.setitem(CORPORA, name, CORPORA[name].model_copy(update=fields))

    return tmp_path


def pack(folder, members):
    with zipfile.ZipFile(folder / "snli_1.0.zip", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


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
        output = capsys.readouterr()
        assert "Traceback" not in output.err

        return output.err if code else output.out

    return prepared


def files_of(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_files_are_fetched_and_kept_after_a_failure(official, run, data):
    test = (official / "first/test.csv").rename(official / "test.csv")
    message = run("inli", code=2)
    for address in ("first", "second"):
        assert f"{official}/{address}/test.csv: {official}/{address}/test.csv: No such" in message

    assert f"put the file at {data}/INLI/test.csv" in message
    assert files_of(data).keys() == {*INLI[:2]}
    test.rename(official / "second/test.csv")
    output = run("inli")
    assert files_of(data) == {name: FILES[name] for name in INLI}
    assert f"{data}/INLI/val.csv: ok" in output
    assert f"{data}/INLI/test.csv: fetched from {official}/second/test.csv" in output
    assert "CC BY-SA 4.0" in output


def test_files_are_downloaded_from_a_mirror(official, run, data, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(pooch.core, "time", SimpleNamespace(sleep=lambda seconds: None))
    handler = partial(SimpleHTTPRequestHandler, directory=official)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert "HTTPError: 404" in run("inli", "--source", f"{url}/none", code=2)
        run("inli", "--source", f"{url}/first/")
        output = run("snli", "--source", f"{url}/second")
        server.shutdown()

    assert files_of(data) == FILES
    assert f"{data}/SNLI/{DEV}: fetched from {url}/second/snli_1.0.zip/{DEV}, 60 rows" in output


def test_wrong_files_are_replaced_only_with_force_and_by_official_ones(official, run, data):
    path = data / "INLI/train.csv"
    path.write_text("mine")
    message = run("inli", code=2)
    assert f"{path}: not the official file" in message
    assert "--force" in message
    (official / "first/train.csv").write_text("<html>please log in</html>")
    message = run("inli", "--force", code=2)
    assert f"{official}/first/train.csv: not the official file" in message
    assert hashlib.sha256(FILES["INLI/train.csv"]).hexdigest() in message
    assert files_of(data) == {"INLI/train.csv": b"mine"}
    (official / "first/train.csv").write_bytes(FILES["INLI/train.csv"])
    run("inli", "--force")
    assert path.read_bytes() == FILES["INLI/train.csv"]


def test_check_reports_all_faults_and_fetches_nothing(official, run, data):
    (data / "INLI/val.csv").write_bytes(FILES["INLI/val.csv"])
    (data / "INLI/test.csv.gz").write_bytes(gzip.compress(FILES["INLI/test.csv"])[:-20])
    message = run("inli", "--check", code=2)
    assert f"{data}/INLI/train.csv: cannot be read: No such file" in message
    assert f"{data}/INLI/test.csv.gz: the compressed data is cut off" in message
    (data / "INLI/test.csv.gz").unlink()
    run("inli")
    assert f"{data}/INLI/val.csv: ok, " in run("inli", "--check")


@pytest.mark.parametrize("path", ["../outside.tsv", "/tmp/outside.tsv", "mine/../../outside.tsv"])
def test_a_corpus_of_ones_own_stays_in_the_data_directory(path, run, data, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "outside.tsv").write_text("text\na\n")
    (tmp_path / "mine" / "corpora.yaml").write_text(
        f"leaving:\n  files: [{{split: train, path: {path}}}]\n"
        f"  layout: {{reader: tsv, columns: [text]}}\n  sources: [{tmp_path / 'source'}]\n"
    )
    words = ["inli", "leaving", "--config-dir", str(tmp_path / "mine"), "--data-dir", str(data)]
    try:
        assert prepare.main(words) == 2
    finally:
        CORPORA.pop("leaving", None)

    printed = capsys.readouterr()
    assert f"corpus 'leaving': {path} leaves the data directory" in printed.err
    assert printed.out == ""
    assert not any(file.name == "outside.tsv" for file in data.rglob("*"))
    assert not (tmp_path / "outside.tsv").exists()


def test_without_a_name_the_corpora_are_listed(run, data):
    (data / "INLI/val.csv.gz").write_bytes(b"")
    lines = [line.split() for line in run().splitlines()]
    assert ["val", "1000", "rows", "INLI/val.csv", "is", "there"] in lines
    assert ["train", "8000", "rows", "INLI/train.csv", "is", "missing"] in lines
    assert "fetches nothing: unpack SemEval's" in run("sts12", code=2)


@pytest.mark.parametrize(
    ("dev", "message", "file_count"),
    [
        (b"{}\n" * 59, f"/{DEV}:1: no column 'sentence1'", 1),
        (
            FILES[f"SNLI/{DEV}"].rpartition(b"\n{")[0],
            f"/{DEV}: 59 rows in split 'dev', expected",
            1,
        ),
        (None, ": not the official zip archive: File is not a zip file", 0),
    ],
)
def test_a_wrong_archive(official, run, data, dev, message, file_count):
    archive = official / "second/snli_1.0.zip"
    if dev is None:
        archive.write_bytes(archive.read_bytes()[:900])
    else:
        pack(archive.parent, {MEMBERS[0]: FILES[f"SNLI/{MEMBERS[0]}"], DEV: dev})

    assert f"error: {archive}{message}" in run("snli", code=2)
    assert len(files_of(data)) == file_count


@pytest.mark.slow
def test_sentences_are_tokenised_ahead_of_a_training(tmp_path, capsys):
    overrides = ["+experiment=gausscse", "+debug=tiny"]
    cached = f"paths.cache_dir={tmp_path}"

    def files():
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "tokens").iterdir()}

    assert prepare.main(["--tokenise", *overrides, cached]) == 0
    first = files()
    assert len(first) == 2, "the roles, and the sentences of the tasks"
    assert prepare.main(["--tokenise", *overrides, cached]) == 0
    assert files() == first
    assert prepare.main(["--tokenise", *overrides, "paths.cache_dir=null"]) == 2
    assert "paths.cache_dir: must be a folder" in capsys.readouterr().err
