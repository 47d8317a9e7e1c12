"""From a config to the rows that a language model writes by a pattern: draw, ask, write down, look at, tell."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.text import Text

from lightning_cse import runs
from lightning_cse.config.compose import portable
from lightning_cse.data import Hybrid
from lightning_cse.data.provenance import read_provenance, side_file, write_provenance
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.engine.build import built, check_nodes
from lightning_cse.errors import ConfigError, DataError, EncoderError
from lightning_cse.generation import Journal, Pattern, Settled, Tally, Unanswered, Writer, build_pattern, wrong_pattern
from lightning_cse.generation.drawn_sentences import draw_sentences
from lightning_cse.generation.hybrid_training import how_to_train
from lightning_cse.generation.made_rows import look_at, print_made
from lightning_cse.generation.prompts import print_prompts
from lightning_cse.llm import LLMError, price_of
from lightning_cse.llm.asker import Asker, commonest, wrong_settings

__all__ = ["Generation", "run"]

log = logging.getLogger(__name__)

NO_MODEL: Final = "(llm.model is not set)"
"""Stands for the model where nothing is asked."""

_JOURNAL: Final = "journal.jsonl"


def run(cfg: DictConfig) -> None:
    """Generate what the command line asks for, or show what would be asked, and print what came of it."""
    hydra = HydraConfig.get()
    _check(cfg)
    generation = Generation(cfg, str(hydra.runtime.choices["data"]), list(map(str, hydra.overrides.task)))
    console = Console(highlight=False)
    if cfg.show_prompts:
        unwritten, wanted = generation.unwritten(), generation.wanted
        print_prompts(generation.writer, generation.sentences[0], unwritten, wanted, generation.asker.endpoint, console)
        return
    provenance = generation.run()
    print_made(generation.summary(), _priced(provenance, generation.asker.endpoint.price), console)
    console.print()
    for line in generation.conclusion(provenance):
        console.print(Text(line), soft_wrap=True)


class Generation:
    """One set of rows: its sentences, its pattern, its model, and the folder in which it grows.

    What names it is what decides its rows: the sentences in the order of drawing, the pattern with its checks, the
    model, parameters, ``samples`` and ``n``. Replies are kept for all of them together, so that the first rows of a
    larger ``n`` cost nothing again. The folder holds ``journal.jsonl``, of which nothing is asked again; when all is
    done, the rows, their provenance, and ``given_up.jsonl`` with the sentences that have none.

    Args:
        cfg: The config of ``generate``, in which `_check` finds nothing.
        data: What the data set is called.
        overrides: The command line, without its secrets, for the provenance.

    Raises:
        LightningCSEError: For whatever is the user's to mend.
    """

    def __init__(self, cfg: DictConfig, data: str, overrides: Sequence[str] = ()) -> None:
        self.cfg = cfg
        self.data = data
        self.overrides = list(overrides)
        data_dir = Path(cfg.paths.data_dir).expanduser()
        self.pattern: Pattern = build_pattern(_values(cfg, "pattern"), data_dir)
        llm = _values(cfg, "llm")
        self.asker = Asker(llm | {"model": llm["model"] or NO_MODEL}, cfg.paths.cache_dir)
        self.writer = Writer(
            self.asker.client,
            self.pattern,
            parameters=self.asker.parameters,
            samples=cfg.samples,
            patience=cfg.patience,
        )
        self.drawn = draw_sentences(cfg, data, data_dir)
        self.name = f"{data.replace('/', '_')}_{self.pattern.name}"

    @property
    def sentences(self) -> Sequence[str]:
        """The sentences in the order of drawing."""
        return self.drawn.sentences

    @property
    def wanted(self) -> int:
        """How many rows there are to be."""
        return len(self.sentences) if self.cfg.n is None else int(self.cfg.n)

    @cached_property
    def folder(self) -> Path:
        """The folder, which the identity names."""
        cfg = self.cfg
        decisive = {
            "sentences": self.drawn.digest,
            "pattern": {"digest": self.pattern.digest, "checks": [str(role.checks) for role in self.pattern.roles]},
            "llm": {"model": self.asker.endpoint.model, "parameters": self.asker.parameters},
            "samples": cfg.samples,
            "n": self.wanted,
        }
        identity = runs.config_hash(decisive, data={}, encoder={}, resolved={})
        return Path(cfg.paths.runs_dir).expanduser() / "generate" / f"{self.name}-{identity}"

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
        """Whether the rows are there, as they were written: their provenance is written last."""
        found = read_provenance(self.rows) if self.rows.is_file() else None
        return found is not None and bool(found.get("unchanged"))

    def unwritten(self) -> list[str]:
        """Return the sentences that are asked about next, as many as rows are lacking."""
        if self.finished:
            return []
        settled = {source.position: source.complete for source in Journal(self.folder / _JOURNAL).read()}
        lacking = self.wanted - sum(settled.values())
        return [each for place, each in enumerate(self.sentences) if place not in settled][:lacking]

    def run(self) -> dict[str, Any]:
        """Ask for all rows that are not there, and return their provenance.

        Raises:
            Busy: If another process is at it.
            LLMError: If no further reply can be had, or some sentences have none; what came is kept.
        """
        if self.finished:
            log.info("%s is there; another n, seed or pattern makes other rows", self.rows)
            return _read(side_file(self.rows))
        with runs.locked(self.folder / "run.lock", str(self.folder)), Journal(self.folder / _JOURNAL) as journal:
            if side_file(self.rows).exists():
                log.warning("%s is not as it was written: written again, from %s", self.rows, journal.path)
            journal.repair()
            tally = self._ask(journal)
            return self._conclude(journal, tally)

    def _ask(self, journal: Journal) -> Tally:
        """Settle all sources, and return the counts over those of this start and of earlier ones.

        Raises:
            LLMError: As `run`.
        """
        tally = Tally([role.name for role in self.pattern.roles])
        settled: dict[int, bool] = {}
        for source in journal.read():
            if self.sentences[source.position : source.position + 1] != [source.anchor]:
                raise DataError(
                    f"{journal.path}: sentence {source.position} is not the one that is drawn there now: move the "
                    "folder away, and the same command begins anew, with the replies of the cache"
                )
            tally.add(source)
            settled[source.position] = source.complete
        log.info(
            "%s: %d rows to be, %d of them there, from %s; everything goes to %s",
            self.name,
            self.wanted,
            tally.complete,
            self.asker.endpoint.model,
            self.folder,
        )
        unanswered: Counter[str] = Counter()
        # Refused by the endpoint, which may be mended: they are settled when all is, and asked again until then.
        refused: list[Settled] = []
        written = self.writer.write(self.sentences, self.wanted, settled=settled)
        try:
            with (
                self.asker.watching(self.name, "rows", self.wanted, done=tally.complete) as advance,
                closing(written),
            ):
                for ended in written:
                    if isinstance(ended, Unanswered):
                        unanswered[ended.reason] += 1
                    elif ended.unanswerable:
                        refused.append(ended)
                    else:
                        self._begin()
                        journal.append(ended)
                        tally.add(ended)
                    advance(isinstance(ended, Settled) and ended.complete, f"{tally.rejected:,} rejected")
        except KeyboardInterrupt:
            log.info("%s: stopped with %d of %d rows; all that came is kept", self.name, tally.complete, self.wanted)
            raise
        if refused and not tally.complete:
            unanswered.update(source.rejected[-1].text for source in refused)
        if unanswered:
            raise LLMError(
                f"{unanswered.total()} of {self.wanted} sentences got no reply: {commonest(unanswered)}; "
                f"{tally.complete} rows are there, and the same command asks for the rest"
            )
        for source in refused:
            journal.append(source)
            tally.add(source)
        if tally.complete < self.wanted:
            log.warning(
                "%s: %d rows and not %d, since %d were given up (%s) and no other sentence is there in their place",
                self.name,
                tally.complete,
                self.wanted,
                tally.given_up,
                self.given_up,
            )
        return tally

    def _begin(self) -> None:
        """Write the config when there is something to keep; its time is when the rows were begun."""
        if not (path := self.folder / "config.yaml").is_file():
            runs.write_atomic(path, OmegaConf.to_yaml(self.cfg, resolve=True))

    def _conclude(self, journal: Journal, tally: Tally) -> dict[str, Any]:
        """Write rows, what was given up and, last, the provenance, in the order of drawing."""
        self._begin()
        written = 0
        with runs.atomic_file(self.rows) as rows, runs.atomic_file(self.given_up) as given_up:
            for source in journal.in_order():
                if source.complete:
                    written += 1
                    rows.write(_line({"anchor": source.anchor, **source.sentences}))
                else:
                    rejected = [{"role": r.role, "reason": r.reason, "text": r.text} for r in source.rejected]
                    given_up.write(_line({"anchor": source.anchor, **source.sentences, "rejected": rejected}))
        if written != tally.complete:
            raise DataError(
                f"{journal.path}: {written} rows and not {tally.complete}; did something else write there? The same "
                "command asks for what is lacking"
            )
        if not written:
            self.rows.unlink()
            raise DataError(
                f"{self.given_up}: not one of {tally.given_up} sentences has a row; see there what was rejected, and "
                "change the pattern's prompts or its checks"
            )
        price = self.asker.endpoint.price
        write_provenance(
            self.rows,
            {
                "rows": {"file": self.rows.name, "count": tally.complete},
                "model": self.asker.endpoint.model,
                "served": dict(sorted(tally.served.items())),
                "endpoint": self.asker.endpoint.address,
                "pattern": {
                    "name": self.pattern.name,
                    "shots": self.cfg.pattern.shots,
                    "seed": self.cfg.pattern.seed,
                    "roles": [role.name for role in self.pattern.roles],
                    "references": [role.reference for role in self.pattern.roles],
                    "digest": self.pattern.digest,
                    "examples": dict(self.pattern.digests),
                },
                "parameters": dict(self.asker.parameters),
                "seed": self.cfg.seed,
                "samples": self.cfg.samples,
                "sources": {
                    "data": dict(self.drawn.digests),
                    "there": len(self.sentences),
                    "drawn": tally.complete + tally.given_up,
                },
                "acceptance": tally.acceptance(),
                "tokens": {
                    "prompt": tally.prompt_tokens,
                    "completion": tally.completion_tokens,
                    "unmetered": tally.unmetered,
                },
                "cost": tally.cost(price),
                "price": None if price is None else dict(price),
                "made": {"started": _stamp(self._begun()), "finished": _stamp(datetime.now(UTC))},
                "environment": runs.environment(),
                "overrides": portable(self.overrides),
            },
        )
        return _read(side_file(self.rows))

    def _begun(self) -> datetime:
        return datetime.fromtimestamp((self.folder / "config.yaml").stat().st_mtime, UTC)

    def summary(self) -> dict[str, Any]:
        """Look at the rows beside the pattern's source, and return what `look_at` does."""
        encoder = self._encoder()
        return look_at(
            self.pattern, self.rows, encoder, looked_at=self.cfg.looked_at, seed=self.cfg.seed, folder=self.folder
        )

    def _encoder(self) -> SentenceEncoder | None:
        """Return the encoder of the cosines; None where there is none, or, told, where it cannot be loaded."""
        if self.cfg.get("encoder") is None:
            return None
        try:
            encoder: SentenceEncoder = built(self.cfg.encoder)
        except EncoderError as error:
            log.warning(
                "the rows are there, and no cosines are measured: %s\nThe same command with another encoder, such as "
                "encoder=minilm_l6, adds them, and asks for nothing",
                error,
            )
            return None
        return encoder

    def conclusion(self, provenance: Mapping[str, Any]) -> list[str]:
        """Return where everything is, and the command that trains on the rows."""
        lines = [f"rows: {self.rows}", f"provenance: {side_file(self.rows)}"]
        if given_up := provenance["acceptance"]["sources"]["given_up"]:
            lines.append(f"given up: {self.given_up} ({given_up:,}, and why)")
        return [
            *lines,
            f"figure: {self.folder / 'histograms.png'}",
            "",
            *how_to_train(self.cfg, [role.name for role in self.pattern.roles], self.rows, self.overrides),
        ]


def _check(cfg: DictConfig) -> None:
    """Refuse a config that generates nothing, with all its faults at once, before a corpus is read."""
    if faults := list(_wrong(cfg)):
        raise ConfigError(faults)
    check_nodes(cfg)


def _wrong(cfg: DictConfig) -> Iterator[str]:
    if OmegaConf.select(cfg, "data.rows._target_") == f"lightning_cse.data.{Hybrid.__name__}":
        yield "data: this set is made of such rows itself; give the one of its sentences, as data=wiki or data=nli"
    if not isinstance(cfg.show_prompts, bool):
        yield f"show_prompts: {cfg.show_prompts!r} is neither true nor false"
    if cfg.paths.cache_dir is None and not cfg.show_prompts:
        yield "paths.cache_dir: null keeps no reply, and each of them is paid for: give a folder"
    try:
        llm, pattern = _values(cfg, "llm"), _values(cfg, "pattern")
    except OmegaConfBaseException:
        return  # `validate` tells which interpolation has no answer
    for fault in wrong_settings(llm):
        if not (cfg.show_prompts and fault.startswith("llm.model:")):  # nothing is asked
            yield fault
    yield from wrong_pattern(pattern)


def _values(cfg: DictConfig, key: str) -> Any:
    """Return what a config has below a key as plain values; None where there is nothing."""
    if OmegaConf.is_missing(cfg, key):
        return None
    node = cfg.get(key)
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def _priced(provenance: Mapping[str, Any], price: Mapping[str, float] | None) -> dict[str, Any]:
    """Return a provenance with the cost at the present price, if its own was not known."""
    tokens = provenance["tokens"]
    if provenance["cost"] is not None or price is None or not tokens["prompt"]:
        return dict(provenance)
    return {**provenance, "price": dict(price), "cost": price_of(price, tokens["prompt"], tokens["completion"])}


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}): remove it, and the same command writes it anew") from None
    return document


def _line(cells: Mapping[str, Any]) -> bytes:
    return (json.dumps(cells, ensure_ascii=False) + "\n").encode()


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
