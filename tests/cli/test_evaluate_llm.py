"""``python -m lightning_cse.evaluate model=llm`` against a local server, as a user starts it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from llm_server import ChatServer

Start = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.timeout(900)  # as the other tests that start processes on a busy machine

LINE = (
    "evaluate",
    "model=llm",
    "+suite=inli",
    "corpora=sample",
    "paths=sample",
    "limits.test_rows=6",
    "limits.dev_rows=2",
)


@pytest.mark.slow
def test_ctrl_c_then_the_same_command(start: Start, tmp_path: Path, key: str) -> None:
    with ChatServer(lambda body: "Neutral.", seconds=0.02, key=key) as server:
        line = ("llm.model=some-model", f"llm.base_url={server.url}", "llm.concurrency=2")
        process = start(*LINE, *line)
        while sum(server.answered.values()) < 6 and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=200)
        assert (process.returncode, "Traceback" in stderr) == (130, False), stderr
        assert stderr.splitlines()[-1].startswith("interrupted; the same command continues")
        before = len(server.calls)
        assert before < 24
        stdout, stderr = start(*LINE, *line).communicate(timeout=200)
    assert stderr == ""  # no progress bar without a terminal
    (path,) = (tmp_path / "runs").rglob("record.json")
    assert stdout.splitlines()[-1] == f"record: {path}"
    record = json.loads(path.read_text())
    assert record["metrics"]["test/rte/accuracy_all"] == 0.5
    assert re.search(r"test/rte/accuracy_four_way +0\.2500$", stdout, re.MULTILINE)
    account = record["account"]["rte"]
    assert account["requests"] == 24
    assert account["cached"] == before, "a call under way at the interrupt is paid for"
    assert len(server.calls) == server.answered.total() == 24
    assert f"24 questions to some-model, {account['cached']} of them answered before" in stdout
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if path.suffix == ".log"]
    assert not [path for path in files if key.encode() in path.read_bytes()]
    assert key not in stdout + stderr


@pytest.mark.slow
def test_a_dead_endpoint_is_one_message(start: Start, tmp_path: Path) -> None:
    with ChatServer() as server:
        pass  # and is gone
    process = start(*LINE, "llm.model=m", f"llm.base_url={server.url}", "llm.retries=1", "llm.backoff=0.01")
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 2, stderr
    assert stderr.startswith("error: ")
    assert stderr.count("error: ") == 1
    assert server.url in stderr
    assert "Traceback" not in stdout + stderr
    assert not list((tmp_path / "runs").rglob("record.json"))
