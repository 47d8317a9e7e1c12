"""The files of a run: checkpoints, temporary files, and errors of the disk."""

import errno
import os
import random
import signal
import subprocess
import sys
import zipfile

import pytest
import torch

from lightning_cse.errors import DataError
from lightning_cse.runs import (
    DiskError,
    atomic_file,
    check_checkpoint,
    disk_errors,
    read_checkpoint,
    read_object,
    remove_leftovers,
    write_atomic,
)

# Checkpoints


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "best.ckpt"
    weights = {name: torch.arange(40.0) for name in ("a.weight", "b.bias")}
    torch.save({"state_dict": weights, "global_step": 3}, path)

    return path


def same(loaded, saved):
    """Whether two checkpoints have the same values."""
    pairs = ((loaded["state_dict"][key], value) for key, value in saved["state_dict"].items())
    return loaded["global_step"] == 3 and all(torch.equal(*pair) for pair in pairs)


def test_a_flipped_bit_is_noticed_or_changes_nothing(checkpoint):
    saved = read_checkpoint(checkpoint)
    content = checkpoint.read_bytes()
    draw = random.Random(0)
    messages = set()
    refused = 0
    for offset in range(0, len(content), 2):  # every local header, member, directory entry, the end
        flipped = bytearray(content)
        flipped[offset] ^= 1 << draw.randrange(8)
        checkpoint.write_bytes(flipped)
        try:
            assert same(read_checkpoint(checkpoint), saved), offset
        except DataError as error:
            messages.add(str(error))
            refused += 1

    assert refused > 400
    assert all(f"{checkpoint} is damaged" in message for message in messages)
    assert all("force=true" in message for message in messages)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.999])
def test_a_checkpoint_that_is_cut_off(checkpoint, share):
    os.truncate(checkpoint, int(share * checkpoint.stat().st_size))
    with pytest.raises(DataError, match="is damaged"):
        check_checkpoint(checkpoint)


def test_a_checkpoint_that_is_missing(checkpoint):
    checkpoint.unlink()
    with pytest.raises(DataError, match=r"best\.ckpt is missing: restore it"):
        check_checkpoint(checkpoint)


# Errors of the system

CAUSES = [errno.EIO, errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT]


@pytest.mark.parametrize("cause", CAUSES)
def test_errors_of_the_disk_name_the_file(cause, tmp_path, checkpoint, monkeypatch):
    def refuse(*_):
        raise OSError(cause, os.strerror(cause))

    with pytest.raises(DiskError, match=r"x\.json"), disk_errors(tmp_path / "x.json"):
        refuse()

    monkeypatch.setattr(zipfile, "ZipFile", refuse)
    with pytest.raises(DiskError, match=r"best\.ckpt") as caught:
        check_checkpoint(checkpoint)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(DiskError, match=r"y\.json") as written:
        write_atomic(tmp_path / "y.json", "{}")

    for message in map(str, (caught.value, written.value)):
        assert "same command again" in message
        assert not {"force=true", "damaged", "remove", "move it away"} & {*message.split()}


@pytest.mark.parametrize(
    "content", [b"", b'{"a":', b"\xff\xfe", b"[1]", b"7", b"null", b"[" * 100_000, b'"a"']
)
def test_damaged_objects(content, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.json is damaged \(.+\): do this"):
        read_object(path, advice="do this")


# Temporary files

LEAVES = """
import os, signal, sys
from pathlib import Path
from lightning_cse.runs import atomic_file

with atomic_file(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    target = tmp_path / "describe" / "summary.json"
    process = subprocess.run([sys.executable, "-c", LEAVES, target], check=False, timeout=60)
    assert process.returncode == -signal.SIGKILL
    (leftover,) = target.parent.iterdir()
    with atomic_file(tmp_path / "other.json") as file:
        remove_leftovers(tmp_path)
        assert not leftover.exists()
        file.write(b"{}")

    assert [path.name for path in tmp_path.rglob("*.*")] == ["other.json"]
