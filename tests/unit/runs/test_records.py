"""Identity, run folder, curves, predictions and environment of a run."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse import runs
from lightning_cse.errors import LightningCSEError
from lightning_cse.runs import (
    Busy,
    Curves,
    Run,
    environment,
    environments,
    identity,
    identity_document,
    write_atomic,
    write_predictions,
)

CONFIG: dict[str, Any] = {
    "name": "dualcse_cross",
    "seed": 0,
    "force": False,
    "baselines": {"length": {"_target_": "pkg.Length"}},
    "recipe": {"default": {"lr": 5e-5}},
    "hydra": {"mode": "RUN"},
    "paths": {"data_dir": "/a", "runs_dir": "/b"},
    "logger": {"project": "p"},
    "method": {"loss": {"temperature": 0.05, "contradiction": True}, "lr": 5e-5, "sets": ["ent", "con"]},
    "data": {"name": "inli", "batch_size": 64, "data_dir": "/a", "reader": {"cache_dir": "/c", "limit": None}},
    "encoder": {"name": "minilm_l6", "pooling": "mean", "source": "hub/name", "package": "pkg/sub"},
    "trainer": {
        "accelerator": "auto",
        "devices": "auto",
        "precision": "32-true",
        "max_epochs": 3,
        "enable_progress_bar": True,
        "enable_model_summary": True,
        "logger": True,
        "default_root_dir": "/x",
    },
}
DATA = {"inli/train": "aa", "inli/dev": "bb"}
ENCODER = {"weights": "cc", "tokenizer": "dd"}
RESOLVED = {"trainer.accelerator": "cpu", "trainer.devices": 1}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return CONFIG with one dotted key set."""
    config: dict[str, Any] = json.loads(json.dumps(CONFIG))
    *parents, last = path.split(".")
    node = config
    for parent in parents:
        node = node.setdefault(parent, {})
    node[last] = value
    return config


def of(config: dict[str, Any], **others: Any) -> str:
    """Return the identity with the defaults of this file."""
    return identity(config, **{"data": DATA, "encoder": ENCODER, "resolved": RESOLVED, **others})


def shuffled(value: Any, order: random.Random) -> Any:
    """Return the same mapping, its keys in another order at any depth."""
    if not isinstance(value, dict):
        return value
    keys = list(value)
    order.shuffle(keys)
    return {key: shuffled(value[key], order) for key in keys}


class TestIdentity:
    def test_is_ten_hex_digits_and_the_same_in_every_process(self) -> None:
        assert of(CONFIG) == of(CONFIG)
        assert len(of(CONFIG)) == 10
        assert set(of(CONFIG)) <= set("0123456789abcdef")
        # A change here orphans every finished run: raise it only on purpose.
        assert identity({"a": 1}, data={}, encoder={}, resolved={}) == "e619c40040"

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("seed", 7),
            ("force", True),
            ("retry_failed", True),
            ("baselines", {}),
            ("recipe.default.lr", 1),
            ("hydra.mode", "MULTIRUN"),
            ("paths.data_dir", "/elsewhere"),
            ("logger", None),
            ("data.data_dir", "/elsewhere"),
            ("data.reader.cache_dir", "/elsewhere"),
            ("method.runs_dir", "/elsewhere"),
            ("encoder.source", "/local/copy"),
            ("encoder.package", None),
            ("trainer.enable_progress_bar", False),
            ("trainer.enable_model_summary", False),
            ("trainer.logger", False),
            ("trainer.default_root_dir", "/y"),
            ("trainer.accelerator", "cpu"),
            ("trainer.devices", 1),
            ("method.lr", 0.00005),
            ("trainer.max_epochs", 3.0),
            ("method.sets", ("ent", "con")),
        ],
    )
    def test_what_does_not_decide_the_result_does_not_change_it(self, path: str, value: Any) -> None:
        assert of(changed(path, value)) == of(CONFIG)

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("name", "dualcse_bi"),
            ("method.loss.temperature", 0.06),
            ("method.loss.contradiction", False),
            ("method.loss.contradiction", 1),
            ("method.loss.contradiction", None),
            ("method.sets", ["con", "ent"]),
            ("method.lr", "5e-5"),
            ("data.batch_size", 32),
            ("data.reader.limit", 10),
            ("data.seed", 1),
            ("encoder.pooling", "cls"),
            ("encoder.name", "tiny"),
            ("trainer.precision", "bf16-mixed"),
            ("trainer.max_epochs", 2),
            ("trainer.gradient_clip_val", 1.0),
            ("callbacks.logger", "x"),
        ],
    )
    def test_what_decides_the_result_changes_it(self, path: str, value: Any) -> None:
        assert of(changed(path, value)) != of(CONFIG)

    @pytest.mark.parametrize(
        "others",
        [
            {"data": {**DATA, "inli/dev": "b2"}},
            {"data": {"inli/train": "aa"}},
            {"encoder": {**ENCODER, "weights": "c2"}},
            {"resolved": {**RESOLVED, "trainer.accelerator": "cuda"}},
            {"resolved": {**RESOLVED, "trainer.devices": 2}},
        ],
    )
    def test_files_encoder_and_machine_choices_change_it(self, others: dict[str, Any]) -> None:
        assert of(CONFIG, **others) != of(CONFIG)

    def test_an_encoder_without_digests_is_told_by_its_source(self) -> None:
        assert of(changed("encoder.source", "other"), encoder={}) != of(CONFIG, encoder={})

    @given(st.integers(0, 2**32))
    def test_order_of_keys_does_not_matter(self, seed: int) -> None:
        assert of(shuffled(CONFIG, random.Random(seed))) == of(CONFIG)

    @given(st.integers(-(2**60), 2**60))
    def test_equal_numbers_are_equal(self, number: int) -> None:
        as_float = float(number)
        same = of(changed("method.lr", number)) == of(changed("method.lr", as_float))
        assert same == (number == as_float)

    def test_infinity_is_a_value_of_its_own(self) -> None:
        values = [math.inf, -math.inf, "inf", None, 1e308]
        assert len({of(changed("method.lr", value)) for value in values}) == len(values)

    def test_zero_has_one_sign(self) -> None:
        assert of(changed("method.lr", -0.0)) == of(changed("method.lr", 0))

    def test_the_document_is_json_and_shows_what_choices_became(self) -> None:
        document = identity_document(CONFIG, data=DATA, encoder=ENCODER, resolved=RESOLVED)
        assert json.loads(json.dumps(document)) == document
        assert document["config"]["trainer"] == {
            "accelerator": "cpu",
            "devices": 1,
            "precision": "32-true",
            "max_epochs": 3,
        }
        assert document["config"]["encoder"] == {"name": "minilm_l6", "pooling": "mean"}
        assert document["encoder"] == ENCODER
        assert document["data"] == DATA

    def test_the_config_itself_is_left_alone(self) -> None:
        before = json.dumps(CONFIG)
        of(CONFIG)
        assert json.dumps(CONFIG) == before

    def test_something_else_than_a_value_is_named(self) -> None:
        with pytest.raises(TypeError, match=r"config\.method\.sets\[1\].*type object"):
            of({"method": {"sets": [1, object()]}})
        with pytest.raises(TypeError, match=r"'name\.x'.*'dualcse_cross'"):
            of(CONFIG, resolved={"name.x": 1})


@pytest.fixture
def folder(tmp_path: Path) -> Run:
    """Return a run folder that is not on disk."""
    return Run(tmp_path / "runs", "dualcse_cross", "0123456789", 3)


def files_of(path: Path) -> list[str]:
    """Return all files under a folder."""
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


class TestRunFolder:
    def test_path(self, folder: Run, tmp_path: Path) -> None:
        assert folder.path == tmp_path / "runs" / "dualcse_cross" / "0123456789-s3"
        assert Run(tmp_path, "a/b", "01", 0).path == tmp_path / "a" / "b" / "01-s0"
        assert not folder.path.exists()

    @pytest.mark.parametrize("name", ["", "../x", "a/../b", "/abs", "a//b", ".", "a\\b"])
    def test_no_way_out_of_the_root(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ValueError, match="makes no folder inside"):
            Run(tmp_path, name, "01", 0)
        with pytest.raises(ValueError, match="identity"):
            Run(tmp_path, "a", "../01", 0)

    def test_states(self, folder: Run) -> None:
        assert folder.state == "new"
        folder.start("seed: 3\n")
        assert folder.config_path.read_text() == "seed: 3\n"
        assert folder.state == "new"
        folder.checkpoints.mkdir()
        (folder.checkpoints / "last.ckpt").write_bytes(b"x")
        assert folder.state == "interrupted"
        folder.fail(RuntimeError("boom"), "fit")
        assert folder.state == "failed"
        folder.start("seed: 3\n")
        assert folder.state == "interrupted"
        folder.finish({"seed": 3})
        assert folder.state == "finished"
        folder.fail(RuntimeError("boom"), "figures")
        assert folder.state == "finished"

    def test_record_reads_back_to_the_last_bit(self, folder: Run) -> None:
        folder.start("")
        record = {"test/rte/accuracy_all": 0.1 + 0.2, "n": None, "text": "é", "list": (1, 2.5), "np": np.float64(1 / 3)}
        folder.finish(record)
        assert folder.read() == {**record, "list": [1, 2.5]}
        assert files_of(folder.path) == ["config.yaml", "record.json"]

    @pytest.mark.parametrize(
        ("value", "error", "message"),
        [
            (math.nan, ValueError, r"metrics\.a is nan"),
            (math.inf, ValueError, r"metrics\.a is inf"),
            ([1.0, math.nan], ValueError, r"metrics\.a\.1 is nan"),
            (np.float32(1), TypeError, r"metrics\.a: .*float32"),
            (Path("x"), TypeError, r"metrics\.a: .*Path"),
            ({1: 2}, TypeError, r"metrics\.a: the key 1"),
        ],
    )
    def test_record_refuses_what_is_not_json(
        self, folder: Run, value: Any, error: type[Exception], message: str
    ) -> None:
        folder.start("")
        with pytest.raises(error, match=message):
            folder.finish({"metrics": {"a": value}})
        assert folder.state == "new"

    def test_nan_becomes_null_where_that_is_allowed(self, folder: Run) -> None:
        folder.finish({"m": {"a": math.nan, "b": 1.0}, "c": math.inf}, nullable=["m.a", "c"])
        assert folder.read() == {"m": {"a": None, "b": 1.0}, "c": None}
        folder.finish({"m": {"a": math.nan}}, nullable=["a"])
        assert folder.read() == {"m": {"a": None}}

    def test_failure_tells_what_where_and_when(self, folder: Run) -> None:
        try:
            raise LightningCSEError("loss is nan")
        except LightningCSEError as error:
            folder.fail(error, "fit", step=12)
        failure = json.loads(folder.failed_path.read_text())
        assert failure["type"] == "LightningCSEError"
        assert failure["message"] == "loss is nan"
        assert failure["stage"] == "fit"
        assert failure["step"] == 12
        assert "test_failure_tells" in failure["traceback"]
        assert failure["time"].endswith("+00:00")

    def test_failure_takes_the_step_from_the_exception(self, folder: Run) -> None:
        error = RuntimeError("x")
        error.step = 5  # type: ignore[attr-defined]
        folder.fail(error, "fit")
        assert json.loads(folder.failed_path.read_text())["step"] == 5

    def test_read_without_or_with_a_damaged_record(self, folder: Run) -> None:
        with pytest.raises(LightningCSEError, match=r"no record\.json: the run is new"):
            folder.read()
        folder.path.mkdir(parents=True)
        folder.record_path.write_text('{"a": ')
        with pytest.raises(LightningCSEError, match="damaged"):
            folder.read()
        folder.record_path.write_text("[]")
        with pytest.raises(LightningCSEError, match="no JSON object"):
            folder.read()

    def test_clear_touches_nothing_outside(self, folder: Run, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "precious").write_text("x")
        sibling = Run(folder.root, folder.name, folder.identity, 4)
        sibling.start("")
        folder.clear()  # nothing there yet
        folder.start("")
        folder.finish({})
        (folder.path / "link").symlink_to(outside)
        folder.checkpoints.mkdir()
        (folder.checkpoints / "link").symlink_to(outside)
        (folder.checkpoints / "precious").symlink_to(outside / "precious")
        folder.clear()
        assert list(folder.path.iterdir()) == []
        assert (outside / "precious").read_text() == "x"
        assert sibling.config_path.is_file()
        assert folder.state == "new"

    def test_clear_leaves_everything_where_somebody_is_at_a_folder_inside(self, folder: Run) -> None:
        folder.start("")
        folder.finish({"a": 1})
        inner = Run(folder.path / "evaluate", "inli", "ab", 0)
        with inner.lock(), folder.lock():
            with pytest.raises(Busy, match=rf"^{re.escape(str(inner.path))} is being run by pid {os.getpid()}"):
                folder.clear()
            assert folder.read() == {"a": 1}
            assert inner.lock_path.is_file()
        inner.lock_path.parent.mkdir(parents=True, exist_ok=True)
        inner.lock_path.write_text(json.dumps({"pid": 1}))  # left behind, long ago
        os.utime(inner.lock_path, (0, 0))
        with folder.lock():
            folder.clear()
            assert list(folder.path.iterdir()) == [folder.lock_path]

    def test_clear_refuses_a_folder_that_is_a_link(self, folder: Run, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "precious").write_text("x")
        folder.path.parent.mkdir(parents=True)
        folder.path.symlink_to(outside)
        with pytest.raises(LightningCSEError, match="is a link to"):
            folder.clear()
        assert (outside / "precious").exists()


def full_disk(*_: Any, **__: Any) -> Any:
    """Stand in for a system call on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def limited(monkeypatch: pytest.MonkeyPatch, call: str) -> Iterator[None]:
    """Make one system call fail as on a full disk."""
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full_disk)
        yield


class TestAtomicWriting:
    def test_killed_between_write_and_replace(self, tmp_path: Path) -> None:
        """The record of a killed process is the old one, whole, and the next start clears the rest away."""
        folder = Run(tmp_path, "x", "01", 0)
        folder.start("old: true\n")
        folder.finish({"old": True})
        code = (
            "import os, signal, sys; from pathlib import Path; from lightning_cse.runs import Run\n"
            "os.replace = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
            "Run(Path(sys.argv[1]), 'x', '01', 0).finish({'old': False})"
        )
        source = str(Path(runs.__file__).parent.parent.parent)
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": source}, check=False
        )
        assert done.returncode == -signal.SIGKILL
        assert folder.read() == {"old": True}
        assert len(list(folder.path.glob(".record.json.*.tmp"))) == 1
        folder.start("old: true\n")
        assert files_of(folder.path) == ["config.yaml", "record.json"]

    def test_an_interrupt_leaves_no_temporary_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        path = tmp_path / "a.txt"
        write_atomic(path, "old")
        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_atomic(path, "new")
        assert path.read_text() == "old"
        assert files_of(tmp_path) == ["a.txt"]

    def test_the_content_is_on_the_disk_before_it_takes_the_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[str] = []

        def spy(name: str) -> Callable[..., Any]:
            real = getattr(os, name)

            def call(*arguments: Any) -> Any:
                calls.append(name)
                return real(*arguments)

            return call

        monkeypatch.setattr(os, "fsync", spy("fsync"))
        monkeypatch.setattr(os, "replace", spy("replace"))
        write_atomic(tmp_path / "sub" / "a.bin", b"\x00\r\n")
        assert calls == ["fsync", "replace", "fsync"]
        assert (tmp_path / "sub" / "a.bin").read_bytes() == b"\x00\r\n"

    @pytest.mark.parametrize("call", ["fsync", "replace", "open"])
    def test_full_disk(self, folder: Run, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
        folder.start("old: true\n")
        folder.finish({"old": True})
        before = {name: (folder.path / name).read_bytes() for name in files_of(folder.path)}
        actions: dict[Path, Callable[[], object]] = {
            folder.record_path: lambda: folder.finish({"old": False}),
            folder.config_path: lambda: folder.start("old: false\n"),
            folder.predictions / "rte.parquet": lambda: write_predictions(folder.predictions, "rte", {"a": [1]}),
        }
        for path, action in actions.items():
            with limited(monkeypatch, call), pytest.raises(LightningCSEError) as caught:
                action()
            assert f"no space left to write {path}: " in str(caught.value)
            assert "iB free there" in str(caught.value)
        assert {name: (folder.path / name).read_bytes() for name in files_of(folder.path)} == before

    def test_a_failure_is_told_even_when_it_cannot_be_written(
        self, folder: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        with limited(monkeypatch, "fsync"):
            folder.fail(RuntimeError("boom"), "fit")
        assert str(folder.failed_path) in caplog.text
        assert folder.state == "new"

    def test_other_system_errors_stay_themselves(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(OSError, match="file") as caught:
            write_atomic(tmp_path / "file" / "a.txt", "x")
        assert not isinstance(caught.value, LightningCSEError)


class TestPredictions:
    def test_round_trip(self, tmp_path: Path) -> None:
        scores = np.linspace(0, 1, 3)
        path = write_predictions(
            tmp_path / "predictions",
            "rte",
            {"id": [0, 1, 2], "type": ["a", "b", "ü"], "score": scores, "correct": [True, False, None]},
        )
        assert path == tmp_path / "predictions" / "rte.parquet"
        table = pq.read_table(path).to_pydict()
        assert table == {
            "id": [0, 1, 2],
            "type": ["a", "b", "ü"],
            "score": [float(s) for s in scores],
            "correct": [True, False, None],
        }
        assert files_of(tmp_path) == ["predictions/rte.parquet"]

    def test_columns_of_different_length(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"rte: the columns differ in length: \{'a': 1, 'b': 2\}"):
            write_predictions(tmp_path, "rte", {"a": [1], "b": [1, 2]})
        with pytest.raises(ValueError, match=r"'\.\./rte'"):
            write_predictions(tmp_path, "../rte", {"a": [1]})
        assert files_of(tmp_path) == []


class TestCurves:
    def test_values_come_back_to_the_last_bit(self, tmp_path: Path) -> None:
        values = [0.1 + 0.2, 1e-320, -0.0, 5e-324, 1.7976931348623157e308, math.inf, float(np.float32(0.1))]
        with Curves(tmp_path / "sub" / "curves.csv") as curves:
            assert curves.read() == {}
            for step, value in enumerate(values):
                curves.append(step, {"train/loss": value, 'odd, "key"': 1})
            read = curves.read()
        assert [step for step, _ in read["train/loss"]] == list(range(len(values)))
        assert [value.hex() for _, value in read["train/loss"]] == [value.hex() for value in values]
        assert read['odd, "key"'] == [(step, 1.0) for step in range(len(values))]
        text = (tmp_path / "sub" / "curves.csv").read_text()
        assert text.startswith("step,key,value\n0,train/loss,0.30000000000000004\n")

    def test_nan_comes_back(self, tmp_path: Path) -> None:
        with Curves(tmp_path / "c.csv") as curves:
            curves.append(0, {"a": math.nan})
            assert math.isnan(curves.read()["a"][0][1])

    def test_rows_are_in_the_file_as_soon_as_they_are_logged(self, tmp_path: Path) -> None:
        curves = Curves(tmp_path / "c.csv")
        curves.append(1, {"a": 1})
        assert Curves(tmp_path / "c.csv").read() == {"a": [(1, 1.0)]}
        curves.append(1, {})
        curves.close()
        curves.close()
        curves.append(2, {"a": 2})
        assert curves.read() == {"a": [(1, 1.0), (2, 2.0)]}
        curves.close()

    def test_cut_then_append(self, tmp_path: Path) -> None:
        path = tmp_path / "c.csv"
        with Curves(path) as curves:
            for step in range(6):
                curves.append(step, {"a": step / 7, "b": -step})
            whole = path.read_bytes()
            curves.cut(3)
            assert curves.read()["a"] == [(step, step / 7) for step in range(4)]
            for step in range(4, 6):
                curves.append(step, {"a": step / 7, "b": -step})
        assert path.read_bytes() == whole

    def test_cut_by_somebody_else(self, tmp_path: Path) -> None:
        with Curves(tmp_path / "c.csv") as logger:
            logger.append(1, {"a": 1})
            logger.append(2, {"a": 2})
            Curves(tmp_path / "c.csv").cut(1)
            logger.append(2, {"a": 3})
            assert logger.read() == {"a": [(1, 1.0), (2, 3.0)]}

    def test_cut_before_anything_was_logged(self, tmp_path: Path) -> None:
        Curves(tmp_path / "c.csv").cut(3)
        assert files_of(tmp_path) == []
        with Curves(tmp_path / "c.csv") as curves:
            curves.append(5, {"a": 1})
            curves.cut(-1)
            assert curves.read() == {}

    @pytest.mark.parametrize("cut_first", [True, False])
    def test_every_place_a_crash_can_stop_a_line(self, tmp_path: Path, cut_first: bool) -> None:
        with Curves(tmp_path / "whole.csv") as curves:
            curves.append(1, {"train/loss": 0.125})
            curves.append(2, {"train/loss": 0.0625})
        whole = (tmp_path / "whole.csv").read_bytes()
        for length in range(len(whole) + 1):
            path = tmp_path / "c.csv"
            path.write_bytes(whole[:length])
            kept = max(whole[:length].count(b"\n") - 1, 0)
            want = [(1, 0.125), (2, 0.0625)][:kept]
            assert Curves(path).read().get("train/loss", []) == want
            with Curves(path) as again:
                if cut_first:
                    again.cut(10)
                again.append(3, {"train/loss": 1.0})
                assert again.read()["train/loss"] == [*want, (3, 1.0)]

    def test_zeros_at_the_end_are_dropped_and_damage_elsewhere_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "c.csv"
        path.write_bytes(b"step,key,value\n1,a,1.0\n\0\0\0\n")
        assert Curves(path).read() == {"a": [(1, 1.0)]}
        path.write_bytes(b"step,key,value\nx,a,1.0\n2,a,1.0\n")
        with pytest.raises(LightningCSEError, match=r"c\.csv, line 2: .*x,a,1\.0"):
            Curves(path).read()
        path.write_bytes(b"epoch,loss\n1,2\n")
        with pytest.raises(LightningCSEError, match="line 1: expected the header"):
            Curves(path).read()

    def test_keys_that_would_break_lines(self, tmp_path: Path) -> None:
        for key in ("", "a\nb", "a\rb"):
            with pytest.raises(ValueError, match="cannot be the key"):
                Curves(tmp_path / "c.csv").append(1, {key: 1})

    def test_full_disk_leaves_whole_lines(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "c.csv"
        real = os.write

        def half(descriptor: int, content: bytes | memoryview) -> int:
            if len(content) > 8:
                return real(descriptor, bytes(content[:8]))
            raise OSError(errno.ENOSPC, "full")

        with Curves(path) as curves:
            curves.append(1, {"a": 1})
            before = path.read_bytes()
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", half)
                with pytest.raises(LightningCSEError, match=r"no space left to write .*c\.csv"):
                    curves.append(2, {"a": 2, "b": 3})
            assert path.read_bytes() == before
            with limited(monkeypatch, "fsync"), pytest.raises(LightningCSEError, match="no space left"):
                curves.cut(0)
            assert path.read_bytes() == before
            curves.append(2, {"a": 2})
            assert curves.read() == {"a": [(1, 1.0), (2, 2.0)]}


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, as somebody."""
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


class TestEnvironment:
    def test_what_it_says(self) -> None:
        found = environment()
        json.dumps(found, allow_nan=False)
        assert set(found) == {"commit", "versions", "machine", "threads"}
        assert found["versions"]["python"] == ".".join(str(part) for part in sys.version_info[:3])
        assert found["versions"]["torch"]
        assert found["versions"]["lightning_cse"]
        assert found["machine"]["cores"] >= 1
        assert found["machine"]["memory_gib"] > 0
        assert found["threads"] >= 1

    def test_commit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in [name for name in os.environ if name.startswith("GIT_")]:
            monkeypatch.delenv(variable)
        package = tmp_path / "src"
        package.mkdir()
        module = package / "environments.py"
        module.write_text("x = 1\n")
        monkeypatch.setattr(environments, "__file__", str(module))
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
        assert environment()["commit"] is None
        git(tmp_path, "init", "-q")
        assert environment()["commit"] is None, "a repository that does not track the package"
        git(tmp_path, "add", "src")
        git(tmp_path, "commit", "-qm", "x")
        head = git(tmp_path, "rev-parse", "HEAD").strip()
        assert environment()["commit"] == head
        (tmp_path / "untracked").write_text("x")
        assert environment()["commit"] == head
        module.write_text("x = 2\n")
        assert environment()["commit"] == f"{head}-dirty"
        monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
        assert environment()["commit"] == f"{head}-dirty"
        monkeypatch.setenv("PATH", "")
        assert environment()["commit"] is None

    def test_asking_loads_nothing_heavy(self) -> None:
        code = (
            "import sys; from lightning_cse.runs import environment; environment()\n"
            "heavy = {'torch', 'pytorch_lightning', 'pyarrow', 'numpy', 'wandb'} & set(sys.modules)\n"
            "assert not heavy, heavy"
        )
        source = str(Path(runs.__file__).parent.parent.parent)
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": source},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
