"""Entry points as a user starts them: messages, exit codes, sweeps."""

from __future__ import annotations

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
        f"error: 2 of 4 points failed: {points[0]}; {points[1]}\n"
    )


def test_in_a_sweep_a_bug_gives_a_traceback_and_exit_code_1(program: Program) -> None:
    done = program("-m", CROSS, "what=user,bug,ok")
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "ValueError: a bug at seed 0" in done.stderr
    assert done.stderr.endswith(f"error: 2 of 3 points failed: {CROSS} what=user; {CROSS} what=bug\n")
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
