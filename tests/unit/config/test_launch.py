"""Entry points as a user starts them: messages, exit codes, sweeps."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_cse.config import launch as launch_module
from lightning_cse.config.launch import launch

Program = Callable[..., "subprocess.CompletedProcess[str]"]
CROSS = "+experiment=dualcse_cross"


def test_a_run_that_goes_well(program: Program) -> None:
    done = program(CROSS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "running dualcse_cross seed=0 order=experiment encoder=roberta_base\n"


@pytest.mark.parametrize("args", [["+debug=tiny", "+profile=laptop", CROSS], [CROSS, "+profile=laptop", "+debug=tiny"]])
def test_the_order_on_the_command_line_does_not_matter(program: Program, args: list[str]) -> None:
    assert program(*args).stdout == "running dualcse_cross seed=0 order=debug encoder=tiny\n"


@pytest.mark.parametrize("args", [["+debug=tiny", "+sweep=seeds", CROSS], [CROSS, "+debug=tiny", "sweep=seeds"]])
def test_a_sweep_runs_every_point_whatever_the_order(program: Program, args: list[str]) -> None:
    done = program(*args)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"^running.*$", done.stdout, re.MULTILINE) == [
        f"running dualcse_cross seed={seed} order=debug encoder=tiny" for seed in range(3)
    ]


def test_a_sweep_that_goes_well_says_so_in_one_line(program: Program) -> None:
    done = program("-m", CROSS, "seed=0,1,2", "what=before")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "3 points: 2 done now, 1 done before"


def test_every_point_leaves_its_word(program: Program, tmp_path: Path) -> None:
    assert program("-m", CROSS, "seed=0,1", "what=odd").returncode == 2
    words = [json.loads((tmp_path / "runs" / "sweep" / str(n) / "outcome.json").read_text()) for n in (0, 1)]
    assert [word.pop("seconds") >= 0 for word in words] == [True, True]
    common = {"folder": None, "overrides": [CROSS]}
    assert words == [
        common
        | {"overrides": [CROSS, "seed=0", "what=odd"], "outcome": "finished", "reason": "", "by_user": False}
        | {"score": 0.0},
        common
        | {"overrides": [CROSS, "seed=1", "what=odd"], "outcome": "failed", "by_user": True}
        | {"reason": "DataError: train.tsv, line 41: no premise", "score": None},
    ]


def test_points_that_others_run_or_that_failed_before_are_listed(program: Program, tmp_path: Path) -> None:
    done = program("-m", CROSS, "what=ok,busy")
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert lines[0].startswith("the run is being run by pid 7 on elsewhere, since ")
    assert lines[1] == "2 points: 1 done now, 1 being run by somebody else"
    assert lines[2].startswith(f"  being run by somebody else: {CROSS} what=busy: pid 7 on elsewhere, since ")
    assert lines[3] == "the same command, given when the others are through, finds what they ran"
    assert len(lines) == 4
    done = program("-m", CROSS, "what=ok,busy,left")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[1] == "runs/x failed before (ValueError: no) and is left alone: retry_failed=true tries it again"
    assert lines[2] == "error: 3 points: 1 done now, 1 failed before, left alone, 1 being run by somebody else"
    assert lines[3] == f"  failed before, left alone: {CROSS} what=left: ValueError: no"


def test_a_single_run_that_somebody_else_runs_ends_with_3(program: Program) -> None:
    done = program(CROSS, "what=busy")
    assert done.returncode == 3
    assert done.stderr.startswith("error: the run is being run by pid 7 on elsewhere, since ")
    assert done.stderr.count("\n") == 1


def test_a_point_that_ends_the_process_is_missed(program: Program) -> None:
    done = program("-m", CROSS, "seed=0,1,2", "what=exit_odd")
    assert done.returncode == 7
    assert done.stderr == (
        "error: 3 points: 1 done now, 2 left no word\n"
        f"  left no word: {CROSS} seed=1 what=exit_odd\n  left no word: {CROSS} seed=2 what=exit_odd\n"
        "a point that left no word was killed, or not reached; the same command goes on with it\n"
    )


def test_words_of_an_earlier_sweep_in_the_same_folder_do_not_count(program: Program) -> None:
    assert program("-m", CROSS, "seed=0,1").returncode == 0
    done = program("-m", CROSS, "seed=4,5", "what=exit_odd")
    assert done.returncode == 7
    assert done.stderr.startswith("error: 2 points: 1 done now, 1 left no word\n")


def test_an_interrupted_sweep_says_how_far_it_came(program: Program) -> None:
    done = program("-m", CROSS, "seed=0,1,2", "what=interrupt_odd")
    assert done.returncode == 130
    lines = done.stderr.splitlines()
    assert lines[:2] == [
        "interrupted; the same command continues from the last checkpoint",
        "error: 3 points: 1 done now, 2 left no word",
    ]


needs_joblib = pytest.mark.skipif(
    importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher") is None, reason="joblib"
)


@needs_joblib
def test_under_joblib_it_is_the_same(program: Program) -> None:
    line = ("-m", CROSS, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    done = program(*line, "what=ok,user,bug,busy", "hydra.launcher.batch_size=1")
    assert done.returncode == 1
    summary = done.stderr[done.stderr.index("error: 4 points") :].splitlines()
    assert summary[0] == "error: 4 points: 1 done now, 2 failed, 1 being run by somebody else"
    assert summary[1:3] == [
        f"  failed: {CROSS} what=user: DataError: train.tsv, line 40: no premise",
        f"  failed: {CROSS} what=bug: ValueError: a bug at seed 0",
    ]


@needs_joblib
def test_a_killed_worker_is_one_line_and_its_points_are_missed(program: Program) -> None:
    line = ("-m", CROSS, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    done = program(*line, "what=ok,kill")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"  left no word: {CROSS} what=kill\n" in done.stderr
    assert "\nthe launcher broke down: TerminatedWorkerError: A worker process" in done.stderr
    assert "run fewer at once with hydra.launcher.n_jobs" in done.stderr


def test_a_flag_may_stand_anywhere(program: Program) -> None:
    done = program(CROSS, "-m", "seed=4,5")
    assert done.returncode == 0
    assert re.findall(r"seed=(\d) order", done.stdout) == ["4", "5"]


def test_a_user_s_error_is_one_message_and_exit_code_2(program: Program) -> None:
    done = program(CROSS, "what=user")
    assert done.returncode == 2
    assert done.stderr == "error: train.tsv, line 40: no premise\n"


def test_hydra_full_error_shows_the_traceback_too(program: Program) -> None:
    done = program(CROSS, "what=user", HYDRA_FULL_ERROR="1")
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback")
    assert "in run\n" in done.stderr
    assert done.stderr.endswith("error: train.tsv, line 40: no premise\n")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("built", "error: no encoder in reach\n"),  # hydra.utils.instantiate wraps it
        (
            "resolver",
            "error: 1 fault in the config:\n  ${recipe:lr}: neither `recipe.roberta_base.lr` nor `recipe.default.lr` "
            "exists (the encoder is 'roberta_base')\n",
        ),  # OmegaConf wraps it
    ],
)
def test_a_user_s_error_is_found_behind_its_wrapper(program: Program, what: str, message: str) -> None:
    done = program(CROSS, f"what={what}", "~recipe.default", "~recipe.bert_base")
    assert (done.returncode, done.stderr) == (2, message)


def test_a_bug_is_hydra_s_to_tell_with_exit_code_1(program: Program) -> None:
    done = program(CROSS, "what=bug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ValueError: a bug at seed 0" in done.stderr


@pytest.mark.parametrize("what", ["interrupt", "lightning_interrupt"])
@pytest.mark.parametrize("multirun", [[], ["-m", "seed=1,2"]])
def test_an_interrupt_is_one_line_and_exit_code_130(program: Program, what: str, multirun: list[str]) -> None:
    done = program(CROSS, f"what={what}", *multirun)
    assert done.returncode == 130
    assert done.stderr == "interrupted; the same command continues from the last checkpoint\n"
    assert done.stdout.count("running") == 1


def test_an_exit_of_the_task_s_own_keeps_its_code(program: Program) -> None:
    assert program(CROSS, "what=exit").returncode == 7


def test_all_faults_of_a_command_line_are_told_before_anything_runs(program: Program) -> None:
    done = program("+experiment=dualcse_cros", "encoder=bert_bse", "sede=1", task='"missing_module:run"')
    assert done.returncode == 2
    assert done.stderr.startswith("error: 3 faults in the config:\n  +experiment=dualcse_cros: ")
    assert "\n  encoder=bert_bse: there is no encoder 'bert_bse' - did you mean 'bert_base'?" in done.stderr
    assert done.stderr.endswith("\n  sede=1: unknown key 'sede' - did you mean 'seed'?\n")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_training_without_an_experiment_lists_them(program: Program) -> None:
    done = program()
    assert done.returncode == 2
    assert "\n    dualcse_cross  DualCSE with a cross-encoder.\n" in done.stderr


def test_in_a_sweep_a_failing_point_is_told_and_the_others_run(program: Program) -> None:
    done = program("-m", CROSS, "seed=0,1,2,3", "what=odd")
    assert done.returncode == 2
    assert re.findall(r"running dualcse_cross seed=(\d)", done.stdout) == ["0", "1", "2", "3"]
    points = [f"{CROSS} seed={seed} what=odd" for seed in (1, 3)]
    assert done.stderr == (
        f"the point {points[0]} failed, the others go on\nerror: train.tsv, line 41: no premise\n"
        f"the point {points[1]} failed, the others go on\nerror: train.tsv, line 43: no premise\n"
        "error: 4 points: 2 done now, 2 failed\n"
        f"  failed: {points[0]}: DataError: train.tsv, line 41: no premise\n"
        f"  failed: {points[1]}: DataError: train.tsv, line 43: no premise\n"
        "retry_failed=true tries the failed ones again, force=true starts everything anew\n"
    )


def test_in_a_sweep_a_bug_gives_a_traceback_and_exit_code_1(program: Program) -> None:
    done = program("-m", CROSS, "what=user,bug,ok")
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "ValueError: a bug at seed 0" in done.stderr
    assert "\nerror: 3 points: 1 done now, 2 failed\n" in done.stderr
    assert f"\n  failed: {CROSS} what=bug: ValueError: a bug at seed 0\n" in done.stderr
    assert done.stdout.count("running") == 3


def test_a_sweep_over_experiments(program: Program) -> None:
    done = program("+sweep=both", "+debug=tiny")
    assert (done.returncode, done.stderr) == (0, "")
    points = re.findall(r"running (\w+) seed=(\d) order=(\w+)", done.stdout)
    assert points == [(name, seed, "debug") for name in ("dualcse_cross", "simcse") for seed in "12"]


def test_the_sweeper_gets_nan_for_a_failed_point(program: Program, conf: Path) -> None:
    folder = conf.parent
    (folder / "watch.py").write_text(
        "from hydra.experimental.callback import Callback\n"
        "class Watch(Callback):\n"
        "    def on_job_end(self, config, job_return, **kwargs):\n"
        "        print('value', job_return.return_value)\n"
    )
    done = program("-m", CROSS, "seed=0,1", "what=odd", "+hydra.callbacks.watch._target_=watch.Watch")
    assert re.findall(r"^value (.*)$", done.stdout, re.MULTILINE) == ["0.0", "nan"]


def test_the_task_may_be_named_and_is_imported_late(program: Program) -> None:
    done = program(CROSS, "what=heavy", task='"program:run"')
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "torch imported: False")


@pytest.mark.parametrize(("env", "value"), [({}, "false"), ({"TOKENIZERS_PARALLELISM": "true"}, "true")])
def test_tokenizers_stay_single_threaded_unless_asked(program: Program, env: dict[str, str], value: str) -> None:
    assert program(CROSS, "what=threads", **env).stdout.splitlines()[-1] == value


def test_the_log_is_named_after_the_config(program: Program, tmp_path: Path) -> None:
    program(CROSS)
    assert (tmp_path / "runs" / "run" / "train.log").is_file()


@pytest.mark.parametrize("args", [["--help"], ["--hydra-help"], ["--version"], ["--info", "searchpath"]])
def test_help_needs_no_experiment_and_is_quick(program: Program, args: list[str]) -> None:
    start = time.perf_counter()
    done = program(*args)
    assert done.returncode == 0
    assert "Hydra" in done.stdout or "search path" in done.stdout.lower()
    assert "Traceback" not in done.stderr
    assert time.perf_counter() - start < 10  # two seconds on a machine that is free; no torch in any case


def test_the_composed_config_is_shown(program: Program) -> None:
    done = program(CROSS, "--cfg", "job", "+debug=tiny", "--package", "encoder")
    assert done.stdout == "# @package encoder\nname: tiny\nmax_length: 64\n"


def test_a_missing_conf_folder_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("lightning_cse.config.paths._PACKAGE", tmp_path)
    monkeypatch.setattr("lightning_cse.config.paths._REPOSITORY", tmp_path / "repository")
    monkeypatch.setattr("sys.argv", ["train"])
    with pytest.raises(SystemExit) as caught:
        launch("nowhere:run", "train")
    assert caught.value.code == launch_module.EXIT_USER
    assert f"conf/: not found (looked for {tmp_path / 'conf'}" in capsys.readouterr().err
