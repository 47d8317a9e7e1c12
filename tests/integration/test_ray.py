"""A corpus is encoded with Ray Data by two models, also after a kill."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lightning_cse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FILES = 12
ROWS = 3000


def sentence(number):
    return f"Gate {number} is {number % 7} miles from the sea."


@pytest.fixture
def start(tmp_path, repository):
    """Start the example on a folder of Parquet files, with a pool of two models."""
    (tmp_path / "corpus").mkdir()
    for part in range(FILES):
        numbers = list(range(part * ROWS, (part + 1) * ROWS))
        table = pa.table({"id": numbers, "text": [sentence(number) for number in numbers]})
        pq.write_table(table, tmp_path / "corpus" / f"{part:02}.parquet")

    def started():
        return subprocess.Popen(
            [
                sys.executable,
                str(repository / "examples" / "encode_with_ray.py"),
                *("corpus", "vectors", "--model", "tiny", "--models", "2"),
            ],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"},
            stdout=subprocess.PIPE,
            text=True,
        )

    return started


def test_a_killed_command_continues_without_a_row_twice_or_lost(start, tmp_path):
    vectors = tmp_path / "vectors"
    process = start()
    while len(list(vectors.glob("*.parquet"))) < 2:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)

    process.send_signal(signal.SIGKILL)
    process.wait()
    mtimes = {file: file.stat().st_mtime_ns for file in vectors.glob("*.parquet")}
    assert 2 <= len(mtimes) < FILES

    process = start()
    assert "sentences encoded" in process.communicate()[0]
    assert process.returncode == 0
    assert all(file.stat().st_mtime_ns == changed for file, changed in mtimes.items())

    files = sorted(vectors.glob("*.parquet"))
    table = pa.concat_tables([pq.read_table(file) for file in files])
    assert table["id"].to_pylist() == list(range(FILES * ROWS))
    chosen = range(0, FILES * ROWS, 997)
    expected = lightning_cse.load("tiny").encode([sentence(number) for number in chosen])
    written = np.stack(table["vector"].take(list(chosen)).to_numpy(zero_copy_only=False))
    np.testing.assert_allclose(written, expected, rtol=1e-4, atol=1e-5)

    process = start()
    assert process.communicate()[0].strip() == f"{FILES} files, 0 of them to encode"
