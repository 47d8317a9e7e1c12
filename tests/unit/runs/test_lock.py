"""Locks on run folders, taken and lost by real processes."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightning_cse import runs
from lightning_cse.errors import LightningCSEError
from lightning_cse.runs import Busy, Lock, Run
from lightning_cse.runs import lock as module

SOURCE = str(Path(runs.__file__).parents[2])
HOLD = (
    "import sys, time; from pathlib import Path; from lightning_cse.runs import Lock\n"
    "with Lock(Path(sys.argv[1]), 'it'):\n"
    "    print('held', flush=True); time.sleep(60)"
)
Holder = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "lock.json"


@pytest.fixture
def holder(path: Path) -> Iterator[Holder]:
    """Start a process that holds the lock, and return when it does."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(path)]
        environment = os.environ | {"PYTHONPATH": SOURCE}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def change(path: Path, **values: Any) -> None:
    """Write another claim into a lock that is there."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def aged(path: Path, seconds: float) -> None:
    at = time.time() - seconds
    os.utime(path, (at, at))


def left_behind(path: Path, **values: Any) -> None:
    """Leave a lock of a process that is no more, or of another machine."""
    with Lock(path, "it"):
        text = path.read_text()
    path.write_text(text)
    change(path, **({"process": "0"} | values))


ELSEWHERE = {"host": "elsewhere", "system": "another boot", "pid": 7}


class TestHolding:
    def test_held_while_the_block_runs_and_no_longer(self, path: Path) -> None:
        with Lock(path, "it") as lock:
            assert path.is_file()
            assert lock.held
            owner = lock.owner()
            assert owner is not None
            assert (owner.pid, owner.host) == (os.getpid(), module._here()[0])
            assert abs(owner.started.timestamp() - time.time()) < 5
        assert not lock.held
        assert lock.owner() is None
        assert list(path.parent.iterdir()) == []

    @pytest.mark.parametrize("ending", [ValueError, KeyboardInterrupt, SystemExit])
    def test_released_on_every_way_out(self, path: Path, ending: type[BaseException]) -> None:
        with pytest.raises(ending), Lock(path, "it"):
            raise ending
        assert list(path.parent.iterdir()) == []

    def test_this_process_cannot_take_it_twice(self, path: Path) -> None:
        with Lock(path, "it"):
            with pytest.raises(Busy, match=rf"it is being run by pid {os.getpid()} on "), Lock(path, "it"):
                pass
            assert path.is_file(), "who was refused releases nothing"

    def test_the_message_names_the_owner_and_its_age(self, path: Path, holder: Holder) -> None:
        process = holder()
        aged(path, 4)
        with pytest.raises(Busy) as caught, Lock(path, "runs/x/01-s0"):
            pass
        since = r"since \d\d:\d\d \(last sign of life [45] s ago\): wait for it, or stop it"
        assert re.fullmatch(rf"runs/x/01-s0 is being run by pid {process.pid} on \S+, {since}", str(caught.value))
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.owner) == (str(caught.value), caught.value.owner)

    def test_a_holder_gives_signs_of_life(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "HEARTBEAT", 0.01)
        with Lock(path, "it"):
            aged(path, 1000)
            deadline = time.monotonic() + 10
            while time.time() - path.stat().st_mtime > 500:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def test_a_fork_holds_nothing_and_releases_nothing(self, path: Path) -> None:
        with Lock(path, "it") as lock:
            child = multiprocessing.get_context("fork").Process(target=lock.__exit__, args=(None, None, None))
            child.start()
            child.join()
            assert child.exitcode == 0
            assert path.is_file()
            assert lock.held


class TestTakingOver:
    def test_a_killed_holder_s_lock_is_free_at_once(
        self, path: Path, holder: Holder, caplog: pytest.LogCaptureFixture
    ) -> None:
        process = holder()
        process.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while Lock(path, "it").owner() is not None:  # not waited for: a zombie is dead as well
            assert time.monotonic() < deadline
        assert path.is_file()
        with caplog.at_level(logging.INFO), Lock(path, "it") as lock:
            assert lock.held
            assert json.loads(path.read_text())["pid"] == os.getpid()
        assert f"pid {process.pid} on " in caplog.text
        assert list(path.parent.iterdir()) == []

    def test_a_process_that_was_given_the_pid_anew_is_not_the_owner(self, path: Path) -> None:
        left_behind(path, pid=os.getpid(), process="1")
        assert Lock(path, "it").owner() is None
        with Lock(path, "it") as lock:
            assert lock.held

    @pytest.mark.parametrize("silence", [0, module.SILENCE - 60])
    def test_another_machine_s_lock_is_respected_while_it_gives_signs(self, path: Path, silence: float) -> None:
        left_behind(path, **ELSEWHERE)
        aged(path, silence)
        with pytest.raises(Busy, match="pid 7 on elsewhere"), Lock(path, "it"):
            pass

    def test_another_machine_s_lock_is_taken_after_its_silence(self, path: Path) -> None:
        left_behind(path, **ELSEWHERE)
        aged(path, module.SILENCE + 60)
        assert Lock(path, "it").owner() is None
        with Lock(path, "it") as lock:
            assert lock.held

    def test_the_same_name_after_another_boot_is_another_machine(self, path: Path) -> None:
        left_behind(path, system="another boot", pid=2**22)  # no such process here
        with pytest.raises(Busy), Lock(path, "it"):
            pass

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}'])
    def test_a_lock_that_cannot_be_read_counts_by_its_age(self, path: Path, text: str) -> None:
        path.parent.mkdir()
        path.write_text(text)
        told = rf"somebody whose lock cannot be read.*: {re.escape(str(path))} holds no claim.* 300 s .*remove it"
        with pytest.raises(Busy, match=told) as caught, Lock(path, "it"):
            pass
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        aged(path, module.SILENCE + 60)
        with Lock(path, "it") as lock:
            assert lock.held

    def test_who_was_thought_dead_touches_no_successor_s_lock(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(module, "HEARTBEAT", 0.01)
        with Lock(path, "it") as lock:
            lock.check()
            change(path, **ELSEWHERE)
            with pytest.raises(Busy, match="pid 7 on elsewhere"):
                lock.check()
            deadline = time.monotonic() + 10
            while "it was taken over by pid 7 on elsewhere" not in caplog.text:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert json.loads(path.read_text())["pid"] == 7

    def test_a_successor_is_known_without_a_look_at_the_disk_even_when_it_has_ended(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(module, "HEARTBEAT", 0.01)
        with Lock(path, "it") as lock:
            lock.check_known()
            change(path, **ELSEWHERE)
            deadline = time.monotonic() + 10
            while "it was taken over by" not in caplog.text:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            path.unlink()
            for check in (lock.check_known, lock.check):
                with pytest.raises(Busy, match="pid 7 on elsewhere"):
                    check()

    def test_who_comes_late_to_a_takeover_leaves_the_new_claim(self, path: Path) -> None:
        """Two judge one claim dead; the slower one finds the faster one's claim in its place."""
        left_behind(path)
        dead, _ = module._read(path)
        assert dead is not None
        with Lock(path, "it"):
            now = path.read_text()
            assert not Lock(path, "it")._take_over(dead, replace(dead, token="late"))
            assert path.read_text() == now

    def test_a_taker_that_died_itself_bars_nobody(self, path: Path) -> None:
        left_behind(path)
        token = json.loads(path.read_text())["token"]
        (path.parent / f".lock.json.{token}").write_text(path.read_text())
        with Lock(path, "it") as lock:
            assert lock.held
        assert list(path.parent.iterdir()) == []

    def test_a_name_that_cannot_be_a_lock_is_one_message(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "ATTEMPTS", 2)
        path.parent.mkdir()
        path.symlink_to(path.parent / "nowhere")
        with (
            pytest.raises(LightningCSEError, match=r"lock\.json is neither held nor free: remove it"),
            Lock(path, "it"),
        ):
            pass

    def test_of_eight_that_take_it_over_at_once_one_wins(self, path: Path) -> None:
        for _ in range(20):
            left_behind(path)
            context = multiprocessing.get_context("fork")
            start, done = context.Event(), context.Event()
            answers = context.Queue()
            racers = [context.Process(target=race, args=(path, start, done, answers)) for _ in range(8)]
            for racer in racers:
                racer.start()
            start.set()
            answered = [answers.get(timeout=30) for _ in racers]
            done.set()
            for racer in racers:
                racer.join()
            assert sorted(answered) == ["busy"] * 7 + ["won"]
            assert list(path.parent.iterdir()) == []


def race(path: Path, start: Any, done: Any, answers: Any) -> None:
    start.wait()
    try:
        with Lock(path, "it"):
            answers.put("won")
            done.wait()
    except Busy:
        answers.put("busy")


class TestRunFolderLock:
    def test_state_and_owner(self, tmp_path: Path) -> None:
        folder, other = (Run(tmp_path, "x", "01", 0) for _ in range(2))
        with folder.lock():
            assert other.state == "running"
            assert folder.state == "new", "who holds the lock sees what it found"
            owner = other.owner()
            assert owner is not None
            assert owner.pid == os.getpid()
            with pytest.raises(Busy, match=r"x/01-s0 is being run by"), other.lock():
                pass
            folder.start("a: 1\n")
            folder.fail(ValueError("no"), "fit")
            assert (folder.state, other.state) == ("failed", "running")
            folder.finish({"a": 1})
            assert other.state == "finished"
        assert folder.owner() is None

    def test_a_folder_made_for_the_lock_alone_goes_with_it(self, tmp_path: Path) -> None:
        folder = Run(tmp_path, "x", "01", 0)
        with folder.lock():
            pass
        assert not folder.path.exists()
        with folder.lock():
            folder.start("a: 1\n")
        assert folder.path.is_dir()

    def test_clearing_and_starting_keep_the_lock(self, tmp_path: Path) -> None:
        folder = Run(tmp_path, "x", "01", 0)
        with folder.lock():
            folder.start("a: 1\n")
            (folder.path / ".record.json.0.tmp").touch()
            folder.clear()
            assert [entry.name for entry in folder.path.iterdir()] == ["lock.json"]
            folder.start("a: 1\n")
            assert folder.owner() is not None

    def test_the_reason_of_a_failure(self, tmp_path: Path) -> None:
        folder = Run(tmp_path, "x", "01", 0)
        assert folder.reason() is None
        folder.fail(ValueError("two\nlines"), "fit")
        assert folder.reason() == "ValueError: two lines"
        folder.failed_path.write_text("{")
        assert folder.reason() == f"see {folder.failed_path}"
