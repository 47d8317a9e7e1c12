"""A language model at work in an evaluation: the prompt it is given, and what decides its answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_cse.baselines import FewShot, Verdict
from lightning_cse.engine.sessions import Session, Step, Work, folders_of
from lightning_cse.errors import did_you_mean
from lightning_cse.evaluation import Task, TaskResult
from lightning_cse.llm import Failure, Reply, Request
from lightning_cse.llm.asker import Asker, wrong_settings
from lightning_cse.runs import Run

__all__ = ["SETTINGS", "ChatSession", "wrong_endpoint"]

SETTINGS: Final = ("llm", "few_shot")
"""What of a config is for this model alone: whom to ask and how, and the prompt."""

_PROMPT: Final = ("shots", "seed")


def wrong_endpoint(cfg: DictConfig) -> Iterator[str]:
    """Yield what is wrong with the `SETTINGS` of a config whose model is a language model."""
    try:
        llm, few_shot = _values(cfg, "llm"), _values(cfg, "few_shot")
    except OmegaConfBaseException:
        return  # `validate` tells which interpolation has no answer
    yield from wrong_settings(llm)
    if not isinstance(few_shot, Mapping):
        yield f"few_shot: {few_shot!r} has no shots and no seed, as in few_shot.shots=0"
        return
    for name in few_shot:
        if name not in _PROMPT:
            yield f"few_shot.{name}: there are shots and seed{did_you_mean(str(name), _PROMPT)}"
    for name in _PROMPT:
        value = few_shot.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            yield f"few_shot.{name}: {value!r} is not a whole number of at least 0"


class ChatSession(Session):
    """A language model at an endpoint, shown a few examples and asked about every pair of a task.

    What its answers depend on is its name, the prompt with its examples, and the parameters; the endpoint's address and
    all that is about the way there are not.

    Args:
        cfg: the config, in which `wrong_endpoint` finds nothing.
    """

    def __init__(self, cfg: DictConfig) -> None:
        self.asking = Asker(_values(cfg, "llm"), cfg.paths.cache_dir)
        self.few_shot = {name: cfg.few_shot[name] for name in _PROMPT}
        answers = FewShot(self, data_dir=cfg.paths.data_dir, parameters=self.asking.parameters, **self.few_shot)
        super().__init__(answers, self.asking.endpoint.model)
        self._pairs: int | None = None

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
        asked = {"model": self.name, "parameters": dict(self.asking.parameters)}
        prompt = {"few_shot": self.few_shot, "prompt_digest": self.answers.prompt_digest}
        return {**super().options(), "llm": asked, **prompt}

    def root(self, runs_dir: Path) -> Path:
        """Return the folder of its evaluations, apart from those of encoders."""
        return runs_dir.joinpath("evaluate", "llm", *folders_of(self.name))

    def do(self, name: str, task: Step, folder: Run) -> TaskResult:
        """Ask about every pair of a task."""
        return cast("Task", task).judged(self, "test")  # `suits` lets through nothing else

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        """Return a verdict on every pair, in their order.

        Raises:
            LLMError: if a pair has no reply that asking again may bring.
        """
        answers: FewShot = self.answers
        self._sentences += len({*premises, *hypotheses})
        self._pairs = self.asking.announce(self.now, answers.requests(premises, hypotheses))
        return answers.judge(premises, hypotheses)

    def ask(self, requests: Iterable[Request]) -> Iterator[tuple[int, Reply | Failure]]:
        """Give the replies to questions as they come."""
        return self.asking.ask(requests, self.now, self._pairs)

    def work(self) -> Work:
        """Return how many sentences were read since this was asked last, and what that took."""
        return dataclasses.replace(super().work(), account=self.asking.taken())


def _values(cfg: DictConfig, key: str) -> Any:
    """Return what a config has below a key as plain values; None where somebody took it away."""
    node = cfg.get(key)
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
