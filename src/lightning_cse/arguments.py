"""Arguments that commands share: paths, seeds, the runs for a paper's tables."""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path

PROFILES = ("laptop", "small", "gpu", "tiny")


def path(text: str) -> Path:
    """Return a path from the command line."""
    return Path(text).expanduser()


def seeds(text: str) -> tuple[int, ...]:
    """Return the distinct seeds of a list such as ``0,1,2``."""
    if not re.fullmatch(r"[0-9]+(,[0-9]+)*", text):
        raise argparse.ArgumentTypeError(f"must be a list of seeds such as 0,1,2, got {text!r}")

    return tuple(dict.fromkeys(map(int, text.split(","))))


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which runs fill a paper's tables, and where they are."""
    add = parser.add_argument
    add("--profile", choices=PROFILES, help="a setting smaller than the paper's; the table says so")

    add(
        "--encoder",
        metavar="NAME",
        help="from conf/encoder, instead of the paper's; the table says so",
    )

    add_runs_dir(parser)
    add(
        "--kept",
        action="store_true",
        help="count the records kept in experiments/ as finished runs",
    )


def add_runs_dir(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says where the runs are."""
    parser.add_argument(
        "--runs-dir",
        type=path,
        default=path(os.environ.get("LIGHTNING_CSE_RUNS") or "runs"),
        metavar="DIR",
        help="default: LIGHTNING_CSE_RUNS, else runs",
    )


def hydra_text(value: str) -> str:
    r"""Return a value of a list or mapping in an override, quoted for Hydra if it needs quotes.

    Examples:
        >>> hydra_text("runs/a.jsonl"), hydra_text("my file.csv"), hydra_text("null")
        ('runs/a.jsonl', "'my file.csv'", "'null'")
    """
    plain = re.fullmatch(r"[A-Za-z_/.][\w/.-]*", value, re.ASCII)
    is_text = plain and value.casefold() not in ("null", "true", "false", "nan", "inf")

    return value if is_text else "'" + value.replace("'", r"\'") + "'"


def quote_free_text(args: Sequence[str]) -> list[str]:
    r"""Quote the values of ``model`` and ``prompt`` for Hydra, unless they are quoted or this is a
    multirun.

    Examples:
        >>> quote_free_text(["model=it's in a, b=c", "seed=1"])
        ["model='it\\'s in a, b=c'", 'seed=1']
    """
    if {"-m", "--multirun"} & set(args):
        return list(args)

    free = re.compile(r"""(?s)\+{0,2}(model|prompt)=(?!null$|(["']).*\2$)""")
    quoted = [arg.replace("'", r"\'").replace("=", "='", 1) + "'" for arg in args]

    return [new if free.match(arg) else arg for arg, new in zip(args, quoted, strict=True)]
