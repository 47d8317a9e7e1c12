"""Labels that tell records apart: their names, and the overrides in which records of one name
differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def labels_of(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one label per record: its name and the overrides that not all records of this name
    have; its hash, too, if another has the same label.
    """
    by_name: dict[str, list[set[str]]] = {}
    for record in records:
        by_name.setdefault(record["name"], []).append(set(record.get("overrides") or ()))

    labels = []
    for record in records:
        common = set.intersection(*by_name[record["name"]])
        own = [one for one in record.get("overrides") or () if one not in common]
        labels.append(", ".join([record["name"], *(one for one in own if one[:5] != "seed=")]))

    return [
        f"{label}, hash {record['config_hash']}" if labels.count(label) > 1 else label
        for label, record in zip(labels, records, strict=True)
    ]
