"""Labels that tell records apart: their names, and the settings in which records of one name
differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lightning_cse.papers.nested import leaves, value_at


def labels_of(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one label per record: its name and, if records share the name, the settings in which
    they differ.
    """
    names = [str(record["name"]) for record in records]
    labels = list(names)
    for name in set(names):
        same = [number for number, other in enumerate(names) if other == name]
        if len(same) == 1:
            continue
        texts = _differences([records[number] for number in same])
        for number, text in zip(same, texts, strict=True):
            labels[number] = text if len(same) == len(names) else f"{name}, {text}"
    return labels


def _differences(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings in which records differ, of their command lines if any of these do; else
    their hashes.
    """
    settings = pd.DataFrame([settings_of(record) for record in records]).fillna("null")
    overrides = [one for record in records for one in record.get("overrides") or ()]
    given = {override.lstrip("+~").partition("=")[0] for override in overrides}
    differing = settings.columns[settings.nunique() > 1]
    keys = [key for key in differing if not key.endswith("_target_")]
    keys = [key for key in keys if given & {key, key.removesuffix(".name")}] or keys
    names = [key.removesuffix(".name").rpartition(".")[2] for key in keys]
    rows = settings[keys].to_numpy()
    texts = [", ".join(map(" ".join, zip(names, values, strict=True))) for values in rows]
    if len(set(texts)) == len(texts):
        return texts
    # The settings are the same, so the files differ, or the encoders of the same name.
    hashes = [f"hash {record['config_hash']}" for record in records]
    return [f"{text}, {one}".lstrip(", ") for text, one in zip(texts, hashes, strict=True)]


def settings_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a record's config as texts, by their dotted keys."""
    config = value_at(record, "decisive.config") or {}
    return {key: str(value) for key, value in leaves(config)}
