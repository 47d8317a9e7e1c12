"""Dashboards are built with W&B's own package and without a network; what fails is one sentence."""

import copy
import json
import socket
import sys

import pytest
import yaml

pytest.importorskip("wandb_workspaces", reason="needs wandb-workspaces")

import wandb
import wandb_workspace
import wandb_workspaces.workspaces as ws
from pydantic import ValidationError
from wandb_workspaces.workspaces import internal

from lightning_cse.engine.record import final_values
from lightning_cse.loggers.build import STEP
from lightning_cse.tables.records import read_runs

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


def in_schema(view):
    """Return a view as W&B's own schema reads it, and the kinds of its charts; unknown keys drop
    out.
    """
    read = internal.View.model_validate(view)
    sections = read.spec.section.panel_bank_config.sections
    types = {type(panel).__name__ for section in sections for panel in section.panels}

    return read.model_dump(mode="json", by_alias=True, exclude_none=True), types


def test_the_json_is_of_the_schema_of_wandb(capsys):
    assert wandb_workspace.main([*GIVEN, "--dry-run"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert in_schema(view) == (view, {"LinePlot", "ScatterPlot"})

    changed = copy.deepcopy(view)
    section = changed["spec"]["section"]["panelBankConfig"]["sections"][0]
    section["panels"][0]["config"]["xAxes"] = "step"
    assert in_schema(changed)[0] == view
    section["panels"][0]["viewType"] = "Line"
    assert "UnknownPanel" in in_schema(changed)[1]
    section["flowConfig"]["columnsPerPage"] = "two"
    with pytest.raises(ValidationError, match="columnsPerPage"):
        in_schema(changed)


def test_sections_show_their_charts_on_one_page(capsys):
    assert wandb_workspace.main([*GIVEN, "--dry-run"]) == 0
    view = json.loads(capsys.readouterr().out)
    for section in view["spec"]["section"]["panelBankConfig"]["sections"]:
        grid = section["flowConfig"]
        assert grid["columnsPerPage"] * grid["rowsPerPage"] == len(section["panels"])


def test_what_is_saved_is_what_was_printed(monkeypatch, capsys):
    """W&B's client sends a workspace in one request, whose answer names the view."""
    sent = []

    def answer(api, query, variables):
        sent.append(variables)
        return {"upsertView": {"view": {"name": "nw-abc-v", "id": "1"}}}

    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setattr(wandb, "Api", lambda timeout=None: None)
    monkeypatch.setattr(internal, "execute_graphql", answer)
    monkeypatch.setattr(ws.interface, "get_app_url", lambda api: "https://example.org")
    assert wandb_workspace.main([*GIVEN, "--dry-run"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert wandb_workspace.main(GIVEN) == 0
    assert capsys.readouterr().out == "https://example.org/lab/cse?nw=abc\n"
    (request,) = sent
    assert (request["entityName"], request["projectName"]) == ("lab", "cse")
    assert without_ids(json.loads(request["spec"])) == without_ids(printed["spec"])


def without_ids(content):
    """Return JSON without the random names of its parts."""
    if isinstance(content, dict):
        return {
            key: without_ids(value) for key, value in content.items() if key not in {"__id__", "id"}
        }

    return [*map(without_ids, content)] if isinstance(content, list) else content


def test_kept_runs_fill_the_charts(repository):
    """The curves of the papers' kept runs, and their final values, have the keys shown."""
    curves = {"train/learning_rate"}  # not kept
    finals = set()
    for run in read_runs([repository / "experiments"]):
        curves |= {*run.curves}
        finals |= set(final_values(run.record)) if "best" in run.record else set()

    workspace = wandb_workspace.workspace("lab", "cse", ["val/stsb/spearman"], [])
    for panel in (panel for section in workspace.sections for panel in section.panels):
        if hasattr(panel, "groupby"):
            assert set(panel.y) <= curves
        else:
            assert {panel.x.name, panel.y.name} <= finals


def test_scores_are_those_of_experiments_and_suites(repository):
    files = [*(repository / "conf" / "experiment").rglob("*.yaml")]
    monitors = {yaml.safe_load(file.read_text()).get("monitor") for file in files}
    assert monitors - {None} == set(wandb_workspace.DEV_SCORES)
    suites = [*(repository / "conf" / "suite").rglob("*.yaml")]
    tasks = {task for suite in suites for task in yaml.safe_load(suite.read_text())}
    assert {key.split("/")[1] for key in wandb_workspace.TEST_SCORES} <= tasks


def test_saved_for_who_is_logged_in(monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    account = type("Api", (), {"default_entity": "me"})
    monkeypatch.setattr(wandb, "Api", lambda timeout: account)
    monkeypatch.setattr(ws.Workspace, "save", lambda workspace: None)
    address = property(
        lambda workspace: f"https://example.org/{workspace.entity}/{workspace.project}"
    )
    monkeypatch.setattr(ws.Workspace, "url", address)
    assert wandb_workspace.main(["--project", "cse"]) == 0
    assert wandb_workspace.main(GIVEN) == 0
    assert capsys.readouterr().out == "https://example.org/me/cse\nhttps://example.org/lab/cse\n"


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
