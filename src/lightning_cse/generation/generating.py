"""From a config to the rows that a language model writes by a pattern."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from lightning_cse import runs
from lightning_cse.config.compose import portable
from lightning_cse.data.hybrid import PATTERNS
from lightning_cse.data.provenance import read_provenance, side_file, write_provenance
from lightning_cse.data.roles import RoleRows
from lightning_cse.data.sources import read_sources
from lightning_cse.engine.build import built, check_nodes
from lightning_cse.errors import ConfigError, DataError, EncoderError
from lightning_cse.generation.pattern import ANCHOR, build_pattern, wrong_pattern
from lightning_cse.generation.summary import print_prompts, print_summary, summarise
from lightning_cse.generation.writing import UNANSWERABLE, Row, Tally, Writer
from lightning_cse.llm import LLM, LLMError, commonest, wrong_settings

log = logging.getLogger(__name__)

NO_MODEL: Final = "(llm.model is not set)"  # stands for the model where nothing is asked


def run(cfg: DictConfig) -> None:
    """Generate the rows of a config and print a summary, or print what would be sent."""
    hydra, console = HydraConfig.get(), Console(highlight=False, markup=False, soft_wrap=True)
    check(cfg)
    generation = Generation(cfg, str(hydra.runtime.choices["data"]), list(map(str, hydra.overrides.task)))
    if cfg.show_prompts:
        print_prompts(generation.writer, generation.sentences[: generation.wanted], generation.finished, console)
        return
    provenance = generation.run()
    print_summary(generation.summary(), provenance, console)
    console.print("", *generation.conclusion(provenance), sep="\n")


class Generation:
    """One set of rows: its sentences, pattern and model, and its folder, which is named by what decides the rows.

    Every reply is in the cache before it is looked at, and the same replies make the same rows. So a command that was
    stopped starts again from the first sentence, and takes from the cache what came before.

    Args:
        cfg: The config of ``generate``, in which `check` finds nothing.
        data: The name of the data set.
        overrides: The command line.

    Raises:
        DataError: If a corpus is missing, or has too few sentences or examples.
    """

    def __init__(self, cfg: DictConfig, data: str, overrides: Sequence[str] = ()) -> None:
        self.cfg, self.overrides = cfg, list(overrides)
        data_dir = Path(cfg.paths.data_dir).expanduser()
        self.pattern = build_pattern(_values(cfg, "pattern"), data_dir)
        llm = _values(cfg, "llm")
        self.llm = LLM(llm | {"model": llm["model"] or NO_MODEL}, cfg.paths.cache_dir)
        self.writer = Writer(self.llm, self.pattern, cfg.samples)
        self.sentences, self.digests = draw_sentences(cfg, data, data_dir)
        self.wanted = len(self.sentences) if cfg.n is None else int(cfg.n)
        self.name = f"{data.replace('/', '_')}_{self.pattern.name}"

    @cached_property
    def folder(self) -> Path:
        """The folder of the rows and of all that is written about them."""
        digest = hashlib.sha256(b"".join(sentence.encode() + b"\0" for sentence in self.sentences)).hexdigest()
        decisive = {
            "sentences": digest,
            "pattern": {"digest": self.pattern.digest, "checks": [repr(role.checks) for role in self.pattern.roles]},
            "llm": {"model": self.llm.endpoint.model, "parameters": self.llm.parameters},
            "samples": self.cfg.samples,
            "n": self.wanted,
        }
        identity = runs.config_hash(decisive, data={}, encoder={}, resolved={})
        return Path(self.cfg.paths.runs_dir).expanduser() / "generate" / f"{self.name}-{identity}"

    @property
    def rows(self) -> Path:
        """The file of rows, which hybrid data sets read."""
        return self.folder / f"{self.name}.jsonl"

    @property
    def given_up(self) -> Path:
        """The file of the sentences that were given up, with what was rejected."""
        return self.folder / "given_up.jsonl"

    @property
    def finished(self) -> bool:
        """Whether the rows are as they were written; their provenance is written last."""
        found = read_provenance(self.rows) if self.rows.is_file() else None
        return found is not None and bool(found.get("unchanged"))

    def run(self) -> dict[str, Any]:
        """Write the rows, unless they are finished, and return their provenance.

        Raises:
            Busy: If another process writes them.
            DataError: If no sentence has a row.
            LLMError: If no further reply can be had, or some sentences have none; what came is in the cache.
        """
        if not self.finished:
            with runs.locked(self.folder / "run.lock", str(self.folder)):
                runs.write_atomic(self.folder / "config.yaml", OmegaConf.to_yaml(self.cfg, resolve=True))
                started = _now()
                tally = self._write()
                write_provenance(self.rows, self._provenance(tally, started))
        document: dict[str, Any] = json.loads(side_file(self.rows).read_text(encoding="utf-8"))
        return document

    def _write(self) -> Tally:
        """Write rows and given-up sentences in the order of drawing, whichever replies come first."""
        model = self.llm.endpoint.model
        log.info("%s: %d rows from %s; everything goes to %s", self.name, self.wanted, model, self.folder)
        tally, order = Tally([role.name for role in self.pattern.roles]), _Order(self.sentences, self.wanted)
        lost: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        with runs.atomic_file(self.given_up) as given_up:
            with (
                runs.atomic_file(self.rows) as rows,
                self.llm.watching(self.name, "rows", self.wanted) as advance,
                closing(self.llm.each(self.writer.write, order)) as written,
            ):
                for row in written:
                    if row.lost:
                        lost[row.lost] += 1
                        continue
                    tally.add(row)
                    advance(int(row.complete), f"{tally.rejected:,} rejected")
                    for ready in order.in_turn(row):
                        cells = {ANCHOR: ready.anchor, **ready.sentences}
                        cells |= {} if ready.complete else {"rejected": ready.rejected}
                        line = json.dumps(cells, ensure_ascii=False) + "\n"
                        (rows if ready.complete else given_up).write(line.encode())
                    if not row.complete:
                        last = row.rejected[-1]
                        refused.update([last["text"]] if last["reason"] == UNANSWERABLE else [])
                        self._check_patience(tally, last)
                if lost := lost if tally.complete else lost + refused:
                    raise LLMError(
                        f"{lost.total()} of {self.wanted} sentences have no reply: {commonest(lost)}; "
                        f"{tally.complete} rows are complete, and the same command asks for the rest"
                    )
        if not tally.complete:
            self.rows.unlink()
            raise DataError(f"{self.given_up}: no sentence has a row; see what was rejected, and change the pattern")
        if tally.complete < self.wanted:
            message = "%s: %d rows, not %d: %d sentences were given up (%s), and there are no others"
            log.warning(message, self.name, tally.complete, self.wanted, tally.given_up, self.given_up)
        return tally

    def _check_patience(self, tally: Tally, last: dict[str, str]) -> None:
        """Raise LLMError where so many sentences are given up that the fault is not with them."""
        if self.cfg.patience is not None and tally.given_up > max(self.cfg.patience, tally.complete):
            raise LLMError(
                f"{tally.given_up} of {tally.given_up + tally.complete} sentences were given up; of the last one, the "
                f"{last['role']} was rejected ({last['reason']}): {last['text'][:200]!r}. Change the pattern's prompts "
                "or checks, or llm.parameters (max_tokens, where replies are cut off); patience=null goes on"
            )

    def _provenance(self, tally: Tally, started: str) -> dict[str, Any]:
        pattern, endpoint, cfg = self.pattern, self.llm.endpoint, self.cfg
        return {
            "model": endpoint.model,
            "served": dict(sorted(tally.served.items())),
            "endpoint": endpoint.address,
            "pattern": {
                "name": pattern.name,
                "shots": cfg.pattern.shots,
                "seed": cfg.pattern.seed,
                "roles": [role.name for role in pattern.roles],
                "references": [role.reference for role in pattern.roles],
                "digest": pattern.digest,
                "examples": pattern.digests,
            },
            "parameters": self.llm.parameters,
            "seed": cfg.seed,
            "samples": cfg.samples,
            "sources": {"data": self.digests, "there": len(self.sentences), "drawn": tally.complete + tally.given_up},
            "acceptance": tally.acceptance(),
            "tokens": tally.tokens,
            "cost": tally.cost(endpoint.price),
            "price": endpoint.price,
            "made": {"started": started, "finished": _now()},
            "environment": runs.environment(),
            "overrides": portable(self.overrides),
        }

    def summary(self) -> dict[str, Any]:
        """Compare the rows with the pattern's examples; where the encoder is unavailable, without cosines."""
        encoder = None
        try:
            encoder = built(self.cfg.encoder) if self.cfg.get("encoder") is not None else None
        except EncoderError as error:
            log.warning("the rows are written, and no cosines are measured: %s", error)
        return summarise(self.pattern, self.rows, encoder, looked_at=self.cfg.looked_at, seed=self.cfg.seed)

    def conclusion(self, provenance: dict[str, Any]) -> Iterator[str]:
        """Yield where everything is, and the command that trains on the rows."""
        yield from (f"rows: {self.rows}", f"provenance: {side_file(self.rows)}")
        if given_up := provenance["acceptance"]["sources"]["given_up"]:
            yield f"given up: {self.given_up} ({given_up:,}, and why)"
        yield f"figure: {self.folder / 'histograms.png'}"
        there = {ANCHOR, *(role.name for role in self.pattern.roles)}
        kind = next((kind for kind, columns in PATTERNS.items() if there.issuperset(columns)), None)
        if kind is None:
            yield f"no experiment trains on these roles, but on {' or '.join(', '.join(c) for c in PATTERNS.values())}"
        else:
            yield from ("", "to train on them:", f"  {shlex.join(self._training(kind))}")

    def _training(self, kind: str) -> Iterator[str]:
        """Yield the words of the command that trains on the rows, on the corpora that they were written for."""
        target = str(self.cfg.data.rows._target_)
        domain, corpus = ("wiki", "ngcse_wiki") if target.endswith(".Sentences") else ("nli", "nli_train")
        yield from ("python", "-m", "lightning_cse.train")
        yield f"+experiment=ngcse_{domain}_{'sts_ht' if kind == 'sts' else 'nli'}"
        shared = ("corpora=", "corpora.", "paths=", "paths.data_dir=")
        yield from (override for override in self.overrides if override.startswith(shared))
        if self.cfg.data.train != self.cfg.corpora[corpus]:
            yield f"corpora.{corpus}={_listed(self.cfg.data.train)}"
        if not target.endswith((".Sentences", ".NLITriplets")):
            yield f"data.rows.corpus._target_={target}"
        rows = self.rows.absolute()
        rows = rows.relative_to(Path.cwd()) if rows.is_relative_to(Path.cwd()) else rows
        yield f"corpora.llm_{domain}_{kind}={_listed([str(rows)])}"


class _Order:
    """The sentences in the order of drawing, as many as rows are wanted and one more for each that is given up."""

    def __init__(self, sentences: Sequence[str], wanted: int) -> None:
        self.sentences, self.most = sentences, wanted
        self.begun = self.written = 0
        self.waiting: dict[int, Row] = {}  # for one before it

    def __iter__(self) -> _Order:
        return self

    def __next__(self) -> tuple[int, str]:
        if self.begun >= min(self.most, len(self.sentences)):
            raise StopIteration
        self.begun += 1
        return self.begun - 1, self.sentences[self.begun - 1]

    def in_turn(self, row: Row) -> Iterator[Row]:
        """Yield the rows whose turn it is, given another one."""
        self.most += not row.complete
        self.waiting[row.position] = row
        while (ready := self.waiting.pop(self.written, None)) is not None:
            self.written += 1
            yield ready


def draw_sentences(cfg: DictConfig, data: str, data_dir: Path) -> tuple[list[str], dict[str, str]]:
    """Return the distinct sentences of a data set's first role in the order of drawing, and the digests of its files.

    Each has its own draw, the digest of the seed and itself, which has nothing to do with the draws of training.

    Raises:
        DataError: If there are fewer than are asked for.
    """
    build: RoleRows = built(cfg.data.rows)
    read = read_sources(cfg.data.train, data_dir, key="data.train")
    distinct = dict.fromkeys(build(read).column(build.roles[0]))
    kept = [one for one in distinct if cfg.most_words is None or len(one.split()) <= cfg.most_words]
    if left_out := len(distinct) - len(kept):
        message = "data=%s: %d of %d sentences have more than %d words (most_words)"
        log.info(message, data, left_out, len(distinct), cfg.most_words)
    if len(kept) < max(1, cfg.n or 1):
        raise DataError(f"n: must be at most {len(kept)}, the sentences of data={data}, or null for all; got {cfg.n}")
    kept.sort(key=lambda sentence: hashlib.sha256(f"{cfg.seed}\0{sentence}".encode()).digest())
    return kept, {file.name: file.sha256 for table in read for file in table.files}


def check(cfg: DictConfig) -> None:
    """Raise ConfigError with all faults of a config, before a corpus is read."""
    faults = []
    if str(OmegaConf.select(cfg, "data.rows._target_")).endswith(".Hybrid"):
        faults.append("data: its rows are such rows already; choose that of its sentences, as data=wiki or data=nli")
    if cfg.paths.cache_dir is None and not cfg.show_prompts:
        faults.append("paths.cache_dir: must be a folder: replies that are not kept are paid for again")
    faults += [one for one in wrong_settings(_values(cfg, "llm")) if not (cfg.show_prompts and "llm.model:" in one)]
    if faults := [*faults, *wrong_pattern(_values(cfg, "pattern"))]:
        raise ConfigError(faults)
    check_nodes(cfg)


def _values(cfg: DictConfig, key: str) -> Any:
    return OmegaConf.to_container(cfg, resolve=True)[key]  # type: ignore[index, call-overload]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _listed(names: Sequence[str]) -> str:
    """Return names as a list of Hydra's grammar."""
    plain = re.compile(r"[\w/.-]+")
    return f"[{','.join(one if plain.fullmatch(one) else json.dumps(one, ensure_ascii=False) for one in names)}]"
