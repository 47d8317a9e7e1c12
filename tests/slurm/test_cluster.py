"""Jobs of a real SLURM that are stopped and queued again: the run of one that was not; a sweep."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from slurm_cluster import cluster
from small_runs import assert_same, environment

from lightning_cse.runs import Run

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]
TRAIN = (sys.executable, "-m", "lightning_cse.train")
POINT = (
    "+experiment=dualcse_cross",
    "+debug=tiny",
    "trainer.accelerator=cpu",
    "trainer.max_epochs=-1",
    "trainer.max_steps=240",
    "eval_every=50",
    "least_evaluations=1",
    "keep_last=true",
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "clusters.md"


@pytest.fixture(scope="module", autouse=True)
def slurm(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm")):
        yield


def output(*command, **options):
    process = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    assert process.returncode == 0, process.stdout

    return process.stdout


def state(job):
    return re.search(r"JobState=(\w+)", output("scontrol", "show", "job", job))[1]


def wait_for(step, job, curves, log):
    """Wait until a step is in the curves, or the job is done if there is no step."""
    while True:
        job_state = state(job)
        logged = [int(line.split(",")[0]) for path in curves() for line in lines(path)]
        if job_state in ("FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"):
            pytest.fail(f"the job is {job_state}: {log.read_text()}")

        if job_state == "COMPLETED" or (
            step and max(logged, default=0) >= step and job_state == "RUNNING"
        ):
            assert step is None or job_state == "RUNNING", "it ended too soon"
            return

        time.sleep(0.1)


def lines(path):
    return path.read_text().split("\n")[1:-1]


def test_job_that_is_stopped_and_queued_again(tmp_path):
    folder = tmp_path / "job"
    env = environment(tmp_path, "job")
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    script = tmp_path / "train.sbatch"
    text = re.search(r"```bash\n(#!/bin/bash\n.*?)```", PAGE.read_text(), re.DOTALL)[1]
    text = re.sub(r"#SBATCH --gpus-per-node.*\n", "", text)
    command = f"lightning_cse.train {' '.join(POINT)} trainer.devices=2 trainer.strategy=ddp\n"
    script.write_text(re.sub(r"lightning_cse\.train (.*\\\n)*.*\n", command, text))
    log = tmp_path / "log.txt"
    size = ("--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1")
    submitted = output("sbatch", *size, f"--output={log}", script, env=env, cwd=tmp_path)
    job = submitted.split()[-1]
    curves = lambda: folder.rglob("curves.csv")  # noqa: E731

    wait_for(40, job, curves, log)
    output("scancel", "--signal=USR1", job)  # as the time limit does
    wait_for(100, job, curves, log)
    output("scontrol", "requeue", job)  # as a job of a higher priority does: SIGTERM
    wait_for(None, job, curves, log)

    printed = log.read_text()
    assert printed.count("the same command continues from there") == 2, printed
    assert len(re.findall("resuming from step", printed)) == 2

    reference = tmp_path / "whole"
    alone = ("trainer.devices=2", "trainer.strategy=ddp")
    output(*TRAIN, *POINT, *alone, env=environment(tmp_path, "whole"), cwd=tmp_path)
    (record,) = folder.rglob("record.json")
    (expected,) = reference.rglob("record.json")

    assert_same(Run.at(record.parent), Run.at(expected.parent))
