"""Build a W&B workspace over the runs of a project.

python scripts/wandb_workspace.py --project NAME
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lightning_cse.errors import LightningCSEError, one_line, reported

if TYPE_CHECKING:
    import wandb_workspaces.workspaces.interface as ws

_STEP = "trainer/global_step"  # as in loggers.build, which takes seconds to import
_MOST_RUNS = 100  # in a chart
_RFD = ("rfd_alignment", "rfd_uniformity")

# The metrics that choose the best checkpoint: one chart and one column each; those of other papers
# stay empty.
DEV_SCORES = (
    "val/stsb/spearman",
    "val/rte/accuracy_all",
    "val/snli/auprc",
    "val/eis/accuracy",
    "val/eis_wang/accuracy",
    "val/snli_labels/accuracy",
)
TEST_SCORES = (
    "test/sts_avg/spearman_all",
    "test/rte/accuracy_all",
    "test/eis/accuracy",
    "test/snli/auprc",
    "test/mnli/auprc",
    "test/sick/auprc",
)
_SIDES = (
    "diag/held_out/alignment",
    "diag/eval/alignment",
    "diag/held_out/uniformity",
    "diag/eval/uniformity",
)


def workspace(entity: str, project: str, dev: Sequence[str], test: Sequence[str]) -> ws.Workspace:
    """Return a workspace: one section per group of charts, and the runs beside them, grouped by
    sweep.
    """
    import wandb_workspaces.expr as expr
    import wandb_workspaces.workspaces.interface as ws

    charts: dict[str, Sequence[Any]] = {  # from top to bottom
        "Relative fitting difficulty: how much harder the held-out side is to fit": [
            *(f"diag/{name}" for name in _RFD),
            *((f"summary/{name}", "best/score") for name in _RFD),
        ],
        "Dev score: chooses the best checkpoint; higher is better": dev,
        "Alignment and uniformity of the two sides that RFD compares; lower is better": _SIDES,
        "Training: one value per optimizer step": ["train/loss", "train/learning_rate"],
    }
    scores = ["best/score", *(f"{key}.max" for key in dev), *test]
    scores += [f"summary/{name}" for name in _RFD]
    runs = ws.RunsetSettings(
        groupby=[expr.Metric("Group")],
        order=[expr.Ordering(expr.Metric("Name"), ascending=True)],
        pinned_columns=[
            "run:displayName",
            "config:seed.value",
            *(f"summary:{key}" for key in scores),
        ],
    )

    sections = []
    for name, metrics in charts.items():
        columns = 2 if len(metrics) in {2, 4} else 3  # no empty places in a row
        grid = ws.SectionLayoutSettings(columns=columns, rows=-(-len(metrics) // columns))
        sections.append(
            ws.Section(name=name, panels=_panels(metrics), is_open=True, layout_settings=grid)
        )

    return ws.Workspace(
        entity=entity,
        project=project,
        name="Contrastive sentence embeddings",
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis=_STEP, max_runs=_MOST_RUNS),
        runset_settings=runs,
    )


def _panels(charts: Sequence[Any]) -> list[Any]:
    """Return charts: a key by step, as means over groups, or two keys with one dot per run."""
    import wandb_workspaces.reports.v2.interface as wr

    look: Any = {"title_x": "step", "max_runs_to_show": _MOST_RUNS}
    look |= {"groupby": "Group", "groupby_aggfunc": "mean", "groupby_rangefunc": "minmax"}
    panels: list[Any] = []
    for key in charts:
        if isinstance(key, tuple):
            x, y = map(wr.SummaryMetric, key)
            panels.append(wr.ScatterPlot(title=" and ".join(key), x=x, y=y))
        else:
            panels.append(wr.LinePlot(title=key, x=_STEP, y=[key], **look))

    return panels


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    args = _parser().parse_args(argv)
    from lightning_cse.loggers import is_logged_in  # slow to import

    if not args.dry_run and not is_logged_in():
        raise LightningCSEError(
            "not logged in to W&B: run `wandb login`, or use --dry-run, which needs no server"
        )

    try:
        text = _build(args)
    except ImportError as error:
        raise LightningCSEError(
            f"{error.name} is not installed: pip install 'wandb-workspaces>=0.4'"
        ) from error
    except Exception as error:  # whatever W&B's client and its transport raise
        raise LightningCSEError(
            f"the workspace of {args.entity}/{args.project} failed ({one_line(error)}): check --entity, --project, "
            "the network and the key (`wandb login --relogin`)"
        ) from error

    sys.stdout.write(f"{text}\n")

    return 0


def _build(args: argparse.Namespace) -> str:
    """Save the workspace and return its address, or return the JSON that would be sent."""
    entity = args.entity
    if not entity and not args.dry_run:
        import wandb

        entity = wandb.Api(timeout=20).default_entity or ""  # who is logged in

    dev = args.dev or DEV_SCORES
    built: Any = workspace(entity, args.project, dev, args.test or TEST_SCORES)
    if args.dry_run:
        model = built._to_model().model_dump(mode="json", by_alias=True, exclude_none=True)
        return json.dumps(model, indent=2, ensure_ascii=False)

    built.save()

    return str(built.url)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python scripts/wandb_workspace.py",
        description="Build a W&B workspace over the runs of a project, grouped by sweep.",
        epilog="Without an account: logger=tensorboard shows the same curves; "
        "python -m lightning_cse.report writes an HTML page.",
    )
    add = parser.add_argument
    add("--project", required=True, help="W&B project (logger.wandb.project, lightning_cse)")
    add("--entity", default="", help="W&B user or team; default: the user who is logged in")
    add("--dev", action="append", metavar="KEY", help="a dev score; may be repeated")
    add("--test", action="append", metavar="KEY", help="a test score; may be repeated")
    add(
        "--dry-run", action="store_true", help="print as JSON what would be built, without a server"
    )

    return parser


if __name__ == "__main__":
    sys.exit(main())
