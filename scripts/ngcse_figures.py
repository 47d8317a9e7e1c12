"""Draw NGCSE's figures, and print its table of settings and its correlations, from the authors' curves or from runs.

For example:

    python scripts/ngcse_figures.py --released <folder above wiki/dropout> --out figures
    python scripts/ngcse_figures.py --records runs/ngcse_*/*-s? --out figures --keep curves
    python scripts/ngcse_figures.py --records curves --out figures --table fitting.md
    python scripts/ngcse_figures.py --records runs/ngcse_wiki_sts_ht_final/*-s? --out figures \
        --study llm_rows=<dotted option> --metric <key of the test score>

``--keep`` copies the dev scores and diagnostics of run folders: the figures can be drawn again without the runs.
``--study`` is one of llm_rows, margin_positive and margin_negative; its runs differ in that option.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_cse.errors import LightningCSEError
from lightning_cse.papers.ngcse import (
    PRETRAINED,
    correlation_table,
    draw_settings,
    draw_studies,
    keep_curves,
    read_published,
    read_release,
    read_settings,
    read_study,
    settings_table,
    study_of_records,
)
from lightning_cse.papers.significance import read_run
from lightning_cse.runs import write_atomic

PUBLISHED = Path(__file__).parents[1] / "experiments" / "ngcse" / "published_rfd.csv"
STUDIES = {"llm_rows": "rows", "margin_positive": "margin_positive", "margin_negative": "margin_negative"}
WRITTEN = "<!-- Written by scripts/ngcse_figures.py from the curves beside it; do not edit. -->"
RELEASED = {"rows": "number_multiple.csv", "margin_positive": "m1.csv", "margin_negative": "m2.csv"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the figures, then print the tables."""
    options = _options(arguments)
    published = read_published(PUBLISHED)
    if options.study:
        records = [read_run(folder).record for folder in options.records]
        studies = {STUDIES[name]: study_of_records(records, key, options.metric) for name, key in options.study}
        paths = draw_studies(options.out, **studies)
    elif options.records:
        if options.keep:
            keep_curves(options.records, options.keep)
        settings = read_settings(options.records, options.monitor)
        paths = draw_settings(settings, options.out)
    else:
        settings = read_release(options.released)
        paths = draw_settings(settings, options.out, published[PRETRAINED].mean("best_score"))
        further = {name: options.released / "further" / file for name, file in RELEASED.items()}
        studies = {name: read_study(path) for name, path in further.items() if path.is_file()}
        paths += draw_studies(options.out, **studies)
    if not options.study:
        tables = [settings_table(settings, published), correlation_table(settings)]
        if options.records:
            tables += ["The same of the authors' settings:", correlation_table(list(published.values()))]
        print("\n\n".join(tables), end="\n\n")
        if options.table:
            write_atomic(options.table, "\n\n".join([WRITTEN, *tables]) + "\n")
    print(*(f"figure: {path}" for path in paths), sep="\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--released", type=Path, help="the folder of the authors' curves")
    source.add_argument("--records", type=Path, nargs="+", help="run folders, or files <name>-s<seed>.csv of --keep")
    parser.add_argument("--out", type=Path, required=True, help="where the figures go")
    parser.add_argument("--table", type=Path, help="write the tables there, as Markdown")
    parser.add_argument("--keep", type=Path, help="copy the curves of the run folders there")
    parser.add_argument("--monitor", default="val/stsb/spearman", help="the dev score of files (a record says its own)")
    parser.add_argument("--study", type=_study, action="append", metavar="STUDY=OPTION", help="see above")
    parser.add_argument("--metric", help="the test score of --study")
    options = parser.parse_args(arguments)
    if options.study and not (options.records and options.metric):
        parser.error("--study needs --records and --metric")
    if options.keep and not options.records:
        parser.error("--keep needs --records")
    return options


def _study(text: str) -> tuple[str, str]:
    name, _, option = text.partition("=")
    if name not in STUDIES or not option:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(STUDIES)}, then = and an option")
    return name, option


if __name__ == "__main__":
    try:
        main()
    except LightningCSEError as error:
        sys.exit(f"{error}")
