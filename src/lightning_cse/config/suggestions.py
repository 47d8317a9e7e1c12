"""What was probably meant by the words that Hydra refuses, behind Hydra's own message."""

import argparse
import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from lightning_cse.config.check import not_chosen
from lightning_cse.config.compose import (
    APPENDED,
    CompositionError,
    compose,
    options,
    parse,
    plain_line,
)
from lightning_cse.errors import ConfigError, user_error

_HINTS = {
    "hydra/launcher": " - joblib and submitit are extras: pip install 'lightning_cse[joblib,slurm]'",
    "data": " - a file of your own: data=file data.train=FILE",
}


def explain(error: BaseException, words: Sequence[str], config_name: str) -> ConfigError:
    """Return a user error with a line for each word that does not compose.

    Hydra stops at the first one, so the others are found by composing without it.
    """
    if isinstance(refusal := user_error(error), ConfigError):
        return refusal

    faults: dict[str, str] = {}
    left = _overrides(words)
    while True:
        line = plain_line(error)
        word = next((word for word in left if _is_about(line, word)), None)
        if word is None:
            return ConfigError([*faults.values(), _of_no_word(error, left)])

        key, value = _parts(word)
        names = getattr(error, "options", None) or options(key)
        close = difflib.get_close_matches(value, names, n=1)
        instead = []
        if f"'{key}/{value}'" in line and value not in names:
            line += f" - did you mean '{close[0]}'?" if close else _HINTS.get(key, "")
            instead = [word.replace(value, close[0])] if close else []
        elif key in APPENDED and not word.startswith("+"):
            instead = [f"+{key}={value}"]

        faults[key] = line
        place = left.index(word)
        left[place : place + 1] = instead
        try:
            cfg = compose(config_name, *left)
        except CompositionError as another:
            error = another
            continue

        settings: Any = OmegaConf.to_container(cfg)
        keys = [*(f"+{group}=" for group in APPENDED), *_keys(settings, "")]
        lines = [line + _nearest(key, keys) for key, line in faults.items()]

        return ConfigError([*lines, *not_chosen(cfg)])


def _overrides(words: Sequence[str]) -> list[str]:
    """Return the overrides of a command line, each with the first of the values that it is swept
    over; Hydra has forgotten its --config-dir by now.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd")
    flags, rest = parser.parse_known_args(list(words))
    folder = flags.config_dir
    search = [f"hydra.searchpath=['file://{Path(folder).absolute()}']"] if folder else []

    return [_first_value(word) for word in rest if not word.startswith("-")] + search


def _first_value(word: str) -> str:
    try:
        override = parse(word)
        if override.is_sweep_override():
            return f"{override.get_key_element()}={next(iter(override.sweep_string_iterator()))}"
    except CompositionError:  # of this word, or another
        pass

    return word


def _parts(word: str) -> tuple[str, str]:
    """Return the key and the value of an override."""
    key, _, value = word.lstrip("+~").partition("=")
    return key, value


def _is_about(line: str, word: str) -> bool:
    """Whether a message of Hydra is about a word."""
    key, value = _parts(word)
    return any(text in line for text in (f"'{key}'", f"'{key}/{value}'", f"override {word} "))


def _of_no_word(error: BaseException, words: Sequence[str]) -> str:
    """Return what is wrong where Hydra does not say in which word."""
    if isinstance(error, RecursionError):
        return "config: a value, or an alias in a YAML file, contains itself"

    for key, value in map(_parts, words):
        if names := options(key) if value not in ("", *options(key)) else []:
            return f"{key}: choose one of {', '.join(names)}, got {value}"

    full_key = getattr(error, "full_key", None)

    return f"{full_key}: {plain_line(error)}" if full_key else plain_line(error)


def _nearest(key: str, keys: Sequence[str]) -> str:
    """Return a hint at the key whose last word is spelled alike."""
    if key in (*keys, *APPENDED) or "/" in key:
        return ""

    by_word = {name.rpartition(".")[2]: name for name in sorted(keys, key=len, reverse=True)}
    close = difflib.get_close_matches(key.rpartition(".")[2], by_word, n=1, cutoff=0.7)

    return f" - did you mean '{by_word[close[0]]}'?" if close else ""


def _keys(settings: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Yield every dotted key of the config, without those of Hydra and of the recipes."""
    for key, value in settings.items():
        if f"{prefix}{key}" not in ("hydra", "recipe"):
            yield f"{prefix}{key}"
            if isinstance(value, dict):
                yield from _keys(value, f"{prefix}{key}.")
