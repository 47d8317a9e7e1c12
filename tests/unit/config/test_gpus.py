"""One GPU a point: which point gets which, and who waits."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from lightning_cse.config import gpus
from lightning_cse.config.outcomes import BASIC_LAUNCHER, JOBLIB_LAUNCHER
from lightning_cse.runs import Lock


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gpus, "PAUSE", 0.005)
    yield
    gpus._last.clear()


def nothing(device: int) -> None:
    pass


def lock_of(folder: Path, device: int) -> Lock:
    return Lock(folder / f"gpu-{socket.gethostname()}-{device}.lock", "it")


def test_each_takes_a_free_one(tmp_path: Path) -> None:
    used: list[int] = []
    with gpus.taken(tmp_path, [0, 1, 2], used.append) as first, gpus.taken(tmp_path, [0, 1, 2], used.append) as second:
        assert (first, second) == (0, 1)
        assert lock_of(tmp_path, 0).owner() is not None
    assert used == [0, 1]
    assert list(tmp_path.iterdir()) == []


def test_a_worker_keeps_to_the_device_it_had(tmp_path: Path) -> None:
    with lock_of(tmp_path, 0), gpus.taken(tmp_path, [0, 1], nothing) as device:
        assert device == 1
    with gpus.taken(tmp_path, [0, 1], nothing) as device:
        assert device == 1
    with lock_of(tmp_path, 1), gpus.taken(tmp_path, [0, 1], nothing) as device:
        assert device == 0


def test_a_point_that_fails_gives_its_device_back(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), gpus.taken(tmp_path, [0], nothing):
        raise ValueError("no")
    assert lock_of(tmp_path, 0).owner() is None


def point(folder: Path) -> None:
    with gpus.taken(folder, [0, 1], nothing) as device:
        for what in ("takes", "has", "has", "gives"):
            with (folder / "events").open("a") as file:  # one small write each, in the order of what happens
                file.write(f"{device} {what}\n")


def test_more_points_than_devices_wait(tmp_path: Path) -> None:
    workers = [multiprocessing.get_context("fork").Process(target=point, args=(tmp_path,)) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    seen = [line.split() for line in (tmp_path / "events").read_text().splitlines()]
    assert len(seen) == 6 * 4
    for device in ("0", "1"):
        mine = [what for where, what in seen if where == device]
        assert mine == ["takes", "has", "has", "gives"] * (len(mine) // 4), "one at a time"


@pytest.mark.parametrize(
    ("launcher", "config", "count", "want"),
    [
        (JOBLIB_LAUNCHER, {"trainer": {"accelerator": "auto"}}, 2, 0),
        (JOBLIB_LAUNCHER, {"trainer": {"accelerator": "gpu"}}, 2, 0),
        (JOBLIB_LAUNCHER, {"accelerator": "cuda"}, 4, 0),
        (JOBLIB_LAUNCHER, {"trainer": {"accelerator": "cpu"}}, 2, None),
        (JOBLIB_LAUNCHER, {"trainer": {"accelerator": "gpu"}}, 1, None),
        (BASIC_LAUNCHER, {"trainer": {"accelerator": "gpu"}}, 2, None),
        (JOBLIB_LAUNCHER, {}, 2, None),
    ],
)
def test_who_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str, config: dict[str, Any], count: int, want: int | None
) -> None:
    current: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    job: Any = SimpleNamespace(
        launcher=SimpleNamespace(_target_=launcher),
        runtime=SimpleNamespace(cwd=str(tmp_path)),
        sweep=SimpleNamespace(dir="sweep"),
    )
    with gpus.one_gpu(OmegaConf.create(config), job) as device:
        assert device == want
        locks = list((tmp_path / "sweep").glob("*.lock"))
        assert len(locks) == (want is not None)
    assert current == ([] if want is None else [want])
