"""Copy the records of DualCSE runs into ``experiments/dualcse/records`` and write the table beside the paper's.

python scripts/collect_dualcse.py runs/dualcse_cross/*-s0 runs/dualcse_bi/*-s0 runs/simcse_inli/*-s0
python scripts/collect_dualcse.py                # the table again, from the records there are
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lightning_cse.reproduction.collect import markdown, measured_rows, published_rows, read_records

HERE = Path(__file__).parents[1] / "experiments" / "dualcse"


def main(folders: list[Path]) -> None:
    """Copy the records, and write ``results.md``."""
    for folder in folders:
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        name = f"{record['name']}-{record['identity']}-s{record['seed']}.json"
        (HERE / "records" / name).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    records = read_records(sorted((HERE / "records").glob("*.json")))
    machines = sorted(
        {f"{r['environment']['machine']['cpu']}, {r['environment']['threads']} thread(s)" for r in records}
    )
    commits = sorted({str(record["environment"]["commit"])[:14] for record in records})
    seconds = sum(sum(record["seconds"].values()) for record in records)
    (HERE / "results.md").write_text(
        f"""\
<!-- Written by scripts/collect_dualcse.py from records/; do not edit. -->
Accuracies on the test split of INLI (1,000 premises), in percent; threshold tuned on dev, best checkpoint by dev RTE.

{markdown(measured_rows(records), title="measured here")}

Device: {"; ".join(sorted({r["device"] for r in records}))} ({"; ".join(machines)}). Commits: {", ".join(commits)}.
All runs together: {seconds / 60:.0f} minutes. Versions, digests and every number unrounded: records/.

{markdown(published_rows(HERE / "published.csv"), title="published (DualCSE, Tables 7 and 8)")}
""",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
