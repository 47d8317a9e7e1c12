"""Labels that tell records apart: their names, and the overrides in which records of one name
differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def labels_of(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one label per record: its name and the overrides that not all records of this name
    have; its hash, too, if another has the same label.
    """
    common: dict[str, set[str]] = {}
    for record in records:
        given = set(record.get("overrides") or ())
        common[record["name"]] = common.get(record["name"], given) & given

    labels = []
    for record in records:
        known = common[record["name"]]
        own = [one for one in record.get("overrides") or () if one not in known]
        labels.append(
            ", ".join([record["name"], *(one for one in own if not one.startswith("seed="))])
        )

    return [
        f"{label}, hash {record['config_hash']}" if labels.count(label) > 1 else label
        for label, record in zip(labels, records, strict=True)
    ]
