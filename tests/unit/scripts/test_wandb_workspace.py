"""Dashboards are built with W&B's own package and without a network; what fails is one sentence."""

import json
import socket
import sys

import pytest
import yaml

pytest.importorskip("wandb_workspaces", reason="needs wandb-workspaces")

import wandb_workspace
import wandb_workspaces.workspaces as ws
from wandb_workspaces.workspaces import internal

from lightning_cse.loggers.build import STEP

GIVEN = ["--project", "cse", "--entity", "lab"]
CURVES = {
    "diag/rfd_alignment",
    "diag/rfd_uniformity",
    "diag/held_out/alignment",
    "diag/held_out/uniformity",
    "diag/eval/alignment",
    "diag/eval/uniformity",
    "train/loss",
    "train/learning_rate",
}


@pytest.fixture(autouse=True)
def no_network_nobody_logged_in(monkeypatch, tmp_path):
    """Fail whatever connects, and hide this machine's own W&B account."""

    def refuse(*_, **__):
        raise AssertionError("this test connected to something")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for variable in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)

    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


def panels(content):
    """Yield the charts, wherever they are."""
    if isinstance(content, dict):
        if "viewType" in content:
            yield content

        content = list(content.values())

    for inner in content if isinstance(content, list) else ():
        yield from panels(inner)


def test_charts_and_the_table_of_runs(capsys):
    arguments = [*GIVEN, "--dev", "val/stsb/spearman", "--test", "test/rte/accuracy_all"]
    assert wandb_workspace.main([*arguments, "--dry-run"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert (view["entity"], view["project"]) == ("lab", "cse")
    charts = [panel["config"] for panel in panels(view) if "Plot" in panel["viewType"]]
    lines = [chart for chart in charts if "metrics" in chart]
    assert {key for chart in lines for key in chart["metrics"]} == {*CURVES, "val/stsb/spearman"}
    for line in lines:
        assert (line["xAxis"], line["groupBy"], line["groupAgg"]) == (STEP, "group", "mean")

    dots = {(chart["xAxis"], chart["yAxis"]) for chart in charts if "metrics" not in chart}
    rfd = [f"summary:summary/rfd_{measure}" for measure in ("alignment", "uniformity")]
    assert dots == {(key, "summary:best/score") for key in rfd}
    (runs,) = view["spec"]["section"]["runSets"]
    assert runs["grouping"] == [{"section": "run", "name": "group"}]
    assert runs["runFeed"]["columnOrder"] == [
        "run:displayName",
        "config:seed.value",
        "summary:best/score",
        "summary:val/stsb/spearman.max",
        "summary:test/rte/accuracy_all",
        *rfd,
    ]


def test_the_json_is_of_the_schema_of_wandb(capsys):
    """Keys and charts that the schema does not know drop out of the view that it reads."""
    assert wandb_workspace.main([*GIVEN, "--dry-run"]) == 0
    view = json.loads(capsys.readouterr().out)
    read = internal.View.model_validate(view)
    assert read.model_dump(mode="json", by_alias=True, exclude_none=True) == view
    sections = read.spec.section.panel_bank_config.sections
    charts = {type(panel).__name__ for section in sections for panel in section.panels}
    assert charts == {"LinePlot", "ScatterPlot"}


def test_scores_are_those_of_experiments_and_suites(repository):
    files = [*(repository / "conf" / "experiment").rglob("*.yaml")]
    monitors = {yaml.safe_load(file.read_text()).get("monitor") for file in files}
    assert monitors - {None} == set(wandb_workspace.DEV_SCORES)
    suites = [*(repository / "conf" / "suite").rglob("*.yaml")]
    tasks = {task for suite in suites for task in yaml.safe_load(suite.read_text())}
    assert {key.split("/")[1] for key in wandb_workspace.TEST_SCORES} <= tasks


@pytest.mark.parametrize(
    ("key", "module", "message"),
    [
        ("", "", "error: not logged in to W&B: run `wandb login`"),
        ("0" * 40, "", "the workspace of lab/cse failed (ConnectionError: no route)"),
        ("0" * 40, "wandb_workspaces", "pip install 'wandb-workspaces>=0.4'"),
    ],
)
def test_what_fails_is_one_line(key, module, message, monkeypatch, capsys):
    def broken(_):
        raise ConnectionError("no\nroute")

    monkeypatch.setattr(ws.Workspace, "save", broken)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("WANDB_API_KEY", key)
    assert wandb_workspace.main(GIVEN) == 2
    stderr = capsys.readouterr().err
    assert message in stderr
    assert stderr.count("\n") == 1
