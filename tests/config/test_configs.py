"""Every config under ``conf/``: found, composed, validated; the papers' numbers, and their
sources.
"""

import re
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from lightning_cse.config.check import check
from lightning_cse.config.compose import APPENDED
from lightning_cse.errors import ConfigError

CONF = Path(__file__).resolve().parents[2] / "conf"
PAPERS = yaml.safe_load((Path(__file__).parent / "papers.yaml").read_text(encoding="utf-8"))
CROSS = "+experiment=dualcse_cross"

FILES = sorted(
    str(path.relative_to(CONF)) for path in CONF.rglob("*.yaml") if path.parent.name != "local"
)
OF_OTHER_COMMANDS = {
    "describe.yaml",
    "encoder/custom.yaml",  # has no source of its own
    "evaluate.yaml",
    "generate.yaml",
}
COMPOSED = [
    name
    for name in FILES
    if name not in OF_OTHER_COMMANDS and not name.startswith(("llm/", "pattern/"))
]


def options(group):
    """The options of a group, without parts of others (``_name``)."""
    names = [path.stem for path in (CONF / group).glob("*.yaml")]
    return sorted(name for name in names if not name.startswith("_"))


EXPERIMENTS = options("experiment")
GO_ON = {"consert_sup_unsup": "sbert", "consert_joint_unsup": "consert_joint"}
"""Experiments that start from a finished run, and the experiment of that run."""
ENCODERS = [name for name in options("encoder") if name != "custom"]
SETTINGS = {"none": [], "tiny": ["+debug=tiny"]} | {
    name: [f"+profile={name}"] for name in options("profile")
}


def valid(cfg):
    """Check a config as training does."""
    if cfg.name in GO_ON and OmegaConf.is_interpolation(cfg, "init_from"):
        cfg.init_from = "runs/mine"

    check(cfg, "train")

    return cfg


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSED)
def test_config_composes_and_validates(name, compose):
    group, _, option = name.removesuffix(".yaml").rpartition("/")
    if option.startswith("_"):  # no option of its own, but a part of others
        texts = [path.read_text() for path in (CONF / group).glob("*.yaml")]
        assert any(re.search(rf"^ *- {option}$", text, re.MULTILINE) for text in texts)
        return

    overrides = [CROSS] if group != "experiment" else []
    if group:
        overrides.append(f"{'+' if group in APPENDED else ''}{group}={option}")

    if name == "suite/own.yaml":
        overrides.append("own.sts=my.csv")

    cfg = valid(compose(*overrides))
    if group == "experiment":
        assert cfg.name == option


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_is_valid_in_every_setting(experiment, compose):
    for index, overrides in enumerate(SETTINGS.values(), start=EXPERIMENTS.index(experiment)):
        encoder = ENCODERS[index % len(ENCODERS)]
        cfg = valid(compose(f"+experiment={experiment}", *overrides, f"encoder={encoder}"))

        assert (cfg.name, cfg.encoder.name) == (experiment, encoder)
        assert 0 < cfg.method.optimizer.lr <= 0.1


@pytest.mark.parametrize(("experiment", "first"), GO_ON.items())
def test_experiment_that_goes_on_says_from_which_run(experiment, first, compose):
    cfg = compose(f"+experiment={experiment}", "init_from=runs/mine")
    check(cfg, "train")
    assert cfg.init_from == "runs/mine"
    check(compose(f"+experiment={experiment}", "+debug=tiny"), "train")
    with pytest.raises(ConfigError, match=f"needs init_from=runs/{first}/HASH-s0, the first"):
        check(compose(f"+experiment={experiment}"), "train")


OWN_FILE = ("data=file", "data.train=my/x.csv", "data.columns={anchor: question}")


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_takes_a_file_of_ones_own(experiment, compose):
    setting = list(SETTINGS.values())[EXPERIMENTS.index(experiment) % len(SETTINGS)]
    cfg = valid(compose(f"+experiment={experiment}", *setting, *OWN_FILE))
    assert (cfg.data.train, cfg.data.held_out, cfg.data.excluded) == ("my/x.csv", None, [])


# The papers' numbers -------------------------------------------------------------------------


def expected_runs():
    for paper, table in PAPERS.items():
        for run in table.get("runs", ()):
            values = table["shared"] | run["values"]
            encoders = run.get("encoders", [None])
            yield pytest.param(
                run["command"], encoders, values, id=f"{paper} {run['command']} {encoders[0]}"
            )


def select(cfg, key):
    node = OmegaConf.select(cfg, key.removesuffix(".*"))
    if key.endswith(".*"):
        return sorted(node)

    return OmegaConf.to_container(node) if OmegaConf.is_config(node) else node


@pytest.mark.parametrize(("command", "encoders", "values"), list(expected_runs()))
def test_command_composes_the_papers_numbers(command, encoders, values, compose):
    cfg = compose(*command.split())
    for encoder in encoders:
        if encoder is not None:
            cfg.encoder.name = encoder

        assert {key: select(cfg, key) for key in values} == values


SOURCE = re.compile(
    r"\bpaper\b|authors' code|official|our choice|\bas (for )?(DualCSE|dualcse_cross)\b"
)
NUMBER = re.compile(r":\s*[\[{]?.*(?<![\w.])[-+]?\d")


def test_every_number_of_an_experiment_names_its_source():
    numbers = 0
    for path in sorted((CONF / "experiment").glob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            value, _, comment = line.partition("#")
            if NUMBER.search(value):
                numbers += 1
                assert SOURCE.search(comment), f"{path.name}, line {number} has no source: {line}"

    assert numbers > 100


# Settings and sweeps -------------------------------------------------------------------------


@pytest.mark.parametrize("overrides", [*SETTINGS.values(), ["corpora.mnli_test=mnli/dev_matched"]])
def test_evaluated_rows_are_excluded_from_training(overrides, compose):
    cfg = compose("+experiment=gausscse", *overrides)
    tests = {cfg.suite[task].test for task in ("snli", "mnli", "sick")}
    assert tests | {cfg.suite.snli.dev, "stsb/dev", "stsb/test"} == set(cfg.data.excluded)


@pytest.mark.parametrize("sweep", PAPERS["sweeps"])
def test_sweep_has_the_points_it_names(sweep, compose):
    cfg = compose(f"+sweep={sweep}", with_hydra=True)
    assert str(cfg.hydra.mode) == "RunMode.MULTIRUN"

    lines = [f"{key}={value}" for key, value in cfg.hydra.sweeper.params.items()]
    values = {
        override.get_key_element(): list(override.sweep_string_iterator())
        for override in OverridesParser.create().parse_overrides(lines)
    }

    assert {key: len(points) for key, points in values.items()} == PAPERS["sweeps"][sweep]
    assert set(values.get("+experiment", [])) <= set(EXPERIMENTS)


def test_margins_are_swept_one_at_a_time(compose):
    sweeper = compose("+sweep=ngcse_margins", with_hydra=True).hydra.sweeper
    base = [f"{key}={value}" for key, value in sweeper.params.items()]
    margins = [re.findall(r"margin_(\w+=\S+)", line) for line in (*base, *map(str, sweeper.points))]
    assert [margin.strip("']") for (margin,) in margins] == PAPERS["margins"]["points"]
