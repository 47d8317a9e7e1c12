"""A training on a stream: killed and started again, and on two devices, the numbers of one run."""

import json
import subprocess
import sys

import pytest
from small_runs import assert_same, curves, dies_at, environment

from lightning_cse.config.check import check
from lightning_cse.errors import ConfigError
from lightning_cse.runs import Run

pytestmark = pytest.mark.timeout(900)
POINT = (
    "+experiment=simcse_sup",
    "data=file",
    "data.streaming=true",
    "data.shuffle_buffer=12",
    "data.train_rows=null",
    "data.held_out_rows=4",
    "limits.dev_rows=6",
    "limits.test_rows=6",
    "baselines=none",
    "encoder.layers=1",
    "diag.sentences=16",
    "keep_last=true",
    "eval_every=2",
    "trainer.max_steps=6",
)


@pytest.fixture
def shards(tmp_path):
    """Two shards of JSON lines: 14 and 9 pairs, of which the first four are held out."""
    for name, first, end in (("a", 0, 14), ("b", 14, 23)):
        rows = [
            {"anchor": f"the number {row} is here", "positive": f"here is {row}"}
            for row in range(first, end)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)

    return f"data.train={tmp_path}/*.jsonl"


def test_killed_run_ends_the_same(tmp_path, run_tiny, shards):
    reference = run_tiny(tmp_path / "reference", *POINT, shards)
    folder = tmp_path / "killed"

    for step in (4, 6):
        with dies_at(step):
            run_tiny(folder, *POINT, shards)

    resumed = run_tiny(folder, *POINT, shards)
    assert_same(resumed, reference)

    rows = reference.read()["rows"]
    assert rows["rows in batches"] == 38  # two passes over 19 rows: batches of 8, 8 and 3
    assert rows["passes"] == 1
    assert rows["dropped: held out"] == 8
    assert rows["sentences_cut"] == 0
    assert {f"{tmp_path}/a.jsonl", f"{tmp_path}/b.jsonl"} <= reference.read()["data"].keys()


def test_two_devices_train_as_one(tmp_path, shards):
    runs = []

    for place, several in (("one", ()), ("two", ("trainer.devices=2", "trainer.strategy=ddp"))):
        command = [sys.executable, "-m", "lightning_cse.train", "+debug=tiny", *POINT, shards]
        subprocess.run(
            [*command, "encoder.dropout=0", "trainer.accelerator=cpu", *several],
            cwd=tmp_path,
            env=environment(tmp_path, place),
            check=True,
            capture_output=True,
        )
        (record,) = (tmp_path / place).rglob("record.json")
        runs.append(Run.at(record.parent))

    one, two = runs
    assert two.path.name == one.path.name
    assert two.read()["rows"] == one.read()["rows"]
    assert curves(two)["train/loss"] == pytest.approx(curves(one)["train/loss"], rel=1e-5)


def test_no_number_of_steps(compose):
    with pytest.raises(ConfigError, match=r"trainer\.max_steps: a stream has no epochs"):
        check(compose("+debug=tiny", *POINT[:-1], "data.train=rows.jsonl"), "train")

    cfg = compose("+debug=tiny", *POINT, "data.train=a.jsonl", "trainer.limit_train_batches=2")
    with pytest.raises(ConfigError, match=r"trainer\.limit_train_batches: a stream has no epochs"):
        check(cfg, "train")


def test_method_that_reads_all_rows_first(tmp_path, run_tiny):
    names = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
    rows = [{name: f"{name} {row}" for name in names} for row in range(6)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    point = ("+experiment=impscore", *POINT[1:8], *POINT[-1:], f"data.train={path}")

    with pytest.raises(ConfigError, match=r"data\.streaming: ImpScore reads all training rows"):
        run_tiny(tmp_path, *point)
