"""Builds a W&B workspace over the runs of a project: ``python -m lightning_cse.dashboard --project
NAME``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lightning_cse.errors import LightningCSEError, one_line, reported

if TYPE_CHECKING:
    import wandb_workspaces.workspaces.interface as ws

_STEP: Final = "trainer/global_step"  # as in loggers.views, which takes seconds to import
_SIDES: Final = {"held_out": "held-out side", "eval": "evaluation side"}
_MOST_RUNS: Final = 100  # in a chart

# The metrics that choose the best checkpoint: one chart and one column each; those of other papers
# stay empty.
_DEV: Final = "stsb/spearman", "rte/accuracy_all", "snli/auprc", "eis/accuracy", "eis_wang/accuracy"
_TEST: Final = (
    "sts_avg/spearman_all",
    "rte/accuracy_all",
    "eis/accuracy",
    "snli/auprc",
    "mnli/auprc",
    "sick/auprc",
)
DEV_SCORES: Final = tuple(f"val/{key}" for key in _DEV)
TEST_SCORES: Final = tuple(f"test/{key}" for key in _TEST)


class Layout(NamedTuple):
    """The contents of a dashboard: the W&B project and its user or team, a title, and the dev and
    test scores.
    """

    project: str
    entity: str = ""
    title: str = "Contrastive sentence embeddings"
    dev: Sequence[str] = DEV_SCORES
    test: Sequence[str] = TEST_SCORES


def workspace(layout: Layout) -> ws.Workspace:
    """Return a workspace: one section per group of charts, and the runs beside them, grouped by
    sweep.
    """
    import wandb_workspaces.expr as expr
    import wandb_workspaces.workspaces.interface as ws

    measures = ("alignment", "uniformity")
    rfd: dict[str, Any] = {f"RFD of {m}": f"diag/rfd_{m}" for m in measures}
    rfd |= {f"Best dev score by RFD of {m}": (f"summary/rfd_{m}", "best/score") for m in measures}
    sides = {
        f"{m}, {title}": f"diag/{side}/{m}" for m in measures for side, title in _SIDES.items()
    }
    charts = {  # from top to bottom
        "Relative fitting difficulty: how much harder the held-out side is to fit": rfd,
        "Dev score: chooses the best checkpoint; higher is better": {
            k.removeprefix("val/"): k for k in layout.dev
        },
        "Alignment and uniformity of the two sides that RFD compares; lower is better": sides,
        "Training: one value per optimizer step": {
            "loss": "train/loss",
            "learning rate": "train/learning_rate",
        },
    }
    sections = [
        ws.Section(
            name=name,
            panels=_panels(some),
            is_open=True,
        )
        for name, some in charts.items()
    ]
    scores = [
        *(f"{key}.max" for key in layout.dev),
        *layout.test,
        *(f"summary/rfd_{m}" for m in measures),
    ]
    columns = [
        "run:displayName",
        "config:seed.value",
        *(f"summary:{key}" for key in ("best/score", *scores)),
    ]
    order = [expr.Ordering(expr.Metric("Name"), ascending=True)]
    runs = ws.RunsetSettings(
        groupby=[expr.Metric("Group")],
        order=order,
        pinned_columns=columns,
    )
    settings = ws.WorkspaceSettings(
        x_axis=_STEP,
        max_runs=_MOST_RUNS,
    )
    where: Any = {
        "entity": layout.entity,
        "project": layout.project,
        "name": layout.title,
    }
    return ws.Workspace(
        **where,
        sections=sections,
        settings=settings,
        runset_settings=runs,
    )


def build(layout: Layout, *, save: bool) -> Any:
    """Build the workspace, and return its address if it is saved, or else the JSON that would be
    sent.
    """
    if save:
        from lightning_cse.loggers.views import is_logged_in

        if not is_logged_in():
            raise LightningCSEError(
                "not logged in to W&B: run `wandb login`, or use --dry-run, which needs no server"
            )
    try:
        if save and not layout.entity:  # who is logged in
            import wandb

            layout = layout._replace(entity=wandb.Api(timeout=20).default_entity or "")
        built: Any = workspace(layout)
        if not save:
            return built._to_model().model_dump(
                mode="json",
                by_alias=True,
                exclude_none=True,
            )
        built.save()
        return str(built.url)
    except ImportError as error:
        raise LightningCSEError(
            f"{error.name} is not installed: pip install 'lightning_cse[dashboard]'"
        ) from error
    except Exception as error:  # whatever W&B's client and its transport raise
        raise LightningCSEError(
            f"the workspace of {layout.entity}/{layout.project} failed ({one_line(error)}): check --entity, --project, "
            "--title, the network and the key (`wandb login --relogin`)"
        ) from error


def _panels(charts: dict[str, Any]) -> list[Any]:
    """Return charts, three per row: a key by step, as means over groups, or two keys with one dot
    per run.
    """
    import wandb_workspaces.reports.v2.interface as wr

    look: Any = {"title_x": "step", "max_runs_to_show": _MOST_RUNS}
    look |= {
        "groupby": "Group",
        "groupby_aggfunc": "mean",
        "groupby_rangefunc": "minmax",
    }
    panels: list[Any] = []
    for number, (title, key) in enumerate(charts.items()):
        place = wr.Layout(
            x=8 * (number % 3),
            y=6 * (number // 3),
            w=8,
            h=6,
        )
        if isinstance(key, tuple):
            x, y = map(wr.SummaryMetric, key)
            panels.append(
                wr.ScatterPlot(
                    title=title,
                    x=x,
                    y=y,
                    layout=place,
                )
            )
        else:
            panels.append(
                wr.LinePlot(
                    title=title,
                    x=_STEP,
                    y=[key],
                    layout=place,
                    **look,
                )
            )
    return panels


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.dashboard")
    parser.description = "Build a W&B workspace over the runs of a project, grouped by sweep."
    parser.epilog = "Without an account: logger=tensorboard shows the same curves; "
    parser.epilog += "python -m lightning_cse.report writes an HTML page."
    add = parser.add_argument
    add(
        "--project",
        required=True,
        metavar="NAME",
        help="W&B project (logger.project, lightning_cse)",
    )
    add(
        "--entity",
        default="",
        metavar="NAME",
        help="W&B user or team; default: the user who is logged in",
    )
    add(
        "--title",
        default=Layout("").title,
        help="title of the workspace",
    )
    add(
        "--dev",
        action="append",
        metavar="KEY",
        help="a dev score, such as val/stsb/spearman; may be repeated",
    )
    add(
        "--test",
        action="append",
        metavar="KEY",
        help="a test score for the table of runs; may be repeated",
    )
    add(
        "--dry-run",
        action="store_true",
        help="print as JSON what would be built, without contacting the server",
    )
    args = parser.parse_args(argv)
    layout = Layout(
        args.project,
        args.entity,
        args.title,
        args.dev or DEV_SCORES,
        args.test or TEST_SCORES,
    )
    built = build(layout, save=not args.dry_run)
    sys.stdout.write(
        f"{json.dumps(built, indent=2, ensure_ascii=False) if args.dry_run else built}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
