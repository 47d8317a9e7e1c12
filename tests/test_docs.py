"""The README and docs/metrics.md do what they say: their blocks run, in order, and end in the lines printed below them.

How a block is read (write both by these rules):

- ```` ```bash ```` runs with ``bash -euo pipefail`` in a copy of the checkout, which all blocks share, top to bottom,
  with this environment's ``python`` first on PATH. ``make run`` runs without installing, if a ``text`` block tells what
  it prints; every other line that calls make is only checked to name a target: ``make test`` would run this file again.
- ```` ```python ```` runs as a script of its own in the same folder.
- ```` ```text ```` directly after such a block holds the last lines of its output, stdout and stderr together. Numbers,
  hashes, widths and colours may differ; words may not. After a block of which nothing was run it is not compared.
- ```` ```yaml ```` must parse. ``bibtex`` and ``mermaid`` are left alone; any other language is refused, so that no
  block escapes by its spelling.
- ``<!-- docs-check: skip (reason) -->`` on the line before a block leaves it out. Its ``python -m lightning_cse.*``
  lines must still name a module, and groups and options that exist.
"""

from __future__ import annotations

import importlib.util
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
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
RUN = frozenset({"bash", "python"})
LEFT_ALONE = frozenset({"text", "yaml", "bibtex", "mermaid"})
SECONDS = 1500  # for one block

_SKIP = re.compile(r"<!--\s*docs-check:\s*skip\s*(?:\((?P<reason>.+)\))?\s*-->\s*$")
_MAKE = re.compile(r"(?:^|[;&|])\s*(?:\w+=\S*\s+)*make\s+(?P<rest>[^#;&|]+)")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MASKS = (
    (re.compile(r"\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b"), "#"),  # hashes
    (re.compile(r"[-+\u2212]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?%?"), "#"),
    (re.compile(r"[\u2500-\u257f=_-]{2,}"), "\u2500"),  # rules and frames, as wide as the terminal
    (re.compile(r"\s+"), " "),
)


@dataclass
class Block:
    """A fenced block of a Markdown file."""

    language: str
    body: str
    line: int
    skipped: bool = False
    reason: str = ""
    expected: str | None = None  # the text block that follows

    def __str__(self) -> str:
        return f"line{self.line}-{self.language or 'unnamed'}"


def read_blocks(markdown: str) -> list[Block]:
    """Return the fenced blocks from top to bottom; a text block also becomes the ``expected`` of the one before it."""
    blocks: list[Block] = []
    before = ""
    for token in MarkdownIt().parse(markdown):
        if token.type == "fence":
            comment = _SKIP.search(before)
            language, start = token.info.strip(), token.map[0] + 1 if token.map else 0
            reason = (comment["reason"] or "") if comment else ""
            if language == "text" and blocks and blocks[-1].language in RUN:
                blocks[-1].expected = token.content
            blocks.append(Block(language, token.content, start, comment is not None, reason))
        before = token.content
    return blocks


def masked(text: str, checkout: Path | None = None) -> list[str]:
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


def make_targets(line: str) -> list[str]:
    """Return the targets a line of shell asks make for; [] if it does not call make."""
    found = _MAKE.search(line)
    return [word for word in shlex.split(found["rest"]) if "=" not in word and word[0] != "-"] if found else []


def runnable(block: Block) -> str:
    """Return what of a bash block is run here: nothing through make, but ``make run`` where its output is told."""
    kept = []
    for line in block.body.splitlines():
        targets = make_targets(line)
        if targets == ["run"] and block.expected is not None:
            there = shlex.quote(str(Path(sys.executable).parent))
            kept.append(f"{line.split('#')[0].rstrip()} --silent READY_RUN= BIN={there}")
        elif not targets:
            kept.append(line)
    return "\n".join(kept) if any(line.split("#")[0].strip() for line in kept) else ""


BLOCKS = read_blocks(README)
SHELL = [line for block in BLOCKS if block.language == "bash" for line in block.body.replace("\\\n", " ").splitlines()]
TO_RUN = [block for block in BLOCKS + read_blocks(METRICS) if block.language in RUN and not block.skipped]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, without what git ignores, in which the README may do as it likes."""
    folder = tmp_path_factory.mktemp("readme") / "lightning_cse"
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*_cache", ".git", ".venv", "runs"))
        return folder
    for name in set(os.fsdecode(listed.stdout).split("\0")) - {""}:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def run(command: list[str], checkout: Path) -> str:
    """Run a command in the copy, and return what it printed."""
    left_out = ("LIGHTNING_CSE_RUNS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(checkout / "src"),
        "LIGHTNING_CSE_CACHE": str(checkout.parent / "cache"),
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        command,
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
        encoding="utf-8",
        errors="replace",
    )
    assert done.returncode == 0, f"exit code {done.returncode}; it printed\n{done.stdout}"
    return done.stdout


# The documents


@pytest.mark.docs
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("block", TO_RUN, ids=str)
def test_readme_block_runs(block: Block, checkout: Path) -> None:
    if block.language == "python":
        output = run([sys.executable, "-c", block.body], checkout)
    else:
        script = runnable(block)
        if not script:
            pytest.skip("make targets only: checked by name")
        output = run(["bash", "-euo", "pipefail", "-c", script], checkout)
    if block.expected is not None:
        want = masked(block.expected, checkout)
        assert masked(output, checkout)[-len(want) :] == want, f"it ended otherwise; it printed\n{output}"


def test_readme_blocks_are_of_a_known_language_and_skipped_for_a_reason() -> None:
    assert TO_RUN
    assert [str(block) for block in BLOCKS if block.language not in RUN | LEFT_ALONE] == []
    assert [str(block) for block in BLOCKS if block.skipped and not block.reason.strip()] == []
    for block in BLOCKS:
        assert block.language != "yaml" or yaml.safe_load(block.body) is not None, block


def test_readme_names_the_two_commands_first_and_make_targets_that_exist() -> None:
    named = [target for line in SHELL for target in make_targets(line)]
    assert named[:2] == ["run", "test"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {*named, *re.findall(r"`make ([a-z-]+)[^`]*`", README)} <= targets


def test_readme_names_existing_modules_and_options() -> None:
    shown = [line for line in SHELL if "python -m lightning_cse." in line]
    commands = [line for line in shown if not line.rstrip().endswith("|| true")]  # shown for its error message
    assert commands
    faults = []
    for command in commands:
        words = shlex.split(command, comments=True)
        module = words[words.index("-m") + 1]
        if importlib.util.find_spec(module) is None:
            faults.append(f"{command}: no module {module}")
        for word in words:
            group, equals, options = word.lstrip("+").partition("=")
            folder = ROOT / "conf" / group
            if equals and group and folder.is_dir():
                names = [name for name in options.split(",") if "/" not in name]  # encoder=<folder or hub id>
                faults += [f"{command}: no {group}={n}" for n in names if not (folder / f"{n}.yaml").is_file()]
    assert faults == []


def test_only_a_make_run_whose_output_is_told_is_run_and_only_words_are_compared() -> None:
    told = Block("bash", "make run ARGS='seed=1'  # a minute\nmake test\nls", 1, expected="x")
    kept = runnable(told).splitlines()
    assert kept[0].startswith("make run ARGS='seed=1' --silent READY_RUN= BIN=")
    assert kept[1:] == ["ls"]
    assert runnable(Block("bash", "make run\nmake test  # all\n# that is all", 1)) == ""
    here = masked("\x1b[1mRTE\x1b[0m   71.3 %   record runs/x/0a1b2c3d4e-s0/record.json\n\n━━━━━━\n")
    assert here == masked("RTE 8 % record /tmp/copy/runs/x/ffff0000ff-s0/record.json\n━━", Path("/tmp/copy"))
    assert masked("RTE 71.3") != masked("EIS 71.3")
