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
from typing import Any, BinaryIO

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
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.engine.build import built, check_nodes
from lightning_cse.errors import ConfigError, DataError, EncoderError
from lightning_cse.generation.pattern import ANCHOR, build_pattern, wrong_pattern
from lightning_cse.generation.summary import print_prompts, print_summary, summarise
from lightning_cse.generation.writing import Row, Tally, Writer
from lightning_cse.llm import LLM, LLMError, commonest, price_of, wrong_settings

log = logging.getLogger(__name__)

SHARED_WITH_TRAINING = ("corpora=", "corpora.", "paths=", "paths.data_dir=", "data.columns=")
"""Beginnings of overrides that the command for training takes over."""


def run(cfg: DictConfig) -> None:
    """Generate the rows of a config and print a summary, or only print the requests."""
    console = Console(
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    hydra = HydraConfig.get()
    check(cfg)
    generation = Generation(
        cfg,
        str(hydra.runtime.choices["data"]),
        list(map(str, hydra.overrides.task)),
    )

    if cfg.show_prompts:
        sentences = generation.sentences[: generation.wanted]
        print_prompts(
            generation.writer,
            sentences,
            generation.finished,
            console,
        )

        return

    provenance = generation.run()
    summary = summarise(
        generation.pattern,
        generation.rows,
        _encoder(cfg),
        most=cfg.summary_rows,
        seed=cfg.seed,
    )
    print_summary(
        summary,
        provenance,
        console,
    )
    console.print(
        "",
        *generation.conclusion(),
        sep="\n",
    )


def _encoder(cfg: DictConfig) -> SentenceEncoder | None:
    """Return the encoder for the cosines of the summary; None without one."""
    if cfg.get("encoder") is None:
        return None

    try:
        encoder: SentenceEncoder = built(cfg.encoder)
    except EncoderError as error:
        log.warning("the rows are written, and no cosines are measured: %s", error)
        return None

    return encoder


class Generation:
    """One set of rows: sentences, pattern and model, and a folder named by a hash of these.

    Every reply is in the cache before it is used, and the same replies make the same rows. So a
    command that was stopped starts again from the first sentence, and takes the earlier replies
    from the cache.
    """

    def __init__(
        self,
        cfg: DictConfig,
        data: str,
        overrides: Sequence[str] = (),
    ) -> None:
        self.cfg = cfg
        self.overrides = list(overrides)
        data_dir = Path(cfg.paths.data_dir).expanduser()
        values: Any = OmegaConf.to_container(cfg, resolve=True)
        self.pattern = build_pattern(values["pattern"], data_dir)
        model = cfg.llm.model or "(llm.model is not set)"
        self.llm = LLM({**values["llm"], "model": model}, cfg.paths.cache_dir)
        self.writer = Writer(
            self.llm,
            self.pattern,
            cfg.samples,
        )
        self.sentences, self.digests = draw_sentences(
            cfg,
            data,
            data_dir,
        )
        self.wanted = len(self.sentences) if cfg.n is None else int(cfg.n)
        self.name = f"{data.replace('/', '_')}_{self.pattern.name}"
        runs_dir = Path(cfg.paths.runs_dir).expanduser()
        self.folder = runs_dir / "generate" / f"{self.name}-{self._identity()}"
        self.rows = self.folder / f"{self.name}.jsonl"
        self.given_up = self.folder / "given_up.jsonl"

    def _identity(self) -> str:
        """Return a hash of all that decides the rows."""
        sentences = "".join(f"{sentence}\0" for sentence in self.sentences)
        decisive = {
            "sentences": hashlib.sha256(sentences.encode()).hexdigest(),
            "pattern": {
                "digest": self.pattern.digest,
                "checks": [repr(role.checks) for role in self.pattern.roles],
            },
            "llm": {
                "model": self.llm.endpoint.model,
                "parameters": self.llm.parameters,
            },
            "samples": self.cfg.samples,
            "n": self.wanted,
        }

        return runs.config_hash(
            decisive,
            data={},
            encoder={},
            resolved={},
        )

    @property
    def finished(self) -> bool:
        """Whether the rows are complete and unchanged; their provenance is written last."""
        if not self.rows.is_file():
            return False

        provenance = read_provenance(self.rows)
        return provenance is not None and bool(provenance.get("unchanged"))

    def run(self) -> dict[str, Any]:
        """Write the rows, unless they are finished, and return their provenance."""
        if not self.finished:
            with runs.locked(self.folder / "run.lock", str(self.folder)):
                config = OmegaConf.to_yaml(self.cfg, resolve=True)
                runs.write_atomic(self.folder / "config.yaml", config)
                started = _now()
                tally = self._write()
                write_provenance(self.rows, self._provenance(tally, started))

        provenance: dict[str, Any] = json.loads(side_file(self.rows).read_text(encoding="utf-8"))
        return provenance

    def _write(self) -> Tally:
        """Write rows and given-up sentences in the order of drawing, not in that of the replies."""
        log.info(
            "%s: %d rows from %s; everything goes to %s",
            self.name,
            self.wanted,
            self.llm.endpoint.model,
            self.folder,
        )
        tally = Tally({role.name: Counter() for role in self.pattern.roles})
        lost: Counter[str] = Counter()

        with (
            runs.atomic_file(self.given_up) as given_up,
            runs.atomic_file(self.rows) as rows,
            self.llm.watching(
                self.name,
                "rows",
                self.wanted,
            ) as advance,
        ):
            in_order = _InOrder(rows, given_up)
            for row in self._written(tally, lost):
                tally.add(row)
                advance(int(row.complete), f"{tally.given_up:,} given up")
                self._check_patience(tally)
                in_order.write(row)

            if lost:
                reason = commonest(lost)
                raise LLMError(
                    f"{lost.total()} of {self.wanted} sentences have no reply: {reason}; "
                    f"{tally.complete} have a row; the same command requests the missing replies"
                )

            self._check_patience(tally, at_end=True)

        return tally

    def _written(
        self,
        tally: Tally,
        lost: Counter[str],
    ) -> Iterator[Row]:
        """Yield rows as they are written: one for each that is wanted, then for those given up.

        Rows without a reply are counted in ``lost``, and no further sentences are begun.
        """
        begun = 0

        while not lost:
            end = min(begun + self.wanted - tally.complete, len(self.sentences))
            if begun == end:
                return

            places = [(position, self.sentences[position]) for position in range(begun, end)]
            begun = end

            with closing(self.llm.each(self.writer.write, places)) as rows:
                for row in rows:
                    if row.lost:
                        lost[row.lost] += 1
                    else:
                        yield row

    def _check_patience(
        self,
        tally: Tally,
        at_end: bool = False,
    ) -> None:
        """Raise LLMError if so many sentences are given up that the fault cannot be with them."""
        patience = self.cfg.patience
        too_many = patience is not None and tally.given_up > max(patience, tally.complete)

        if not too_many and (tally.complete or not at_end):
            return

        last = tally.last_rejected
        raise LLMError(
            f"{tally.given_up} of {tally.given_up + tally.complete} sentences were given up; "
            f"of the last one, the {last['role']} was rejected ({last['reason']}): "
            f"{last['text'][:200]!r}. Change the pattern's prompts or checks, or llm.parameters "
            "(max_tokens, where replies are cut off); patience=null continues"
        )

    def _provenance(
        self,
        tally: Tally,
        started: str,
    ) -> dict[str, Any]:
        pattern = self.pattern
        endpoint = self.llm.endpoint
        tokens = tally.tokens
        cost = None

        if endpoint.price and tokens["prompt"]:
            cost = price_of(
                endpoint.price,
                tokens["prompt"],
                tokens["completion"],
            )

        return {
            "model": endpoint.model,
            "served": dict(sorted(tally.served.items())),
            "endpoint": endpoint.address,
            "pattern": {
                "name": self.cfg.pattern.name,
                "shots": self.cfg.pattern.shots,
                "seed": self.cfg.pattern.seed,
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
                "sentences": len(self.sentences),
                "drawn": tally.complete + tally.given_up,
            },
            "acceptance": {
                "sources": {"complete": tally.complete, "given_up": tally.given_up},
                "roles": {role: _acceptance(counts) for role, counts in tally.roles.items()},
            },
            "tokens": tokens,
            "cost": cost,
            "price": endpoint.price,
            "time": {"started": started, "finished": _now()},
            "environment": runs.environment(),
            "overrides": portable(self.overrides),
        }

    def conclusion(self) -> Iterator[str]:
        """Yield the paths of the outputs, and the command that trains on the rows."""
        yield f"rows: {self.rows}"
        yield f"provenance: {side_file(self.rows)}"
        yield f"given up: {self.given_up}"
        yield f"figure: {self.folder / 'histograms.png'}"
        words = self._training_overrides()

        if words:
            command = shlex.join(words)
            yield f"\nto train on them:\n  python -m lightning_cse.train {command}"

    def _training_overrides(self) -> list[str]:
        """Return the overrides that train on the rows and their corpus; none if no recipe fits."""
        roles = {ANCHOR, *(role.name for role in self.pattern.roles)}
        kinds = [kind for kind, columns in LLM_PATTERNS.items() if roles.issuperset(columns)]
        target = str(self.cfg.data.rows._target_)

        if not kinds or target.endswith(".ImplicitPairs"):  # their rows have no anchor
            return []

        kind = kinds[0]
        is_plain = target.endswith((".Sentences", ".OwnRows"))
        domain = "wiki" if is_plain else "nli"
        words = [f"+experiment=ngcse_{domain}_{'sts_ht' if kind == 'sts' else 'nli'}"]
        words += [line for line in self.overrides if line.startswith(SHARED_WITH_TRAINING)]
        corpus = "ngcse_wiki" if is_plain else "nli_train"
        train = self.cfg.data.train

        if train != self.cfg.corpora[corpus]:
            sources = [train] if isinstance(train, str) else train
            words.append(f"corpora.{corpus}=[{','.join(map(hydra_text, sources))}]")

        if not is_plain and not target.endswith(".NLITriplets"):
            # Of INLI's rows, those with an anchor.
            with_anchor = re.sub(
                r"\.INLI\w+$",
                ".INLITriplets",
                target,
            )
            words.append(f"data.rows.corpus._target_={with_anchor}")

        rows = hydra_text(str(self.rows))
        words.append(f"data.watched_in=[{rows}]")
        words.append(f"corpora.llm_{domain}_{kind}=[{rows}]")

        return words


class _InOrder:
    """Writes rows by position: a row that comes early waits for those before it."""

    def __init__(
        self,
        rows: BinaryIO,
        given_up: BinaryIO,
    ) -> None:
        self.rows = rows
        self.given_up = given_up
        self.waiting: dict[int, Row] = {}
        self.written = 0

    def write(self, row: Row) -> None:
        self.waiting[row.position] = row
        while self.written in self.waiting:
            ready = self.waiting.pop(self.written)
            file = self.rows if ready.complete else self.given_up
            file.write(_line(ready))
            self.written += 1


def _line(row: Row) -> bytes:
    cells: dict[str, Any] = {ANCHOR: row.anchor, **row.sentences}
    if not row.complete:
        cells["rejected"] = row.rejected

    return (json.dumps(cells, ensure_ascii=False) + "\n").encode()


def _acceptance(counts: Counter[str | None]) -> dict[str, Any]:
    """Return the numbers of replies of a role, accepted and rejected by reason."""
    rejected = {reason: count for reason, count in counts.most_common() if reason is not None}

    return {
        "asked": counts.total(),
        "accepted": counts[None],
        "rejected": rejected,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def draw_sentences(
    cfg: DictConfig,
    data: str,
    data_dir: Path,
) -> tuple[list[str], dict[str, str]]:
    """Return the distinct sentences of a data set's first role, drawn, and its files' digests.

    A sentence is drawn by the digest of the seed and itself, independently of training's draws.
    Raises DataError if there are fewer than the config wants.
    """
    build: RoleRows = built(cfg.data.rows)
    tables = read_sources(
        cfg.data.train,
        data_dir,
        key="data.train",
        columns=cfg.data.columns,
    )
    distinct = list(dict.fromkeys(build(tables).column(build.roles[0])))
    most = cfg.most_words
    kept = [text for text in distinct if most is None or len(text.split()) <= most]

    if len(kept) < len(distinct):
        log.info(
            "data=%s: %d sentences have more than %d words (most_words)",
            data,
            len(distinct) - len(kept),
            most,
        )

    if len(kept) < max(1, cfg.n or 1):
        raise DataError(
            f"n: must be at most {len(kept)}, the sentences of data={data}, or null for all; "
            f"got {cfg.n}"
        )

    def digest(sentence: str) -> bytes:
        return hashlib.sha256(f"{cfg.seed}\0{sentence}".encode()).digest()

    digests = {file.name: file.sha256 for table in tables for file in table.files}
    return sorted(kept, key=digest), digests


def check(cfg: DictConfig) -> None:
    """Raise ConfigError with all faults of a config, before a corpus is read."""
    faults = list(_faults(cfg))

    if faults:
        raise ConfigError(faults)

    check_nodes(cfg)


def _faults(cfg: DictConfig) -> Iterator[str]:
    values: Any = OmegaConf.to_container(cfg, resolve=True)
    if str(OmegaConf.select(cfg, "data.rows._target_")).endswith(".Hybrid"):
        yield (
            "data: already has LLM rows; choose the data of its sentences, such as data=wiki or "
            "data=nli"
        )

    if cfg.paths.cache_dir is None and not cfg.show_prompts:
        yield "paths.cache_dir: must be a folder: replies that are not kept are paid for again"

    for fault in wrong_settings(values.get("llm")):
        if not (cfg.show_prompts and "llm.model:" in fault):
            yield fault

    yield from wrong_pattern(values.get("pattern"))
