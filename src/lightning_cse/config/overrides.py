"""Order the overrides of a command line, and refuse the ones that mean nothing, all of them at once.

Hydra lets the rightmost override win and takes ``+experimnt=x`` as a new key. Here ``+experiment``, ``+profile``,
``+sweep`` and ``+debug`` always come first and in this order, and a key that no config knows is an error.
"""

from __future__ import annotations

import difflib
import importlib.util
import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import GrammarParseError

from lightning_cse.config import spaces
from lightning_cse.config.keys import at, below_target, exists, is_argument, is_open, leaves, plain, suggest_key
from lightning_cse.config.points import ListedPoint, listed_points, merged, not_of_one_point, params_lines
from lightning_cse.config.secrets import refusals
from lightning_cse.config.tree import CompositionError, ConfigTree, one_line
from lightning_cse.errors import ConfigError, did_you_mean

APPENDED = ("experiment", "profile", "sweep", "debug")
"""The groups that no defaults list names: each is appended with a plus, and a later one wins over an earlier one."""

_NEEDED = {"name": "experiment", "suite": "suite", "pattern": "pattern", "data": "data"}
"""The groups one of whose options has to be chosen, by the key that is ``???`` without it."""
_CALLED = {"data": "data set"}
"""What an option of a group is called, where that is not the group's name."""

_APPENDED_OVERRIDE = re.compile(rf"^\+{{0,2}}(?P<rest>(?P<group>{'|'.join(APPENDED)})(@[^=]*)?=.*)$", re.DOTALL)
_FLAGS_WITH_VALUE = {
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn"),
    *("--config-dir", "-cd", "--experimental-rerun"),
}
_INFO_FLAGS = {"--info", "-i"}
_INFO_CHOICES = {"all", "config", "defaults", "defaults-tree", "plugins", "searchpath"}
_LAUNCHER, _SWEEPER = "hydra/launcher", "hydra/sweeper"
# Our extras by what they bring: the option, the extra, and the module without which it is not there.
_EXTRAS = {
    (_LAUNCHER, "joblib"): ("joblib", "hydra_plugins.hydra_joblib_launcher"),
    (_LAUNCHER, "ray"): ("ray", "ray"),
    (_LAUNCHER, "submitit_local"): ("slurm", "hydra_plugins.hydra_submitit_launcher"),
    (_LAUNCHER, "submitit_slurm"): ("slurm", "hydra_plugins.hydra_submitit_launcher"),
    (_SWEEPER, "tpe"): ("optuna", "optuna"),
}
_PLUGINS = {
    _LAUNCHER: {"ray_aws": "hydra-ray-launcher", "rq": "hydra-rq-launcher"},
    _SWEEPER: {"ax": "hydra-ax-sweeper", "nevergrad": "hydra-nevergrad-sweeper"},
    "hydra/hydra_logging": {"colorlog": "hydra-colorlog"},
    "hydra/job_logging": {"colorlog": "hydra-colorlog"},
}
_MOST_POINTS = 32  # combinations of group options whose keys are looked at: 0.2 s each
_MOST_GUESSES = 12  # experiments that are tried where none was given
_MOST_TOLD = 10  # listed points whose faults are told


def order_overrides(args: Sequence[str]) -> list[str]:
    """Put experiment, profile, sweep and debug first, in this order; flags and everything else keep their places.

    These four groups are in no defaults list, so ``experiment=x`` and ``++experiment=x`` are errors to Hydra though
    nobody means anything else by them: they are taken as ``+experiment=x``.

    Example:
        >>> order_overrides(["-m", "seed=0,1", "+debug=tiny", "experiment=simcse"])
        ['-m', '+experiment=simcse', '+debug=tiny', 'seed=0,1']
    """
    flags = _flag_places(args)
    appended: dict[str, list[str]] = {group: [] for group in APPENDED}
    others = []
    for arg, is_flag in zip(args, flags, strict=True):
        if is_flag:
            continue
        if match := _APPENDED_OVERRIDE.match(arg):
            appended[match["group"]].append(f"+{match['rest']}")
        else:
            others.append(arg)
    overrides = itertools.chain(*appended.values(), others)
    return [arg if is_flag else next(overrides) for arg, is_flag in zip(args, flags, strict=True)]


def quote_free_text(args: Sequence[str], keys: Sequence[str]) -> list[str]:
    r"""Quote for Hydra the values of some keys, so that blanks, commas, quotes, brackets and ``=`` in them survive.

    Left as they are: what stands in one pair of quotes already, and everything in a multirun, where a comma separates
    values.

    Example:
        >>> quote_free_text(["model=it's in a, b=c", "seed=1"], ["model"])
        ['model="it\'s in a, b=c"', 'seed=1']
    """
    if {"-m", "--multirun"} & set(args):
        return list(args)
    free = re.compile(rf"^(?P<key>\+{{0,2}}({'|'.join(map(re.escape, keys))}))=(?P<value>.*)$", re.DOTALL)
    matches = [free.match(arg) if keys else None for arg in args]
    return [f"{m['key']}={_quoted(m['value'])}" if m else arg for arg, m in zip(args, matches, strict=True)]


def _quoted(text: str) -> str:
    if re.fullmatch(r"""(?s)(["'])((?!\1)[^\\]|\\.)*\1|null""", text):
        return text
    # Hydra takes a backslash for itself, unless a quote or the end follows the backslashes.
    text = re.sub(r'(\\*)"', lambda found: rf"{found[1] * 2}\"", text)
    text = re.sub(r"\\+$", lambda found: found[0] * 2, text)
    return f'"{text}"'


def flags_last(args: Sequence[str]) -> list[str]:
    """Put flags (and their values) behind the overrides: Hydra refuses a flag that stands between two overrides.

    Example:
        >>> flags_last(["+experiment=simcse", "-m", "seed=0,1"])
        ['+experiment=simcse', 'seed=0,1', '-m']
    """
    flags = _flag_places(args)
    return [arg for wanted in (False, True) for arg, is_flag in zip(args, flags, strict=True) if is_flag is wanted]


def _flag_places(args: Sequence[str]) -> list[bool]:
    places = []
    before = ""
    for arg in args:
        is_value = before in _FLAGS_WITH_VALUE or (before in _INFO_FLAGS and arg in _INFO_CHOICES)
        places.append(is_value or arg.startswith("-"))
        before = "" if is_value else arg
    return places


def check_overrides(args: Sequence[str], conf_dir: Path, config_name: str) -> None:
    """Check a command line against the configs before Hydra reads it.

    A key is known when it exists in the config that the group choices alone give. Below a node with a ``_target_`` an
    added key (``+trainer.deterministic=true``) is an argument, and `lightning_cse.config.validate` judges it. In a
    multirun every option of every swept group is checked. What asks Hydra for help or information is let through.

    Args:
        args: the command line without the program's name, flags included.
        conf_dir: the folder of configs.
        config_name: the primary config, overruled by ``--config-name``.

    Raises:
        ConfigError: with all faults found.
    """
    parsed = get_args_parser().parse_args(flags_last(order_overrides(args)))
    if parsed.help or parsed.hydra_help or parsed.info or parsed.shell_completion or parsed.experimental_rerun:
        return
    folders = [conf_dir]
    if parsed.config_path is not None:
        folders = [Path(parsed.config_path)]
        if not folders[0].is_absolute():
            return  # relative to the program's file, in Hydra's own way
    if parsed.config_dir is not None:
        folders.append(Path(parsed.config_dir).absolute())
    tree = ConfigTree(folders, parsed.config_name or config_name)
    check = _Check(tree, multirun=parsed.multirun, only_shown=parsed.cfg is not None)
    check.run(parsed.overrides)
    if check.faults:
        raise ConfigError(check.faults)


@dataclass
class _Choice:
    """A group override with the options it may take, several in a sweep; unknown options are replaced or left out."""

    key: str  # as Hydra writes it: "+experiment", "encoder", "data@eval_data"
    group: str
    options: list[str]

    def lines(self) -> list[str]:
        return [f"{self.key}={option}" for option in self.options]


@dataclass
class _Value:
    """A value override: the line as it is told in faults, what Hydra understood, and the key paths it sets."""

    line: str
    override: Override
    paths: list[list[str]] = field(init=False)

    def __post_init__(self) -> None:
        root = self.override.key_or_group.split(".")
        value = None if self.override.is_sweep_override() else self.override.value()
        self.paths = [root + rest for rest in leaves(value)]

    @property
    def adds(self) -> bool:
        return bool(self.override.is_add() or self.override.is_force_add())

    @property
    def is_container(self) -> bool:
        return isinstance(self.override.value(), (dict, list))

    def first(self) -> str:
        """The override with one value: the first of a sweep."""
        if self.override.is_delete():
            return self.override.input_line or self.override.get_key_element()
        return f"{self.override.get_key_element()}={self._first_value()}"

    def forced(self) -> str:
        """The same as ``++key=value``, which Hydra never refuses."""
        return f"++{self.override.key_or_group}={self._first_value()}"

    def _first_value(self) -> str:
        if not self.override.is_sweep_override():
            return str(self.override.get_value_element_as_str())
        if not self.override.is_discrete_sweep():
            return "0"  # an interval: only optimising sweepers take it, and only a number comes of it
        return next(iter(self.override.sweep_string_iterator()), "null")


@dataclass(frozen=True)
class _Sweep:
    """What runs the points: the options of Hydra's groups by group, and what is set under ``hydra.sweeper``."""

    choices: dict[str, str]
    settings: dict[Any, Any]

    def chosen(self, group: str) -> str:
        return self.choices.get(group, "basic")


class _Check:
    """One command line, or one listed point of it, against one tree of configs."""

    def __init__(self, tree: ConfigTree, *, multirun: bool, only_shown: bool) -> None:
        self.tree = tree
        self.multirun = multirun
        self.only_shown = only_shown
        self.faults: list[str] = []
        self.choices: list[_Choice] = []
        self.values: list[_Value] = []
        self.left_to_hydra: list[str] = []
        self.listed: set[str] = set()  # groups of the defaults list, without a plus
        self.unknown: set[str] = set()  # groups whose choice is needed and is not known
        self.composed: set[tuple[str, ...]] = set()  # what Hydra was seen to compose, by groups and keys

    def fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)

    def run(self, lines: Sequence[str]) -> None:
        if secrets := refusals(lines):
            self.faults = secrets  # and nothing else, since other faults repeat what was given
            return
        parsed = [(line, override) for line in lines if (override := self._parse(line)) is not None]
        sweep = self._sweep(parsed)
        if sweep is None:
            self._check(parsed)
            return
        parsed = self._with_params(parsed, sweep)
        self._check_plugins(sweep, [override for _, override in parsed])
        if self.multirun and sweep.chosen(_SWEEPER) == "points":
            self._check_listed(parsed, sweep)
        else:
            self._check(parsed)

    def _check(self, parsed: Sequence[tuple[str, Override]]) -> None:
        for line, override in parsed:
            if override.is_sweep_override() and not self.multirun:
                self.fault(_needs_multirun(line, override))
            self._sort(line, override)
        self._check_pluses()
        swept = itertools.product(*(choice.lines() for choice in self.choices))
        for point in itertools.islice(swept, _MOST_POINTS):
            self._check_point(point)

    # Sweeps

    def _sweep(self, parsed: Sequence[tuple[str, Override]]) -> _Sweep | None:
        """Find out whether this is a multirun, and what runs it; None where that does not even compose."""
        frame, hydras = [], []
        for line, override in parsed:
            key = override.key_or_group
            if key in APPENDED and override.is_add():
                options = [name for name in _given(override) if name in self.tree.options(key)]
                frame += [f"{override.get_key_element()}={name}" for name in options[:1]]
            elif key == "hydra.mode" or key.startswith(("hydra.sweeper.", _SWEEPER, _LAUNCHER)):
                hydras.append(line)
        try:
            cfg = self.tree.compose([*frame, *hydras])
        except CompositionError:
            return None  # told when the points are composed
        self.multirun = self.multirun or cfg.hydra.mode == RunMode.MULTIRUN
        sweeper = OmegaConf.to_container(cfg.hydra.sweeper, resolve=False)
        choices = {str(key): str(option) for key, option in cfg.hydra.runtime.choices.items()}
        return _Sweep(choices, sweeper if isinstance(sweeper, dict) else {})

    def _with_params(self, parsed: list[tuple[str, Override]], sweep: _Sweep) -> list[tuple[str, Override]]:
        """Put the parameters of the configs' sweep before the rest, which replaces them."""
        params = sweep.settings.get("params")
        if not self.multirun or not isinstance(params, dict):
            return parsed
        given = {override.get_key_element() for _, override in parsed}
        swept = []
        for line in params_lines(params):
            param = self._parse(line)
            if param is not None and param.get_key_element() not in given:
                swept.append((f"hydra.sweeper.params: {line}", param))
        return swept + parsed

    def _check_plugins(self, sweep: _Sweep, overrides: Sequence[Override]) -> None:
        """Tell what is not installed, what needs a multirun, and what the sweeper cannot run."""
        sweeper = sweep.chosen(_SWEEPER)
        for group in (_SWEEPER, _LAUNCHER):
            if lacking := _lacking_extra(group, sweep.chosen(group)):
                self.fault(lacking)
        if sweeper in ("points", "tpe") and not self.multirun:
            self.fault(f"{_SWEEPER}={sweeper}: a sweep needs -m")
        elif sweeper == "tpe":
            try:
                spaces.split(override for override in overrides if not override.is_hydra_override())
            except ConfigError as error:
                for fault in error.faults:
                    self.fault(fault)
        elif sweeper in ("basic", "points") and self.multirun:
            for override in overrides:
                if override.is_interval_sweep():
                    self.fault(
                        f"{override.input_line}: an interval is for {_SWEEPER}=tpe; a grid takes values: 1e-5,3e-5"
                    )

    def _check_listed(self, parsed: Sequence[tuple[str, Override]], sweep: _Sweep) -> None:
        """Check every listed point with what holds for all of them."""
        try:
            points = listed_points(sweep.settings.get("file"), sweep.settings.get("points"))
        except ConfigError as error:
            for fault in error.faults:
                self.fault(fault)
            return
        shared = {id(override): line for line, override in parsed}
        wrong = 0
        for point in points:
            faults = self._faults_of(point, parsed, shared)
            wrong += bool(faults)
            for fault in faults if wrong <= _MOST_TOLD else []:
                self.fault(fault)
        if wrong > _MOST_TOLD:
            self.fault(f"{wrong - _MOST_TOLD} more of the {len(points)} points have faults")

    def _faults_of(
        self, point: ListedPoint, parsed: Sequence[tuple[str, Override]], shared: dict[int, str]
    ) -> list[str]:
        """What is wrong with one listed point: a fault of what all share reads the same for each, and is told once."""
        check = _Check(self.tree, multirun=True, only_shown=self.only_shown)
        check.composed = self.composed
        if secrets := refusals(point.overrides):
            return [f"{point.place}: {fault}" for fault in secrets]
        own = [override for line in point.overrides if (override := check._parse(line)) is not None]
        for override in own:
            if why := not_of_one_point(override):
                check.fault(f"{override.input_line}: {why}")
        if not check.faults:
            lines = [(shared.get(id(o), o.input_line or ""), o) for o in merged((o for _, o in parsed), own)]
            check._check(lines)
        of_all = tuple(f"{line}: " for line in shared.values())
        return [fault if fault.startswith(of_all) else f"{point.place}: {fault}" for fault in check.faults]

    # Reading the lines

    def _parse(self, line: str) -> Override | None:
        try:
            return self.tree.parse(line)
        except HydraException as error:
            self.fault(self._bad_syntax(line, error))
            return None

    def _bad_syntax(self, line: str, error: Exception) -> str:
        key, equals, value = line.partition("=")
        if not equals:
            meant = [f"+{group}={line}" for group in APPENDED if line in self.tree.options(group)]
            return f"{line}: not an override, which is key=value" + (f" - did you mean '{meant[0]}'?" if meant else "")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        quoted = shlex.quote(f'{key}="{escaped}"')
        why = str(error).strip().splitlines()[0]
        detail = "" if why.startswith("LexerNoViableAlt") else f" ({why})"
        return f"{line}: Hydra cannot read this value{detail} - quote it for Hydra and for the shell: {quoted}"

    def _sort(self, line: str, override: Override) -> None:
        key = override.key_or_group
        is_group = self.tree.is_group(key) and not isinstance(override.value(), dict)
        if key.startswith("hydra/"):
            self._take_hydra_group(line, override)
        elif key == "hydra" or key.startswith("hydra.") or (is_group and override.is_delete()):
            self.left_to_hydra.append(line)
        elif is_group:
            self._take_group(line, override)
        else:
            self.values.append(_Value(line, override))

    def _take_hydra_group(self, line: str, override: Override) -> None:
        group = override.key_or_group
        unknown = [option for option in _given(override) if not self.tree.has_option(group, option)]
        if not self.tree.is_group(group):
            groups = [f"hydra/{name}" for name in self.tree.loader.list_groups("hydra")]
            self.fault(f"{line}: there is no group '{group}'{did_you_mean(group, groups)}")
        elif unknown and not override.is_delete():
            self.fault(f"{line}: {self._no_option(group, unknown[0])}")
        else:
            self.left_to_hydra.append(line)

    def _take_group(self, line: str, override: Override) -> None:
        group = override.key_or_group
        known = self.tree.options(group)
        given = _given(override)
        if not given:
            self.fault(f"{line}: matches no {group} (there are: {', '.join(known)})")
        kept = []
        for option in given:
            if self.tree.has_option(group, option):
                kept.append(option)
                continue
            if option == "null":
                self.fault(f"{line}: a group is left out with '~{override.get_key_element().lstrip('+')}'")
                continue
            self.fault(f"{line}: {self._no_option(group, option)}")
            # The rest is checked as if the likely option had been given.
            kept += difflib.get_close_matches(option, known, n=1)
        if kept:
            options = [f"[{','.join(kept)}]"] if isinstance(override.value(), list) else list(dict.fromkeys(kept))
            self.choices.append(_Choice(override.get_key_element(), group, options))
        elif group in APPENDED or group in _NEEDED.values():
            self.unknown.add(group)

    def _no_option(self, group: str, option: str) -> str:
        if (group, option) in _EXTRAS:
            return f"is not installed - it needs pip install 'lightning_cse[{_EXTRAS[group, option][0]}]'"
        if plugin := _PLUGINS.get(group, {}).get(option):
            return f"the plugin for {group}={option} is not installed - pip install {plugin}"
        if (group, option) == (_SWEEPER, "optuna"):
            return f"there is no {group} 'optuna' - {group}=tpe is the one that searches with Optuna"
        known = self.tree.options(group)
        near = did_you_mean(option, known)
        if group == "data" and ("/" in option or "." in option):
            near = f" - a file of your own is for data.train, as in data.train=[{option}]"
        return f"there is no {group} '{option}'{near} (there are: {', '.join(known) or 'none'})"

    # Groups: which take a plus

    def _check_pluses(self) -> None:
        appended = [choice.lines()[0] for choice in self.choices if choice.group in APPENDED]
        try:
            self.listed = self.tree.listed_groups(appended) - set(APPENDED)
        except CompositionError:
            return  # told when the points are composed
        by_group = {key.partition("@")[0]: key for key in self.listed}
        for choice in self.choices:
            key, option = choice.key.lstrip("+"), choice.options[0]
            # The same group under another package is another entry of the defaults list: data@eval_data.
            right = key if key in self.listed else f"+{key}"
            if right.startswith("+") and not choice.key.startswith("+"):
                right = by_group.get(choice.group, right)
            if choice.key != right:
                why = f"'{key}' is {'chosen already' if key in self.listed else 'not in the defaults list'}"
                self.fault(f"{choice.key}={option}: {why} - did you mean '{right}={option}'?")
                choice.key = right

    # Points: one composition a combination of groups

    def _check_point(self, point: Sequence[str]) -> None:
        try:
            base = self.tree.compose(point)
        except CompositionError as error:
            self.fault(self._does_not_compose(error))
            return
        for key, group in _NEEDED.items():
            if self._lacks(base, key, by=group):
                self.fault(self._choose(key, group))
                self.unknown.add(group)
        self._check_values(point, self._guesses(point) if self.unknown else [base])
        if not self.faults:
            self._check_whole(point)

    def _does_not_compose(self, error: Exception) -> str:
        """Tell why the groups alone do not compose: a defaults list in a config names an option that is not there."""
        if isinstance(error, MissingConfigException) and error.missing_cfg_file:
            group, _, option = error.missing_cfg_file.lstrip("/").removesuffix(".yaml").rpartition("/")
            if group and self.tree.is_group(group):
                where = self.tree.naming(group, option) or [self.tree.name]
                return f"{', '.join(where)}: {self._no_option(group, option)}"
        broken = self.tree.unreadable() if isinstance(error.__cause__, GrammarParseError) else []
        return "; ".join(broken) or one_line(error)

    def _lacks(self, cfg: DictConfig, key: str, *, by: str) -> bool:
        """Whether a key is ``???`` in the config, and neither a value nor a choice of the group ``by`` sets it."""
        if self.only_shown or by in self.unknown or not OmegaConf.is_missing(cfg, key):
            return False
        given = any(value.override.key_or_group == key for value in self.values)
        return not given and not any(choice.group == by for choice in self.choices)

    def _choose(self, key: str, group: str) -> str:
        options, what = self.tree.options(group), _CALLED.get(group, group)
        if not options:
            return f"{key}: not set, and there is no {what} that would set it - write {key}=<a {key}>"
        width = max(map(len, options))
        rows = [f"\n    {option:<{width}}  {self.tree.description(group, option)}".rstrip() for option in options]
        return f"{key}: not set, since no {what} was chosen - add {self._chosen(group)}=<one of these>:{''.join(rows)}"

    def _chosen(self, group: str) -> str:
        """Return the key by which an option of a group is chosen."""
        return group if group in self.listed else f"+{group}"

    def _guesses(self, point: Sequence[str]) -> Iterator[DictConfig]:
        """The configs that some experiment, suite or pattern would give; a key that none has is surely unknown."""
        group = next((name for name in _NEEDED.values() if name in self.unknown), "experiment")
        options = self.tree.options(group)
        step = max(1, -(-len(options) // _MOST_GUESSES))  # neighbours in the alphabet are of one family, and much alike
        for option in options[::step]:
            try:
                yield self.tree.compose([f"{self._chosen(group)}={option}", *point])
            except CompositionError:
                continue

    def _check_values(self, point: Sequence[str], bases: Iterable[DictConfig]) -> None:
        """Tell the values that are wrong in all of ``bases``: there are several only where we guess."""
        wrong: dict[int, str] = {}
        for number, base in enumerate(bases):
            config = plain(base)
            extended = self._extended(point, config)
            candidates = range(len(self.values)) if number == 0 else list(wrong)
            found = {index: self._judge(self.values[index], config, extended) for index in candidates}
            wrong = {index: wrong.get(index, text) for index, text in found.items() if text}
            if not wrong:
                break
        for text in wrong.values():
            self.fault(text)

    def _extended(self, point: Sequence[str], config: dict[str, Any]) -> dict[str, Any]:
        """The config with the added keys in it, to see below which ``_target_`` they come to stand."""
        added = [value.forced() for value in self.values if value.adds and value.override.package is None]
        try:
            return plain(self.tree.compose([*point, *added])) if added else config
        except CompositionError:
            return config

    def _judge(self, value: _Value, config: dict[str, Any], extended: dict[str, Any]) -> str:
        """Return what is wrong with a value override, or an empty string."""
        key = value.override.key_or_group
        if value.override.package is not None or "/" in key:
            return f"{value.line}: there is no group '{key}'{self._suggest_group(value, {})}"
        if value.override.is_add() and not value.is_container:
            path = value.paths[0]
            if exists(config, path) and at(config, path) not in (None, "???"):
                return f"{value.line}: '{key}' is in the config already - write it without the plus"
        for path in value.paths:
            if exists(config, path) or is_open(config, path, key.split(".")):
                continue  # an added key of an open mapping without its plus is Hydra's to refuse
            if not (value.adds and is_argument(config, extended, path)):
                return self._unknown_key(value, path, config)
        return ""

    def _unknown_key(self, value: _Value, path: list[str], config: dict[str, Any]) -> str:
        what = "there is nothing to delete at" if value.override.is_delete() else "unknown key"
        suggestion = self._suggest_group(value, config) or suggest_key(path, config)
        hint = ""
        if not value.adds and not value.override.is_delete() and below_target(config, path):
            hint = f" (an argument that the config does not list is added with a plus: +{value.override.input_line})"
        return f"{value.line}: {what} '{'.'.join(path)}'{suggestion}{hint}"

    def _suggest_group(self, value: _Value, config: Iterable[str]) -> str:
        key = value.override.key_or_group
        if value.override.is_delete() or "." in key or key in self.tree.groups:
            return ""
        close = difflib.get_close_matches(key, {*self.tree.groups, *config}, n=1)
        if not close or close[0] not in self.tree.groups:
            return ""
        plus = "" if any(listed.partition("@")[0] == close[0] for listed in self.listed) else "+"
        given = (value.override.input_line or "").partition("=")[2]
        return f" - did you mean '{plus}{close[0]}={given}'?"

    def _check_whole(self, point: Sequence[str]) -> None:
        """Nothing is wrong as far as this module sees: what is left is what Hydra itself refuses."""
        lines = [*(value.first() for value in self.values), *self.left_to_hydra]
        # The values themselves have no types that Hydra would mind: a hundred seeds of one experiment compose alike.
        kind = (*point, *sorted(value.override.get_key_element() for value in self.values))
        if kind in self.composed:
            return
        self.composed.add(kind)
        try:
            self.tree.compose([*point, *lines])
        except CompositionError as error:
            for line in lines:  # one at a time, to name each that is refused
                try:
                    self.tree.compose([*point, line])
                except CompositionError as its_error:
                    self.fault(f"{line}: {one_line(its_error)}")
            if not self.faults:
                self.fault(one_line(error))


def _lacking_extra(group: str, option: str) -> str:
    """What to install for an option whose plugin is there and whose library is not, or an empty string."""
    extra, module = _EXTRAS.get((group, option), ("", ""))
    if not module or importlib.util.find_spec(module.partition(".")[0]) is not None:
        return ""
    return f"{group}={option}: is not installed - it needs pip install 'lightning_cse[{extra}]'"


def _given(override: Override) -> list[str]:
    """The options that a group override names: one, several in a sweep, or the parts of a list."""
    if override.is_sweep_override():
        if not override.is_discrete_sweep():
            return []
        return [str(option) for option in override.sweep_iterator(transformer=Override._convert_value)]
    value = override.value()
    if isinstance(value, list):
        return [str(option) for option in value]
    return ["null" if value is None else str(value)]


def _needs_multirun(line: str, override: Override) -> str:
    key = override.get_key_element()
    value = (override.input_line or "").partition("=")[2]
    if "(" in value:
        return f"{line}: a sweep needs -m, which runs one value after the other"
    text = shlex.quote(f'{key}="{value}"')
    return (
        f"{line}: several values need -m, which runs one after the other; "
        f"as one value they are a list, {key}=[{value}], or a text, {text}"
    )
