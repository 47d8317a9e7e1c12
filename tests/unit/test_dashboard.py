"""Dashboards are built with W&B's own package and without a network; what fails is one sentence."""

import json
import socket
import sys

import pytest
import yaml

pytest.importorskip("wandb_workspaces", reason="needs the extra `dashboard`")

import wandb
import wandb_workspaces.workspaces as ws

from lightning_cse import dashboard
from lightning_cse.dashboard import DEV_SCORES, TEST_SCORES
from lightning_cse.loggers import views

GIVEN = [
    "--project",
    "cse",
    "--entity",
    "lab",
    "--dev",
    "val/stsb/spearman",
    "--test",
    "test/rte/accuracy_all",
]
DIAGNOSTICS = {
    f"diag/{side}/{m}" for side in ("held_out", "eval") for m in ("alignment", "uniformity")
}
RFD = {"diag/rfd_alignment", "diag/rfd_uniformity"}
CURVES = {
    *RFD,
    *DIAGNOSTICS,
    "val/stsb/spearman",
    "train/loss",
    "train/learning_rate",
}
COLUMNS = [
    "run:displayName",
    "config:seed.value",
    "summary:best/score",
    "summary:val/stsb/spearman.max",
]
COLUMNS += [
    "summary:test/rte/accuracy_all",
    "summary:summary/rfd_alignment",
    "summary:summary/rfd_uniformity",
]


@pytest.fixture(autouse=True)
def no_network_nobody_logged_in(monkeypatch, tmp_path):
    """Fail whatever connects, and hide this machine's own W&B account."""

    def refuse(*_, **__):
        raise AssertionError("this test connected to something")

    monkeypatch.setattr(
        socket.socket,
        "connect",
        refuse,
    )
    for variable in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


@pytest.fixture
def dry(capsys):
    """What the command would build."""

    def run(*arguments):
        assert dashboard.main([*arguments, "--dry-run"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def grids(content):
    """Return the lists of charts that share a grid, wherever they are."""
    if isinstance(content, dict):
        own = content.get("panels")
        mine = (
            [own] if isinstance(own, list) and own and all("viewType" in one for one in own) else []
        )
        return mine + [found for value in content.values() for found in grids(value)]
    return [found for item in content for found in grids(item)] if isinstance(content, list) else []


def test_charts(dry):
    shown = grids(dry(*GIVEN))
    charts = [one for grid in shown for one in grid]
    lines = [one["config"] for one in charts if one["viewType"] == "Run History Line Plot"]
    assert sorted(key for line in lines for key in line["metrics"]) == sorted(CURVES)
    for line in lines:
        assert (line["xAxis"], line["groupBy"], line["groupAgg"]) == (views.STEP, "group", "mean")
    dots = [one["config"] for one in charts if one["viewType"] == "Scatter Plot"]
    rfd = [f"summary:summary/{key.removeprefix('diag/')}" for key in sorted(RFD)]
    assert [(one["xAxis"], one["yAxis"]) for one in dots] == [
        (key, "summary:best/score") for key in rfd
    ]
    for grid in shown:
        assert len({(one["layout"]["x"], one["layout"]["y"]) for one in grid}) == len(grid)
    assert sum(map(len, grids(dry("--project", "cse")))) == len(charts) - 1 + len(DEV_SCORES)


def test_the_table_of_runs_pins_the_columns_and_groups_by_sweep(dry):
    view = dry(*GIVEN)
    assert (view["entity"], view["project"]) == ("lab", "cse")
    (runs,) = view["spec"]["section"]["runSets"]
    assert runs["runFeed"]["columnOrder"] == COLUMNS
    assert runs["grouping"] == [{"section": "run", "name": "group"}]


def test_scores_are_those_of_experiments_and_suites(repository):
    files = [
        yaml.safe_load(file.read_text())
        for file in (repository / "conf" / "experiment").rglob("*.yaml")
    ]
    assert {str(one["monitor"]) for one in files if one.get("monitor")} == set(DEV_SCORES)
    suites = [
        yaml.safe_load(file.read_text()) for file in (repository / "conf" / "suite").rglob("*.yaml")
    ]
    assert {key.split("/")[1] for key in TEST_SCORES} <= {
        task for suite in suites for task in suite
    }


def test_saved_for_who_is_logged_in(monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setattr(
        wandb,
        "Api",
        lambda timeout: type(
            "Api",
            (),
            {"default_entity": "me"},
        ),
    )
    monkeypatch.setattr(
        ws.Workspace,
        "save",
        lambda one: None,
    )
    monkeypatch.setattr(
        ws.Workspace,
        "url",
        property(lambda one: f"https://example.org/{one.entity}/{one.project}"),
    )
    assert dashboard.main(["--project", "cse"]) == 0
    assert dashboard.main(GIVEN) == 0
    assert capsys.readouterr().out == "https://example.org/me/cse\nhttps://example.org/lab/cse\n"


@pytest.mark.parametrize(
    ("environment", "arguments", "message"),
    [
        ({}, [], "error: not logged in to W&B: run `wandb login`"),
        (
            {"WANDB_API_KEY": "0" * 40},
            [],
            "the workspace of lab/cse failed (ConnectionError: no route)",
        ),
        (
            {},
            ["--title", "\N{ROCKET}", "--dry-run"],
            "the workspace of lab/cse failed (ValidationError: ",
        ),
        (None, ["--dry-run"], "pip install 'lightning_cse[dashboard]'"),
    ],
)
def test_what_fails_is_one_line(environment, arguments, message, monkeypatch, capsys):
    def broken(_):
        raise ConnectionError("no\nroute")

    monkeypatch.setattr(
        ws.Workspace,
        "save",
        broken,
    )
    if environment is None:
        monkeypatch.setitem(
            sys.modules,
            "wandb_workspaces",
            None,
        )
    for name, value in (environment or {}).items():
        monkeypatch.setenv(name, value)
    assert dashboard.main([*GIVEN, *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
