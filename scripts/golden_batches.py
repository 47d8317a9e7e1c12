"""The part ``batches`` of the golden results: digests of the rows, account and batches of every
data config.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

CONF: Final = Path(__file__).resolve().parents[1] / "conf"
DATA: Final = sorted({path.stem for path in (CONF / "data").glob("[!_]*.yaml")} - {"file"})

VARIANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "all": (),
    "part": ("data.llm_rows=8", "data.train_rows=40", "data.max_tokens=6", "data.drop_last=true"),
}
"""Overrides of a data config; llm_rows apply to data with LLM rows."""


def batches_of(name: str, corpora: str | None = None) -> dict[str, Any]:
    """Return digests of the rows, the account and the first three batches of a data config, by
    variant.

    Args:
        name: the data config.
        corpora: the folder of the corpora; None for the samples in the package.
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    import lightning_cse.config.compose  # noqa: F401 - the resolvers

    digests: dict[str, Any] = {}
    for variant, overrides in VARIANTS.items():
        llm = name.endswith(("nli_nli", "nli_sts", "wiki_nli", "wiki_sts"))
        chosen = [override for override in overrides if llm or "llm_rows" not in override]
        where = (
            ["corpora=partial", f"paths.data_dir={corpora}"]
            if corpora
            else ["paths.data_dir=${sample_dir:}"]
        )
        GlobalHydra.instance().clear()
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            fixed = (
                "method=simcse_unsup",
                "suite=stsb",
                "encoder=tiny",
                f"data={name}",
                "data.batch_size=12",
            )
            cfg = hydra.compose("train", [*fixed, "paths.cache_dir=null", *where, *chosen])

        with tempfile.TemporaryDirectory() as cache:
            digests[variant] = _digests(cfg.data, corpora, cache)

    return digests


def _digests(node: Any, corpora: str | None, cache: str) -> dict[str, Any]:
    from hydra.utils import instantiate

    from lightning_cse.data import ContrastiveDataModule, where
    from lightning_cse.encoders import tiny_encoder

    settings = instantiate(node, cache_dir=cache)
    data = ContrastiveDataModule(settings, tokenize=tiny_encoder().tokenizer, seed=3)
    data.setup()
    loader = data.train_dataloader()
    batches = [batch for _, batch in zip(range(3), _forever(loader), strict=False)]
    sides = {"train": data.train, "held_out": data.held_out}
    sizes = {name: len(rows) for name, rows in sides.items()}
    texts = {
        name: _digest([list(rows[role]) for role in data.roles]) for name, rows in sides.items()
    }
    sources = {
        name: _digest([_place(where(rows, row)) for row in range(0, len(rows), 7)])
        for name, rows in sides.items()
    }
    tokens = [
        [
            batch["index"].tolist(),
            {
                role: [
                    tokens.rows.tolist(),
                    [i[:n].tolist() for i, n in zip(tokens.ids, tokens.lengths, strict=True)],
                ]
                for role, tokens in sorted(batch["roles"].items())
            },
            *([batch["targets"].tolist()] if "targets" in batch else []),
        ]
        for batch in batches
    ]

    return {
        "rows": sizes,
        "counts": dict(sorted(data.counts.items())),
        "texts": texts,
        "places": sources,
        "batches": [_digest(batch) for batch in tokens],
        "files": _digest(sorted(data.digests.items())),
        "cut": sum(data.cut_to(20).values()),
        "an epoch": len(loader),
    }


def _forever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _place(where: str) -> str:
    """Return file and line without the folder of the corpora."""
    path, _, line = where.rpartition(":")
    return f"{Path(path).name}:{line}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()[:16]


UNAVAILABLE = ("implicit_pairs", "dino", "claif", "clhaif")
"""The data configs whose corpora cannot be fetched."""


def batches(corpora: str | None) -> dict[str, Any]:
    """Return `batches_of` of every data config; the names for real corpora end in "(corpora)"."""
    names = [name for name in DATA if corpora is None or name not in UNAVAILABLE]
    return {f"{name} (corpora)" if corpora else name: batches_of(name, corpora) for name in names}
