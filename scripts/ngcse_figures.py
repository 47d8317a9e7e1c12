"""Draw NGCSE's Figures 1, 2, 3 and 6 from the curves that its authors released, and print the
correlations.

python scripts/ngcse_figures.py <folder above wiki/dropout> <folder for the figures>
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from lightning_cse.paths import experiments_dir
from lightning_cse.plots import save_figures
from lightning_cse.runs import summarise
from lightning_cse.tables.figures import load_file, markdown_table

_NAMES = {"wiki": "Wiki", "nli": "NLI", "sts": "STS", "sts_ht": "STS_HT", "sup": "SUP"}


def released_runs(folder: Path) -> pd.DataFrame:
    """Return one row per released setting: its summary, and its curves under the keys of a run."""
    rows = []
    for metrics in sorted(folder.rglob("metrics"), reverse=True):  # Wikipedia first
        tables = {f"val/{name}/spearman": (metrics, name) for name in ("stsb", "sickr")}
        for side, prefix in (("train", "held_out"), ("eval", "eval")):
            file = metrics.with_name(f"{side}_alignment_and_uniformity")
            tables |= {
                f"diag/{prefix}/{measure}": (file, measure)
                for measure in ("alignment", "uniformity")
            }

        frames = {
            key: pd.read_csv(file)[["step", column]] for key, (file, column) in tables.items()
        }
        curves = {
            key: list(frame.itertuples(index=False, name=None)) for key, frame in frames.items()
        }
        title = ".".join(_NAMES.get(part, part) for part in metrics.parent.parts[-2:])
        rows.append({"setting": title, "curves": curves, **asdict(summarise(curves))})

    return pd.DataFrame(rows, dtype=object)


if __name__ == "__main__":
    ngcse = load_file(experiments_dir() / "ngcse" / "figures.py")
    runs = released_runs(Path(sys.argv[1]))
    figures = {
        "fitting.png": ngcse.scatter_figure(runs, ngcse.FITTING),
        "process.png": ngcse.process_figure(runs),
    }
    figures["best_step.png"] = ngcse.scatter_figure(runs, ngcse.BEST_STEP)
    print(
        markdown_table(ngcse.correlations(ngcse.settings(runs))),
        *save_figures(figures, Path(sys.argv[2])),
        sep="\n",
    )
