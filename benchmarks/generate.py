"""Whether generation loses nothing and pays nothing twice: thousands of sentences, a server that fails, two kills.

    make bench-generate                                  # or: python benchmarks/generate.py
    make bench-generate ARGS="--n 2000 --json generate.json"

The command is started as a user starts it, on made-up sentences, with the pattern of STS and 64 calls at once. A server
of this machine answers by rules; one call in ten meets a fault of the way (status 429, 500, 503, a broken connection,
half an answer, no JSON, no end), and one reply in twenty is none of its role (an echo, a refusal, several sentences).
The command is killed (SIGKILL) after a third and after two thirds of its replies, and given again. What must hold then:

- every sentence has a row or is listed as given up, none twice, and the rows are as many as were asked for;
- no role that was finished before a kill (its reply lies in the cache) was asked for after it;
- replies that were answered and are not kept are no more than the calls under way at the two kills.

Memory is what the command's process holds (RssAnon of Linux), looked at every half second, by the share of replies.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
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
WORDS = (ROOT / "src/lightning_cse/data/sample/STS/STSBenchmark/sts-train.csv").read_text(encoding="utf-8").split()
KILLS = (1 / 3, 2 / 3)
ROLES = 3


class CountingServer(ChatServer):
    """A server that counts and forgets, so that sixty thousand calls fit its memory."""

    def __init__(self) -> None:
        super().__init__(answer, plan)
        self.asked: Counter[int] = Counter()  # by the messages' hash, all calls
        self.done: Counter[int] = Counter()  # those that were answered in full
        self.faults: Counter[str] = Counter()

    def begin(self, body: dict[str, Any], authorization: str | None) -> str | None:
        """Note a call."""
        fault = super().begin(body, authorization)
        with self.lock:
            self.calls.clear()
            self.asked[key(body["messages"])] += 1
            self.faults.update([fault] if fault else [])
        return fault

    def end(self, body: dict[str, Any], answered: bool) -> None:
        """Note that a call is over."""
        super().end(body, answered)
        with self.lock:
            self.answered.clear()
            self.done[key(body["messages"])] += answered


def key(messages: list[dict[str, str]]) -> int:
    """Return what tells one request from others."""
    return hash(tuple((each["role"], each["content"]) for each in messages))


def plan(body: dict[str, Any], nth: int) -> str | None:
    """Return the fault that a call meets, if any."""
    draw = random.Random(f"{nth} {body['messages'][0]['content'][:80]} {prompt(body)}")  # noqa: S311 - no secret
    return draw.choice(TRANSIENT) if draw.random() < FAULTS else None


def answer(body: dict[str, Any]) -> str:
    """Return a sentence of the role that is asked for, as a rule; a server does not know which, so the prompt tells."""
    sentence, system = prompt(body), body["messages"][0]["content"]
    words = sentence.rstrip(".").split()
    draw = random.Random(f"{sentence} {system[:200]} {time.monotonic_ns()}")  # noqa: S311 - no secret
    if draw.random() < 0.05:
        return draw.choice((sentence, "I'm sorry, but I can't help with that.", "One thing. Another thing. A third."))
    if "fewer details" in system:
        return " ".join(words[: max(1, len(words) // 2)]) + "."
    first, rest = words[0], words[1:]
    mark = "indeed" if len(words) % 2 else "then"
    return " ".join([*rest[::-1], first.lower(), mark]).capitalize() + "."


def sentences(count: int) -> Iterator[str]:
    """Yield distinct made-up sentences."""
    draw = random.Random(0)  # noqa: S311 - no secret
    words = sorted({word.strip(".,\"'").lower() for word in WORDS if word.isalpha()})
    for number in range(count):
        chosen = [draw.choice(words) for _ in range(draw.randint(8, 16))]
        yield " ".join([chosen[0].capitalize(), *chosen[1:], f"number{number}"]) + "."


class Memory:
    """What a process holds, by how far the work is."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def look(self, pid: int, share: float) -> None:
        """Note what a process holds now."""
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        except OSError:
            return
        held = next((line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")), None)
        if held is not None:
            self.seen.append((share, int(held) / 1024))

    def at(self, low: float, high: float) -> float | None:
        """Return the most that was held, in MiB, while the share was between these."""
        return max((held for share, held in self.seen if low <= share < high), default=None)


def kept(cache: Path) -> Counter[int]:
    """Return how many replies the cache holds, by what was asked."""
    if not cache.is_file():
        return Counter()
    found: Counter[int] = Counter()
    with sqlite3.connect(f"file:{cache}?mode=ro", uri=True) as connection:
        standing = dict(connection.execute("SELECT digest, messages FROM standing"))
        for digest, last in connection.execute("SELECT standing, last FROM replies"):
            pairs = [*json.loads(standing[digest]), json.loads(last)]
            found[hash(tuple((role, text) for role, text in pairs))] += 1
    return found


def bench(n: int, scratch: Path) -> dict[str, Any]:
    """Generate with two kills, and return what held and what it took."""
    corpus = scratch / "sentences.txt"
    corpus.write_text("".join(f"{sentence}\n" for sentence in sentences(n + n // 10)), encoding="utf-8")
    cache = scratch / "cache" / "llm" / "replies.sqlite"
    memory, lost, asked_again, seconds = Memory(), [], 0, 0.0
    with CountingServer() as server:
        for kill in (*KILLS, None):
            before, finished = Counter(server.asked), kept(cache)
            begun = time.perf_counter()
            code = attempt(n, corpus, scratch, server, memory, kill)
            seconds += time.perf_counter() - begun
            if (kill is None) != (code == 0):
                sys.exit(f"the command ended with {code}; see {scratch / 'log.txt'}")
            now = kept(cache)
            # Of what has one reply only, none was rejected: there was nothing to be asked again.
            asked_again += sum(server.asked[each] - before[each] for each in finished if now[each] == 1)
            lost.append(sum(server.done.values()) - now.total())
        calls, faults = sum(server.asked.values()), dict(server.faults.most_common())
    rows = [json.loads(line) for path in scratch.rglob("wiki_sts.jsonl") for line in path.open(encoding="utf-8")]
    given_up = [json.loads(line) for path in scratch.rglob("given_up.jsonl") for line in path.open(encoding="utf-8")]
    anchors = [row["anchor"] for row in (*rows, *given_up)]
    return {
        "n": n,
        "concurrency": CONCURRENCY,
        "rows": len(rows),
        "given_up": len(given_up),
        "anchors_twice": len(anchors) - len(set(anchors)),
        "roles_missing": sum(set(row) != {"anchor", "positive", "intermediate", "negative"} for row in rows),
        "finished_roles_asked_again": asked_again,
        "answered_and_not_kept_after_each_start": lost,
        "calls": calls,
        "faults": faults,
        "seconds": seconds,
        "calls_per_second": calls / seconds,
        "memory_mib": {f"{low:.1f}-{low + 0.1:.1f}": memory.at(low, low + 0.1) for low in (0.1, 0.3, 0.5, 0.7, 0.9)},
    }


def attempt(n: int, corpus: Path, scratch: Path, server: CountingServer, memory: Memory, kill: float | None) -> int:
    """Give the command once, kill it at its share of all replies if so asked, and return its exit code."""
    line = [sys.executable, "-m", "lightning_cse.generate", "+pattern=sts", "data=wiki", f"data.train=[{corpus}]"]
    line += [f"n={n}", "corpora=sample", "paths=sample", "~encoder", "llm.model=made-up", f"llm.base_url={server.url}"]
    line += [f"llm.concurrency={CONCURRENCY}", "llm.timeout=5", "llm.retries=8"]
    variables = {"LIGHTNING_CSE_RUNS": str(scratch / "runs"), "LIGHTNING_CSE_CACHE": str(scratch / "cache")}
    with (scratch / "log.txt").open("a", encoding="utf-8") as log:
        process = subprocess.Popen(line, env=os.environ | variables, stdout=log, stderr=log, cwd=scratch)
        stopped = threading.Event()

        def watch() -> None:
            while not stopped.wait(0.5):
                share = sum(server.done.copy().values()) / (ROLES * n)
                memory.look(process.pid, share)
                if kill is not None and share >= kill:
                    process.send_signal(signal.SIGKILL)
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        code = process.wait()
        stopped.set()
        watcher.join()
    return code


def main() -> None:
    """Read the command line, generate, and print or write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
