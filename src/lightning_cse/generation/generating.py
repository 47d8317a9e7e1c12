"""Generate the rows of a config, which a language model writes by a pattern."""

import functools
import hashlib
import json
import shlex
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lightning_cse import runs
from lightning_cse.arguments import hydra_text
from lightning_cse.config.compose import task_overrides
from lightning_cse.data.corpora import read_sources
from lightning_cse.data.provenance import read_provenance, write_provenance
from lightning_cse.data.roles import RoleRows
from lightning_cse.data.rows import check_column, digests_of
from lightning_cse.engine.build import built
from lightning_cse.engine.inference import SentenceModel
from lightning_cse.engine.load import load
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.generation.filters import Cosine
from lightning_cse.generation.pattern import build_pattern, wrong_pattern
from lightning_cse.generation.summary import Summary, shown_prompts, summarise
from lightning_cse.generation.writing import Row, Writer, acceptance, account_of
from lightning_cse.llm import LLM, LLMError, commonest, wrong_settings
from lightning_cse.runs.keys import generation_key
from lightning_cse.runs.redaction import portable

SHARED_WITH_TRAINING = ("corpora=", "corpora.", "paths=", "paths.data_dir=", "data.columns=")
"""Beginnings of overrides that the command for training takes over."""


def run(cfg: DictConfig) -> runs.Outcome | None:
    """Generate the rows of a config and print a summary, or only print the requests."""
    hydra = HydraConfig.get()
    check(cfg)
    generation = Generation(cfg, str(hydra.runtime.choices["data"]), task_overrides())

    if cfg.show_prompts:
        lines = shown_prompts(generation.writer, generation.sentences[: generation.wanted])
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return None

    # A missing encoder is reported before anything is paid for.
    encoder = built(cfg.encoder) if cfg.get("encoder") else None
    was_finished = generation.run.status == "finished"
    provenance = generation.write()
    runs.remove_leftovers(generation.run.path)
    summary = summarise(
        generation.pattern, generation.rows, encoder, most=cfg.summary_rows, seed=cfg.seed
    )
    generation.run.finish(generation.record(provenance, summary))
    conclusion = [summary.table(provenance), "", *generation.conclusion()]
    sys.stdout.writelines(f"{line}\n" for line in conclusion)

    return runs.Outcome("skipped" if was_finished else "finished", str(generation.run.path))


class Generation:
    """One set of rows: sentences, pattern and model, and a folder named by a hash of these.

    Every reply is in the cache before it is used, and the same replies make the same rows. So a
    command that was stopped starts again from the first sentence, and takes the earlier replies
    from the cache.
    """

    def __init__(self, cfg: DictConfig, data: str, overrides: Sequence[str] = ()) -> None:
        self.cfg = cfg
        self.data = data
        self.overrides = list(overrides)
        data_dir = Path(cfg.paths.data_dir).expanduser()
        values: Any = OmegaConf.to_container(cfg, resolve=True)
        self.pattern = build_pattern(values["pattern"], data_dir)
        model = cfg.llm.model or "(llm.model is not set)"
        self.llm = LLM({**values["llm"], "model": model}, cfg.paths.cache_dir)
        self.meaning = load(cfg.checks_encoder) if cfg.checks_encoder else None
        self.sentences, self.data_roles, self.digests = draw_sentences(
            cfg, data, data_dir, self.pattern.given
        )
        cosine = None if self.meaning is None else _cosine_by(self.meaning)
        self.writer = Writer(self.llm, self.pattern, cfg.samples, cosine, self.data_roles)
        self.wanted = len(self.sentences) if cfg.n is None else int(cfg.n)
        self.name = f"{data.replace('/', '_')}_{self.pattern.name}"
        self.key = generation_key(values)
        self.run = runs.Run(
            Path(cfg.paths.runs_dir).expanduser(),
            f"generate/{self.name}",
            runs.config_hash(runs.decisive(self._decides)),
            cfg.seed,
        )
        self.rows = self.run.path / f"{self.name}.jsonl"
        self.given_up = self.run.path / "given_up.jsonl"

    @property
    def _decides(self) -> dict[str, Any]:
        """All that decides the rows."""
        sentences = "".join(
            f"{text}\0"
            for sentence in self.sentences
            for text in (sentence, *self.data_roles.get(sentence, {}).values())
        )

        return {
            "sentences": hashlib.sha256(sentences.encode()).hexdigest(),
            "pattern": {
                "digest": self.pattern.digest,
                "checks": [repr(role.checks) for role in self.pattern.roles],
            },
            "llm": {"model": self.llm.endpoint.model, "parameters": self.llm.parameters},
            "samples": self.cfg.samples,
            "n": self.wanted,
            "checks_encoder": self.meaning and self.meaning.digests,
        }

    def write(self) -> dict[str, Any]:
        """Write the rows, unless they are finished, and return their provenance."""
        provenance = read_provenance(self.rows) if self.rows.is_file() else None
        # It is written last: without it, or with changed rows, they are written again.
        if provenance is None or not provenance.get("unchanged"):
            with self.run.lock():
                self.run.start(OmegaConf.to_yaml(self.cfg, resolve=True), self.key)
                started = _now()
                complete, given_up = self._write_rows()
                write_provenance(self.rows, self._provenance(complete, given_up, started))

        return read_provenance(self.rows) or {}

    def _write_rows(self) -> tuple[list[Row], list[Row]]:
        """Write and return the rows and the given-up sentences, in the order of drawing."""
        complete: list[Row] = []
        given_up: list[Row] = []
        lost = Counter[str]()
        drawn_sentences = _Numbered(self.sentences, self.wanted)
        is_hopeless = False
        with (
            self.llm.watching(self.name, "rows", self.wanted) as advance,
            closing(self.llm.each(self.writer.write, drawn_sentences)) as rows,
        ):
            for row in rows:
                if row.lost:
                    lost[row.lost] += 1
                    continue

                (complete if row.complete else given_up).append(row)
                drawn_sentences.open += not row.complete
                advance(int(row.complete), f"{len(given_up):,} given up")
                is_hopeless = len(given_up) > max(self.cfg.patience, len(complete))
                if is_hopeless:
                    break

        if lost and not is_hopeless:
            raise LLMError(
                f"{lost.total()} of {self.wanted} sentences have no reply: {commonest(lost)}; "
                f"{len(complete)} have a row; the same command requests the missing replies"
            )

        if is_hopeless or not complete:
            rejected = given_up[-1].rejected[-1]
            raise LLMError(
                f"{len(given_up)} of {len(given_up) + len(complete)} sentences were given up; "
                f"of the last one, the {rejected['role']} was rejected ({rejected['reason']}): "
                f"{rejected['text'][:200]!r}. Change the pattern's prompts or checks, "
                "llm.parameters (max_tokens, where replies are cut off), or raise patience"
            )

        for path, written in ((self.rows, complete), (self.given_up, given_up)):
            written.sort(key=lambda row: row.position)
            cells = [line for row in written for line in row.lines(self.pattern)]
            lines = [json.dumps(line, ensure_ascii=False) for line in cells]
            runs.write_atomic(path, "".join(f"{line}\n" for line in lines))

        return complete, given_up

    def _provenance(
        self, complete: Sequence[Row], given_up: Sequence[Row], started: str
    ) -> dict[str, Any]:
        pattern = self.pattern
        endpoint = self.llm.endpoint
        form = self.llm.calls.form
        rows = [*complete, *given_up]
        replies = account_of(rows)
        counts = {"complete": len(complete), "given_up": len(given_up)}

        return {
            "model": endpoint.model,
            "served": dict(sorted(replies.served.items())),
            "endpoint": endpoint.address,
            # Unknown if every reply was in the cache.
            "structured_output": form and form.structured_output,
            "pattern": {
                "name": pattern.name,
                "shots": self.cfg.pattern.shots,
                "seed": self.cfg.pattern.seed,
                "roles": [role.name for role in pattern.roles],
                **({"scores": dict(pattern.scores)} if pattern.scores else {}),
                "digest": pattern.digest,
                "examples": pattern.digests,
            },
            "parameters": self.llm.parameters,
            "seed": self.cfg.seed,
            "sources": {"data": self.digests, "sentences": len(self.sentences)},
            "acceptance": {"sources": counts, "roles": acceptance(pattern, rows)},
            "tokens": {"prompt": replies.prompt_tokens, "completion": replies.completion_tokens},
            "cost": replies.cost(endpoint.price),
            "time": {"started": started, "finished": _now()},
            "environment": runs.environment(),
            "overrides": portable(self.overrides),
        }

    def record(self, provenance: Mapping[str, Any], summary: Summary) -> dict[str, Any]:
        """Return the record of the rows: the summary's measures beside what decides them."""
        return {
            "name": self.run.name,
            "seed": self.run.seed,
            "config_hash": self.run.config_hash,
            "key": self.key,
            "decisive": {"config": {**self._decides, "pattern": self.pattern.name}},
            "metrics": summary.metrics(provenance),
            "summary": summary.record(),
            "provenance": provenance,
            "device": "endpoint",
            "encoder": summary.encoder,
            "environment": provenance["environment"],
        }

    def conclusion(self) -> Iterator[str]:
        """Yield the folder of the outputs, and the command that trains on the rows."""
        yield f"rows, provenance and record: {self.run.path}"
        rows = hydra_text(str(self.rows))
        if self.pattern.experiment:
            experiment, *overrides = [self.pattern.experiment, f"data.train=[{rows}]"]
        elif not self.pattern.scores and self.data in ("wiki", "file", "nli"):
            domain, corpus = ("nli", "nli_train") if self.data == "nli" else ("wiki", "ngcse_wiki")
            has_intermediate = any(role.name == "intermediate" for role in self.pattern.roles)
            pattern, recipe = ("sts", "sts_ht") if has_intermediate else ("nli", "nli")
            train = self.cfg.data.train
            sources = [train] if isinstance(train, str) else train
            experiment, *overrides = [
                f"ngcse_{domain}_{recipe}",
                f"corpora.{corpus}=[{','.join(map(hydra_text, sources))}]",
                f"data.watched_in=[{rows}]",
                f"corpora.llm_{domain}_{pattern}=[{rows}]",
            ]
        else:
            return

        shared = [line for line in self.overrides if line.startswith(SHARED_WITH_TRAINING)]
        command = shlex.join([f"+experiment={experiment}", *shared, *overrides])
        yield f"\nto train on them:\n  python -m lightning_cse.train {command}"


class _Numbered(Iterator[tuple[int, str]]):
    """Yields sentences with their positions as long as rows are ``open``, which may grow again."""

    def __init__(self, sentences: Sequence[str], open_rows: int) -> None:
        self.open = open_rows
        self._sentences = enumerate(sentences)

    def __next__(self) -> tuple[int, str]:
        if not self.open:
            raise StopIteration

        self.open -= 1

        return next(self._sentences)


def _cosine_by(model: SentenceModel) -> Cosine:
    """Return the cosine of two sentences by a model, which embeds each sentence once."""
    encode = functools.partial(model.encode, normalize_embeddings=True)
    vector = functools.lru_cache(maxsize=4096)(encode)

    lock = threading.Lock()  # rows are written by several threads, and a model is for one

    def cosine(a: str, b: str) -> float:
        with lock:
            return float(vector(a) @ vector(b))

    return cosine


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def draw_sentences(
    cfg: DictConfig, data: str, data_dir: Path, roles: Sequence[str] = ()
) -> tuple[list[str], dict[str, dict[str, str]], dict[str, str]]:
    """Return the distinct sentences of a data set's first role, drawn; for each, those of other
    ``roles`` in its first row that has them all; and the digests of the files.

    A sentence is drawn by the digest of the seed and itself, independently of training's draws.
    Raises DataError if there are fewer than the config wants, or the data has no such role.
    """
    build: RoleRows = built(cfg.data.rows)
    tables = read_sources(cfg.data.train, data_dir, key="data.train", columns=cfg.data.columns)
    rows = build(tables, Counter())
    for name in roles:
        check_column(rows, name)

    first = build.roles[0]
    columns = [rows[name] for name in (first, *roles)]
    by_sentence: dict[str, dict[str, str]] = {}
    for sentence, *texts in zip(*columns, strict=True):
        if all(texts):
            by_sentence.setdefault(sentence, dict(zip(roles, texts, strict=True)))

    sentences = [text for text in by_sentence if len(text.split()) <= cfg.most_words]
    if len(sentences) < max(1, cfg.n or 1):
        raise DataError(
            f"n: must be at most {len(sentences)}, the sentences of data={data}, or null for all; "
            f"got {cfg.n}"
        )

    def digest(sentence: str) -> bytes:
        return hashlib.sha256(f"{cfg.seed}\0{sentence}".encode()).digest()

    return sorted(sentences, key=digest), by_sentence, digests_of(tables)


def check(cfg: DictConfig) -> None:
    """Raise ConfigError with all faults of a config, before a corpus is read."""
    values: Any = OmegaConf.to_container(cfg, resolve=True)
    faults = list(wrong_settings(values.get("llm"), cfg.paths.cache_dir))

    if cfg.show_prompts:
        faults = [fault for fault in faults if "llm.model:" not in fault]

    if str(OmegaConf.select(cfg, "data.rows._target_")).endswith(".Hybrid"):
        faults.append("data: already has LLM rows; choose the data of its sentences: wiki or nli")

    pattern_faults = list(wrong_pattern(values.get("pattern")))
    faults += pattern_faults
    if not pattern_faults:
        checks = [role.get("checks") or {} for role in values["pattern"]["roles"]]
        has_bounds = any(role_checks.get("cosine") for role_checks in checks)
        if has_bounds and not cfg.checks_encoder:
            faults.append(
                "checks_encoder: must name an encoder, such as minilm_l6, for the bounds of cosines"
            )
        elif cfg.checks_encoder and not has_bounds:
            faults.append(
                "checks_encoder: no role has bounds of the cosine; set some, such as "
                "'pattern.cosine.negative={below: 0.6}'"
            )

    if faults:
        raise ConfigError(faults)
