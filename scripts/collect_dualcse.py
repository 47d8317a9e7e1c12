"""Copy the records of DualCSE runs into ``experiments/dualcse/<part>`` and write their table, beside the paper's.

For example:

    python scripts/collect_dualcse.py inli runs/dualcse_cross/*-s0 runs/dualcse_bi/*-s0 runs/simcse_inli/*-s0
    python scripts/collect_dualcse.py sample runs/dualcse_cross/*-s[012]
    python scripts/collect_dualcse.py inli              # the table again, from the records there are
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_cse.reproduction.collect import markdown, measured_rows, published_rows, read_records

HERE = Path(__file__).parents[1] / "experiments" / "dualcse"
PARTS = {
    "inli": "the test split of INLI (1,000 premises)",
    "sample": "the test split of the embedded sample corpus (180 premises)",
}


def main(part: str, folders: Sequence[Path]) -> None:
    """Copy the records, and write ``results.md``."""
    there = HERE / part
    there.mkdir(exist_ok=True)
    for folder in folders:
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        name = f"{record['name']}-{record['identity']}-s{record['seed']}.json"
        (there / name).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    records = read_records(sorted(there.glob("*.json")))
    machines = {f"{r['environment']['machine']['cpu']}, {r['environment']['threads']} thread(s) a run" for r in records}
    commits = {_short(str(record["environment"]["commit"])) for record in records}
    minutes = sum(sum(record["seconds"].values()) for record in records) / 60
    text = f"""\
<!-- Written by scripts/collect_dualcse.py from the records beside it; do not edit. -->
Accuracies on {PARTS[part]}, in percent; threshold tuned on dev, best checkpoint by dev RTE.

{markdown(measured_rows(records), title="measured here")}

Device: {"; ".join(sorted({r["device"] for r in records}))} ({"; ".join(sorted(machines))}); all runs together
{minutes:.0f} minutes. Commits: {", ".join(sorted(commits))}. Versions, digests and unrounded numbers: the records.
"""
    if part == "inli":
        published = markdown(published_rows(HERE / "published.csv"), title="published (DualCSE, Tables 7 and 8)")
        text += f"\n{published}\n"
    (there / "results.md").write_text(text, encoding="utf-8")


def _short(commit: str) -> str:
    """Shorten the hash, never the mark of a dirty tree."""
    digits, dash, mark = commit.partition("-")
    return digits[:10] + dash + mark


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        sys.exit(__doc__)
    main(sys.argv[1], [Path(argument) for argument in sys.argv[2:]])
