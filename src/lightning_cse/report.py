"""Reports a paper or a sweep as one HTML file: ``python -m lightning_cse.report dualcse --to
report.html``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_cse import arguments as shared
from lightning_cse.errors import LightningCSEError, reported

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from lightning_cse.tables.records import FinishedRun
    from lightning_cse.tables.spec import Spec
    from lightning_cse.tables.table import Table

# The metrics that are shown times 100, and those that only accompany another.
_PERCENT = re.compile(r"dev|.*/(accuracy|auc|auprc|pearson|spearman)[^/]*")
_SECONDARY = ("threshold", "_mean", "_wmean", "_se")
_ABOUT = (
    "Mean ± standard deviation over the seeds; accuracies, correlations and AUPRC × 100. "
    "Dev: the best dev score, by which the checkpoint is chosen."
)
_RFD = (
    "RFD is the mean, over the evaluations so far, of the held-out side minus the evaluation side "
    "(step 0 left out). Above zero, what the run is trained on is harder to fit than what it is "
    "evaluated on."
)


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)

    from lightning_cse.runs import write_atomic
    from lightning_cse.tables.html import page

    tables = _tables(arguments)
    runs = _runs(arguments, tables)
    sections = [_table_section(table) for table in tables] + _run_sections(runs)
    papers = dict.fromkeys(table.spec.source.partition(",")[0] for table in tables)
    text = page(", ".join(papers) or "Runs", _facts(runs), sections)
    write_atomic(arguments.to, text)
    sys.stdout.write(f"written: {arguments.to} ({len(text.encode()) / 2**20:.1f} MiB)\n")

    return 0


def _tables(arguments: argparse.Namespace) -> list[Table]:
    """Return the named tables and figures."""
    from lightning_cse.paths import experiments_dir
    from lightning_cse.tables.files import find_specs
    from lightning_cse.tables.keep import kept_folders, runs_table
    from lightning_cse.tables.spec import Request
    from lightning_cse.tables.table import Table

    experiments = experiments_dir()
    runs = runs_table(arguments, experiments, kept_folders(experiments))
    request = Request(arguments.profile, arguments.encoder, arguments.seeds)
    specs = find_specs(experiments).values()

    return [Table(spec, request, runs) for spec in specs if _names(spec) & {*arguments.what}]


def _names(spec: Spec) -> set[str]:
    """Return the words of a command line that stand for a spec."""
    return {"all", spec.key, spec.paper}


def _runs(arguments: argparse.Namespace, tables: Sequence[Table]) -> list[FinishedRun]:
    """Return the trainings of the tables, each once, and the runs below the other words."""
    from lightning_cse.tables.records import read_runs

    names = set().union(*(_names(table.spec) for table in tables))
    # An evaluation has no curves.
    runs = [run for table in tables for run in table.finished() if "steps" in run.record]
    if paths := [Path(word) for word in arguments.what if word not in names]:
        seeds = arguments.seeds
        runs += [run for run in read_runs(paths) if not seeds or run.record["seed"] in seeds]

    return list({(run.source, run.name): run for run in runs}.values())


def _table_section(table: Table) -> tuple[str, str]:
    """Return title and HTML of a table or figure; if it cannot be made, it says why."""
    from lightning_cse.tables.figures import make
    from lightning_cse.tables.html import section
    from lightning_cse.tables.legend import about, legend
    from lightning_cse.tables.render import text_frame, title_of

    try:
        result = make(table)
        frame, notes = None, [*filter(None, [table.spec.note])]
        if table.is_shown:
            frame = text_frame(table).set_index("").rename_axis(None)
            notes = [*about(table), *legend(table)]
    except LightningCSEError as error:
        sys.stderr.write(f"warning: {table.spec.key} is left empty: {error}\n")
        return title_of(table), section(text=f"Not made: {error}\n")

    figures = {name.replace("_", " "): figure for name, figure in result.figures.items()}

    return title_of(table), section(frame, notes, figures, result.text)


def _facts(runs: Sequence[FinishedRun]) -> dict[str, str]:
    from lightning_cse.tables.legend import facts_of, machine_of, short_commit
    from lightning_cse.tables.nested import value_at

    return {
        "runs": str(len(runs)),
        "encoder": facts_of(runs, lambda record: str(value_at(record, "encoder.name"))),
        "machine": facts_of(runs, machine_of),
        "commit": facts_of(runs, short_commit),
    }


def _run_sections(runs: Sequence[FinishedRun]) -> list[tuple[str, str]]:
    """Return the sections of runs: their scores, learning curves, and RFD."""
    from lightning_cse.tables.html import section
    from lightning_cse.tables.labels import by_setting
    from lightning_cse.tables.nested import value_at

    if not runs:
        return []

    groups = by_setting(runs)
    keys = sorted({key for run in runs for key in run.curves})
    monitors = {str(value_at(run.record, "best.monitor")) for run in runs}
    learning = [key for key in ("train/loss", *sorted(monitors)) if key in keys]
    fitting = [key for key in keys if re.fullmatch(r"diag/.*(alignment|uniformity)", key)]
    sections = [("Runs", section(_scores(groups), [_ABOUT]))]
    for title, of_title, notes in (
        ("Learning curves", learning, []),
        ("Relative fitting difficulty", fitting, [_RFD]),
    ):
        if of_title:
            figures = {key: _curves(groups, key) for key in of_title}
            sections.append((title, section(None, notes, figures)))

    return sections


def _scores(groups: Mapping[str, Sequence[FinishedRun]]) -> pd.DataFrame:
    """Return the scores of each setting over its seeds, as text."""
    import pandas as pd

    from lightning_cse.tables.nested import value_at

    every = {key for runs in groups.values() for run in runs for key in run.record["metrics"]}
    tests = [key for key in sorted(every) if key.startswith("test/")]
    keys = ["dev", *(key for key in tests if not key.endswith(_SECONDARY))]
    rows = {}
    for label, runs in groups.items():
        scores = pd.DataFrame(
            [{"dev": value_at(r.record, "best.score"), **r.record["metrics"]} for r in runs],
            columns=keys,
            dtype=float,
        )
        rows[label] = {"seeds": len(runs), **{key: _mean_text(scores[key]) for key in keys}}

    frame = pd.DataFrame.from_dict(rows, orient="index")

    return frame.rename(columns=lambda key: key.removeprefix("test/"))


def _mean_text(values: pd.Series) -> str:
    """Return mean and standard deviation, on the scale on which a metric is shown."""
    scale, decimals = (100, 2) if _PERCENT.match(str(values.name)) else (1, 4)
    numbers = (scale * values.agg(["mean", "std"])).dropna()

    return " ± ".join(f"{number:.{decimals}f}" for number in numbers)


def _curves(groups: Mapping[str, Sequence[FinishedRun]], key: str) -> Figure:
    """Draw the curves of one key, a line for each run, in one colour and style for each setting."""
    from lightning_cse import plots

    with plots.plot_style():
        figure = plots.blank_figure(4.2, 2.7)
        axes = figure.subplots()
        if "rfd_" in key:
            plots.zero_line(axes)

        for number, (label, runs) in enumerate(groups.items()):
            color, style = plots.series_look(number)
            curves = [sorted(run.curves[key]) for run in runs if key in run.curves]
            for index, points in enumerate(curves):
                drawn_points = plots.smoothed(points)[0] if key == "train/loss" else points
                # An entry of the legend is a setting.
                look = {"color": color, "linestyle": style, "label": None if index else label}
                plots.line(axes, drawn_points, linewidth=1.4, **look)

        plots.by_step(axes)
        figure.legend(loc="outside lower center", handlelength=3)

    return figure


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.report",
        description="Write tables, charts and curves as one HTML file that opens from disk without a network.",
        epilog="Example: python -m lightning_cse.report runs/dualcse_* --seeds 0,1 --to sweep.html",
    )
    add = parser.add_argument
    add(
        "what",
        nargs="+",
        metavar="WHAT",
        help="papers, specs such as dualcse/table5, or all; folders of runs or of a sweep; "
        "the runs.jsonl of a paper",
    )
    add(
        "--to",
        type=shared.path,
        default=Path("report.html"),
        metavar="FILE",
        help="default: report.html",
    )
    add("--seeds", type=shared.seeds, metavar="0,1,2", help="only these seeds")
    shared.add_runs(parser)

    return parser


if __name__ == "__main__":
    sys.exit(main())
