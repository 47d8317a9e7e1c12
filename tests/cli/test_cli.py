"""``python -m lightning_cse.train`` as a user starts it: few processes, and every answer of them looked at."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lightning_cse.runs import Run

RunTiny = Callable[..., Run]
Command = Callable[..., "subprocess.CompletedProcess[str]"]

EXPERIMENTS = sorted(path.stem for path in (Path(__file__).resolve().parents[2] / "conf" / "experiment").glob("*.yaml"))
# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no process.
pytestmark = pytest.mark.timeout(900)

SMALL = (
    "baselines=none",
    "encoder.layers=1",
    "data.train_rows=20",
    "data.held_out_rows=8",
    "diag.sentences=16",
    "eval_every=2",
    *(f"limits.{split}_{what}=6" for split in ("dev", "test") for what in ("rows", "pairs")),
)


@pytest.fixture
def command(tmp_path: Path, repository: Path) -> Command:
    """Start ``lightning_cse.train`` in an empty folder, with runs and caches in it; W&B and the hub stay offline."""

    def start(*args: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(repository / "src"),
            "LIGHTNING_CSE_RUNS": str(tmp_path / "runs"),
            "LIGHTNING_CSE_CACHE": str(tmp_path / "cache"),
            "HF_HOME": str(tmp_path / "hub"),
        }
        environment.pop("LIGHTNING_CSE_DATA", None)
        line = [sys.executable, *python, "-m", "lightning_cse.train", *args]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)

    return start


def finished(tmp_path: Path) -> dict[str, Run]:
    """The finished runs by ``experiment-s<seed>``."""
    records = sorted((tmp_path / "runs").rglob("record.json"))
    folders = {}
    for path in records:
        identity, _, seed = path.parent.name.partition("-s")
        folder = Run(tmp_path / "runs", path.parents[1].name, identity, int(seed))
        assert folder.record_path == path
        folders[f"{folder.name}-s{seed}"] = folder
    assert len(folders) == len(records)
    return folders


def numbers(folder: Run) -> dict[str, Any]:
    record = folder.read()
    return {key: record[key] for key in ("config_hash", "metrics", "baselines", "best", "final", "rows")} | {
        "curves": folder.curves_path.read_text()
    }


# What is answered before anything heavy is imported


def test_help_is_quick_and_imports_nothing_heavy(command: Command, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = command("--help", python=("-X", "importtime"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "hydra" in imported
    assert not imported & {"torch", "pytorch_lightning", "transformers", "datasets", "numpy", "wandb", "matplotlib"}
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2
    assert "+experiment=NAME" in done.stdout
    for option in (*EXPERIMENTS, "minilm_l6", "laptop", "seeds", "tiny"):
        assert option in done.stdout
    assert not list(tmp_path.iterdir())


def test_without_an_experiment_all_are_listed(command: Command, tmp_path: Path) -> None:
    done = command("+debug=tiny")
    assert done.returncode == 2
    assert done.stderr.startswith("error: 1 fault in the config:\n  name: not set, since no experiment was chosen")
    assert [line.split()[0] for line in done.stderr.splitlines()[2:]] == EXPERIMENTS
    assert done.stdout == ""
    assert not (tmp_path / "runs").exists()


def test_all_faults_of_a_command_line_are_told_at_once(command: Command, tmp_path: Path) -> None:
    wrong = {
        "+experiment=dualcse_cros": "there is no experiment 'dualcse_cros' - did you mean 'dualcse_cross'?",
        "encoder=bert_bse": "there is no encoder 'bert_bse' - did you mean 'bert_base'?",
        "+profile=labtop": "there is no profile 'labtop' - did you mean 'laptop'?",
        "+debug=tini": "there is no debug 'tini' - did you mean 'tiny'?",
        "+experimnt=dualcse_cross": "unknown key 'experimnt' - did you mean '+experiment=dualcse_cross'?",
        "sede=1": "unknown key 'sede' - did you mean 'seed'?",
        "+seeed=1": "unknown key 'seeed' - did you mean 'seed'?",
        "trainer.max_epoch=1": "unknown key 'trainer.max_epoch' - did you mean 'trainer.max_epochs'?",
        "corpora.nli_trian=[snli/train]": "unknown key 'corpora.nli_trian' - did you mean 'corpora.nli_train'?",
        "temperature=0.1": "unknown key 'temperature' - did you mean 'method.loss.temperature'?",
        "data.batch_size=8,16": "several values need -m, which runs one after the other",
    }
    done = command(*wrong, python=("-X", "importtime"))
    told = done.stderr[done.stderr.index("error: ") :]
    assert done.returncode == 2
    assert told.startswith(f"error: {len(wrong)} faults in the config:\n")
    for argument, message in wrong.items():
        assert re.search(rf"^  {re.escape(argument)}: .*{re.escape(message)}", told, re.MULTILINE), argument
    assert "Traceback" not in done.stderr
    assert not re.search(r"\| +torch$", done.stderr, re.MULTILINE)
    assert not (tmp_path / "runs").exists()


# What is told once the config is whole


def test_an_encoder_out_of_reach_says_what_was_tried_and_what_helps(command: Command, tmp_path: Path) -> None:
    done = command("+experiment=dualcse_cross", "+debug=tiny", "encoder=bert_base")
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    told = done.stderr[done.stderr.index("error: ") :]
    assert "google-bert/bert-base-uncased" in told
    assert "HF_HUB_OFFLINE is set" in told
    assert "hf download google-bert/bert-base-uncased" in told
    assert "encoder=minilm_l6" in told
    assert not finished(tmp_path)


def test_in_a_multirun_a_missing_corpus_fails_its_point_and_no_other(
    command: Command, tmp_path: Path, repository: Path
) -> None:
    nowhere, sample = tmp_path / "nowhere", repository / "src" / "lightning_cse" / "data" / "sample"
    done = command("-m", "+experiment=dualcse_cross", "+debug=tiny", f"paths.data_dir={nowhere},{sample}", *SMALL)
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    point = f"+experiment=dualcse_cross +debug=tiny paths.data_dir={nowhere} {' '.join(SMALL)}"
    assert (
        f"the point {point} failed, the others go on\nerror: corpus 'inli', split 'train' is not there" in done.stderr
    )
    assert f"looked for: {nowhere}/INLI/train.csv" in done.stderr
    assert f"python -m lightning_cse.prepare inli --data-dir {nowhere}" in done.stderr
    summary = done.stderr.splitlines()[done.stderr.splitlines().index("error: 2 points: 1 done now, 1 failed") :]
    assert summary[1].startswith(f"  failed: {point}: DataError: corpus 'inli', split 'train' is not there")
    assert "retry_failed=true" in summary[-1]
    (folder,) = finished(tmp_path).values()
    assert folder.read()["overrides"][2] == f"paths.data_dir={sample}"
    assert f"record: {folder.record_path}" in done.stdout


def test_splits_that_cannot_be_read_are_one_clear_error_each(
    command: Command, tmp_path: Path, repository: Path
) -> None:
    sample, data = repository / "src" / "lightning_cse" / "data" / "sample", tmp_path / "data"
    shutil.copytree(sample, data, ignore=shutil.ignore_patterns("nli_for_simcse.csv"))
    faults = {
        "[simcse_nly/train]": "error: unknown corpus 'simcse_nly' - did you mean 'simcse_nli'?",
        "[snli/trian]": "error: corpus 'snli' has no split 'trian' - did you mean 'train'?",
        "[snli]": "error: 1 fault in the config:\n  data.train: 'snli' is not of the form corpus/split",
        "snli/train": "error: 1 fault in the config:\n  data.train: 'snli/train' is one name, and a list of names",
        "[simcse_nli/train]": (
            "error: corpus 'simcse_nli', split 'train' is not there\n"
            f"  looked for: {data / 'simcse' / 'nli_for_simcse.csv'} and nli_for_simcse.csv.gz beside it\n"
        ),
    }
    swept = f"corpora.nli_train={','.join(faults)}"
    done = command("-m", "+experiment=gausscse", "+debug=tiny", f"paths.data_dir={data}", swept, *SMALL)
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    told = done.stderr.split("failed, the others go on\n")[1:]
    assert len(told) == len(faults)
    for message, answer in zip(faults.values(), told, strict=True):
        assert answer.startswith(message)
        assert answer.count("error: ") == 1 + (answer is told[-1])  # the last line counts the points
    assert "error: 5 points: 5 failed" in done.stderr.splitlines()
    assert not (tmp_path / "runs" / "gausscse").exists()


# Several points in one process


def test_a_multirun_is_the_same_as_its_points_one_by_one(
    command: Command, tmp_path: Path, run_tiny: RunTiny, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = command("-m", "+experiment=dualcse_cross,dualcse_bi", "seed=0,1", "+debug=tiny", "logger=wandb", *SMALL)
    assert done.returncode == 0, done.stderr
    folders = finished(tmp_path)
    assert sorted(folders) == ["dualcse_bi-s0", "dualcse_bi-s1", "dualcse_cross-s0", "dualcse_cross-s1"]
    alone = tmp_path_factory.mktemp("alone")
    for name, folder in folders.items():
        experiment, _, seed = name.rpartition("-s")
        assert numbers(folder) == numbers(run_tiny(alone, f"+experiment={experiment}", f"seed={seed}", *SMALL)), name
        overrides = folder.read()["overrides"]
        assert {f"+experiment={experiment}", f"seed={seed}", "+debug=tiny"} <= set(overrides)
        assert f"record: {folder.record_path}\n" in done.stdout
        (offline,) = (folder.path / "wandb").glob("offline-run-*")  # its own, and no other's
        assert offline.name.endswith(f"-{experiment}-{folder.config_hash}-s{seed}")
    assert len({folder.read()["metrics"]["test/rte/threshold"] for folder in folders.values()}) == 4
    hydra = sorted(path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("train.log"))
    assert {("runs", "hydra")} == set(hydra)  # Hydra's own folders stay out of the run folders


@pytest.mark.slow
def test_a_sweep_runs_every_point_once_whatever_the_order_of_the_command_line(command: Command, tmp_path: Path) -> None:
    done = command("+sweep=seeds", "+debug=tiny", "+experiment=dualcse_cross", *SMALL)
    assert done.returncode == 0, done.stderr
    folders = finished(tmp_path)
    assert sorted(folders) == [f"dualcse_cross-s{seed}" for seed in range(5)]
    assert len({folder.config_hash for folder in folders.values()}) == 1
    assert len({folder.curves_path.read_text() for folder in folders.values()}) == 5
    stamps = {folder.path: folder.record_path.stat().st_mtime_ns for folder in folders.values()}

    done = command("+experiment=dualcse_cross", *SMALL, "+debug=tiny", "+sweep=seeds")
    assert done.returncode == 0, done.stderr
    again = finished(tmp_path)
    assert {folder.path: folder.record_path.stat().st_mtime_ns for folder in again.values()} == stamps
    assert done.stdout.count("is finished; force=true runs it again") == 5
    assert len(re.findall(r"^record: ", done.stdout, re.MULTILINE)) == 5  # the table is printed all the same


@pytest.mark.slow
def test_a_sweep_over_losses_makes_a_point_of_each(command: Command, tmp_path: Path) -> None:
    done = command("+experiment=gausscse", "+sweep=gausscse_losses_five_seeds", "+debug=tiny", "seed=0", *SMALL)
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs" / "gausscse").glob("*-s0/record.json")]
    assert len({record["config_hash"] for record in records}) == len(records) == 4
    sets = [tuple(record["decisive"]["config"]["method"]["loss"]["sets"]) for record in records]
    assert set(sets) == {("ent",), ("ent", "con"), ("ent", "rev"), ("ent", "con", "rev")}
    for record, chosen in zip(records, sets, strict=True):
        assert {"seed=0", f"method.loss.sets=[{','.join(chosen)}]"} <= set(record["overrides"])
        assert record["best"]["monitor"] == "val/snli/auprc"
    assert len({record["final"]["diag/held_out/alignment"] for record in records}) == 4
