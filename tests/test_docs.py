"""The README and the pages of docs/ do what they say: their blocks run, page by page, and end in
what is printed below.

How a block is read (write by these rules; the marker stands in the page, on the line before the
block):

- ```` ```bash ```` runs with ``bash -euo pipefail`` in a copy of the checkout, which the blocks of
  a page share, top to bottom, with this environment's ``python`` first on PATH. ``make run`` runs
  without installing, if a ``text`` block shows what it prints; every other line that calls make is
  only checked to name a target: ``make test`` would run this file again.
- ```` ```python ```` runs as a script of its own in the same folder.
- ```` ```text ```` directly after such a block holds the last lines of its output, stdout and
  stderr together. Numbers, hashes, widths and colours may differ; words may not. After a block of
  which nothing was run it is not compared.
- ``<!-- docs-check: skip (reason) -->`` on the line before a block, for what takes hours, costs
  money or needs a server: nothing is run. The commands of the package are checked instead: those
  with overrides are composed and checked as before a run, each point of a sweep; those with options
  are parsed. Indented commands, as in experiments/, are checked likewise.
- ``<!-- docs-check: tiny (reason) -->``, for a paper's recipe: each training runs with the tiny
  encoder and the sample corpus of ``+debug=tiny`` in place of its own, on `FILES` where it names
  files of one's own; the other commands are checked as above. So is a block that trains with
  ``+profile=small``, which takes minutes and needs the official corpora.
- ``<!-- docs-check: file PATH -->`` on the line before a block writes it to this file, for the
  blocks below it.
- ```` ```yaml ```` must parse. `LEFT_ALONE` are the other languages; any other is refused, so that
  no block escapes by its spelling.
"""

import argparse
import ast
import functools
import importlib
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from config import conftest as command_lines
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN = frozenset({"bash", "python"})
LEFT_ALONE = frozenset({"text", "yaml", "bibtex"})
HYDRA = frozenset({"train", "evaluate", "generate", "describe"})
SECONDS = 1500  # for one block
give = command_lines.give  # the fixture

_SKIP = re.compile(r"<!--\s*docs-check:\s*skip\s*\((?P<reason>.+)\)\s*-->\s*$")
_TINY = re.compile(r"<!--\s*docs-check:\s*tiny\s*\((?P<reason>.+)\)\s*-->\s*$")
_FILE = re.compile(r"<!--\s*docs-check:\s*file\s+(?P<path>[\w./-]+)\s*-->\s*$")
_MAKE = re.compile(r"(?:^|[;&|])\s*(?:\w+=\S*\s+)*make\s+(?P<rest>[^#;&|]+)")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MASKS = (
    (re.compile(r"\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b"), "#"),  # hashes
    (re.compile(r"\b(?:bf16-mixed|32-true)\b"), "#"),  # what `precision: auto` is on this machine
    (re.compile(r"[-+\u2212]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?%?"), "#"),
    (re.compile(r"[\u2500-\u257f=_-]{2,}"), "\u2500"),  # rules and frames, as wide as the terminal
    (re.compile(r"\s+"), " "),
)


@dataclass
class Block:
    """A fenced block of a page."""

    language: str
    body: str
    line: int
    page: str = ""
    reason: str | None = None  # why it is skipped
    is_tiny: bool = False  # trains with +debug=tiny
    expected: str | None = None  # the text block that follows
    file: str = ""  # where it is written

    def __str__(self):
        return f"{self.page}:{self.line}-{self.language or 'unnamed'}"


def read_blocks(markdown, page=""):
    """Return the fenced blocks from top to bottom; a text block also becomes the ``expected`` of
    the one before it.

    Indented commands are blocks that are skipped.
    """
    blocks = []
    before = ""
    for token in MarkdownIt().parse(markdown):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "code_block" and "python -m lightning_cse" in token.content:
            blocks.append(Block("bash", token.content, line, page, "indented"))

        if token.type == "fence":
            tiny, file = _TINY.search(before), _FILE.search(before)
            skip = tiny or _SKIP.search(before)
            reason = skip["reason"] if skip else None
            is_small = "lightning_cse.train" in token.content and "+profile=small" in token.content
            is_tiny = bool(tiny) or (is_small and reason is None)
            if is_small and reason is None:
                reason = "trains for minutes, on the official corpora"

            language = token.info.strip()
            if language == "text" and blocks and blocks[-1].language in RUN:
                blocks[-1].expected = token.content

            block = Block(language, token.content, line, page, reason, is_tiny)
            block.file = file["path"] if file else ""
            blocks.append(block)

        before = token.content

    return blocks


def write_files(block, folder):
    """Write the files of a page that come before a block."""
    for earlier in BLOCKS:
        if earlier.file and earlier.page == block.page and earlier.line <= block.line:
            path = folder / earlier.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(earlier.body, encoding="utf-8")


def masked(text, checkout=None):
    """Return the lines that say something, without what may differ from run to run."""
    text = _ANSI.sub("", text).replace("\r", "\n")
    if checkout is not None:
        text = text.replace(f"{checkout}/", "")

    lines = []
    for line in text.splitlines():
        for pattern, instead in _MASKS:
            line = pattern.sub(instead, line)

        lines.append(line.strip())

    return [line for line in lines if line]


def make_targets(line):
    """Return the targets a line of shell asks make for; [] if it does not call make."""
    match = _MAKE.search(line)
    return (
        [word for word in shlex.split(match["rest"]) if "=" not in word and word[0] != "-"]
        if match
        else []
    )


def runnable(block):
    """Return what of a bash block is run here: nothing through make, but ``make run`` where its
    output is told.
    """
    lines = []
    for line in block.body.splitlines():
        targets = make_targets(line)
        if targets == ["run"] and block.expected is not None:
            bin_folder = shlex.quote(str(Path(sys.executable).parent))
            lines.append(f"{line.split('#')[0].rstrip()} --silent READY_RUN= BIN={bin_folder}")
        elif not targets:
            lines.append(line)

    return "\n".join(lines) if any(line.split("#")[0].strip() for line in lines) else ""


PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "experiments").rglob("README.md")),
    *sorted((ROOT / "experiments").glob("*/details.md")),
]
BLOCKS = [
    block
    for page in PAGES
    for block in read_blocks(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))
]
SHELL = [
    line
    for block in read_blocks(README)
    if block.language == "bash"
    for line in block.body.splitlines()
]


FILES = {
    "triplets.csv": [
        "anchor,positive,negative",
        *(f"Gate {n}?,Go to {n}.,Not {n}." for n in range(400)),
    ],
    "entailed.csv": [
        "premise,entailment",
        *(f"Gate {n} opens.,It opens at {n}." for n in range(400)),
    ],
    "scored.csv": ["sentence1,sentence2,score", *(f"Gate {n}?,Go to {n}.,{n}" for n in range(9))],
    "answers.csv": ["anchor,positive", *(f"Where is {n}?,At gate {n}." for n in range(9))],
    "labelled.csv": [
        "sentence1,sentence2,label",
        *(
            f"Gate {n} opens.,It opens at {n}.,{('entailment', 'neutral', 'contradiction')[n % 3]}"
            for n in range(400)
        ),
    ],
    "scored_dev.csv": [
        "sentence1,sentence2,score",
        *(f"Gate {n}?,Go to {n}.,{n % 6}" for n in range(400)),
    ],
    "sentences.txt": [f"Gate {n} is open." for n in range(400)],
    "quadruples.csv": [
        "premise,implied_entailment,explicit_entailment,neutral,contradiction",
        *(f"Gate {n} opens.,Go to {n}.,Open: {n}.,It rains.,Gate {n} is shut." for n in range(400)),
    ],
    "implicit_pairs.csv": [
        "pos_implicit,pos_explicit,neg_implicit,neg_explicit",
        *(f"Warm at {n}.,Open window {n}.,Cold at {n}.,Shut window {n}." for n in range(400)),
    ],
    "pairs.jsonl": [
        f'{{"sentence1": "Gate {n}?", "sentence2": "Go to {n}.", "score": {n % 2}}}'
        for n in range(400)
    ],
}
"""The reader's own files, below ``my/``."""


def params(skipped):
    """Return the bash and Python blocks, those of a page for one worker: they build on each
    other.
    """
    return [
        pytest.param(block, id=str(block), marks=pytest.mark.xdist_group(block.page))
        for block in BLOCKS
        if block.language in RUN and bool(block.reason) == skipped
    ]


def as_tiny(block):
    """Return the shell that runs the trainings of a block with ``+debug=tiny``, and shows the first
    prompts of its LLM rows; but no sweeps, and none that starts from another run or from a file of
    word vectors.
    """
    prefixes = ("-m", "+sweep=", "init_from=", "encoder.vectors=")
    lines = []
    for name, args in commands(block.body):
        if any(arg.startswith(prefixes) for arg in args):
            continue
        if name == "train" or "--tokenise" in args:
            args = [*(arg for arg in args if not arg.startswith("encoder=")), "+debug=tiny"]
        elif name == "generate":
            args = [*args, "n=2", "show_prompts=true", "corpora=sample", "paths=sample"]
        elif name != "prepare":
            continue

        lines.append(shlex.join(["python", "-m", f"lightning_cse.{name}", *args]))

    return "\n".join(lines)


@pytest.fixture(scope="session")
def checkout_of(tmp_path_factory):
    """A copy of the checkout for each page, without what git ignores, in which its blocks may do as
    they like.
    """

    @functools.cache
    def copied(page):
        folder = tmp_path_factory.mktemp(re.sub(r"\W", "_", page)) / "lightning_cse"
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in set(listed.stdout.split("\0")):
            if name and (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

        return folder

    return copied


def run(command, checkout):
    """Run a command in the copy, and return what it printed."""
    left_out = ("LIGHTNING_CSE_LOCAL", "LIGHTNING_CSE_RUNS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(checkout / "src"),
        "LIGHTNING_CSE_CACHE": str(checkout.parent / "cache"),
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    process = subprocess.run(
        command,
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        encoding="utf-8",
        errors="replace",
    )
    assert process.returncode == 0, f"exit code {process.returncode}; it printed\n{process.stdout}"

    return process.stdout


# What is run


@pytest.mark.docs
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("block", params(skipped=False))
def test_block_runs(block, checkout_of):
    checkout = checkout_of(block.page)
    write_files(block, checkout)
    if block.language == "python":
        command = [sys.executable, "-c", block.body]
    else:
        command = ["bash", "-euo", "pipefail", "-c", runnable(block)]
        if not command[-1]:
            pytest.skip("make targets only: checked by name")

    output = run(command, checkout)
    if block.expected is not None:
        want = masked(block.expected, checkout)
        assert masked(output, checkout)[-len(want) :] == want, f"it printed\n{output}"


@pytest.mark.docs
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize(
    "block", [param for param in params(skipped=True) if param.values[0].is_tiny]
)
def test_tiny_block_runs(block, checkout_of):
    checkout = checkout_of(block.page)
    write_files(block, checkout)
    for name, lines in FILES.items():
        path = checkout / "my" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")

    script = as_tiny(block)
    assert script, "nothing to run: docs-check: skip is enough"
    run(["bash", "-euo", "pipefail", "-c", script], checkout)


# What is checked instead


class Parsed(Exception):  # noqa: N818 - nothing is wrong
    """Raised in place of what a command does once its options are read."""


def commands(shell):
    """Yield the name and arguments of each command of the package in some lines of shell; a
    placeholder such as <corpora> is a word.
    """
    shell = re.sub(r"<(\w+)>", r"\1", shell.replace("\\\n", " "))
    for line in shell.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        if "lightning_cse." in line and "-m" in words:
            start = words.index("-m") + 1
            ends = [index for index, word in enumerate(words) if word[0] in "|;&<>"]
            end = next((index for index in ends if index > start), len(words))
            yield words[start].removeprefix("lightning_cse."), words[start + 1 : end]


def check_command(name, args, give, patch):
    """Fail if a command could not start."""
    if any(arg.startswith("hydra/sweeper=") for arg in args):
        return  # of another package

    if name in HYDRA:
        # Composed and checked in this process. Not everybody has all launchers.
        args = [arg for arg in args if not re.match(r"\+?hydra[/.]launcher", arg)]
        code, _, errors = give(*args, command=name)
        assert code == 0, errors

        return

    if name == "reproduce" and not {"--all", "--list", "--experiments"} & set(args):
        module = importlib.import_module("lightning_cse.reproduce")
        assert not inspect.unwrap(module.main)([*args, "--dry-run"])
        return

    def stopping(read):
        def parsed(self, *positional, **named):
            read(self, *positional, **named)
            raise Parsed

        return parsed

    for method in ("parse_args", "parse_intermixed_args"):
        read = getattr(argparse.ArgumentParser, method)
        patch.setattr(argparse.ArgumentParser, method, stopping(read))

    with pytest.raises(Parsed):
        inspect.unwrap(importlib.import_module(f"lightning_cse.{name}").main)(args)


def make_known():
    """Return the targets of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


@pytest.mark.docs
@pytest.mark.parametrize("block", params(skipped=True))
def test_skipped_block_could_start(block, give, monkeypatch):
    if block.language == "python":
        ast.parse(block.body)
        return

    script = re.sub(r"<\w+>", "x", block.body)
    subprocess.run(["bash", "-n", "-c", script], check=True)
    write_files(block, Path())
    for name, args in commands(block.body):
        check_command(name, args, give, monkeypatch)


# The documents


def test_blocks_have_a_known_language():
    pages = {"README.md", "docs/using.md", "experiments/README.md"}
    assert {block.page for block in BLOCKS} >= pages
    assert [str(block) for block in BLOCKS if block.language not in RUN | LEFT_ALONE] == []
    for block in BLOCKS:
        assert block.language != "yaml" or yaml.safe_load(block.body) is not None, block


def test_readme_is_short_and_starts_with_the_two_commands():
    assert len(README.splitlines()) <= 120
    named = [target for line in SHELL for target in make_targets(line)]
    assert named[:2] == ["run", "test"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert {*named, *re.findall(r"`make ([a-z-]+)[^`]*`", text)} <= make_known()


@pytest.mark.parametrize("module", ["losses", "metrics", "models", "methods"])
def test_every_public_name_is_in_the_reference(module):
    stub = (ROOT / "src" / "lightning_cse" / module / "__init__.pyi").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "reference" / f"{module}.md").read_text(encoding="utf-8")
    documented = re.findall(rf"(?m)^::: lightning_cse\.{module}\.(\w+)$", page)
    assert sorted(documented) == sorted(re.findall(r" as (\w+)", stub))


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as by ``make docs``: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr

    return folder


@pytest.mark.docs
@pytest.mark.xdist_group("site")
def test_site_builds_and_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    loaded = re.compile(
        r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>|@import|url\(http"
    )
    addresses = [
        (page.name, tag)
        for page in pages
        for tag in loaded.findall(page.read_text(encoding="utf-8"))
    ]
    assert addresses == []


@pytest.mark.docs
@pytest.mark.xdist_group("site")
def test_site_shows_formulas(site):
    for name, formulas in (
        ("methods/dualcse", 1),
        ("methods/gausscse", 3),
        ("reference/losses", 9),
    ):
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        assert page.count('<div class="formula"><svg') == formulas
