"""Check that generation loses no row and pays for none twice: thousands of sentences, a failing
server, two kills.

    make bench-generate                                  # or: python benchmarks/generate.py
    make bench-generate ARGS="--n 2000 --json generate.json"

The command is started as by a user, on made-up sentences, with the pattern of STS and 64
simultaneous calls. A server on this machine answers by rules. One call in ten fails (status 429,
500 or 503, a broken connection, half an answer, no JSON, no end), and one reply in twenty does not
fit its role (an echo, a refusal, several sentences). The command is killed (SIGKILL) after a third
and after two thirds of its replies, and started again. These conditions must then hold:

- every sentence has a row or is listed as given up, none twice, and there are as many rows as
  requested;
- no role that was finished before a kill (its reply is in the cache) was requested after it;
- no more replies are lost than there were open calls at the two kills.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from llm_server import TRANSIENT, ChatServer, prompt  # noqa: E402

from lightning_cse.runs import environment  # noqa: E402

CONCURRENCY = 64
FAULTS = 0.1
WORDS = (
    (ROOT / "src/lightning_cse/data/sample/STS/STSBenchmark/sts-train.csv")
    .read_text(encoding="utf-8")
    .split()
)
KILLS = (1 / 3, 2 / 3)
ROLES = 3


class CountingServer(ChatServer):
    """A server that counts calls without keeping them, and kills its client at some reply."""

    def __init__(self) -> None:
        super().__init__(answer, plan)
        self.asked: Counter[int] = Counter()  # by the messages' hash, all calls
        self.done: Counter[int] = Counter()  # those that were answered in full
        self.faults: Counter[str] = Counter()
        self.client: subprocess.Popen[bytes] | None = None
        self.kill_at: float | None = None

    def begin(self, body: dict[str, Any], authorization: str | None) -> str | None:
        """Count a call."""
        fault: str | None = super().begin(body, authorization)
        with self.lock:
            self.calls.clear()
            self.asked[key(body["messages"])] += 1
            self.faults.update([fault] if fault else [])
        return fault

    def end(self, body: dict[str, Any], answered: bool) -> None:
        """Count the end of a call, and kill the client if this is the reply to do so."""
        super().end(body, answered)
        with self.lock:
            self.answered.clear()
            self.done[key(body["messages"])] += answered
            is_due = self.kill_at is not None and self.done.total() >= self.kill_at
            if is_due and self.client is not None:
                self.client.kill()


def key(messages: list[dict[str, str]]) -> int:
    """Return a key that identifies a request."""
    return hash(tuple((message["role"], message["content"]) for message in messages))


def plan(body: dict[str, Any], nth: int) -> str | None:
    """Return the fault that a call meets, if any."""
    draw = random.Random(f"{nth} {body['messages'][0]['content'][:80]} {prompt(body)}")  # noqa: S311 - no secret
    return draw.choice(TRANSIENT) if draw.random() < FAULTS else None


def answer(body: dict[str, Any]) -> str:
    """Return a sentence, usually of the requested role, which the server recognises by the
    prompt.
    """
    sentence, system = prompt(body), body["messages"][0]["content"]
    words = sentence.rstrip(".").split()
    draw = random.Random(f"{sentence} {system[:200]} {time.monotonic_ns()}")  # noqa: S311 - no secret
    if draw.random() < 0.05:
        return draw.choice(
            (
                sentence,
                "I'm sorry, but I can't help with that.",
                "One thing. Another thing. A third.",
            )
        )
    if "fewer details" in system:
        return " ".join(words[: max(1, len(words) // 2)]) + "."
    first, tail = words[0], words[1:]
    mark = "indeed" if len(words) % 2 else "then"
    return " ".join([*tail[::-1], first.lower(), mark]).capitalize() + "."


def sentences(count: int) -> Iterator[str]:
    """Yield distinct made-up sentences."""
    draw = random.Random(0)  # noqa: S311 - no secret
    words = sorted({word.strip(".,\"'").lower() for word in WORDS if word.isalpha()})
    for number in range(count):
        chosen = [draw.choice(words) for _ in range(draw.randint(8, 16))]
        yield " ".join([chosen[0].capitalize(), *chosen[1:], f"number{number}"]) + "."


def kept(cache: Path) -> Counter[int]:
    """Return the number of replies in the cache, by the key of their request."""
    if not cache.is_file():
        return Counter()
    replies: Counter[int] = Counter()
    with sqlite3.connect(f"file:{cache}?mode=ro", uri=True) as connection:
        standing = dict(connection.execute("SELECT digest, messages FROM standing"))
        for digest, last in connection.execute("SELECT standing, last FROM replies"):
            pairs = [*json.loads(standing[digest]), json.loads(last)]
            replies[hash(tuple((role, text) for role, text in pairs))] += 1
    return replies


def bench(n: int, scratch: Path) -> dict[str, Any]:
    """Generate with two kills, and return the counts and the costs."""
    corpus = scratch / "sentences.txt"
    lines = (f"{sentence}\n" for sentence in sentences(n + n // 10))
    corpus.write_text("".join(lines), encoding="utf-8")
    cache = scratch / "cache" / "llm" / "replies.sqlite"
    lost, asked_again, seconds = [], 0, 0.0
    with CountingServer() as server:
        for share in (*KILLS, None):
            before, finished = Counter(server.asked), kept(cache)
            server.kill_at = share and share * ROLES * n
            start = time.perf_counter()
            code = attempt(n, corpus, scratch, server)
            seconds += time.perf_counter() - start
            if (share is None) != (code == 0):
                sys.exit(f"the command ended with {code}; see {scratch / 'log.txt'}")

            cached = kept(cache)
            # A request with only one reply had none rejected, so there was no reason to repeat it.
            asked_again += sum(
                server.asked[request] - before[request]
                for request in finished
                if cached[request] == 1
            )
            lost.append(server.done.total() - cached.total())

    rows, given_up = read(scratch, "wiki_sts.jsonl"), read(scratch, "given_up.jsonl")
    anchors = [row["anchor"] for row in (*rows, *given_up)]

    return {
        "n": n,
        "concurrency": CONCURRENCY,
        "rows": len(rows),
        "given_up": len(given_up),
        "anchors_twice": len(anchors) - len(set(anchors)),
        "roles_missing": sum(len(row) != 1 + ROLES for row in rows),
        "finished_roles_asked_again": asked_again,
        "answered_and_not_kept_after_each_start": lost,
        "calls": server.asked.total(),
        "faults": dict(server.faults.most_common()),
        "seconds": seconds,
        "calls_per_second": server.asked.total() / seconds,
    }


def read(folder: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of all files of a name."""
    return [json.loads(line) for path in folder.rglob(name) for line in path.open(encoding="utf-8")]


def attempt(n: int, corpus: Path, scratch: Path, server: CountingServer) -> int:
    """Run the command once, and return its exit code."""
    command = [sys.executable, "-m", "lightning_cse.generate", "+pattern=sts", "data=wiki"]
    command += [f"data.train=[{corpus}]", f"n={n}", "corpora=sample", "paths=sample", "~encoder"]
    command += ["llm.model=made-up", f"llm.base_url={server.url}", "llm.timeout=5", "llm.retries=8"]
    command += [f"llm.concurrency={CONCURRENCY}"]
    variables = {
        "LIGHTNING_CSE_RUNS": str(scratch / "runs"),
        "LIGHTNING_CSE_CACHE": str(scratch / "cache"),
    }
    with (scratch / "log.txt").open("a", encoding="utf-8") as log:
        server.client = subprocess.Popen(
            command, env=os.environ | variables, stdout=log, stderr=log, cwd=scratch
        )
        return server.client.wait()


def main() -> None:
    """Read the command line, generate, and print or write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=20_000, help="rows (default: 20000)")
    parser.add_argument("--scratch", type=Path, help="an empty folder in which all of it is kept")
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = arguments.scratch or Path(folder)
        scratch.mkdir(parents=True, exist_ok=True)
        result = bench(arguments.n, scratch.resolve())
    result["environment"] = environment()
    text = json.dumps(result, indent=2) + "\n"
    sys.stdout.write(text)
    if arguments.json:
        arguments.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
