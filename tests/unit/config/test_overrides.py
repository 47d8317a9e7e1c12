"""Which overrides mean something, and what is said of the others."""

# ruff: noqa: E501 - a fault stands on one line, as it is told

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from lightning_cse.config.overrides import check_overrides
from lightning_cse.config.tree import ConfigTree
from lightning_cse.errors import ConfigError

Faults = Callable[..., list[str]]
Add = Callable[[dict[str, str]], None]
CROSS = "+experiment=dualcse_cross"


@pytest.fixture
def faults(conf: Path) -> Faults:
    def check(*args: str, config_name: str = "train") -> list[str]:
        try:
            check_overrides(list(args), conf, config_name)
        except ConfigError as error:
            return error.faults
        return []

    return check


@pytest.mark.parametrize(
    "args",
    [
        [CROSS],
        ["experiment=dualcse_cross"],
        ["++experiment=dualcse_cross", "encoder=bert_base", "+suite=sts", "suite.tasks=[x]"],
        [
            CROSS,
            "method.loss.temperature=1",
            "seed=3",
            "++seed=4",
            "monitor=x",
            "encoder.name=y",
        ],
        [CROSS, "+trainer.deterministic=true", "++trainer.deterministic=true", "+trainer.deep.er=1"],
        [CROSS, "trainer={max_epochs: 1}", "+trainer={other: 1}", "+method.schedule={_target_: x, warmup: 1}"],
        [CROSS, "+monitor=x", "tags=[x]", "+tags=[x]", "recipe.default.lr=1", "tags.0=z"],
        [CROSS, "~logger", "~seed", "~recipe.bert_base", "~encoder.max_length"],
        [CROSS, "hydra.job.chdir=true", "hydra/launcher=basic", "+hydra.job.env_set.X=1", "hydra.mode=RUN"],
        [CROSS, "monitor='a, b'", 'monitor="it\'s"', "monitor=${name}"],
        ["name=mine", "method=dualcse", "method.loss.temperature=1"],
        ["-m", "+experiment=dualcse_cross,simcse", "seed=range(0,3)", "encoder=choice(tiny,bert_base)"],
        ["-m", "+experiment=glob(*,exclude=dual*)", "seed=1,2", "method.loss.hard_weight=1,2"],
        ["+experiment=glob(*)", "hydra.mode=MULTIRUN", "seed=shuffle(range(3))"],
        ["+experiment=dualcse_cross,simcse", "+sweep=seeds", "+debug=tiny"],
        ["+sweep=both", "+debug=tiny"],
        ["+sweep=both", CROSS],
        ["--cfg", "job"],
        ["a=1", "--help"],
        ["--hydra-help"],
        ["a=1", "--info"],
    ],
)
def test_what_means_something_passes(faults: Faults, args: list[str]) -> None:
    assert faults(*args) == []


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        # group options
        (
            ["+experiment=dualcse_cros"],
            "+experiment=dualcse_cros: there is no experiment 'dualcse_cros' - did you mean 'dualcse_cross'?"
            " (there are: dualcse_cross, simcse)",
        ),
        (
            [CROSS, "encoder=bert_bse"],
            "encoder=bert_bse: there is no encoder 'bert_bse' - did you mean 'bert_base'?"
            " (there are: bert_base, roberta_base, tiny)",
        ),
        ([CROSS, "+profile=zzz"], "+profile=zzz: there is no profile 'zzz' (there are: laptop)"),
        (
            ["-m", "+experiment=simcse,dualcse_crss", "seed=1,2"],
            "+experiment=simcse,dualcse_crss: there is no experiment 'dualcse_crss' - did you mean 'dualcse_cross'?"
            " (there are: dualcse_cross, simcse)",
        ),
        (["-m", "+experiment=glob(z*)"], "+experiment=glob(z*): matches no experiment (there are: dualcse_cross, simcse)"),
        ([CROSS, "suite=sts"], "suite=sts: 'suite' is not in the defaults list - did you mean '+suite=sts'?"),
        ([CROSS, "+encoder=tiny"], "+encoder=tiny: 'encoder' is chosen already - did you mean 'encoder=tiny'?"),
        ([CROSS, "++encoder=tiny"], "++encoder=tiny: 'encoder' is chosen already - did you mean 'encoder=tiny'?"),
        ([CROSS, "++suite=sts"], "++suite=sts: 'suite' is not in the defaults list - did you mean '+suite=sts'?"),
        ([CROSS, "encoder@x=tiny"], "encoder@x=tiny: 'encoder@x' is not in the defaults list - did you mean 'encoder=tiny'?"),
        ([CROSS, "logger=null"], "logger=null: a group is left out with '~logger'"),
        # keys
        (["+experimnt=x", CROSS], "+experimnt=x: unknown key 'experimnt' - did you mean '+experiment=x'?"),
        ([CROSS, "encodr=tiny"], "encodr=tiny: unknown key 'encodr' - did you mean 'encoder=tiny'?"),
        ([CROSS, "sede=1"], "sede=1: unknown key 'sede' - did you mean 'seed'?"),
        ([CROSS, "+sede=1"], "+sede=1: unknown key 'sede' - did you mean 'seed'?"),
        ([CROSS, "++sede=1"], "++sede=1: unknown key 'sede' - did you mean 'seed'?"),
        ([CROSS, "lr=1"], "lr=1: unknown key 'lr' - did you mean 'method.optimizer.lr'?"),
        ([CROSS, "+temprature=1"], "+temprature=1: unknown key 'temprature' - did you mean 'method.loss.temperature'?"),
        ([CROSS, "+recipe.default.lrr=1"], "+recipe.default.lrr=1: unknown key 'recipe.default.lrr' - did you mean 'recipe.default.lr'?"),
        ([CROSS, "+encoder.max_len.x=1"], "+encoder.max_len.x=1: unknown key 'encoder.max_len.x' - did you mean 'encoder.max_length'?"),
        ([CROSS, "+encoder={max_len: 1}"], "+encoder={max_len: 1}: unknown key 'encoder.max_len' - did you mean 'encoder.max_length'?"),
        (
            [CROSS, "method.los.temperature=1"],
            "method.los.temperature=1: unknown key 'method.los.temperature' - did you mean 'method.loss.temperature'?"
            " (an argument that the config does not list is added with a plus: +method.los.temperature=1)",
        ),
        (
            [CROSS, "trainer.max_epoch=1"],
            "trainer.max_epoch=1: unknown key 'trainer.max_epoch' - did you mean 'trainer.max_epochs'?"
            " (an argument that the config does not list is added with a plus: +trainer.max_epoch=1)",
        ),
        ([CROSS, "+qqqqq=1"], "+qqqqq=1: unknown key 'qqqqq'"),
        ([CROSS, "+qqqqq={_target_: x}"], "+qqqqq={_target_: x}: unknown key 'qqqqq._target_'"),
        ([CROSS, "+foo/bar=1"], "+foo/bar=1: there is no group 'foo/bar'"),
        ([CROSS, "+seed=1"], "+seed=1: 'seed' is in the config already - write it without the plus"),
        ([CROSS, "~sead"], "~sead: there is nothing to delete at 'sead' - did you mean 'seed'?"),
        (
            ["-m", "+experiment=dualcse_cross,simcse", "method.loss.contradiction=true"],  # simcse's has none
            "method.loss.contradiction=true: unknown key 'method.loss.contradiction'"
            " (an argument that the config does not list is added with a plus: +method.loss.contradiction=true)",
        ),
        # grammar
        ([CROSS, "dualcse_cross"], "dualcse_cross: not an override, which is key=value - did you mean '+experiment=dualcse_cross'?"),
        ([CROSS, "seed"], "seed: not an override, which is key=value"),
        (
            [CROSS, "seed=0,1"],
            "seed=0,1: several values need -m, which runs one after the other; "
            "as one value they are a list, seed=[0,1], or a text, 'seed=\"0,1\"'",
        ),
        ([CROSS, "seed=range(3)"], "seed=range(3): a sweep needs -m, which runs one value after the other"),
        # Hydra's own
        (
            [CROSS, "hydra/launcher=rq"],
            "hydra/launcher=rq: the plugin for hydra/launcher=rq is not installed - pip install hydra-rq-launcher",
        ),
        (
            [CROSS, "hydra/sweeper=optuna"],
            "hydra/sweeper=optuna: there is no hydra/sweeper 'optuna' - hydra/sweeper=tpe is the one that searches with Optuna",
        ),
        ([CROSS, "hydra/sweeper=tpee"], "hydra/sweeper=tpee: there is no hydra/sweeper 'tpee' - did you mean 'tpe'? (there are: basic, points, tpe)"),
        ([CROSS, "hydra/launchr=basic"], "hydra/launchr=basic: there is no group 'hydra/launchr' - did you mean 'hydra/launcher'?"),
    ],
)  # fmt: skip
def test_one_mistake_gives_one_fault_that_names_the_next_step(faults: Faults, args: list[str], fault: str) -> None:
    assert faults(*args) == [fault]


def test_a_text_that_hydra_cannot_read_comes_back_quoted(faults: Faults) -> None:
    (fault,) = faults(CROSS, "monitor=How's it?")
    assert fault.startswith("monitor=How's it?: Hydra cannot read this value - quote it")
    quoted = fault.rpartition("for the shell: ")[2]
    assert quoted == """'monitor="How'"'"'s it?"'"""  # which the shell turns into monitor="How's it?"
    assert faults(CROSS, 'monitor="How\'s it?"') == []


def test_a_key_of_hydra_is_checked_as_hydra_does(faults: Faults) -> None:
    (fault,) = faults(CROSS, "hydra.job.chdirr=true")
    assert fault.startswith("hydra.job.chdirr=true: Could not override 'hydra.job.chdirr'")


def test_all_faults_are_told_at_once(faults: Faults) -> None:
    found = faults(
        "+experiment=dualcse_cros", "encoder=bert_bse", "+experimnt=x", "method.los.temperature=1", "seed", "sede=1",
        "hydra/launcher=rq",
    )  # fmt: skip
    assert [fault.partition(":")[0] for fault in found] == [
        "seed",
        "+experiment=dualcse_cros",
        "encoder=bert_bse",
        "hydra/launcher=rq",
        "+experimnt=x",
        "method.los.temperature=1",
        "sede=1",
    ]
    assert "pip install hydra-rq-launcher" in found[3]
    assert "'method.loss.temperature'" in found[5]


def test_without_an_experiment_all_are_listed_with_their_first_line(faults: Faults) -> None:
    assert faults() == [
        "name: not set, since no experiment was chosen - add +experiment=<one of these>:\n"
        "    dualcse_cross  DualCSE with a cross-encoder.\n"
        "    simcse         SimCSE, supervised."
    ]


def test_without_an_experiment_only_what_no_experiment_knows_is_unknown(faults: Faults) -> None:
    found = faults("method.loss.contradiction=true", "method.loss.hard_weight=1", "recipe.bert_base.lr=1", "sede=1")
    assert [fault.partition(":")[0] for fault in found] == ["name", "sede=1"]


def test_an_experiment_unlike_any_other_does_not_make_its_keys_unknown(faults: Faults) -> None:
    (fault,) = faults("+experiment=qqqq", "method.loss.hard_weight=1")
    assert fault == "+experiment=qqqq: there is no experiment 'qqqq' (there are: dualcse_cross, simcse)"


def test_where_there_is_no_experiment_a_name_is_asked_for(faults: Faults, add: Add, conf: Path) -> None:
    add({"alone.yaml": "name: ???"})
    shutil.rmtree(conf / "experiment")
    assert faults(config_name="alone") == [
        "name: not set, and there is no experiment that would set it - write name=<a name>"
    ]
    assert faults("name=mine", config_name="alone") == []


def test_a_config_without_a_mandatory_name_needs_no_experiment(faults: Faults, add: Add) -> None:
    add({"evaluate.yaml": "model: ???\ntopk: 3"})
    assert faults("+suite=sts", config_name="evaluate") == []
    assert faults("--config-name", "evaluate", "topk=5") == []
    assert faults("-cn", "evaluate", "topkk=5") == ["topkk=5: unknown key 'topkk' - did you mean 'topk'?"]


def test_the_parameters_of_a_sweep_are_checked_too(faults: Faults) -> None:
    found = faults(CROSS, "+sweep=wrong")
    assert found == [
        "hydra.sweeper.params: encoder=bert_base,bert_bse: there is no encoder 'bert_bse' - did you mean 'bert_base'?"
        " (there are: bert_base, roberta_base, tiny)",
        "hydra.sweeper.params: seeed=1,2: unknown key 'seeed' - did you mean 'seed'?",
    ]


def test_the_command_line_replaces_a_parameter_of_the_sweep(faults: Faults) -> None:
    assert len(faults(CROSS, "+sweep=wrong", "encoder=tiny")) == 1


def test_an_experiment_that_names_a_missing_option_is_told_with_its_file(faults: Faults, add: Add) -> None:
    add({"experiment/broken.yaml": "# @package _global_\ndefaults: [override /method: dualcs]\nname: broken"})
    assert faults("+experiment=broken") == [
        "experiment/broken.yaml: there is no method 'dualcs' - did you mean 'dualcse'? (there are: dualcse, simcse)"
    ]


def test_a_sweep_that_needs_a_launcher_says_what_to_install(faults: Faults, add: Add) -> None:
    add({"sweep/far.yaml": "# @package _global_\ndefaults: [override /hydra/launcher: rq]\nhydra: {mode: MULTIRUN}"})
    (fault,) = faults(CROSS, "+sweep=far")
    assert fault.endswith("is not installed - pip install hydra-rq-launcher")


@pytest.mark.parametrize(
    ("choice", "extra"),
    [
        ("hydra/launcher=joblib", "joblib"),
        ("hydra/launcher=submitit_local", "slurm"),
        ("hydra/launcher=submitit_slurm", "slurm"),
        ("hydra/launcher=ray", "ray"),
        ("hydra/sweeper=tpe", "optuna"),
    ],
)
def test_what_an_extra_brings_names_the_extra(
    faults: Faults, monkeypatch: pytest.MonkeyPatch, choice: str, extra: str
) -> None:
    group, _, option = choice.partition("=")
    options, find_spec = ConfigTree.options, importlib.util.find_spec

    def without_plugin(tree: ConfigTree, name: str) -> list[str]:
        ours = option in ("ray", "tpe")  # whose plugins are part of the package, and whose libraries are not
        return [other for other in options(tree, name) if ours or (name, other) != (group, option)]

    def without_library(name: str) -> object:
        return None if name in ("ray", "optuna") else find_spec(name)

    monkeypatch.setattr(ConfigTree, "options", without_plugin)
    monkeypatch.setattr(importlib.util, "find_spec", without_library)
    (fault,) = faults("-m", CROSS, "monitor=a,b", choice)
    assert fault == f"{choice}: is not installed - it needs pip install 'lightning_cse[{extra}]'"


# Listed points and searches


@pytest.fixture
def listed(tmp_path: Path) -> Callable[[str], list[str]]:
    def arguments(text: str) -> list[str]:
        path = tmp_path / "points.yaml"
        path.write_text(text, encoding="utf-8")
        return ["hydra/sweeper=points", f"hydra.sweeper.file={path}"]

    return arguments


Listed = Callable[[str], list[str]]
POINTS = "- [+experiment=dualcse_cross, seed=0]\n- [+experiment=simcse, method.loss.hard_weight=2]\n"


def test_listed_points_pass_with_what_holds_for_all(faults: Faults, listed: Listed) -> None:
    assert faults("-m", *listed(POINTS), "+debug=tiny", "seed=0,1", "method.loss.temperature=1") == []
    assert faults("hydra.mode=MULTIRUN", *listed(POINTS)) == []


def test_every_listed_point_is_checked_and_named(faults: Faults, listed: Listed) -> None:
    wrong = (
        "- [+experiment=simcse, method.loss.hard_weigth=2]\n- [+experiment=simcs]\n- [encoder=tiny, name=x]\n- [seed=1]\n"
        "- [+experiment=simcse, 'seed=1,2']\n- [+experiment=simcse, hydra.job.chdir=true]\n- ['seed=(']\n"
    )
    found = [fault.partition("points.yaml, ")[2] for fault in faults("-m", *listed(POINTS + wrong))]
    assert [fault.partition("\n")[0][:75] for fault in found] == [
        "point 2: method.loss.hard_weigth=2: unknown key 'method.loss.hard_weigth' -",
        "point 3: +experiment=simcs: there is no experiment 'simcs' - did you mean '",
        "point 5: name: not set, since no experiment was chosen - add +experiment=<o",
        "point 6: seed=1,2: a point has one value a key: write a point for each, or ",
        "point 7: hydra.job.chdir=true: settings of Hydra hold for the whole sweep a",
        "point 8: seed=(: Hydra cannot read this value (Error parsing override 'seed",
    ]


def test_what_is_wrong_for_all_listed_points_is_told_once(faults: Faults, listed: Listed) -> None:
    (fault,) = faults("-m", *listed(POINTS), "sede=3")
    assert fault == "sede=3: unknown key 'sede' - did you mean 'seed'?"


def test_of_many_wrong_points_ten_are_told(faults: Faults, listed: Listed) -> None:
    found = faults("-m", *listed("".join(f"- [+experiment=simcse, sede={n}]\n" for n in range(14))))
    assert len(found) == 11
    assert found[-1] == "4 more of the 14 points have faults"


def test_a_file_of_points_that_is_none_is_one_fault(faults: Faults, listed: Listed) -> None:
    (fault,) = faults("-m", *listed("- seed=0\n"))
    assert "points.yaml, point 0: 'seed=0' is no list of overrides" in fault


def test_a_sweep_in_a_config_may_list_its_points(faults: Faults, add: Add) -> None:
    add(
        {
            "sweep/listed.yaml": """
                # @package _global_
                defaults: [override /hydra/sweeper: points]
                hydra: {mode: MULTIRUN, sweeper: {points: [[seed=0], [sede=1]]}}
                """
        }
    )
    (fault,) = faults("+sweep=listed", CROSS)
    assert fault == "hydra.sweeper.points, point 1: sede=1: unknown key 'sede' - did you mean 'seed'?"


@pytest.mark.parametrize("sweeper", ["points", "tpe"])
def test_a_sweeper_needs_a_multirun(faults: Faults, sweeper: str) -> None:
    assert faults(CROSS, f"hydra/sweeper={sweeper}") == [f"hydra/sweeper={sweeper}: a sweep needs -m"]


def test_a_grid_is_a_space_and_a_seed_is_none(faults: Faults) -> None:
    search = "hydra/sweeper=tpe"
    assert faults(CROSS, "+sweep=seeds", search) == [
        "seed: the luckiest seed is no setting; search with one, seed=0, and repeat the best point"
    ]
    assert faults(CROSS, "+sweep=seeds", search, "seed=0", "method.loss.temperature=tag(log,interval(0.01,1))") == []
    assert faults(CROSS, "-m", search) == [
        "hydra/sweeper=tpe: nothing to search; give several values: data.batch_size=16,32,64"
    ]
    assert faults(CROSS, "-m", "method.loss.temperature=interval(0.01,1)") == [
        "method.loss.temperature=interval(0.01,1): an interval is for hydra/sweeper=tpe; a grid takes values: 1e-5,3e-5"
    ]


@pytest.mark.parametrize("text", ["x: ${oc.env:HOME,~/y}", "x: [1, 2", "x: 1\nx: 2"])
def test_a_config_that_cannot_be_read_is_named(faults: Faults, add: Add, text: str) -> None:
    add({"experiment/broken.yaml": f"# @package _global_\n{text}"})
    (fault,) = faults("+experiment=broken")
    assert "broken.yaml" in fault


def test_parts_and_folders_of_a_group(faults: Faults, add: Add) -> None:
    add({"experiment/gausscse/nli.yaml": "# @package _global_\nname: x"})
    assert faults("+experiment=gausscse/nli") == []
    (fault,) = faults(CROSS, "+method=zzz")
    assert "_optimizer" not in fault
    (fault,) = faults("+experiment=zzz")
    assert fault.endswith("(there are: dualcse_cross, gausscse/nli, simcse)")


def test_an_extra_folder_of_configs(faults: Faults, tmp_path: Path) -> None:
    (tmp_path / "extra" / "encoder").mkdir(parents=True)
    (tmp_path / "extra" / "encoder" / "mine.yaml").write_text("name: mine\nwidth: 3")
    assert faults(CROSS, "encoder=mine", "encoder.width=4", "--config-dir", str(tmp_path / "extra")) == []
    assert faults(CROSS, "--config-dir", str(tmp_path / "nowhere")) == [
        f"--config-dir: there is no folder {tmp_path / 'nowhere'}"
    ]


def test_nothing_of_hydra_s_is_left_behind(faults: Faults) -> None:
    faults(CROSS, "sede=1")
    assert not GlobalHydra.instance().is_initialized()
