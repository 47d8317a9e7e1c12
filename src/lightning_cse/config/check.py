"""The last check of a config before anything is built, and its automatic choices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_cse.config.outcomes import in_sweep
from lightning_cse.config.secrets import literal_secrets
from lightning_cse.config.validate import validate
from lightning_cse.errors import ConfigError, did_you_mean

EVALUATION_SIDES = ("stsb_dev", "corpus_dev", "none")
"""What the evaluation side of RFD can be."""


SHORT_PRECISIONS = {"32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed", "64": "64-true"}
"""Lightning's short names: one spelling each, so that one point has one identity."""

EVALUATION_PRECISIONS = ("32-true", "bf16-mixed")
"""What a model can be evaluated in."""


def resolve_automatic(cfg: DictConfig, *, under: str = "trainer") -> dict[str, Any]:
    """Replace ``auto`` choices in the config by what they become on this machine, and return what decides a result.

    Args:
        cfg: the composed config.
        under: the node that has ``accelerator`` and ``precision``; an empty string for the top.
    """
    node = cfg[under] if under else cfg
    if node.accelerator == "auto":
        node.accelerator = "gpu" if torch.cuda.is_available() else "cpu"
    if node.precision == "auto":
        on_gpu = node.accelerator in ("gpu", "cuda")
        fast = torch.cuda.is_bf16_supported() if on_gpu else _fast_bfloat16_on_cpu()
        node.precision = "bf16-mixed" if fast else "32-true"
    node.precision = SHORT_PRECISIONS.get(str(node.precision), node.precision)
    return {".".join(filter(None, (under, key))): node[key] for key in ("accelerator", "precision")}


def refuse_faults(cfg: DictConfig, found: Iterable[str], given: Mapping[str, Collection[str]] | None = None) -> None:
    """Refuse a config with all its faults at once, before anything is loaded.

    Args:
        cfg: the composed config.
        found: faults that the caller knows of.
        given: arguments that are not in it but added where a node is built, by the node's key.

    Raises:
        ConfigError: for those, for secrets that stand in it, and for what `validate` finds.
    """
    faults = literal_secrets(OmegaConf.to_container(cfg, resolve=False))
    try:
        validate(cfg, given=given)
    except ConfigError as error:
        faults += error.faults
    faults += found
    if faults:
        raise ConfigError(dict.fromkeys(faults))


def wrong_counts(cfg: DictConfig, least: Mapping[str, int], nullable: Collection[str] = frozenset()) -> Iterator[str]:
    """Yield a fault for each of some keys that is no whole number of at least so much, nor null where it may be."""
    for key, lowest in least.items():
        value = cfg[key]
        if value is None and key in nullable:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
            yield f"{key}: {value!r} is no whole number of at least {lowest}"


def check(cfg: DictConfig, given: Mapping[str, Collection[str]]) -> None:
    """Refuse a config that makes no run, as `refuse_faults` does.

    Raises:
        ConfigError: also for values of the right type that make no run.
    """
    refuse_faults(cfg, _impossible(cfg), given)


def check_evaluation(cfg: DictConfig, found: Iterable[str]) -> None:
    """Refuse a config that cannot be evaluated, as `refuse_faults` does.

    Raises:
        ConfigError: also for values of the right type that make no evaluation.
    """
    refuse_faults(
        cfg,
        [*found, *_wrong_counts(cfg), *_wrong_accelerator("accelerator", str(cfg.accelerator)), *_wrong_precision(cfg)],
    )


def _wrong_precision(cfg: DictConfig) -> Iterator[str]:
    if cfg.precision not in EVALUATION_PRECISIONS:
        near = did_you_mean(str(cfg.precision), EVALUATION_PRECISIONS)
        yield f"precision: {cfg.precision!r} is not one of {', '.join(EVALUATION_PRECISIONS)} and auto{near}"


SWEEP_DEVICES = (
    ". A sweep does that with hydra/launcher=joblib (a free GPU of this machine for each point), with a Ray launcher "
    "and num_gpus=1, or with hydra/launcher=submitit_slurm and gpus_per_node=1; else give one command a point"
)
"""How the points of a sweep come to a device each. Lightning's own processes would each start the whole sweep anew."""


LEAST = {
    "seed": 0,
    "eval_every": 1,
    "least_evaluations": 1,
    "limits.dev_rows": 1,
    "limits.test_rows": 1,
    "limits.dev_pairs": 1,
    "limits.test_pairs": 1,
    "data.max_tokens": 1,
    "trainer.accumulate_grad_batches": 1,
    "data.batch_size": 2,
    "data.train_rows": 2,
    "data.held_out_rows": 1,
    "data.llm_rows": 0,
    "data.llm_rows_together": 1,
    "diag.sentences": 2,
}
"""The smallest whole number that makes a run, by key; null, where a key may be null, is no number."""


def _impossible(cfg: DictConfig) -> Iterator[str]:
    """Yield what has the right type and still makes no run."""
    yield from _wrong_numbers(cfg)
    yield from _wrong_ends(cfg)
    yield from _wrong_devices(cfg)
    if cfg.diag.evaluation not in EVALUATION_SIDES:
        near = did_you_mean(str(cfg.diag.evaluation), EVALUATION_SIDES)
        yield f"diag.evaluation: {cfg.diag.evaluation!r} is not one of {', '.join(EVALUATION_SIDES)}{near}"
    for key, node in (cfg.suite or {}).items():
        if isinstance(node, ListConfig):
            yield f"suite.{key}: names of tasks of another library; they are for lightning_cse.evaluate"
    if not cfg.suite:
        yield "suite: there is no task to choose the best checkpoint by"


def _wrong_counts(cfg: DictConfig) -> Iterator[str]:
    suite = {
        f"suite.{task}.{key}": 1
        for task, node in (_value(cfg, "suite") or {}).items()
        if isinstance(node, DictConfig)
        for key in map(str, node)
        if key.endswith("_rows") and not OmegaConf.is_interpolation(node, key)  # a limit, checked by its own name
    }
    for key, least in (LEAST | suite).items():
        value = _value(cfg, key)
        if value is not None and (not isinstance(value, int) or value < least):
            yield f"{key}: {value!r} is no whole number of at least {least}"


def _wrong_numbers(cfg: DictConfig) -> Iterator[str]:
    yield from _wrong_counts(cfg)
    if isinstance(cfg.seed, int) and cfg.seed >= 2**32:
        yield f"seed: {cfg.seed} is too large; NumPy takes seeds below 2**32"
    rate = _value(cfg, "method.optimizer.lr")
    if rate is not None and not (isinstance(rate, int | float) and rate >= 0):
        yield f"method.optimizer.lr: {rate!r} is no learning rate"
    dropout = _value(cfg, "encoder.dropout")
    if isinstance(dropout, int | float) and not 0 <= dropout < 1:
        yield f"encoder.dropout: {dropout} is no probability in [0, 1)"
    for key in ("diag.positive_score", "diag.negative_score"):
        if not isinstance(_value(cfg, key), int | float):
            yield f"{key}: {_value(cfg, key)!r} is no number"


def _wrong_ends(cfg: DictConfig) -> Iterator[str]:
    ends = {key: _value(cfg, key) for key in ("trainer.max_epochs", "trainer.max_steps")}
    for key, end in ends.items():
        if end == 0:
            yield f"{key}: 0 trains nothing (every run has the untrained encoder among its baselines)"
    if all(end in (None, -1) for end in ends.values()):
        yield f"trainer.max_epochs: {ends['trainer.max_epochs']} never ends unless trainer.max_steps is set"


def _wrong_devices(cfg: DictConfig) -> Iterator[str]:
    if cfg.trainer.devices not in (1, "1"):
        yield (
            f"trainer.devices: {cfg.trainer.devices}, but negatives come from one device and are not gathered "
            "over several; use one device a run, and one run a device" + (SWEEP_DEVICES if in_sweep() else "")
        )
    yield from _wrong_accelerator("trainer.accelerator", str(cfg.trainer.accelerator))


def _wrong_accelerator(key: str, accelerator: str) -> Iterator[str]:
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    accelerators = {"cpu": True, "gpu": cuda or mps, "cuda": cuda, "mps": mps}
    if accelerator not in accelerators:
        near = did_you_mean(accelerator, accelerators)
        yield f"{key}: {accelerator!r} is not one of {', '.join(accelerators)} and auto{near}"
    elif not accelerators[accelerator]:
        yield f"{key}: torch finds no {accelerator} on this machine; auto takes what there is"


def _value(cfg: DictConfig, key: str) -> Any:
    try:
        return OmegaConf.select(cfg, key)
    except OmegaConfBaseException:
        return None  # an interpolation without an answer, which `validate` tells


def _fast_bfloat16_on_cpu() -> bool:
    # Private to torch, and the only one that asks the processor; without it, float32 is always right.
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(supported()) if supported is not None else False
