"""Generate the rows of a config, which a language model writes by a pattern."""

import hashlib
import json
import logging
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from lightning_cse import runs
from lightning_cse.arguments import hydra_text
from lightning_cse.config.compose import portable
from lightning_cse.data.parsers import LLM_PATTERNS
from lightning_cse.data.provenance import read_provenance, side_file, write_provenance
from lightning_cse.data.roles import RoleRows
from lightning_cse.data.sources import read_sources
from lightning_cse.engine.build import built, check_nodes
from lightning_cse.errors import ConfigError, DataError, EncoderError
from lightning_cse.generation.pattern import ANCHOR, build_pattern, wrong_pattern
from lightning_cse.generation.summary import print_prompts, print_summary, summarise
from lightning_cse.generation.writing import Row, Tally, Writer
from lightning_cse.llm import LLM, LLMError, commonest, price_of, wrong_settings

log = logging.getLogger(__name__)


def run(cfg: DictConfig) -> None:
    """Generate the rows of a config and print a summary, or only print the requests that would be sent."""
    hydra, console = HydraConfig.get(), Console(highlight=False, markup=False, soft_wrap=True)
    check(cfg)
    generation = Generation(
        cfg, str(hydra.runtime.choices["data"]), list(map(str, hydra.overrides.task))
    )
    if cfg.show_prompts:
        print_prompts(
            generation.writer,
            generation.sentences[: generation.wanted],
            generation.finished,
            console,
        )
        return
    provenance, encoder = generation.run(), None
    try:
        encoder = built(cfg.encoder) if cfg.get("encoder") is not None else None
    except EncoderError as error:
        log.warning("the rows are written, and no cosines are measured: %s", error)
    summary = summarise(
        generation.pattern, generation.rows, encoder, looked_at=cfg.looked_at, seed=cfg.seed
    )
    print_summary(summary, provenance, console)
    console.print("", *generation.conclusion(), sep="\n")


class Generation:
    """One set of rows: its sentences, pattern and model, and its folder, named by a hash of all that decides the rows.

    Every reply is in the cache before it is used, and the same replies make the same rows. So a command that was
    stopped starts again from the first sentence, and takes the earlier replies from the cache.
    """

    def __init__(self, cfg: DictConfig, data: str, overrides: Sequence[str] = ()) -> None:
        self.cfg, self.overrides = cfg, list(overrides)
        data_dir = Path(cfg.paths.data_dir).expanduser()
        values: Any = OmegaConf.to_container(cfg, resolve=True)
        self.pattern = build_pattern(values["pattern"], data_dir)
        self.llm = LLM(
            values["llm"] | {"model": cfg.llm.model or "(llm.model is not set)"},
            cfg.paths.cache_dir,
        )
        self.writer = Writer(self.llm, self.pattern, cfg.samples)
        self.sentences, self.digests = draw_sentences(cfg, data, data_dir)
        self.wanted = len(self.sentences) if cfg.n is None else int(cfg.n)
        self.name = f"{data.replace('/', '_')}_{self.pattern.name}"
        decisive = {
            "sentences": hashlib.sha256(
                "".join(f"{one}\0" for one in self.sentences).encode()
            ).hexdigest(),
            "pattern": {
                "digest": self.pattern.digest,
                "checks": [repr(role.checks) for role in self.pattern.roles],
            },
            "llm": {"model": self.llm.endpoint.model, "parameters": self.llm.parameters},
            "samples": cfg.samples,
            "n": self.wanted,
        }
        identity = runs.config_hash(decisive, data={}, encoder={}, resolved={})
        self.folder = Path(cfg.paths.runs_dir).expanduser() / "generate" / f"{self.name}-{identity}"
        self.rows, self.given_up = (
            self.folder / f"{self.name}.jsonl",
            self.folder / "given_up.jsonl",
        )

    @property
    def finished(self) -> bool:
        """Whether the rows are complete and unchanged; their provenance is written last."""
        found = read_provenance(self.rows) if self.rows.is_file() else None
        return found is not None and bool(found.get("unchanged"))

    def run(self) -> dict[str, Any]:
        """Write the rows, unless they are finished, and return their provenance."""
        if not self.finished:
            with runs.locked(self.folder / "run.lock", str(self.folder)):
                runs.write_atomic(
                    self.folder / "config.yaml", OmegaConf.to_yaml(self.cfg, resolve=True)
                )
                started = datetime.now(UTC).isoformat(timespec="seconds")
                write_provenance(self.rows, self._provenance(self._write(), started))
        document: dict[str, Any] = json.loads(side_file(self.rows).read_text(encoding="utf-8"))
        return document

    def _write(self) -> Tally:
        """Write rows and given-up sentences in the order of drawing, whatever the order of the replies."""
        model = self.llm.endpoint.model
        log.info(
            "%s: %d rows from %s; everything goes to %s", self.name, self.wanted, model, self.folder
        )
        tally = Tally({role.name: Counter() for role in self.pattern.roles})
        lost: Counter[str] = Counter()
        waiting: dict[int, Row] = {}  # for an earlier row
        begun = written = 0
        with (
            runs.atomic_file(self.given_up) as given_up,
            runs.atomic_file(self.rows) as rows,
            self.llm.watching(self.name, "rows", self.wanted) as advance,
        ):
            # As many sentences as there are rows missing: first all, then one for each that was given up, and so on.
            while not lost and (
                places := range(len(self.sentences))[begun : begun + self.wanted - tally.complete]
            ):
                begun = places.stop
                with closing(
                    self.llm.each(self.writer.write, ((n, self.sentences[n]) for n in places))
                ) as outcomes:
                    for row in outcomes:
                        if row.lost:
                            lost[row.lost] += 1
                            continue
                        tally.add(row)
                        advance(int(row.complete), f"{tally.given_up:,} given up")
                        self._check_patience(tally)
                        waiting[row.position] = row
                        while (ready := waiting.pop(written, None)) is not None:
                            written += 1
                            (rows if ready.complete else given_up).write(_line(ready))
            if lost:
                none = f"{lost.total()} of {self.wanted} sentences have no reply: {commonest(lost)}"
                raise LLMError(
                    f"{none}; {tally.complete} have a row, and the same command asks for the rest"
                )
            self._check_patience(tally, at_end=True)
        return tally

    def _check_patience(self, tally: Tally, at_end: bool = False) -> None:
        """Raise LLMError if so many sentences are given up that the fault cannot be with them."""
        patience, complete, last = self.cfg.patience, tally.complete, tally.last_rejected
        in_vain = patience is not None and tally.given_up > max(patience, complete)
        if in_vain or (at_end and not complete):
            raise LLMError(
                f"{tally.given_up} of {tally.given_up + complete} sentences were given up; of the last one, the "
                f"{last['role']} was rejected ({last['reason']}): {last['text'][:200]!r}. Change the pattern's prompts "
                "or checks, or llm.parameters (max_tokens, where replies are cut off); patience=null goes on"
            )

    def _provenance(self, tally: Tally, started: str) -> dict[str, Any]:
        pattern, endpoint, tokens = self.pattern, self.llm.endpoint, tally.tokens
        cost = (
            price_of(endpoint.price, tokens["prompt"], tokens["completion"])
            if endpoint.price
            else None
        )
        roles = {
            role: {
                "asked": reasons.total(),
                "accepted": reasons.pop(None, 0),
                "rejected": dict(reasons.most_common()),
            }
            for role, reasons in tally.roles.items()
        }
        return {
            "model": endpoint.model,
            "served": dict(sorted(tally.served.items())),
            "endpoint": endpoint.address,
            "pattern": {
                **{key: self.cfg.pattern[key] for key in ("name", "shots", "seed")},
                "roles": [role.name for role in pattern.roles],
                "references": [role.reference for role in pattern.roles],
                "digest": pattern.digest,
                "examples": pattern.digests,
            },
            "parameters": self.llm.parameters,
            "seed": self.cfg.seed,
            "samples": self.cfg.samples,
            "sources": {
                "data": self.digests,
                "there": len(self.sentences),
                "drawn": tally.complete + tally.given_up,
            },
            "acceptance": {
                "sources": {"complete": tally.complete, "given_up": tally.given_up},
                "roles": roles,
            },
            "tokens": tokens,
            "cost": cost if tokens["prompt"] else None,
            "price": endpoint.price,
            "made": {
                "started": started,
                "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            },
            "environment": runs.environment(),
            "overrides": portable(self.overrides),
        }

    def conclusion(self) -> Iterator[str]:
        """Yield the paths of the outputs, and the command that trains on the rows and the corpus that they are for."""
        yield f"rows: {self.rows}\nprovenance: {side_file(self.rows)}\ngiven up: {self.given_up}"
        yield f"figure: {self.folder / 'histograms.png'}"
        roles, target = (
            {ANCHOR, *(role.name for role in self.pattern.roles)},
            str(self.cfg.data.rows._target_),
        )
        kind = next(
            (kind for kind, columns in LLM_PATTERNS.items() if roles.issuperset(columns)), None
        )
        if kind is None or target.endswith(".ImplicitPairs"):  # their rows have no anchor
            return
        target = re.sub(
            r"\.INLI\w+$", ".INLITriplets", target
        )  # of INLI's rows, those with an anchor
        plain = target.endswith((".Sentences", ".OwnRows"))
        domain, corpus = ("wiki", "ngcse_wiki") if plain else ("nli", "nli_train")
        words = [f"+experiment=ngcse_{domain}_{'sts_ht' if kind == 'sts' else 'nli'}"]
        shared = ("corpora=", "corpora.", "paths=", "paths.data_dir=", "data.columns=")
        words += [override for override in self.overrides if override.startswith(shared)]
        if self.cfg.data.train != self.cfg.corpora[corpus]:
            train = self.cfg.data.train
            sources = [train] if isinstance(train, str) else train
            words.append(f"corpora.{corpus}=[{','.join(map(hydra_text, sources))}]")
        if not plain and not target.endswith(".NLITriplets"):
            words.append(f"data.rows.corpus._target_={target}")
        rows = hydra_text(str(self.rows))
        words += [f"{key}=[{rows}]" for key in ("data.watched_in", f"corpora.llm_{domain}_{kind}")]
        yield f"\nto train on them:\n  python -m lightning_cse.train {shlex.join(words)}"


def draw_sentences(cfg: DictConfig, data: str, data_dir: Path) -> tuple[list[str], dict[str, str]]:
    """Return the distinct sentences of a data set's first role in the order of drawing, and the digests of its files.

    A sentence is drawn by the digest of the seed and itself, independently of the draws of training.
    """
    build: RoleRows = built(cfg.data.rows)
    read = read_sources(cfg.data.train, data_dir, key="data.train", columns=cfg.data.columns)
    distinct = dict.fromkeys(build(read).column(build.roles[0]))
    kept = [one for one in distinct if cfg.most_words is None or len(one.split()) <= cfg.most_words]
    if left_out := len(distinct) - len(kept):
        log.info(
            "data=%s: %d sentences have more than %d words (most_words)",
            data,
            left_out,
            cfg.most_words,
        )
    if len(kept) < max(1, cfg.n or 1):
        raise DataError(
            f"n: must be at most {len(kept)}, the sentences of data={data}, or null for all; got {cfg.n}"
        )
    kept.sort(key=lambda sentence: hashlib.sha256(f"{cfg.seed}\0{sentence}".encode()).digest())
    return kept, {file.name: file.sha256 for table in read for file in table.files}


def check(cfg: DictConfig) -> None:
    """Raise ConfigError with all faults of a config, before a corpus is read."""
    values: Any = OmegaConf.to_container(cfg, resolve=True)
    faults = []
    if str(OmegaConf.select(cfg, "data.rows._target_")).endswith(".Hybrid"):
        faults.append(
            "data: already has LLM rows; choose the data of its sentences, such as data=wiki or data=nli"
        )
    if cfg.paths.cache_dir is None and not cfg.show_prompts:
        faults.append(
            "paths.cache_dir: must be a folder: replies that are not kept are paid for again"
        )
    faults += [
        one
        for one in wrong_settings(values.get("llm"))
        if not (cfg.show_prompts and "llm.model:" in one)
    ]
    if faults := [*faults, *wrong_pattern(values.get("pattern"))]:
        raise ConfigError(faults)
    check_nodes(cfg)


def _line(row: Row) -> bytes:
    cells = {ANCHOR: row.anchor, **row.sentences} | (
        {} if row.complete else {"rejected": row.rejected}
    )
    return (json.dumps(cells, ensure_ascii=False) + "\n").encode()
