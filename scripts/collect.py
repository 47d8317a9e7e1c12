"""Copy the records of runs into ``experiments/<paper>/<part>`` and write their tables, beside the paper's.

For example:

    python scripts/collect.py dualcse/inli runs/dualcse_cross/*-s0 runs/dualcse_bi/*-s0 runs/simcse_inli/*-s0
    python scripts/collect.py gausscse/nli runs/gausscse*/*-s[012] runs/simcse_sup/*-s0
    python scripts/collect.py gausscse/nli              # the tables again, from what is there

With run folders of several points, McNemar's tests between all of them are written too (``mcnemar.md``), from the
predictions, which are not copied.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_cse.compare import as_markdown
from lightning_cse.papers.collect import (
    DIRECTION,
    NLI,
    RTE_AND_EIS,
    Columns,
    effect,
    markdown,
    measured_rows,
    published_rows,
    read_records,
)
from lightning_cse.papers.significance import baseline_points, compare, points, read_run

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@dataclass(frozen=True)
class Part:
    """What one table of measurements is made of."""

    about: str
    tables: Mapping[str, Columns]
    published: str | None = None  # the file, and what to call its tables
    effects: bool = False
    tests: bool = False  # McNemar's, between all points and these baselines
    baselines: tuple[str, ...] = ()


GAUSSCSE = {"NLI, two-way": NLI, "direction of entailment": DIRECTION}
PARTS = {
    "dualcse/inli": Part(
        "Accuracies on the test split of INLI (1,000 premises), in percent; threshold tuned on dev, best checkpoint by "
        "dev RTE.",
        {"measured here": RTE_AND_EIS},
        "published (DualCSE, Tables 7 and 8)",
    ),
    "dualcse/sample": Part(
        "Accuracies on the test split of the embedded sample corpus (180 premises), in percent; threshold tuned on "
        "dev, best checkpoint by dev RTE.",
        {"measured here": RTE_AND_EIS},
    ),
    "gausscse/nli": Part(
        "Trained on the triplets of the partial NLI corpora (`corpora=partial`), tested on SNLI test, half of MNLI's "
        "matched dev and SICK test, in percent; one threshold, tuned on SNLI dev; best checkpoint by AUPRC on SNLI dev "
        "(SimCSE: by Spearman on STS-B dev). Which differences hold: the effects below, and [mcnemar.md](mcnemar.md).",
        GAUSSCSE,
        "published (GaussCSE, Tables 3 and 4)",
        effects=True,
        tests=True,
        baselines=("length",),
    ),
}


def main(name: str, folders: Sequence[Path]) -> None:
    """Copy the records, and write ``results.md``."""
    part, there = PARTS[name], EXPERIMENTS / name
    there.mkdir(exist_ok=True, parents=True)
    for folder in folders:
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        copy = f"{record['name']}-{record['config_hash']}-s{record['seed']}.json"
        (there / copy).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    records = read_records(sorted(there.glob("*.json")))
    parts = [f"<!-- Written by scripts/collect.py from the records beside it; do not edit. -->\n{part.about}"]
    parts += [markdown(measured_rows(records, columns), columns, title=title) for title, columns in part.tables.items()]
    if part.effects:
        parts.append(_effects(records, part.tables))
    if part.tests and folders:
        runs = [read_run(folder) for folder in folders]
        given = points(runs)
        beside = [run for run in runs if run.record["baselines"]]
        given += [point for baseline in part.baselines for point in baseline_points(baseline, beside)]
        (there / "mcnemar.md").write_text(as_markdown(given, compare(given), 0.05).rstrip() + "\n", encoding="utf-8")
    parts.append(_machine(records))
    if part.published:
        rows = published_rows(there.parent / "published.csv")
        titles = [part.published] if len(part.tables) == 1 else [f"{part.published}: {title}" for title in part.tables]
        tables = zip(titles, part.tables.values(), strict=True)
        parts += [markdown(rows, columns, title=title) for title, columns in tables]
    (there / "results.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _effects(records: Sequence[Mapping[str, Any]], tables: Mapping[str, Columns]) -> str:
    """Return the differences of points that differ in one thing: the sets of the loss, its formula, or the method."""
    seeds_of: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        seeds_of.setdefault(record["config_hash"], []).append(record)
    headed = {h if " " in h else f"{h} direction": key for columns in tables.values() for h, key in columns.items()}
    shown = {h: key for h, key in headed.items() if any(key in r["metrics"] for r in records) and "det" not in h}
    lines = [f"| effect | seeds | {' | '.join(shown)} |", f"|---|{'---:|' * (len(shown) + 1)}"]
    by_sets = sorted(seeds_of.values(), key=lambda point: (ORDER.index("+".join(_sets(point))), _reduce(point)))
    for b, a in itertools.combinations(by_sets, 2):
        if _training(a) != _training(b) or (_reduce(a) != _reduce(b) and _sets(a) != _sets(b) and _sets(b)):
            continue
        found = {heading: effect(a, b, key) for heading, key in shown.items()}
        seeds = max((one.seeds for one in found.values() if one), default=0)
        if seeds:
            lines.append(
                f"| {_label(a)} - {_label(b)} | {seeds} | {' | '.join(str(e or '') for e in found.values())} |"
            )
    told = "Differences in percentage points, with the 95 % interval of Student's t over the seeds."
    return f"{told}\n\n" + "\n".join(lines)


ORDER = ("", "ent", "ent+con", "ent+rev", "ent+con+rev")
"""SimCSE, which has no sets, and the settings of GaussCSE: an effect is the later minus the earlier."""


def _training(records: Sequence[Mapping[str, Any]]) -> Any:
    """Return what two points must share for their difference to be an effect: rows, steps and encoder."""
    record = records[0]
    config = record["decisive"]["config"]
    return (
        record["rows"]["training_rows"],
        record["encoder"],
        config["trainer"]["max_epochs"],
        config["data"]["batch_size"],
    )


def _sets(records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(_loss(records).get("sets", ()))


def _reduce(records: Sequence[Mapping[str, Any]]) -> str:
    return str(_loss(records).get("reduce", ""))


def _loss(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    loss: Mapping[str, Any] = records[0]["decisive"]["config"]["method"]["loss"]
    return loss


def _label(records: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(part for part in ("+".join(_sets(records)) or records[0]["name"], _reduce(records)) if part)


def _machine(records: Sequence[Mapping[str, Any]]) -> str:
    machines = {f"{r['environment']['machine']['cpu']}, {r['environment']['threads']} thread(s) a run" for r in records}
    commits = {_short(str(record["environment"]["commit"])) for record in records}
    minutes = sum(sum(record["seconds"].values()) for record in records) / 60
    devices = sorted({record["device"] for record in records})
    return (
        f"Device: {'; '.join(devices)} ({'; '.join(sorted(machines))}); all runs together\n"
        f"{minutes:.0f} minutes. Commits: {', '.join(sorted(commits))}. Versions, digests and unrounded numbers: the "
        "records."
    )


def _short(commit: str) -> str:
    """Shorten the hash, never the mark of a dirty tree."""
    digits, dash, mark = commit.partition("-")
    return digits[:10] + dash + mark


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        sys.exit(__doc__)
    main(sys.argv[1], [Path(argument) for argument in sys.argv[2:]])
