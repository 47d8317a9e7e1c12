"""Dashboards are built with W&B's own package and without a network; saving one fails in one sentence."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("wandb_workspaces", reason="needs the extra `dashboard`")

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from lightning_cse import dashboard
from lightning_cse.analysis.dashboards import (
    DEV_SCORES,
    TEST_SCORES,
    DashboardError,
    Layout,
    as_json,
    report,
    save,
    workspace,
)
from lightning_cse.loggers import wandb_view


@pytest.fixture(autouse=True)
def no_network_nobody_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fail whatever connects, and hide this machine's own W&B account."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("this test connected to something")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


LAYOUT = Layout(project="cse", entity="lab", dev=["val/stsb/spearman"], test=["test/rte/accuracy_all"])
CURVES = {
    "diag/rfd_alignment",
    "diag/rfd_uniformity",
    "val/stsb/spearman",
    "diag/held_out/alignment",
    "diag/eval/alignment",
    "diag/held_out/uniformity",
    "diag/eval/uniformity",
    "train/loss",
    "train/learning_rate",
}
COLUMNS = [
    "run:displayName",
    "config:seed.value",
    "summary:best/score",
    "summary:val/stsb/spearman.max",
    "summary:test/rte/accuracy_all",
    "summary:summary/rfd_alignment",
    "summary:summary/rfd_uniformity",
]


def parts(content: Any, kind: str) -> list[dict[str, Any]]:
    """Return the configs of all charts of one kind, wherever they stand."""
    if isinstance(content, dict):
        own = [content["config"]] if content.get("viewType") == kind else []
        return own + [found for value in content.values() for found in parts(value, kind)]
    return [found for item in content for found in parts(item, kind)] if isinstance(content, list) else []


@pytest.mark.parametrize("build", [workspace, report])
class TestCharts:
    def test_each_curve_has_its_chart_by_sweep_over_the_steps(self, build: Any) -> None:
        lines = parts(as_json(build(LAYOUT)), "Run History Line Plot")
        assert {key for line in lines for key in line["metrics"]} == CURVES
        assert len(lines) == len(CURVES)
        for line in lines:
            assert (line["xAxis"], line["groupBy"], line["groupAgg"]) == ("trainer/global_step", "group", "mean")
            assert line["aggregate"] is True

    def test_dev_score_over_fitting_difficulty(self, build: Any) -> None:
        dots = parts(as_json(build(LAYOUT)), "Scatter Plot")
        assert [(one["xAxis"], one["yAxis"]) for one in dots] == [
            ("summary:summary/rfd_alignment", "summary:best/score"),
            ("summary:summary/rfd_uniformity", "summary:best/score"),
        ]

    def test_the_same_request_is_the_same_dashboard(self, build: Any) -> None:
        assert as_json(build(LAYOUT)) == as_json(build(LAYOUT))

    def test_charts_do_not_cover_each_other(self, build: Any) -> None:
        for shown in grids(as_json(build(LAYOUT))):
            places = [(one["layout"]["x"], one["layout"]["y"]) for one in shown]
            assert len(places) == len(set(places))
            assert all(x + 8 <= 24 for x, _ in places)

    def test_a_longer_list_of_scores_has_as_many_charts(self, build: Any) -> None:
        lines = parts(as_json(build(Layout(project="cse"))), "Run History Line Plot")
        assert len(lines) == len(CURVES) - 1 + len(DEV_SCORES)


def grids(content: Any) -> list[list[dict[str, Any]]]:
    """Return the lists of charts that share a grid."""
    if isinstance(content, dict):
        own = content.get("panels")
        mine = [own] if isinstance(own, list) and own and all("viewType" in one for one in own) else []
        return mine + [found for value in content.values() for found in grids(value)]
    return [found for item in content for found in grids(item)] if isinstance(content, list) else []


class TestRuns:
    def test_a_workspace_pins_the_columns_and_groups_by_sweep(self) -> None:
        view = as_json(workspace(LAYOUT))
        assert (view["entity"], view["project"]) == ("lab", "cse")
        (runs,) = view["spec"]["section"]["runSets"]
        assert runs["runFeed"]["columnOrder"] == COLUMNS
        assert set(runs["runFeed"]["columnPinned"]) == set(COLUMNS)
        assert runs["grouping"] == [{"section": "run", "name": "group"}]

    def test_a_report_ends_with_the_table_of_its_own_project(self) -> None:
        view = as_json(report(LAYOUT))
        tables = [block["metadata"]["runSets"] for block in view["spec"]["blocks"] if block["type"] == "panel-grid"]
        assert len(tables) == 5
        (runs,) = tables[-1]
        assert runs["runFeed"]["columnOrder"] == COLUMNS
        for (one,) in tables:
            assert "project" not in one
            assert one["grouping"] == [{"section": "run", "name": "group"}]

    def test_dev_scores_are_what_experiments_choose_by(self, repository: Path) -> None:
        files = sorted((repository / "conf" / "experiment").rglob("*.yaml"))
        monitors = {str(yaml.safe_load(file.read_text()).get("monitor", "")) for file in files} - {""}
        assert monitors == set(DEV_SCORES)

    def test_test_scores_are_of_tasks_that_there_are(self, repository: Path) -> None:
        tasks = {
            task
            for file in (repository / "conf" / "suite").rglob("*.yaml")
            for task in yaml.safe_load(file.read_text())
        }
        assert {key.split("/")[1] for key in TEST_SCORES} <= tasks

    def test_the_axis_is_that_of_the_curves(self) -> None:
        (first, *_) = parts(as_json(workspace(LAYOUT)), "Run History Line Plot")
        assert first["xAxis"] == wandb_view.STEP


class TestSave:
    def test_saved_for_who_is_logged_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        saved: list[Any] = []

        def take(one: Any) -> None:
            saved.append(one)

        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setattr("lightning_cse.analysis.dashboards.account", lambda: "me")
        for kind in (ws.Workspace, wr.Report):
            monkeypatch.setattr(kind, "save", take)
            monkeypatch.setattr(kind, "url", property(lambda one: f"https://example.org/{one.entity}/{one.project}"))
        assert save(Layout(project="cse"), "workspace") == "https://example.org/me/cse"
        assert save(LAYOUT, "report") == "https://example.org/lab/cse"
        assert [type(one) for one in saved] == [ws.Workspace, wr.Report]

    def test_nobody_logged_in(self) -> None:
        with pytest.raises(DashboardError, match="nobody is logged in at W&B: `wandb login`"):
            save(LAYOUT, "workspace")

    def test_switched_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setenv("WANDB_MODE", "Offline")
        with pytest.raises(DashboardError, match="WANDB_MODE=Offline keeps W&B off the network"):
            save(LAYOUT, "workspace")

    def test_no_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(_: Any) -> None:
            raise ConnectionError("no\nroute")

        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setattr(ws.Workspace, "save", broken)
        with pytest.raises(
            DashboardError, match=r"workspace of lab/cse \(ConnectionError: no route\): look at the net"
        ):
            save(LAYOUT, "workspace")

    def test_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
        for build in (workspace, report):
            with pytest.raises(DashboardError, match=r"pip install 'lightning_cse\[dashboard\]'"):
                build(LAYOUT)


class TestCommand:
    def test_a_dry_run_prints_what_would_be_built(self, capsys: pytest.CaptureFixture[str]) -> None:
        given = ["--project", "cse", "--dev", "val/stsb/spearman", "--test", "test/rte/accuracy_all", "--dry-run"]
        assert dashboard.main([*given, "--entity", "lab"]) == 0
        assert json.loads(capsys.readouterr().out) == as_json(workspace(LAYOUT))
        assert dashboard.main([*given, "--report"]) == 0
        assert json.loads(capsys.readouterr().out)["project"] == {"name": "cse", "entityName": ""}

    def test_one_error_and_exit_code_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert dashboard.main(["--project", "cse"]) == 2
        assert capsys.readouterr().err.startswith("error: nobody is logged in")
        assert dashboard.main(["--project", "cse", "--title", "\N{ROCKET}", "--dry-run"]) == 2
        told = capsys.readouterr().err
        assert told.startswith("error: W&B's package refuses the dashboard")
        assert told.count("\n") == 1

    def test_a_workspace_or_a_report(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            dashboard.main(["--project", "cse", "--report", "--workspace"])
        assert ended.value.code == 2
        assert "not allowed with" in capsys.readouterr().err
