"""Golden results: the present results of experiments, runs and tables, with which a later version
is compared.

    python scripts/golden.py            # write all parts again, to tests/golden/
    python scripts/golden.py runs       # one part: configs, runs, batches or tables
    python scripts/golden.py --check    # compare instead; print the worst difference of each part
    python scripts/golden.py runs --only dualcse_cross gausscse --check

The parts:

- configs: the values in each experiment's composed config that affect its result.
- runs: each experiment under ``+debug=tiny`` with seed 0: the version of its method, its curves,
  test metrics, best step and numbers of rows. Changed numbers are written only if the method has
  another ``version`` than before.
- batches: digests of the rows, the account and the first three batches of every data config, from
  the sample corpora and, if LIGHTNING_CSE_DATA names a folder, from the corpora in it.
- tables: the cells of all tables that ``reproduce`` renders from the records under
  ``experiments/``.

A value that is within the tolerance of its golden value keeps it, so that another machine changes
no file.

All parts except the batches use only the commands ``python -m lightning_cse.train`` and ``python -m
lightning_cse.reproduce`` and their files, so this script does not depend on the inside of the
package.
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
EXPERIMENTS: Final = sorted(
    path.stem for path in (REPOSITORY / "conf" / "experiment").glob("*.yaml")
)
PARTS: Final = ("configs", "runs", "batches", "tables")

RELATIVE: Final = {"configs": 0.0, "runs": 1e-4, "batches": 0.0, "tables": 1e-4}
"""The accepted relative difference of two floats, by part."""
FLOOR: Final = 1e-2
"""Smaller floats are compared as if they were this large: the smallest absolute tolerance is 1e-6.
"""
NO_FLOOR: Final = ("learning_rate",)
"""Values that are small by nature, and are compared by their relative difference alone."""


# The commands -------------------------------------------------------------------------------------


def command(name: str, *arguments: str, accept: Iterable[int] = (0,)) -> str:
    """Run ``python -m lightning_cse.NAME`` in this process, as a user without corpora does; return
    its output.

    Raises:
        RuntimeError: if the exit code of the command is not accepted.
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
    """Train under ``+debug=tiny`` in this process, with one thread, and return the folder of the
    run.
    """
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
    """Set an environment without network, uploads, screen, and folders that variables name."""
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


# The parts ----------------------------------------------------------------------------------------

LEFT_OUT: Final = (
    # folders, and what watches a run
    *("paths", "logger", "baselines", "callbacks", "seed", "force", "retry_failed", "hydra"),
    *("keep_last", "figures"),
    # values that appear again where they are used
    *("corpora", "limits", "own"),
    # what Lightning prints
    *("trainer.enable_model_summary", "trainer.enable_progress_bar", "trainer.log_every_n_steps"),
    "trainer.num_sanity_val_steps",
)
"""Keys of a config that affect no result, with all keys below them; references to paths are left
out too.
"""


def config_of(experiment: str) -> dict[str, Any]:
    """Return the decisive values of an experiment's config by dotted key; classes by the last part
    of their name.
    """
    from omegaconf import OmegaConf

    cfg = OmegaConf.create(command("train", f"+experiment={experiment}", "--cfg", "job"))

    return dict(_leaves(cfg, ""))


def _leaves(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for key in node:
        name = f"{prefix}{key}"
        content: Any = OmegaConf.to_container(node, resolve=False)
        raw = content[key]
        if name in LEFT_OUT or (isinstance(raw, str) and "${paths." in raw):
            continue

        try:
            value = node[key]
        except OmegaConfBaseException:  # missing, or resolved only by an experiment
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
        return {name: _plain(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]

    return value.rpartition(".")[2] if key == "_target_" and isinstance(value, str) else value


CURVES: Final = ("train/", "val/", "diag/")


def run_of(experiment: str) -> dict[str, Any]:
    """Train an experiment; return its method's version, its curves by key and step, and the numbers
    of its record except timings.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = run_tiny(Path(scratch), f"+experiment={experiment}")
        curves: dict[str, dict[str, float]] = {}
        with (folder / "curves.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                # The two encoders are equal before the first step, so their implicitness is 0 up to
                # rounding errors.
                noise = experiment.startswith("dualcse_bi") and (row["key"], row["step"]) == (
                    "val/eis/accuracy",
                    "0",
                )
                if row["key"].startswith(CURVES) and not noise:
                    curves.setdefault(row["key"], {})[row["step"]] = float(row["value"])

        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))

    return {
        "version": record["version"],
        "curves": curves,
        "metrics": record["metrics"],
        "best": {key: record["best"][key] for key in ("step", "score")},
        "steps": record["steps"],
        "rows": record["rows"],
    }


_OTHER_ENCODERS: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = (
    ("minilm_l6", (), ("dualcse/table2", "dualcse/retrieval")),
    ("mpnet_base", ("--seeds=0",), ("dualcse/table2", "gausscse/table3", "gausscse/triplets")),
)
"""The tables that are kept with another encoder than that of the profile."""


def tables() -> dict[str, Any]:
    """Render all tables from the records under ``experiments/``; return the cells by file, row and
    column.
    """
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # 2: some specs need corpora that are missing.
        options = ("--kept", "--no-run", f"--runs-dir={folder}")
        with contextlib.redirect_stderr(io.StringIO()):
            command("reproduce", "--all", "--profile=small", *options, accept=(0, 2))
            for encoder, more, specs in _OTHER_ENCODERS:
                arguments = ("--profile=small", f"--encoder={encoder}", *more, *options)
                command("reproduce", *specs, *arguments)

        for file in filter(_is_golden, sorted((folder / "reproduce").rglob("*.csv"))):
            results[f"{file.parent.name}/{file.name}"] = _cells(file)

    return results


def committed_tables() -> dict[str, Any]:
    """Return the cells of the tables under ``experiments/*/results/``, as `tables` does."""
    files = sorted((REPOSITORY / "experiments").glob("*/results/*.csv"))
    return {
        f"{file.parents[1].name}/{file.name}": _cells(file) for file in files if _is_golden(file)
    }


def _is_golden(file: Path) -> bool:
    # Effects are made from the cells; tests/unit/tables/test_kept_results.py makes them again.
    return not file.name.endswith(".effects.csv")


def _cells(file: Path) -> dict[str, dict[str, Any]]:
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))

    cells: dict[str, dict[str, Any]] = {}
    for row in rows:
        labels = [key for key in row if key in LABELS]
        name = ", ".join(row[key] for key in labels if row[key])
        if name in cells:
            name = f"{name} ({len(cells)})"

        cells[name] = {
            key: _cell(key, text) for key, text in row.items() if text and key not in labels
        }

    return cells


LABELS: Final = {"row", "encoder", "column", "setting", "seed", "of", "measure", "scope"}
"""The columns that identify a row."""


def _cell(key: str, text: str) -> Any:
    if key in {"n", "settings", "seeds", "seeds_reference", "best_step"}:
        return text

    try:
        return float(text)
    except ValueError:
        return text


# Files --------------------------------------------------------------------------------------------


def read(part: str) -> dict[str, Any]:
    """Return the golden results of a part, by experiment or file; a part without a file has
    none.
    """
    path = FOLDER / f"{part}.json"
    if not path.is_file():
        return {}

    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if part == "configs":  # values that all experiments share are stored once
        shared = document.pop("")
        return {name: shared | entries for name, entries in document.items()}

    return document


def golden_of(part: str, name: str) -> Any:
    """Return the golden results of an experiment, a data config or a table; say which command
    writes missing ones.
    """
    results = read(part)
    if name not in results:
        raise LookupError(f"no golden {part} of {name}: run python scripts/golden.py {part}")

    return results[name]


def steady(part: str, golden: Any, result: Any) -> Any:
    """Return new results, with the golden value wherever the difference is within the tolerance of
    the part.
    """
    if isinstance(golden, Mapping) and isinstance(result, Mapping):
        order = [key for key in golden if key in result]
        order += [key for key in result if key not in golden]
        return {key: steady(part, golden.get(key, ABSENT), result[key]) for key in order}

    differences = compare(golden, result)

    return (
        golden
        if all(difference.relative <= RELATIVE[part] for difference in differences)
        else result
    )


def write(part: str, results: Mapping[str, Any]) -> Path:
    """Write the golden results of a part, one line per experiment or file."""
    if part == "configs":
        first = next(iter(results.values()))
        shared = {
            key: value
            for key, value in first.items()
            if all(key in config and _same(config[key], value) for config in results.values())
        }
        entries = {
            n: {key: v for key, v in config.items() if key not in shared}
            for n, config in results.items()
        }
        results = {"": shared} | entries

    lines = [
        f"{json.dumps(name)}: {json.dumps(rounded(result), separators=(',', ':'))}"
        for name, result in results.items()
    ]
    path = FOLDER / f"{part}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    return path


def rounded(value: Any) -> Any:
    """Return a result with its floats rounded to nine significant digits."""
    if isinstance(value, Mapping):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]

    return float(f"{value:.9g}") if isinstance(value, float) else value


# Comparison ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """One value that differs; if only one side has the key, the difference is infinite."""

    path: str
    golden: Any
    result: Any
    relative: float

    def __str__(self) -> str:
        return f"{self.path}: golden {self.golden!r}, result {self.result!r}"


ABSENT: Final = "(no such key)"


def compare(golden: Any, result: Any, path: str = "") -> list[Difference]:
    """Return every value that differs, with its relative difference, which is infinite for values
    other than floats.
    """
    if isinstance(golden, Mapping) and isinstance(result, Mapping):
        differences = []
        for key in dict.fromkeys([*golden, *result]):
            below = f"{path} > {key}" if path else str(key)
            differences += compare(golden.get(key, ABSENT), result.get(key, ABSENT), below)

        return differences

    if _same(golden, result):
        return []

    if (
        isinstance(golden, float)
        and isinstance(result, float)
        and math.isfinite(golden)
        and math.isfinite(result)
    ):
        floor = 1e-12 if any(name in path for name in NO_FLOOR) else FLOOR
        return [Difference(path, golden, result, abs(golden - result) / max(abs(golden), floor))]

    return [Difference(path, golden, result, math.inf)]


def _same(golden: Any, result: Any) -> bool:
    both_nan = (
        isinstance(golden, float)
        and isinstance(result, float)
        and math.isnan(golden)
        and math.isnan(result)
    )
    return both_nan or (type(golden) is type(result) and bool(golden == result))


# Together -----------------------------------------------------------------------------------------


def results_of(part: str, only: Iterable[str]) -> dict[str, Any]:
    """Return the present results of a part; for configs and runs, those of these experiments."""
    if part == "tables":
        return tables()

    if part == "batches":
        corpora = os.environ.get("LIGHTNING_CSE_DATA")
        return batches(None) | (batches(corpora) if corpora else {})

    results = {}
    for name in only:
        results[name] = {"configs": config_of, "runs": run_of}[part](name)
        print(f"{part}: {name}", file=sys.stderr)

    return results


def methods_to_raise(golden: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    """Return the methods with other golden runs than before and the same version.

    A value that only one side has changes no number: an experiment or a key may be new or gone.
    """
    configs = read("configs")
    methods = set()
    for experiment in golden.keys() & results.keys():
        before, after = golden[experiment], results[experiment]
        changed = [
            difference
            for difference in compare(before, after)
            if ABSENT not in (difference.golden, difference.result)
            and difference.relative > RELATIVE["runs"]
        ]
        if changed and before["version"] == after["version"]:
            methods.add(configs[experiment]["method._target_"])

    return sorted(methods)


def write_part(part: str) -> Path:
    """Write the golden results of a part again.

    Exits with a message, and writes nothing, if the runs of a method changed and its version did
    not.
    """
    golden = read(part)
    results = steady(part, golden, rounded(results_of(part, EXPERIMENTS)))
    if part == "runs" and (methods := methods_to_raise(golden, results)):
        sys.exit(
            f"nothing was written: the golden runs of {', '.join(methods)} changed; "
            "raise the `version` of each class, so that tables mark earlier records"
        )

    return write(part, results)


def check_part(part: str, only: list[str] | None) -> bool:
    """Compare the present results of a part with the golden ones; print and return whether they are
    the same.
    """
    results = rounded(results_of(part, only or EXPERIMENTS))
    golden = read(part)
    if part == "batches":
        golden = {name: result for name, result in golden.items() if name in results}
    if only and part in ("configs", "runs"):
        golden = {name: golden_of(part, name) for name in only}

    differences = sorted(compare(golden, results), key=lambda difference: -difference.relative)
    failed = [difference for difference in differences if difference.relative > RELATIVE[part]]
    worst = differences[0].relative if differences else 0.0
    beyond = f"{len(failed)} values beyond {RELATIVE[part]:g}"
    print(f"{part}: worst relative difference {worst:.1e}, {beyond}")
    for difference in failed[:20]:
        print(f"  {difference}")

    return not failed


def main() -> int:
    """Write or compare the golden results; see the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none is given"
    )
    parser.add_argument(
        "--only", nargs="+", choices=EXPERIMENTS, metavar="EXPERIMENT", help="needs --check"
    )
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if args.only and not args.check:
        parser.error("--only needs --check: a part is written as a whole")

    same = True
    for part in args.parts or PARTS:
        if args.check:
            same &= check_part(part, args.only)
        else:
            print(f"written: {write_part(part)}")

    return int(not same)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
    sys.exit(main())
