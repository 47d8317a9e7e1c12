"""``hydra/sweeper=tpe``: a search in place of a grid, over the same parameters, for the best dev score.

python -m lightning_cse.train +experiment=gausscse +sweep=gausscse_grid hydra/sweeper=tpe hydra.sweeper.trials=6
"""

import dataclasses
import hashlib
import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.lightning_cse_sweepers._base import PointSweeper
from lightning_cse.config import spaces
from lightning_cse.config.overrides import order_overrides
from lightning_cse.config.points import single_line
from lightning_cse.errors import ConfigError

if TYPE_CHECKING:
    from hydra_plugins.lightning_cse_sweepers._study import Search

log = logging.getLogger(__name__)


@dataclass
class TPESweeperConf:
    """What may be set under ``hydra.sweeper``."""

    _target_: str = "hydra_plugins.lightning_cse_sweepers.tpe.TPESweeper"
    params: dict[str, Any] = field(default_factory=dict)
    trials: int = 20
    jobs: int = 1
    seed: int = 0
    startup_trials: int = 5
    direction: str = "maximize"
    storage: str | None = None
    study: str | None = None


ConfigStore.instance().store(group="hydra/sweeper", name="tpe", node=TPESweeperConf, provider="lightning_cse_sweepers")


class TPESweeper(PointSweeper):
    """Runs the points that Optuna's TPE sampler draws from ``hydra.sweeper.params``, until ``trials`` have a value.

    The value is what the task returns: the best dev score of a training run. The study lies in a file; the same command
    goes on with it, first with the points that were under way when the last process ended. A point that fails (NaN) is
    not replaced in the same start, so that a search in which everything fails ends.

    Args:
        params: what is searched, and what is fixed; see `lightning_cse.config.spaces`.
        trials: how many points shall have a value in the end, those of earlier starts included.
        jobs: how many points are handed to the launcher at once.
        seed: of the sampler.
        startup_trials: points drawn at random before values are looked at.
        direction: ``maximize`` or ``minimize``.
        storage: the file of the study, or a URL of SQLAlchemy's; ``<paths.runs_dir>/studies/<study>.db`` by default.
        study: its name; by default experiment, sweep, and a hash of the recipe and the space.

    Raises:
        ConfigError: for numbers that make no search.
    """

    def __init__(
        self,
        params: Mapping[str, Any] | None = None,
        *,
        trials: int = 20,
        jobs: int = 1,
        seed: int = 0,
        startup_trials: int = 5,
        direction: str = "maximize",
        storage: str | None = None,
        study: str | None = None,
    ) -> None:
        super().__init__(params)
        least = {"trials": (trials, 1), "jobs": (jobs, 1), "seed": (seed, 0), "startup_trials": (startup_trials, 1)}
        faults = [f"hydra.sweeper.{key}={n}: the smallest is {low}" for key, (n, low) in least.items() if n < low]
        if direction not in ("maximize", "minimize"):
            faults.append(f"hydra.sweeper.direction={direction}: either maximize or minimize")
        if faults:
            raise ConfigError(faults)
        self.trials = trials
        self.jobs = jobs
        self.seed = seed
        self.startup_trials = startup_trials
        self.direction: Literal["maximize", "minimize"] = "minimize" if direction == "minimize" else "maximize"
        self.storage = storage
        self.study = study

    def sweep(self, arguments: list[str]) -> Sequence[JobReturn]:
        """Search until enough points have a value, and tell the best.

        Raises:
            ConfigError: for a space that is none, or a study that cannot be gone on with.
        """
        from lightning_cse.runs import locked

        overrides, axes = spaces.split(self.read(arguments))
        fixed = [single_line(override) for override in overrides]
        folder = self.folder()
        content = self._content(fixed, axes)
        name = self.study or "-".join([*_names(overrides), content])
        studies = Path(str(self.config.paths.runs_dir)).expanduser().absolute() / "studies"
        storage = self.storage or str(studies / f"{name}.db")
        # Two processes on one study would each take the other's points for abandoned ones.
        with locked(studies / f"{name}.lock", f"the study {name}"):
            search = self._search(axes, storage=_url(storage), name=name, content=content)
            # Not the storage itself, whose URL may hold a password.
            log.info("study %s: %d of %d points have a value", name, search.finished, self.trials)
            if search.resumed:
                log.info("%d more were under way when the last search ended, and come first", search.resumed)
            results = self._run(search, fixed)
            self._tell(search, name, fixed, folder)
        return results

    def _search(self, axes: Sequence[spaces.Axis], *, storage: str, name: str, content: str) -> "Search":
        try:
            from hydra_plugins.lightning_cse_sweepers._study import Search
        except ImportError as error:
            raise ConfigError([f"hydra/sweeper=tpe needs pip install 'lightning_cse[optuna]' ({error})"]) from error

        return Search(
            axes,
            storage=storage,
            name=name,
            content=content,
            seed=self.seed,
            startup_trials=self.startup_trials,
            direction=self.direction,
            retry_failed=bool(self.config.get("retry_failed", False)),
        )

    def _run(self, search: "Search", fixed: Sequence[str]) -> list[JobReturn]:
        results: list[JobReturn] = []
        left = self.trials - search.finished
        while left > 0:
            asked = [point for _ in range(min(self.jobs, left)) if (point := search.ask())]
            if not asked:
                log.info("every point of the space has been tried")
                break
            jobs = [order_overrides([*fixed, *spaces.lines(point.values)]) for point in asked]
            batch = self.launch(jobs)
            for point, result in zip(asked, batch, strict=True):
                value = _value(result)
                if value is not None:  # else somebody else is running it, and the next start asks again
                    search.tell(point.number, value)
            results += batch
            left -= len(asked)
        return results

    def _content(self, fixed: Sequence[str], axes: Sequence[spaces.Axis]) -> str:
        """Ten hex digits of what makes two searches one: the recipe without what decides no result, and the space."""
        from lightning_cse.runs import decisive

        first = {axis.key: axis.low if isinstance(axis, spaces.Real) else next(iter(axis)) for axis in axes}
        config = self._context.config_loader.load_sweep_config(
            self.config, order_overrides([*fixed, *spaces.lines(first)])
        )
        document = {
            "config": decisive(_resolved(config), data={}, encoder={}, resolved={})["config"],
            "space": [[type(axis).__name__, dataclasses.asdict(axis)] for axis in axes],
            "seed": OmegaConf.select(config, "seed"),
            "direction": self.direction,
        }
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode("utf-8")).hexdigest()[:10]

    def _tell(self, search: "Search", name: str, fixed: Sequence[str], folder: Path) -> None:
        """Log the best point and the command that trains it, and write the same into the folder of the sweep."""
        best = search.best
        if best is None:
            log.warning("no point has a value yet; the same command goes on")
            return
        chosen = spaces.lines(best.params)
        # Without the sweep, which would make it many points again.
        line = order_overrides([*(text for text in fixed if not text.startswith("+sweep=")), *chosen])
        command = shlex.join(["python", "-m", f"lightning_cse.{self.config.hydra.job.config_name}", *line])
        log.info("%d of %d points have a value; the best is %.6g: %s", search.finished, self.trials, best.value, chosen)
        log.info("this trains it: %s", command)
        found = {
            "name": "tpe",
            "study": name,
            "finished": search.finished,
            "best_value": best.value,
            "best_params": dict(best.params),
            "command": command,
        }
        OmegaConf.save(OmegaConf.create(found), folder / "optimization_results.yaml")


def _value(result: JobReturn) -> float | None:
    value = result.return_value  # raises what the job raised
    return None if value is None else float(value)


def _names(overrides: Sequence[Override]) -> list[str]:
    """What a study is called after, in words."""
    given = {o.key_or_group: str(o.value()) for o in overrides if o.key_or_group in ("experiment", "sweep")}
    words = [given.get("experiment", "search"), *([given["sweep"]] if "sweep" in given else [])]
    return [word.replace("/", "_") for word in words]


def _url(storage: str) -> str:
    """A URL as it is; a file as a URL."""
    return storage if "://" in storage else f"sqlite:///{Path(storage).expanduser().absolute()}"


def _resolved(config: DictConfig) -> dict[str, Any]:
    """The config of a point as plain values, without Hydra's own part."""
    kept = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    values: Any = OmegaConf.to_container(kept, resolve=True)
    return dict(values)
