"""Groups runs over their seeds, with labels that tell the groups apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lightning_cse.errors import DataError

if TYPE_CHECKING:
    from lightning_cse.tables.records import FinishedRun


def by_setting(runs: Iterable[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Return the runs of each name and hash in the order of their seeds, by label.

    Raises:
        DataError: if two runs have the same name, hash and seed.
    """
    groups: dict[tuple[str, str], dict[int, FinishedRun]] = {}
    for run in runs:
        name, seed = run.record["name"], run.record["seed"]
        group = groups.setdefault((name, run.record["config_hash"]), {})
        first = group.setdefault(seed, run)
        if first is not run:
            raise DataError(
                f"{first} and {run} are both seed {seed} of {name}: give only one of them"
            )

    by_seed = [[group[seed] for seed in sorted(group)] for group in groups.values()]
    labels = labels_of([runs[0].record for runs in by_seed])

    return dict(zip(labels, by_seed, strict=True))


def labels_of(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one label per record: its name and the overrides that not all records of this name
    have; its hash, too, if another has the same label.
    """
    common: dict[str, set[str]] = {}
    for record in records:
        of_record = set(record.get("overrides") or ())
        common[record["name"]] = common.get(record["name"], of_record) & of_record

    labels = []
    for record in records:
        name = record["name"]
        overrides = [text for text in record.get("overrides") or () if text not in common[name]]
        labels.append(
            ", ".join([name, *(text for text in overrides if not text.startswith("seed="))])
        )

    return [
        f"{label}, hash {record['config_hash']}" if labels.count(label) > 1 else label
        for label, record in zip(labels, records, strict=True)
    ]
