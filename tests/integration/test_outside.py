"""Methods and a task in a folder outside the package: everything works for them that works for the
package's own.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lightning_cse.runs import Run

pytestmark = pytest.mark.slow

TRAIN = ("-m", "lightning_cse.train", "--config-dir", "conf", "+experiment=boxes", "+debug=tiny")
DYING = """
import os, signal, sys
import boxes
from lightning_cse.train import main

step = boxes.BoxCSE.training_step

def dying(self, batch, batch_idx):
    if self.global_step == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, batch, batch_idx)

boxes.BoxCSE.training_step = dying
sys.exit(main())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, repository):
    """A copy of the example, in which all commands are run."""
    copy = tmp_path_factory.mktemp("outside") / "geometry"
    shutil.copytree(repository / "examples" / "hierarchy", copy)
    example = repository / "examples" / "entailment_geometry"

    return Path(shutil.copytree(example, copy, dirs_exist_ok=True))


@pytest.fixture(scope="module")
def start(folder, repository):
    """Run Python in the folder, where only the package is on the path."""

    def run(*args, code=0, runs="runs"):
        environment = {
            **os.environ,
            "PYTHONPATH": str(repository / "src"),
            "LIGHTNING_CSE_RUNS": runs,
            "LIGHTNING_CSE_LOCAL": "none",
        }
        process = subprocess.run(
            [sys.executable, *args], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert process.returncode == code, process.stdout + process.stderr

        return process

    return run


def only_run(folder, runs="runs"):
    (path,) = (folder / runs / "boxes").iterdir()
    return Run.at(path)


@pytest.fixture(scope="module")
def run(start, folder):
    """A finished run of the outside method."""
    start(*TRAIN)
    return only_run(folder)


def test_resume_after_a_kill_matches_an_uninterrupted_run(run, start, folder):
    (folder / "dying.py").write_text(DYING)
    start("dying.py", *TRAIN[2:], code=-9, runs="killed")
    start(*TRAIN, runs="killed")
    resumed = only_run(folder, "killed")
    assert "resuming from step 4" in resumed.log_path.read_text()
    assert resumed.read()["metrics"] == run.read()["metrics"]
    assert resumed.read()["checkpoint"] == run.read()["checkpoint"]


def test_evaluate_load_export_and_describe(run, start, folder):
    limits = ("limits.dev_pairs=30", "limits.test_pairs=30")
    sample = ("corpora=sample", "paths=sample")
    start("-m", "lightning_cse.evaluate", f"model={run.path}", "+suite=nli", *limits, *sample)
    (evaluated,) = run.path.glob("evaluate/nli/*/record.json")
    record = json.loads(evaluated.read_text())
    trained = run.read()
    assert record["model"]["method"] == "boxes.BoxCSE"
    assert trained["model"] == {"_target_": "boxes.BoxModel"}
    assert record["checkpoint"] == trained["checkpoint"]
    score = record["metrics"]["test/snli/auprc"]
    assert score == pytest.approx(trained["metrics"]["test/snli/auprc"], abs=1e-5)

    code = (
        f"import lightning_cse as l; m = l.load({str(run.path)!r}); print(m.questions)\n"
        "import numpy; numpy.save('vectors.npy', m.encode(['A dog runs.', 'An animal moves.']))"
    )
    assert "'direction'" in start("-c", code).stdout

    start("-m", "lightning_cse.export", "--model", str(run.path), "--to", "exported")
    assert "@misc{boxes" in (folder / "exported" / "README.md").read_text()
    code = (
        "import numpy, sentence_transformers as st\n"
        "model = st.SentenceTransformer('exported', device='cpu')\n"
        "numpy.save('again.npy', model.encode(['A dog runs.']))"
    )
    start("-c", code)
    vectors = np.load(folder / "vectors.npy")
    np.testing.assert_allclose(np.load(folder / "again.npy")[0], vectors[0], rtol=1e-4, atol=1e-5)

    describe = ("-m", "lightning_cse.describe", "--config-dir", "conf", "data=nli_triplets")
    process = start(*describe, "encoder=tiny", *sample)
    assert "premise 122" in process.stdout


def test_loading_elsewhere_says_where_the_class_is_missing(run, start):
    code = f"import os; os.chdir('/'); import lightning_cse; lightning_cse.load({str(run.path)!r})"
    process = start("-P", "-c", code, code=1)
    assert "the model boxes.BoxModel is in no module that can be found" in process.stderr
    assert "PYTHONPATH" in process.stderr


def test_a_task_of_ones_own_asks_any_model(run, start):
    limits = ("limits.test_rows=30", "corpora=sample", "paths=sample")
    for model in (str(run.path), "length"):
        process = start(
            "-m",
            "lightning_cse.evaluate",
            "--config-dir",
            "conf",
            "+suite=hierarchy",
            f"model={model}",
            *limits,
        )
        assert "by_similarity: ordered, %" in process.stdout

    (evaluated,) = run.path.glob("evaluate/hierarchy/*/record.json")
    metrics = json.loads(evaluated.read_text())["metrics"]
    for question in ("by_entailment", "by_similarity"):
        assert 0 <= metrics[f"test/{question}/ordered"] <= 1
        assert abs(metrics[f"test/{question}/spearman"]) <= 1

    written = start("hierarchy.py", "inli/test").stdout.splitlines()
    scores = [line.rpartition(",")[2] for line in written]
    assert written[0] == "sentence1,sentence2,score"
    assert scores.count("0") == scores.count("1") == scores.count("2") > 100


def test_reproduce_prints_a_table_of_ones_own(start, folder):
    options = [
        "--experiments",
        "tables",
        "--config-dir",
        "conf",
        "--profile",
        "tiny",
        "--seeds",
        "0",
    ]
    command = ("-m", "lightning_cse.reproduce", "geometry/entailment", *options)
    process = start(*command, runs="reproduced")
    for row in ("LENGTH", "untrained", "Gaussians", "boxes", "Poincaré ball"):
        assert row in process.stdout

    assert only_run(folder, "reproduced").status == "finished"


def test_the_kept_table_is_that_of_its_records(start, folder):
    options = ["--experiments", "tables", "--config-dir", "conf", "--profile", "small"]
    command = ("-m", "lightning_cse.reproduce", "geometry/entailment", *options)
    process = start(*command, "--kept", "--no-run", "--format", "markdown", runs="none")
    table = folder / "tables" / "geometry" / "results" / "entailment.small.md"
    text = table.read_text(encoding="utf-8").strip()
    assert text.count("±") >= 4 * 7
    assert text in process.stdout
