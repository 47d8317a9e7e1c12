"""W&B workspaces and reports over the runs of a project: one layout, built with W&B's own API package."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from lightning_cse.errors import LightningCSEError

if TYPE_CHECKING:
    import wandb_workspaces.reports.v2.interface as wr
    import wandb_workspaces.workspaces.interface as ws

__all__ = ["DEV_SCORES", "TEST_SCORES", "DashboardError", "Layout", "as_json", "report", "save", "workspace"]

Kind = Literal["workspace", "report"]

_STEP: Final = "trainer/global_step"  # of loggers.wandb_view, which takes seconds to import
_MEASURES: Final = ("alignment", "uniformity")
_SIDES: Final = {"held_out": "held-out side", "eval": "evaluation side"}
_MOST_RUNS: Final = 100  # in a chart
_EXTRA: Final = "pip install 'lightning_cse[dashboard]'"

DEV_SCORES: Final = (
    "val/stsb/spearman",
    "val/rte/accuracy_all",
    "val/snli/auprc",
    "val/eis/accuracy",
    "val/eis_wang/accuracy",
)
"""What the experiments choose their best checkpoint by; a project's charts of other papers stay empty."""

TEST_SCORES: Final = (
    "test/sts_avg/spearman_all",
    "test/rte/accuracy_all",
    "test/eis/accuracy",
    "test/snli/auprc",
    "test/mnli/auprc",
    "test/sick/auprc",
)
"""The columns of test scores in the table of runs."""


class DashboardError(LightningCSEError):
    """A dashboard cannot be built or saved."""


@dataclass(frozen=True)
class Section:
    """Charts that are looked at together.

    Attributes:
        name: its heading.
        told: what a reader should know.
        curves: title and key of each chart over the steps.
        scatters: title and two keys, across and upwards, of each chart with a dot a run.
    """

    name: str
    told: str
    curves: Sequence[tuple[str, str]]
    scatters: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True)
class Layout:
    """What a dashboard shows, of whichever kind it is.

    Attributes:
        project: the W&B project whose runs it shows.
        entity: the W&B user or team; empty until somebody is asked who is logged in.
        title: what it is called.
        dev: the dev scores that get a chart each, and a column each with their highest value.
        test: the test scores that get a column each.
    """

    project: str
    entity: str = ""
    title: str = "Contrastive sentence embeddings"
    dev: Sequence[str] = field(default=DEV_SCORES)
    test: Sequence[str] = field(default=TEST_SCORES)

    def sections(self) -> Iterator[Section]:
        """Yield what is shown, from top to bottom."""
        yield Section(
            "Relative fitting difficulty",
            "How much harder the held-out side is to fit than the evaluation side: all settings in one chart, and what "
            "it says about the dev score.",
            curves=[("RFD of alignment", "diag/rfd_alignment"), ("RFD of uniformity", "diag/rfd_uniformity")],
            scatters=[
                (f"Best dev score by RFD of {measure}", f"summary/rfd_{measure}", "best/score") for measure in _MEASURES
            ],
        )
        yield Section(
            "Dev score",
            "What chooses the best checkpoint; higher is better.",
            curves=[(key.removeprefix("val/"), key) for key in self.dev],
        )
        yield Section(
            "Alignment and uniformity",
            "Of both sides that RFD compares; lower is better.",
            curves=[(f"{m}, {told}", f"diag/{side}/{m}") for m in _MEASURES for side, told in _SIDES.items()],
        )
        yield Section(
            "Training",
            "One value an optimizer step.",
            curves=[("loss", "train/loss"), ("learning rate", "train/learning_rate")],
        )

    def columns(self) -> list[str]:
        """Return the columns pinned in the table of runs, by W&B's names."""
        scores = [*(f"{key}.max" for key in self.dev), *self.test, "summary/rfd_alignment", "summary/rfd_uniformity"]
        return ["run:displayName", "config:seed.value", "summary:best/score", *(f"summary:{key}" for key in scores)]


def workspace(layout: Layout) -> ws.Workspace:
    """Return a workspace: a section of charts each, and the runs beside them, grouped by sweep. Asks no server.

    Raises:
        DashboardError: if W&B's package is not installed, or refuses a name.
    """
    _check_installed()
    import wandb_workspaces.expr as expr
    import wandb_workspaces.workspaces.interface as ws

    with _refusals_told():
        return ws.Workspace(
            entity=layout.entity,
            project=layout.project,
            name=layout.title,
            sections=[ws.Section(name=one.name, panels=_panels(one), is_open=True) for one in layout.sections()],
            settings=ws.WorkspaceSettings(x_axis=_STEP, max_runs=_MOST_RUNS),
            runset_settings=ws.RunsetSettings(
                groupby=[expr.Metric("Group")],
                order=[expr.Ordering(expr.Metric("Name"), ascending=True)],
                pinned_columns=layout.columns(),
            ),
        )


def report(layout: Layout) -> wr.Report:
    """Return a report: the same charts under headings, then the table of runs. Asks no server.

    Raises:
        DashboardError: as `workspace`.
    """
    _check_installed()
    import wandb_workspaces.reports.v2.interface as wr

    with _refusals_told():
        blocks: list[Any] = [wr.TableOfContents()]
        for one in layout.sections():
            blocks += [wr.H2(one.name), wr.P(one.told), wr.PanelGrid(runsets=[_runs()], panels=_panels(one))]
        table = wr.PanelGrid(runsets=[_runs(layout.columns())])
        blocks += [wr.H2("Runs"), wr.P("Best dev and test scores."), table]
        return wr.Report(entity=layout.entity, project=layout.project, title=layout.title, blocks=blocks, width="fluid")


def as_json(built: ws.Workspace | wr.Report) -> dict[str, Any]:
    """Return what would be sent, as plain values, without the names that W&B's package draws for each part."""
    content = built._to_model().model_dump(mode="json", by_alias=True, exclude_none=True)
    plain: dict[str, Any] = _without_drawn_names(content)
    return plain


def save(layout: Layout, kind: Kind) -> str:
    """Build a dashboard, save it, and return its address.

    Raises:
        DashboardError: if nobody is logged in, W&B is switched off, or there is no answer from it.
    """
    _check_installed()
    if os.environ.get("WANDB_MODE", "").strip().lower() in {"offline", "dryrun", "disabled"}:
        raise DashboardError(
            f"WANDB_MODE={os.environ['WANDB_MODE']} keeps W&B off the network, and a dashboard lives there: unset it, "
            "or look at what would be built with --dry-run"
        )
    from lightning_cse.loggers.wandb_view import is_logged_in  # Lightning comes with it

    if not is_logged_in():
        raise DashboardError("nobody is logged in at W&B: `wandb login`, or look at what would be built with --dry-run")
    try:
        full = replace(layout, entity=layout.entity or account())
        built = workspace(full) if kind == "workspace" else report(full)
        built.save()  # type: ignore[no-untyped-call]  # half annotated
        return str(built.url)
    except DashboardError:
        raise
    except Exception as error:  # whatever W&B's client and its transport raise
        what = " ".join(str(error).split())[:300] or type(error).__name__
        whose = f"{layout.entity}/{layout.project}" if layout.entity else layout.project
        raise DashboardError(
            f"W&B did not take the {kind} of {whose} ({type(error).__name__}: {what}): look at the network, at the key "
            "(`wandb login --relogin`) and at --entity and --project"
        ) from error


def account(timeout: int = 20) -> str:
    """Return the user or team of whoever is logged in; asks the server.

    Raises:
        Exception: whatever W&B raises where there is no network or the key is not taken.
    """
    import wandb

    entity: str | None = wandb.Api(timeout=timeout).default_entity
    return entity or ""


def _runs(columns: Sequence[str] = ()) -> wr.Runset:
    """Return a report's runs by sweep, with these columns pinned in their table.

    A set of runs without a project of its own has the report's, and W&B's package asks no server for it.
    """
    import wandb_workspaces.reports.v2.interface as wr

    return wr.Runset(
        name="Runs by sweep",
        groupby=["group"],
        order=[wr.OrderBy("Name", ascending=True)],
        pinned_columns=list(columns),
    )


def _panels(section: Section) -> list[Any]:
    """Return the charts of a section, three beside each other; curves are means over the runs of a group."""
    import wandb_workspaces.reports.v2.interface as wr

    places = (wr.Layout(x=8 * (k % 3), y=6 * (k // 3), w=8, h=6) for k in itertools.count())
    curves = [
        wr.LinePlot(
            title=title,
            x=_STEP,
            y=[key],
            title_x="step",
            groupby="Group",
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
            max_runs_to_show=_MOST_RUNS,
            layout=next(places),
        )
        for title, key in section.curves
    ]
    scatters = [
        wr.ScatterPlot(title=title, x=wr.SummaryMetric(across), y=wr.SummaryMetric(up), layout=next(places))
        for title, across, up in section.scatters
    ]
    return [*curves, *scatters]


def _check_installed() -> None:
    if importlib.util.find_spec("wandb_workspaces") is None:
        raise DashboardError(f"dashboards are built with W&B's package wandb-workspaces: {_EXTRA}")


@contextlib.contextmanager
def _refusals_told() -> Iterator[None]:
    """Tell what W&B's package refuses as the user's to mend: names are all that is given."""
    try:
        yield
    except ValueError as error:  # pydantic's is one
        lines = [line.strip() for line in str(error).splitlines()]
        raise DashboardError(f"W&B's package refuses the dashboard: {'; '.join(lines[:3])}") from error


def _without_drawn_names(content: Any) -> Any:
    if isinstance(content, dict):
        drawn = ("id", "__id__", "ref", "viewId")
        return {
            key: _without_drawn_names(value)
            for key, value in content.items()
            if not (key in drawn and isinstance(value, str))
        }
    return [_without_drawn_names(item) for item in content] if isinstance(content, list) else content
