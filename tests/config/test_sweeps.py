"""What becomes of the points of a sweep, under every launcher, and what the command says of them."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from config.conftest import Give

from lightning_cse.runs.sweep import Point, table

X = "+experiment=dualcse_cross"


def done(folder: Path) -> list[str]:
    return sorted((folder / "runs" / "done.txt").read_text().splitlines())


def test_a_row_a_point_with_mean_and_deviation_over_its_seeds(give: Give, tmp_path: Path) -> None:
    code, out, errors = give(X, "-m", "name=a,skipped", "seed=range(0,3)")
    assert (code, errors) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[1:3] == [
        ["name=a", "3", "1.5000", "1.0000"],
        ["name=skipped", "3", "1.5000", "1.0000"],
    ]
    assert out.splitlines()[-1] == "6 points: 3 finished, 3 finished before"
    assert len(done(tmp_path)) == 6
    (sweep,) = (tmp_path / "runs" / "sweeps").iterdir()
    assert sorted(path.name for path in sweep.iterdir()) == [
        f"{number}.json" for number in range(6)
    ]


@pytest.mark.parametrize(
    ("names", "code", "said"),
    [
        ("a,left", 2, ["failed before"]),
        ("a,busy", 3, []),
        ("bug,user,a", 1, ["the corpus is missing", "ValueError: an odd matter"]),
        ("busy", 3, []),
        ("a,interrupted,b", 130, ["1 finished, 2 not finished"]),
    ],
)
def test_the_points_run_on_after_one_has_failed(
    names: str, code: int, said: list[str], give: Give, tmp_path: Path
) -> None:
    found, out, errors = give(X, "-m", f"name={names}", "seed=0")
    assert found == code
    assert "Traceback" not in errors
    assert all(text in out for text in said)
    assert ("continues" in errors) is (code == 130)
    if "a" in names.split(","):
        assert done(tmp_path) == ["a 0"]


def test_a_sweep_that_is_refused_as_a_whole_leaves_nothing(give: Give, tmp_path: Path) -> None:
    code, out, _ = give(X, "-m", "name=user", "seed=0,1")
    assert (code, (tmp_path / "runs").exists()) == (2, False)
    assert "failed: the corpus is missing (seed=0; seed=1)" in out


def test_points_of_a_list_win_over_what_all_share(give: Give, tmp_path: Path) -> None:
    (tmp_path / "points.yaml").write_text(
        "- [+experiment=dualcse_cross, name=a]\n- [+experiment=gausscse, seed=5]\n"
    )
    code, out, _ = give("-m", "hydra.sweeper.file=points.yaml", "seed=0,1", "name=b", "+debug=tiny")
    assert code == 0
    assert done(tmp_path) == ["a 0", "a 1", "b 5"]
    assert "3 points: 3 finished" in out
    code, _, errors = give("-m", "hydra.sweeper.points=[['epochs=1']]", X)
    assert code == 2
    assert "trainer.max_epochs" in errors


def test_a_point_of_a_list_may_name_the_folder_of_an_encoder(give: Give, tmp_path: Path) -> None:
    (tmp_path / "points.yaml").write_text("- [+experiment=gausscse, name=a, encoder=my/encoder]\n")
    assert give("-m", "hydra.sweeper.file=points.yaml", "seed=0")[0] == 0
    assert done(tmp_path) == ["a 0"]


def test_a_table_names_only_what_differs() -> None:
    points = [
        Point(["+debug=tiny", f"lr={lr}", f"seed={seed}"], "finished", lr, code=0)
        for lr in (1, 2)
        for seed in (0, 1)
    ]
    text = table([*points, Point(["+debug=tiny", "lr=2", "seed=2"])])
    assert "+debug" not in text
    rows = [line.split()[:4] for line in text.splitlines()[1:3]]
    assert rows == [["lr=1", "2", "1.0000", "0.0000"], ["lr=2", "2", "2.0000", "0.0000"]]
    assert "killed (lr=2 seed=2)" in text
    assert "all seeds   1" in table([Point(["seed=1"], "finished", 1.0, code=0)])


LAUNCHERS = {
    "joblib": (["hydra.launcher.n_jobs=2"], "hydra_plugins.hydra_joblib_launcher"),
    "submitit_local": ([], "hydra_plugins.hydra_submitit_launcher"),
    "ray": (["hydra.launcher.ray.init.num_cpus=2"], "ray"),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_has_the_same_table(launcher: str, tmp_path: Path, repository: Path) -> None:
    settings, module = LAUNCHERS[launcher]
    if (
        importlib.util.find_spec(module.partition(".")[0]) is None
        or importlib.util.find_spec(module) is None
    ):
        pytest.skip(f"needs the extra of hydra/launcher={launcher}")
    code = "from lightning_cse.config.launch import launch; raise SystemExit(launch('sweep_task:run', 'train'))"
    environment = os.environ | {"PYTHONPATH": f"{repository / 'src'}:{repository / 'tests'}"}

    def sweep(names: str, expected: int) -> str:
        points = (f"name={names}", "seed=0,1", f"hydra/launcher={launcher}", *settings)
        line = [sys.executable, "-c", code, X, "-m", *points]
        told = subprocess.run(
            line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
        )
        assert told.returncode == expected, told.stdout + told.stderr
        return told.stdout

    out = sweep("a,user,b", 2)
    assert "6 points: 4 finished, 2 failed" in out
    assert re.search(r"^name=a +2 +1.0000 +0.7071$", out, re.MULTILINE)
    assert "failed: the corpus is missing (name=user seed=0; name=user seed=1)" in out
    assert done(tmp_path) == ["a 0", "a 1", "b 0", "b 1"]
    out = sweep("a,killed", 1)
    assert "killed" in out
    assert "continues" in out
