"""A search that outlives its process: an Optuna study that is asked for points and told what came of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import OptunaError
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from lightning_cse.config import spaces
from lightning_cse.errors import ConfigError

Direction = Literal["maximize", "minimize"]

_MOST_DRAWS = 16  # of the sampler in a row, before a point is taken from what is left of a finite space
_FAR = 10_000  # how far into what is left
_CONTENT = "content"


@dataclass(frozen=True)
class Asked:
    """A point to run, and the number under which its value is told."""

    number: int
    values: dict[str, spaces.Value]


class Search:
    """Points to try next, chosen by tree-structured Parzen estimators (Bergstra et al. 2011) as Optuna has them.

    The study on disk holds the points that were handed out and nothing else. What the sampler draws depends on
    ``seed``, on the number of points so far and on their values, so that a search that was stopped and continued goes
    on as if it had never been stopped. A point is drawn once: in a finite space the search ends with the last point.

    Args:
        axes: what is searched.
        storage: a URL of SQLAlchemy's, or None to keep the study in memory.
        name: the study in it; made if it is not there.
        content: what the study is of, a hash say; a study of the same name and other content is refused.
        seed: of the sampler.
        startup_trials: points that are drawn at random before the values of others are looked at.
        direction: ``maximize`` or ``minimize``.
        retry_failed: hand out points that failed before once more, first of all.

    Raises:
        ConfigError: if the storage cannot be read, or the study in it is of something else.
    """

    def __init__(
        self,
        axes: Sequence[spaces.Axis],
        *,
        storage: str | None,
        name: str,
        content: str,
        seed: int,
        startup_trials: int,
        direction: Direction = "maximize",
        retry_failed: bool = False,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.axes = list(axes)
        self.seed = seed
        self.startup_trials = startup_trials
        self._distributions = {axis.key: _distribution(axis) for axis in axes}
        self._study = _open(storage, name, content, direction)
        # Handed out by a process that is gone: they are run first, under the number they have.
        self._left = [t for t in self._trials() if t.state is TrialState.RUNNING]
        self._again = self._failed() if retry_failed else []

    @property
    def finished(self) -> int:
        """How many points have a value."""
        return len(self._trials(TrialState.COMPLETE))

    @property
    def resumed(self) -> int:
        """How many points are left from a process that ended before it told their values."""
        return len(self._left)

    @property
    def best(self) -> FrozenTrial | None:
        """The point with the best value."""
        return self._study.best_trial if self.finished else None

    def ask(self) -> Asked | None:
        """The next point, or None when every point of the space was handed out."""
        if self._left:
            trial = self._left.pop(0)
            return Asked(trial.number, dict(trial.params))
        values = self._again.pop(0) if self._again else self._draw()
        if values is None:
            return None
        # One step, unlike Study.ask(): a process that is killed leaves the whole point or nothing.
        self._study.add_trial(create_trial(state=TrialState.RUNNING, params=values, distributions=self._distributions))
        return Asked(self._trials()[-1].number, values)

    def tell(self, number: int, value: float) -> None:
        """Say what came of a point; NaN says that it failed."""
        if math.isnan(value):
            self._study.tell(number, state=TrialState.FAIL)
        else:
            self._study.tell(number, value)

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=states or None)

    def _failed(self) -> list[dict[str, spaces.Value]]:
        """The points that failed and have no value, each once."""
        done = {_key(t.params) for t in self._trials(TrialState.COMPLETE, TrialState.RUNNING)}
        failed = {_key(t.params): dict(t.params) for t in self._trials(TrialState.FAIL)}
        return [values for key, values in failed.items() if key not in done]

    def _draw(self) -> dict[str, spaces.Value] | None:
        trials = self._trials(TrialState.COMPLETE, TrialState.RUNNING, TrialState.FAIL)
        drawn = {_key(trial.params) for trial in trials}
        size = spaces.size(self.axes)
        if len(drawn) >= size:
            return None
        seed = int(np.random.SeedSequence([self.seed, len(trials)]).generate_state(1)[0])
        # In memory, so that draws that are not handed out leave nothing behind in the study.
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=self.startup_trials, constant_liar=True)
        scratch = optuna.create_study(direction=self._study.direction, sampler=sampler)
        scratch.add_trials(trials)
        for _ in range(_MOST_DRAWS):
            values = dict(scratch.ask(self._distributions).params)
            if _key(values) not in drawn:
                return values
        if math.isinf(size):
            return values
        left = (point for point in spaces.all_points(self.axes) if _key(point) not in drawn)
        place = int(np.random.default_rng(seed).integers(min(int(size) - len(drawn), _FAR)))
        return next(itertools.islice(left, place, None))


def _key(values: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(values.items()))


def _distribution(axis: spaces.Axis) -> BaseDistribution:
    if isinstance(axis, spaces.Choices):
        return CategoricalDistribution(axis.values)
    settings = dataclasses.asdict(axis)
    del settings["key"]
    return IntDistribution(**settings) if isinstance(axis, spaces.Whole) else FloatDistribution(**settings)


def _shown(storage: str | None) -> str:
    """Return a storage for a message, without the password that its URL may hold."""
    try:
        return "memory" if storage is None else make_url(storage).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "a storage whose URL cannot be read"


def _open(storage: str | None, name: str, content: str, direction: Direction) -> Study:
    if storage is not None and storage.startswith("sqlite:///"):
        Path(storage.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    try:
        study = optuna.create_study(storage=storage, study_name=name, direction=direction, load_if_exists=True)
        known = study.user_attrs.get(_CONTENT)
        if known is None:
            study.set_user_attr(_CONTENT, content)
    except (OptunaError, SQLAlchemyError, ImportError, OSError, ValueError) as error:
        why = type(error).__name__  # its text may repeat the URL, and a password in it
        raise ConfigError(
            [f"hydra.sweeper.storage: the study {name} cannot be opened in {_shown(storage)} ({why})"]
        ) from error
    if known not in (None, content):
        raise ConfigError(
            [
                f"hydra.sweeper.study={name}: this study in {_shown(storage)} is of another recipe or another space; "
                "name another, or leave the name out: then each has its own"
            ]
        )
    return study
