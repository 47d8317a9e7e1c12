"""Golden results: what the experiments, their runs and the tables give today, to compare a later version with.

    python scripts/golden.py                     # write all parts again, into tests/golden/
    python scripts/golden.py runs                # one part: configs, runs, batches or tables
    python scripts/golden.py --check             # compare instead, and print the worst difference of each part
    python scripts/golden.py runs --only dualcse_cross gausscse --check

The parts:

- configs: the values of each experiment's composed config that decide its result.
- runs: each experiment under ``+debug=tiny`` with seed 0: its curves, its test metrics, its best step, its rows.
- batches: the rows, the account and the first three batches of every data config, as digests, from the sample corpora
  and, if LIGHTNING_CSE_DATA names a folder, from the corpora there.
- tables: the cells of all tables that ``reproduce`` renders from the records under ``experiments/``.

Everything but the batches goes through the commands ``python -m lightning_cse.train`` and
``python -m lightning_cse.reproduce`` and the files that they write, so this file survives changes inside the package.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib
import io
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from golden_batches import batches

REPOSITORY: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = REPOSITORY / "tests" / "golden"
EXPERIMENTS: Final = sorted(path.stem for path in (REPOSITORY / "conf" / "experiment").glob("*.yaml"))
PARTS: Final = ("configs", "runs", "batches", "tables")

RELATIVE: Final = {"configs": 0.0, "runs": 1e-4, "batches": 0.0, "tables": 1e-4}
"""The relative difference of two floats that is accepted, by part."""
FLOOR: Final = 1e-2
"""Floats below are compared as if they were this large: the least absolute tolerance is 1e-6."""
NO_FLOOR: Final = ("learning_rate",)
"""What is small by nature: these values are compared by their relative difference alone."""


# The commands --------------------------------------------------------------------------------------------------------


def command(name: str, *arguments: str, accept: Iterable[int] = (0,)) -> str:
    """Run ``python -m lightning_cse.NAME`` in this process, as a user without corpora would; return what it prints.

    Raises:
        RuntimeError: if the command ends with an exit code that is not accepted.
    """
    from hydra.core.global_hydra import GlobalHydra

    before, out, code = sys.argv, io.StringIO(), 0
    sys.argv = [f"lightning_cse.{name}", *arguments]
    GlobalHydra.instance().clear()
    try:
        with _environment(), contextlib.redirect_stdout(out):
            code = importlib.import_module(f"lightning_cse.{name}").main() or 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    finally:
        sys.argv = before
        GlobalHydra.instance().clear()
    if code not in accept:
        raise RuntimeError(f"{name} {' '.join(arguments)}: exit code {code}\n{out.getvalue()}")
    return out.getvalue()


def run_tiny(folder: Path, *overrides: str) -> Path:
    """Train under ``+debug=tiny`` in this process, with one thread; return the folder of the run."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        command(
            "train",
            "+debug=tiny",
            "baselines=none",
            "seed=0",
            "trainer.precision=32-true",
            "paths.cache_dir=null",
            f"paths.runs_dir='{folder}'",
            f"hydra.run.dir='{folder}/hydra'",
            "hydra.output_subdir=null",
            "hydra/job_logging=none",
            "hydra/hydra_logging=none",
            *overrides,
        )
    finally:
        torch.set_num_threads(threads)
    (record,) = folder.rglob("record.json")
    return record.parent


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """No network, no uploads, no screen, and no folder that the environment names."""
    before = dict(os.environ)
    for key in [key for key in os.environ if key.startswith("LIGHTNING_CSE_")]:
        del os.environ[key]
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "offline",
        "MPLBACKEND": "Agg",
        "TOKENIZERS_PARALLELISM": "false",
        "LIGHTNING_CSE_DATA": "no-corpora",
        "LIGHTNING_CSE_LOCAL": "none",
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# The parts -----------------------------------------------------------------------------------------------------------

LEFT_OUT: Final = (
    # where things are, and what watches a run
    *("paths", "logger", "baselines", "callbacks", "seed", "force", "retry_failed", "hydra"),
    *("keep_last", "figures"),
    # values that stand a second time where they are used
    *("corpora", "limits"),
    # what Lightning prints
    *("trainer.enable_model_summary", "trainer.enable_progress_bar", "trainer.log_every_n_steps"),
    "trainer.num_sanity_val_steps",
)
"""Keys of a config that decide no result, with everything below them; also left out: what refers to a path."""


def config_of(experiment: str) -> dict[str, Any]:
    """Return the decisive values of an experiment's config by dotted key; of a class, the last part of its name."""
    from omegaconf import OmegaConf

    cfg = OmegaConf.create(command("train", f"+experiment={experiment}", "--cfg", "job"))
    return dict(_leaves(cfg, ""))


def _leaves(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for key in node:
        name = f"{prefix}{key}"
        raw = OmegaConf.to_container(node, resolve=False)[key]
        if name in LEFT_OUT or (isinstance(raw, str) and "${paths." in raw):
            continue
        try:
            value = node[key]
        except OmegaConfBaseException:  # missing, or resolved by an experiment alone
            yield name, raw
            continue
        if isinstance(value, DictConfig) and len(value):
            yield from _leaves(value, f"{name}.")
        else:
            yield name, _plain(value, key)


def _plain(value: Any, key: Any = None) -> Any:
    from omegaconf import OmegaConf

    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value, resolve=True)
    if isinstance(value, Mapping):
        return {name: _plain(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.rpartition(".")[2] if key == "_target_" and isinstance(value, str) else value


CURVES: Final = ("train/", "val/", "diag/")


def run_of(experiment: str) -> dict[str, Any]:
    """Train an experiment, and return its curves by key and step, and the numbers of its record that are no timings."""
    with tempfile.TemporaryDirectory() as there:
        folder = run_tiny(Path(there), f"+experiment={experiment}")
        curves: dict[str, dict[str, float]] = {}
        with (folder / "curves.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["key"].startswith(CURVES):
                    curves.setdefault(row["key"], {})[row["step"]] = float(row["value"])
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return {
        "curves": curves,
        "metrics": record["metrics"],
        "best": {key: record["best"][key] for key in ("step", "score")},
        "steps": record["steps"],
        "rows": record["rows"],
    }


def tables() -> dict[str, Any]:
    """Render all tables from the records under ``experiments/``; return their cells by file, row and column."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as there:
        folder = Path(there)
        # 2: some artefacts need corpora that are not there.
        options = ("--kept", "--no-run", f"--runs-dir={folder / 'runs'}", f"--out={folder / 'tables'}")
        with contextlib.redirect_stderr(io.StringIO()):
            command("reproduce", "--all", "--profile=small", *options, accept=(0, 2))
        for file in sorted((folder / "tables").rglob("*.csv")):
            found[f"{file.parent.name}/{file.name}"] = _cells(file)
    return found


def committed_tables() -> dict[str, Any]:
    """Return the cells of the tables under ``experiments/*/results/``, as `tables` does."""
    files = sorted((REPOSITORY / "experiments").glob("*/results/*.csv"))
    return {f"{file.parents[1].name}/{file.name}": _cells(file) for file in files}


def _cells(file: Path) -> dict[str, dict[str, Any]]:
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    cells: dict[str, dict[str, Any]] = {}
    for row in rows:
        labels = [key for key in row if key in LABELS]
        name = ", ".join(row[key] for key in labels if row[key])
        if name in cells:
            name = f"{name} ({len(cells)})"
        cells[name] = {key: _cell(key, text) for key, text in row.items() if text and key not in labels}
    return cells


LABELS: Final = {"row", "encoder", "column", "setting", "seed", "of", "measure", "scope"}
"""Columns that name a row."""


def _cell(key: str, text: str) -> Any:
    if key == "marks":  # `stale` compares a record's commit with today's code
        return ";".join(mark for mark in text.split(";") if mark != "stale")
    if key in {"n", "settings", "seeds", "seeds_reference", "best_step"}:
        return text
    try:
        return float(text)
    except ValueError:
        return text


# Files ---------------------------------------------------------------------------------------------------------------


def read(part: str) -> dict[str, Any]:
    """Return the golden results of a part, by experiment or file."""
    document: dict[str, Any] = json.loads((FOLDER / f"{part}.json").read_text(encoding="utf-8"))
    if part == "configs":  # what all experiments share stands there once
        shared = document.pop("")
        return {name: shared | own for name, own in document.items()}
    return document


def write(part: str, results: Mapping[str, Any]) -> Path:
    """Write the golden results of a part, one experiment or file a line."""
    if part == "configs":
        first = next(iter(results.values()))
        shared = {
            key: value
            for key, value in first.items()
            if all(key in config and _same(config[key], value) for config in results.values())
        }
        own = {n: {key: v for key, v in config.items() if key not in shared} for n, config in results.items()}
        results = {"": shared} | own
    lines = [
        f"{json.dumps(name)}: {json.dumps(rounded(each), separators=(',', ':'))}" for name, each in results.items()
    ]
    path = FOLDER / f"{part}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return path


def rounded(value: Any) -> Any:
    """Return a result with its floats at nine significant digits."""
    if isinstance(value, Mapping):
        return {str(key): rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


# Comparison ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """One value that differs; a key that only one side has differs infinitely."""

    path: str
    golden: Any
    found: Any
    relative: float

    def __str__(self) -> str:
        return f"{self.path}: golden {self.golden!r}, found {self.found!r}"


ABSENT: Final = "(no such key)"


def compare(golden: Any, found: Any, path: str = "") -> list[Difference]:
    """Return every value that differs at all, with its relative difference; other values than floats differ wholly."""
    if isinstance(golden, Mapping) and isinstance(found, Mapping):
        differences = []
        for key in dict.fromkeys([*golden, *found]):
            below = f"{path} > {key}" if path else str(key)
            differences += compare(golden.get(key, ABSENT), found.get(key, ABSENT), below)
        return differences
    if _same(golden, found):
        return []
    if isinstance(golden, float) and isinstance(found, float) and math.isfinite(golden) and math.isfinite(found):
        floor = 1e-12 if any(name in path for name in NO_FLOOR) else FLOOR
        return [Difference(path, golden, found, abs(golden - found) / max(abs(golden), floor))]
    return [Difference(path, golden, found, math.inf)]


def _same(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return both_nan or (type(one) is type(other) and bool(one == other))


# Together ------------------------------------------------------------------------------------------------------------


def results_of(part: str, only: Iterable[str]) -> dict[str, Any]:
    """Return today's results of a part; for configs and runs, of these experiments."""
    if part == "tables":
        return tables()
    if part == "batches":
        there = os.environ.get("LIGHTNING_CSE_DATA")
        return batches(None) | (batches(there) if there else {})
    results = {}
    for name in only:
        results[name] = {"configs": config_of, "runs": run_of}[part](name)
        print(f"{part}: {name}", file=sys.stderr)
    return results


def main() -> int:
    """Write or compare; see the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none is given")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, metavar="EXPERIMENT", help="needs --check")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if given.only and not given.check:
        parser.error("--only needs --check: a part is written as a whole")
    code = 0
    for part in given.parts or PARTS:
        results = rounded(results_of(part, given.only or EXPERIMENTS))
        if not given.check:
            print(f"written: {write(part, results)}")
            continue
        golden = read(part)
        if part == "batches":
            golden = {name: each for name, each in golden.items() if name in results}
        if given.only and part in ("configs", "runs"):
            golden = {name: golden[name] for name in given.only}
        differences = sorted(compare(golden, results), key=lambda one: -one.relative)
        failed = [one for one in differences if one.relative > RELATIVE[part]]
        worst = differences[0].relative if differences else 0.0
        print(f"{part}: worst relative difference {worst:.1e}, {len(failed)} values beyond {RELATIVE[part]:g}")
        for one in failed[:20]:
            print(f"  {one}")
        code = code or int(bool(failed))
    return code


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
    sys.exit(main())
