"""The points of a sweep, under every launcher: what becomes of them, and what the command
prints.
"""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

X = "+experiment=dualcse_cross"


def done(folder):
    return sorted((folder / "runs" / "done.txt").read_text().splitlines())


@pytest.mark.slow
def test_table_has_a_row_per_point_over_its_seeds(give, tmp_path):
    code, out, errors = give(X, "-m", "name=a,skipped", "seed=range(0,3)")
    assert (code, errors) == (0, "")

    lines = out.splitlines()
    assert lines[1].split() == ["name=a", "3", "1.5000", "1.0000"]
    assert lines[2].split() == ["name=skipped", "3", "1.5000", "1.0000"]
    assert lines[-1] == "6 points: 3 finished, 3 finished before"
    assert len(done(tmp_path)) == 6

    (sweep,) = (tmp_path / "runs" / "sweeps").iterdir()
    assert sorted(path.name for path in sweep.iterdir()) == [f"{n}.json" for n in range(6)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "code", "printed"),
    [
        ("a,left", 2, ["failed before"]),
        ("a,busy", 3, []),
        ("bug,user,a", 1, ["the corpus is missing", "ValueError: an odd matter"]),
        ("busy", 3, []),
        ("a,interrupted,b", 130, ["1 finished, 2 not finished"]),
    ],
)
def test_sweep_continues_after_a_failed_point(names, code, printed, give, tmp_path):
    exit_code, out, errors = give(X, "-m", f"name={names}", "seed=0")
    assert exit_code == code
    assert ("Traceback" in errors) == ("bug" in names)
    assert all(text in out for text in printed)
    assert ("continues" in errors) is (code == 130)

    if "a" in names.split(","):
        assert done(tmp_path) == ["a 0"]


@pytest.mark.slow
def test_sweep_refused_as_a_whole_leaves_no_folder(give, tmp_path):
    code, out, _ = give(X, "-m", "name=user", "seed=0,1")
    assert (code, (tmp_path / "runs").exists()) == (2, False)
    assert "seed=1: failed: the corpus is missing" in out


POINTS = """
- [+experiment=dualcse_cross, name=a]
- [+experiment=gausscse, seed=5, encoder=my/encoder]
"""


def test_listed_points_override_shared_settings(give, tmp_path):
    (tmp_path / "points.yaml").write_text(POINTS)
    shared = ("seed=0,1", "name=b", "+debug=tiny")
    code, out, _ = give("-m", "hydra.sweeper.file=points.yaml", *shared)

    assert code == 0
    assert done(tmp_path) == ["a 0", "a 1", "b 5"]
    assert "3 points: 3 finished" in out


LAUNCHERS = {
    "joblib": (["hydra.launcher.n_jobs=2"], "hydra_plugins.hydra_joblib_launcher"),
    "submitit_local": ([], "hydra_plugins.hydra_submitit_launcher"),
    "ray": (["hydra.launcher.ray.init.num_cpus=2"], "ray"),
}
CODE = "from lightning_cse.config.launch import launch; exit(launch('sweep_task:run', 'train'))"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_gives_the_same_table(launcher, tmp_path, repository, monkeypatch):
    settings, module = LAUNCHERS[launcher]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"needs the extra of hydra/launcher={launcher}")

    monkeypatch.setenv("PYTHONPATH", f"{repository / 'src'}{os.pathsep}{repository / 'tests'}")

    def sweep(names, code):
        points = (f"name={names}", "seed=0,1", f"hydra/launcher={launcher}", *settings)
        ended = subprocess.run(
            [sys.executable, "-c", CODE, X, "-m", *points],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
        )

        assert ended.returncode == code, ended.stdout + ended.stderr

        return ended.stdout

    out = sweep("a,user,b", 2)
    assert "6 points: 4 finished, 2 failed" in out
    assert re.search(r"^name=a +2 +1.0000 +0.7071$", out, re.MULTILINE)
    assert "name=user seed=1: failed: the corpus is missing" in out
    assert done(tmp_path) == ["a 0", "a 1", "b 0", "b 1"]

    out = sweep("a,killed", 1)
    assert "killed" in out
    assert "continues" in out
