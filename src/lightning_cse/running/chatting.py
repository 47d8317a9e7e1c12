"""A language model at work in an evaluation: what it is asked, what it has answered before, and what that takes."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from rich.progress import TextColumn

from lightning_cse.baselines import FewShot, Verdict
from lightning_cse.config.validate import validate
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Task, TaskResult
from lightning_cse.llm import Account, ChatClient, Endpoint, Failure, Reply, ReplyCache, Request
from lightning_cse.records import RunFolder
from lightning_cse.running.building import plain
from lightning_cse.running.sessions import Session, Step, Work, folders_of, progress

__all__ = ["ChatSession", "wrong_endpoint"]

log = logging.getLogger(__name__)

_OPTIONS = "few_shot"
"""The key below ``llm`` that is not of the endpoint."""

_MOST_REASONS = 3


def wrong_endpoint(cfg: DictConfig) -> Iterator[str]:
    """Yield what is wrong with ``llm`` in a config whose model it is."""
    given = plain(cfg.llm)
    options = {"_target_": "lightning_cse.baselines.FewShot", "data_dir": "", **given.pop(_OPTIONS)}
    try:
        Endpoint(**given)
    except ConfigError as error:
        yield from error.faults
    try:
        validate(OmegaConf.create({"llm": {_OPTIONS: options}}), given={f"llm.{_OPTIONS}": {"client"}})
    except ConfigError as error:
        yield from error.faults


class ChatSession(Session):
    """A language model at an endpoint, shown a few examples and asked about every pair of a task.

    What its answers depend on is its name, the prompt with its examples, and the parameters; the endpoint's address and
    all that is about the way there are not. Every reply is kept under the folder of caches, so an evaluation that was
    stopped goes on with what has no reply.

    Args:
        cfg: the config, in which `wrong_endpoint` finds nothing.

    Raises:
        ConfigError: if a number makes no prompt.
    """

    def __init__(self, cfg: DictConfig) -> None:
        given = plain(cfg.llm)
        options = given.pop(_OPTIONS)
        self.endpoint = Endpoint(**given)
        try:
            answers = FewShot(self, data_dir=cfg.paths.data_dir, **options)
        except ValueError as error:
            raise ConfigError([f"llm.{_OPTIONS}.{error}"]) from error
        super().__init__(answers, self.endpoint.model)
        cache_dir = cfg.paths.cache_dir
        self.kept = None if cache_dir is None else Path(cache_dir).expanduser() / "llm" / "replies.sqlite"
        self._account: dict[str, Any] = {}

    @property
    def data(self) -> dict[str, str]:
        """The sha256 of the file that the examples are from."""
        digests: dict[str, str] = self.answers.digests
        return digests

    @property
    def device_name(self) -> str:
        """Where the answers are computed: at an endpoint, or at several, one after the other."""
        return "endpoint"

    def options(self) -> dict[str, Any]:
        """Return what is asked, of whom, and in which words."""
        answers: FewShot = self.answers
        shown = {"shots": answers.shots, "seed": answers.seed, **answers.parameters}
        asked = {"model": self.endpoint.model, _OPTIONS: shown}
        return {**super().options(), "llm": asked, "prompt_digest": answers.prompt_digest}

    def root(self, runs_dir: Path) -> Path:
        """Return the folder of its evaluations, apart from those of encoders."""
        return runs_dir.joinpath("evaluate", "llm", *folders_of(self.name))

    def do(self, name: str, task: Step, folder: RunFolder) -> TaskResult:
        """Ask about every pair of a task."""
        return cast("Task", task).judged(self, "test")  # `suits` lets through nothing else

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        """Return a verdict on every pair, in their order."""
        self._sentences += len({*premises, *hypotheses})
        verdicts: list[Verdict] = self.answers.judge(premises, hypotheses)
        return verdicts

    def ask(self, requests: Iterable[Request]) -> Iterator[tuple[int, Reply | Failure]]:
        """Give the replies as they come, under a progress bar where there is a terminal, and keep the account.

        Raises:
            LLMError: if no further reply can be had.
        """
        asked = list(requests)
        price = self.endpoint.price
        failures: Counter[str] = Counter()
        with ExitStack() as stack:
            cache = None if self.kept is None else stack.enter_context(ReplyCache(self.kept))
            self._announce(asked, cache)
            client = ChatClient(self.endpoint, cache)
            bar = stack.enter_context(progress(TextColumn("{task.fields[told]}")))
            task = bar.add_task(f"{self.now}: replies", total=len(asked), told="")
            # Closed by name: an interrupt must not wait until the replies under way are forgotten by chance.
            replies = stack.enter_context(closing(_generator(client.ask(asked))))
            for number, reply in replies:
                if isinstance(reply, Failure):
                    failures[reply.reason] += 1
                yield number, reply
                bar.update(task, advance=1, told=_spent(client.account, price))
        self._account = {**client.account.as_dict(), "cost": client.account.cost(price)}
        log.info("%s: %s", self.now, _told(client.account, price))
        if failures:
            reasons = "; ".join(f"{reason} ({count})" for reason, count in failures.most_common(_MOST_REASONS))
            log.warning(
                "%s: %d of %d questions have no reply and count as wrong: %s. force=true asks them alone again",
                self.now,
                failures.total(),
                len(asked),
                reasons,
            )

    def work(self) -> Work:
        """Return how many sentences were read since this was asked last, and what that took."""
        work, self._account = dataclasses.replace(super().work(), account=self._account), {}
        return work

    def _announce(self, asked: Sequence[Request], cache: ReplyCache | None) -> None:
        """Say before the first call how many there will be."""
        keys = {request.key(self.endpoint.model) for request in asked}
        there = 0 if cache is None else sum(cache.get(key) is not None for key in keys)
        log.info(
            "%s: %d questions to %s, %d of them answered before: %d calls%s",
            self.now,
            len(keys),
            self.endpoint.model,
            there,
            len(keys) - there,
            "" if cache is not None else "; paths.cache_dir is null, so no reply is kept",
        )


def _generator(replies: Iterator[tuple[int, Reply | Failure]]) -> Generator[tuple[int, Reply | Failure], None, None]:
    yield from replies


def _spent(account: Account, price: Mapping[str, float] | None) -> str:
    """Return failures, tokens and money in a few words."""
    parts = [f"{account.failed} failed"] if account.failed else []
    parts.append(f"{account.prompt_tokens + account.completion_tokens:,} tokens")
    cost = account.cost(price)
    return ", ".join(parts if cost is None else [*parts, f"${cost:.4f}"])


def _told(account: Account, price: Mapping[str, float] | None) -> str:
    cost = account.cost(price)
    return (
        f"{account.requests} questions, {account.cached} answered before, {account.failed} failed, "
        f"{account.retried} retried; {account.prompt_tokens:,} tokens sent, {account.completion_tokens:,} received, "
        + (
            "cost unknown (llm.price is not set)"
            if price is None
            else "cost unknown"
            if cost is None
            else f"${cost:.4f}"
        )
    )
