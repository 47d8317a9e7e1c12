"""The words that points leave, and what a driver makes of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hydra.plugins.launcher import Launcher

from lightning_cse.config.outcomes import Outcome, Sweep, _Watched, listening, one_line, read, tell, write
from lightning_cse.errors import DataError


def leave(folder: Path, number: int, outcome: str, reason: str = "", *, by_user: bool = False) -> None:
    write(folder / str(number) / "outcome.json", Outcome((f"seed={number}",), outcome, None, reason, by_user))


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    sweep = Sweep()
    sweep.begin(tmp_path, [["seed=0", "hydra.job.name=x"], ["seed=1"]], 0)
    sweep.begin(tmp_path, [["seed=2"]], 2)
    return sweep


def test_a_word_is_read_as_it_was_written(tmp_path: Path) -> None:
    outcome = Outcome(("a=1", "b=2"), "failed", "runs/x", "ValueError: é", True, 1.5, None)
    write(tmp_path / "0" / "outcome.json", outcome)
    assert read(tmp_path / "0" / "outcome.json") == outcome
    write(tmp_path / "1" / "outcome.json", Outcome((), "finished", score=math.nan))
    assert json.loads((tmp_path / "1" / "outcome.json").read_text())["score"] is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"overrides": [], "outcome": "lost"}', '{"overrides": 3}'])
def test_a_word_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "outcome.json").write_text(text)
    assert read(tmp_path / "outcome.json") is None


def test_what_a_point_tells_is_heard_by_its_own_listener_only() -> None:
    tell(Path("nobody"))
    with listening() as told:
        assert told.folder is None
        tell(Path("a"))
        tell(Path("a"), skipped=True)
        with listening() as inner:
            tell(Path("b"))
        assert (told.folder, told.skipped, inner.folder, inner.skipped) == (Path("a"), True, Path("b"), False)


def test_points_without_a_word_are_counted_and_named(sweep: Sweep, tmp_path: Path) -> None:
    assert not sweep.began
    leave(tmp_path, 1, "finished")
    assert sweep.began
    assert sweep.verdict() == "bug"
    assert sweep.summary().splitlines() == [
        "error: 3 points: 1 done now, 2 left no word",
        "  left no word: seed=0",
        "  left no word: seed=2",
        "a point that left no word was killed, or not reached; the same command goes on with it",
    ]


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (("finished", "skipped", "finished"), "good"),
        (("finished", "busy", "skipped"), "busy"),
        (("busy", "busy", "left"), "user"),
        (("finished", "user", "busy"), "user"),
        (("finished", "user", "failed"), "bug"),
        (("left", "failed", "busy"), "bug"),
    ],
)
def test_the_worst_decides(sweep: Sweep, tmp_path: Path, outcomes: tuple[str, ...], verdict: str) -> None:
    for number, outcome in enumerate(outcomes):
        kind = "failed" if outcome == "user" else outcome
        leave(tmp_path, number, kind, "no", by_user=outcome == "user")
    assert sweep.verdict() == verdict
    assert sweep.summary().startswith("error: 3 points: " if verdict in ("user", "bug") else "3 points: ")
    assert sweep.summary().count(": no\n") == sum(outcome not in ("finished", "skipped") for outcome in outcomes)


def test_a_launcher_that_breaks_down_is_one_line(sweep: Sweep, tmp_path: Path) -> None:
    for number in range(3):
        leave(tmp_path, number, "finished")
    sweep.broke(RuntimeError("a\n\npool\n" + "x" * 1000))
    assert sweep.verdict() == "bug"
    last = sweep.summary().splitlines()[-1]
    assert last.startswith("the launcher broke down: RuntimeError: a pool xxx")
    assert last.endswith("... (HYDRA_FULL_ERROR=1 shows the traceback)")
    assert len(last) < 600


class Broken(Launcher):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def setup(self, **kwargs: Any) -> None:
        pass

    def launch(self, job_overrides: Any, initial_job_idx: int) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "summary"),
    [
        (OSError("no pool"), "the launcher broke down: OSError: no pool (HYDRA_FULL_ERROR=1 shows the traceback)"),
        (
            DataError("no cluster"),
            "a point that left no word was killed, or not reached; the same command goes on with it",
        ),
    ],
)
def test_a_launcher_s_error_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, summary: str
) -> None:
    sweep = Sweep()
    launcher = _Watched(Broken(error), sweep, tmp_path)
    with pytest.raises(SystemExit) as caught:
        launcher.launch([["seed=0"]], 0)
    assert (caught.value.code, caught.value.__cause__) == (1, error)
    assert summary in sweep.summary().splitlines()
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(type(error)):
        launcher.launch([["seed=0"]], 0)


def test_a_sweep_that_never_began_says_nothing() -> None:
    assert (Sweep().summary(), Sweep().verdict()) == ("", "good")


def test_a_new_sweep_forgets_the_words_of_the_last(sweep: Sweep, tmp_path: Path) -> None:
    for number in range(3):
        leave(tmp_path, number, "finished")
    again = Sweep()
    again.begin(tmp_path, [["seed=7"], ["seed=8"]], 0)
    assert not again.began


def test_one_line() -> None:
    assert one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert len(one_line(ValueError("x" * 999))) == 300
