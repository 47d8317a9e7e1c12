"""What was probably meant by the words that Hydra refuses, behind Hydra's own message."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf

from lightning_cse.config.compose import (
    APPENDED,
    CompositionError,
    compose,
    options,
    parse,
    plain_line,
    without_hydra,
)
from lightning_cse.errors import ConfigError, did_you_mean, nearest, user_error

_HINTS = {
    "hydra/launcher": " - joblib and submitit are extras: pip install 'lightning_cse[joblib,slurm]'",
    "data": " - a file of your own: data=file data.train=FILE",
}


def explain(error: BaseException, words: Sequence[str], config_name: str) -> ConfigError:
    """Return a user error with a line for each word that does not compose.

    Hydra stops at the first one, so they are composed one after the other, groups first.
    """
    if isinstance(refusal := user_error(error), ConfigError):
        return refusal

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd")
    flags, arguments = parser.parse_known_args(list(words))
    composed = []
    if flags.config_dir:  # Hydra has forgotten it by now
        composed = [f"hydra.searchpath=['file://{Path(flags.config_dir).absolute()}']"]

    lines: dict[str, None] = {}
    overrides = [word for word in arguments if not word.startswith("-")]
    try:
        cfg = compose(config_name, *composed)
        for word in sorted(overrides, key=lambda word: "." in word.partition("=")[0]):
            try:
                if not parse(word).is_sweep_override():  # the sweeper composes its values
                    cfg = compose(config_name, *composed, word)
                    composed.append(word)
            except CompositionError as fault:
                line, instead = _suggestion(fault, word, cfg)
                lines[line] = None
                cfg = compose(config_name, *composed, *instead)
                composed += instead
    except CompositionError as fault:  # of a file, or of what was suggested
        lines = lines or {plain_line(fault): None}

    return ConfigError(lines or [plain_line(error)])


def _suggestion(error: BaseException, word: str, cfg: DictConfig) -> tuple[str, list[str]]:
    """Return what is wrong with a word, and what probably takes its place; ``cfg`` is the config
    without it.
    """
    key, _, value = word.lstrip("+~").partition("=")
    line = plain_line(error)
    if isinstance(error, MissingConfigException):
        option = str(error.missing_cfg_file).removeprefix(f"{key}/")
        choices = error.options or options(key)
        choice = nearest(option, choices)
        if choice is None or option not in value:
            return line + _HINTS.get(key, ""), []

        return line + did_you_mean(option, choices), [word.replace(option, choice)]

    if isinstance(error, RecursionError):
        return f"{word}: a value, or an alias in a YAML file, contains itself", []

    if isinstance(error, TypeError | ValueError | AssertionError) and options(key):
        return f"{key}: choose one of {', '.join(options(key))}, got {value}", []

    if key in APPENDED:
        return line, [f"+{key}={value}"]

    return (line if key in line else f"{word}: {line}") + _nearest(key, cfg), []


def _nearest(key: str, cfg: DictConfig) -> str:
    """Return a hint at the key whose last word is spelled alike."""
    settings: Any = OmegaConf.to_container(without_hydra(cfg))
    keys = [*(f"+{group}=" for group in APPENDED), *_keys(settings, "")]
    if key in keys:
        return ""

    by_word = {name.rpartition(".")[2]: name for name in sorted(keys, key=len, reverse=True)}
    similar = nearest(key.rpartition(".")[2], by_word, cutoff=0.7)

    return f" - did you mean '{by_word[similar]}'?" if similar else ""


def _keys(settings: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Yield every dotted key of a config, without those of the recipes."""
    for key, value in settings.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict) and key != "recipe":
            yield from _keys(value, f"{prefix}{key}.")
