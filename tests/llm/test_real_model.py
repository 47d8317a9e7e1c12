"""A real language model behind two real servers: `make test-llm` prepares both.

The tests of other folders ask fake servers, which fail on demand; here is what these cannot show.
"""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from language_model import NAME

pytestmark = [pytest.mark.llm, pytest.mark.timeout(3600)]

STRUCTURED = {"llama-server": True, "llama_cpp.server": False}
"""The servers, and whether they take a JSON schema: the second answers it with status 500."""


def command(server, folder, port):
    """Return the command that starts a server."""
    model = folder / f"{NAME}.gguf"
    if server == "llama-server":
        slots = ["--parallel", "4", "--ctx-size", "8192", "--alias", NAME]
        return [folder / "build/bin/llama-server", "-m", model, "--port", port, *slots]

    alias = ["--model_alias", NAME, "--n_ctx", "2048"]
    return [
        folder / "venv/bin/python",
        "-m",
        "llama_cpp.server",
        "--model",
        model,
        "--port",
        port,
        *alias,
    ]


@pytest.fixture(scope="module", params=STRUCTURED)
def endpoint(request, tmp_path_factory):
    """The name of a running server, and its address."""
    prepared = os.environ.get("LIGHTNING_CSE_LLM")
    if not prepared:
        pytest.skip("LIGHTNING_CSE_LLM is not set: make test-llm")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    log = tmp_path_factory.mktemp("server") / "log"
    arguments = command(request.param, Path(prepared), str(port))
    with log.open("w") as file:
        process = subprocess.Popen(
            list(map(str, arguments)),
            env={**os.environ, "LLAMA_CPP_LIB_PATH": f"{prepared}/build/bin"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )

    try:
        url = f"http://127.0.0.1:{port}/v1"
        deadline = time.monotonic() + 300
        while not answers(f"{url}/models"):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(1)

        yield request.param, url
    finally:
        process.terminate()
        process.wait()


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture
def start(endpoint, tmp_path, repository):
    """Start a command of the package that asks the server."""
    server, url = endpoint
    at_once = 4 if server == "llama-server" else 1

    def started(module, *overrides):
        line = [
            *(sys.executable, "-m", f"lightning_cse.{module}", *overrides),
            *("llm=llama_cpp", f"llm.model={NAME}", f"llm.base_url={url}"),
            *(f"llm.concurrency={at_once}", "corpora=sample", "paths=sample"),
            *(f"paths.runs_dir={tmp_path}/runs", f"paths.cache_dir={tmp_path}/cache"),
        ]
        environment = {**os.environ, "PYTHONPATH": str(repository / "src")}
        return subprocess.Popen(
            line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return started


def kept(tmp_path):
    """Return the number of replies in the cache."""
    path = tmp_path / "cache/llm/replies.sqlite"
    if not path.exists():
        return 0

    with closing(sqlite3.connect(path)) as connection:
        try:
            return connection.execute("SELECT COUNT(*) FROM replies").fetchone()[0]
        except sqlite3.OperationalError:
            return 0


def kill_after(process, tmp_path, replies):
    """Kill a command as soon as it has kept some replies."""
    while kept(tmp_path) < replies:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)

    process.kill()
    process.communicate()


@pytest.mark.parametrize("pattern", ["sts", "nli"])
def test_ten_rows_with_a_kill_in_between(start, tmp_path, endpoint, pattern):
    line = ("generate", f"+pattern={pattern}", "data=wiki", "n=10", "~encoder")
    kill_after(start(*line), tmp_path, 5)
    before = kept(tmp_path)
    process = start(*line)
    stdout, stderr = process.communicate()

    assert process.returncode == 0, stderr
    (path,) = tmp_path.glob("runs/generate/*/*/*.provenance.json")
    provenance = json.loads(path.read_text())
    rows = [json.loads(row) for row in path.with_name(f"wiki_{pattern}.jsonl").open()]
    assert len({row["anchor"] for row in rows}) == 10
    assert all(len(set(row.values())) == len(provenance["pattern"]["roles"]) + 1 for row in rows)
    assert provenance["structured_output"] == STRUCTURED[endpoint[0]]
    # Each reply is kept once, and none that was kept before the kill was asked for again.
    requests = sum(role["asked"] for role in provenance["acceptance"]["roles"].values())
    assert kept(tmp_path) == requests
    assert f"{requests:,} questions, {before:,} of them in the cache, 0 failed" in stdout + stderr


def test_twenty_pairs_with_a_kill_in_between(start, tmp_path):
    line = ("evaluate", "model=llm", "+suite=inli", "limits.test_rows=5")
    kill_after(start(*line), tmp_path, 3)
    before = kept(tmp_path)
    process = start(*line)
    _, stderr = process.communicate()

    assert process.returncode == 0, stderr
    (path,) = (tmp_path / "runs/evaluate").rglob("record.json")
    record = json.loads(path.read_text())
    account = record["account"]["rte"]
    assert (account["requests"], account["failed"]) == (20, 0)
    assert account["cached"] >= before
    assert record["metrics"]["test/rte/failed"] == 0
    assert 0 <= record["metrics"]["test/rte/accuracy_all"] <= 1
