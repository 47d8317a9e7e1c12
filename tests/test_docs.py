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

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
METRICS = ROOT / "docs" / "metrics.md"
RUN = frozenset({"bash", "python"})
LEFT_ALONE = frozenset({"text", "yaml", "bibtex", "mermaid"})
SECONDS = 1500  # for one block

_SKIP = re.compile(r"<!--\s*docs-check:\s*skip\s*(?:\((?P<reason>.+)\))?\s*-->")
_MAKE = re.compile(r"(?:^|[;&|])\s*(?:\w+=\S*\s+)*make\s+(?P<rest>[^#;&|]+)")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MASKS = (
    (re.compile(r"\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b"), "#"),  # hashes
    (re.compile(r"[-+\u2212]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?%?"), "#"),
    (re.compile(r"[\u2500-\u257f=_-]{2,}"), "\u2500"),  # rules and frames, as wide as the terminal
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True)
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
    """Return the fenced blocks from top to bottom; a text block also becomes the ``expected`` of the one before it.

    Raises:
        ValueError: a fence is never closed.
    """
    blocks: list[Block] = []
    fence, language, start, body, before, comment = "", "", 0, [], "", None
    for number, line in enumerate(markdown.splitlines(), 1):
        opening = re.match(r"\s*(`{3,}|~{3,})\s*([^`\s]*)", line)
        if not fence and opening:
            fence, language, start, body = opening[1], opening[2], number, []
            comment = _SKIP.search(before)
        elif fence and line.strip() == fence:
            text = "\n".join(body)
            if language == "text" and blocks and blocks[-1].language in RUN:
                last = blocks[-1]
                blocks[-1] = Block(last.language, last.body, last.line, last.skipped, last.reason, text)
            reason = (comment["reason"] or "") if comment else ""
            blocks.append(Block(language, text, start, comment is not None, reason))
            fence, before = "", ""
        elif fence:
            body.append(line)
        elif line.strip():
            before = line
    if fence:
        raise ValueError(f"the block that opens in line {start} is never closed")
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
        if line.strip():
            lines.append(line.strip())
    return lines


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


BLOCKS = read_blocks(README.read_text(encoding="utf-8")) if README.is_file() else []
TO_RUN = [
    block
    for block in BLOCKS + read_blocks(METRICS.read_text(encoding="utf-8"))
    if block.language in RUN and not block.skipped
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, without what git ignores, in which the README may do as it likes."""
    folder = tmp_path_factory.mktemp("readme") / "lightning_cse"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        for name in set(os.fsdecode(listed.stdout).split("\0")) - {""}:
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
    else:
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*_cache", ".git", ".venv", "runs"))
    return folder


def run(command: list[str], checkout: Path) -> str:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(checkout / "src"),
        "LIGHTNING_CSE_CACHE": str(checkout.parent / "cache"),
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    for name in ("LIGHTNING_CSE_RUNS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        environment.pop(name, None)
    done = subprocess.run(
        command,
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    assert done.returncode == 0, f"exit code {done.returncode}; it printed\n{done.stdout}"
    return done.stdout


# --- the README -------------------------------------------------------------------------------------------------------


def test_readme_has_blocks_to_run() -> None:
    assert README.is_file(), "README.md is not there"
    assert TO_RUN, "README.md has no ```bash or ```python block that is not skipped, so nothing of it is checked"


def test_readme_names_the_two_commands_first() -> None:
    named = [
        target
        for block in BLOCKS
        if block.language == "bash"
        for line in block.body.splitlines()
        for target in make_targets(line)
    ]
    assert named[:2] == ["run", "test"]


def test_readme_blocks_are_of_a_known_language() -> None:
    unknown = [str(block) for block in BLOCKS if block.language not in RUN | LEFT_ALONE]
    assert unknown == [], f"say which of {sorted(RUN | LEFT_ALONE)} they are"


def test_readme_skips_have_a_reason() -> None:
    assert [str(block) for block in BLOCKS if block.skipped and not block.reason.strip()] == []


def test_readme_names_existing_make_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    readme = README.read_text(encoding="utf-8") if README.is_file() else ""
    named = {
        target
        for block in BLOCKS
        if block.language == "bash"
        for line in block.body.splitlines()
        for target in make_targets(line)
    }
    named |= set(re.findall(r"`make ([a-z-]+)[^`]*`", readme))
    assert named, "README.md names no make target"
    assert named <= targets


def test_readme_names_existing_modules_and_options() -> None:
    commands = [
        line
        for block in BLOCKS
        if block.language == "bash"
        for line in block.body.replace("\\\n", " ").splitlines()
        if "python -m lightning_cse." in line and not line.rstrip().endswith("|| true")  # shown for its error message
    ]
    assert commands, "README.md shows no python -m lightning_cse command"
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
                faults += [
                    f"{command}: no {group}={option}"
                    for option in options.split(",")
                    if "/" not in option and not (folder / f"{option}.yaml").is_file()  # encoder=<folder or hub id>
                ]
    assert faults == []


def test_the_metrics_of_a_module_of_ones_own_take_ten_lines() -> None:
    (example,) = (block for block in read_blocks(METRICS.read_text(encoding="utf-8")) if block.language == "python")
    body = example.body.split("class Diagnosed(Mine):\n")[1].split("\n\n")[0]
    assert len(body.splitlines()) <= 10


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


def test_readme_yaml_parses() -> None:
    for block in BLOCKS:
        if block.language == "yaml":
            assert yaml.safe_load(block.body) is not None, block


# --- the reader of the README -----------------------------------------------------------------------------------------

SAMPLE = """
# Title

```bash
make run   # a minute
echo done
```
Ends with:

```text
RTE  71.3 %   record runs/x/0a1b2c3d4e-s0/record.json
```

<!-- docs-check: skip (hours on a GPU) -->

```bash
python -m lightning_cse.train \\
    +experiment=dualcse_cross
```

```python
print("``` in a line is no fence")
```
"""


def test_blocks_are_found_with_what_belongs_to_them() -> None:
    first, text, skipped, python = read_blocks(SAMPLE)
    assert (first.language, first.line, first.skipped) == ("bash", 4, False)
    assert first.expected == text.body
    assert first.expected.startswith("RTE")
    assert (skipped.skipped, skipped.reason, skipped.expected) == (True, "hours on a GPU", None)
    assert python.language == "python"
    assert not python.skipped


def test_a_fence_without_end_is_told() -> None:
    with pytest.raises(ValueError, match=r"opens in line 2 is never closed"):
        read_blocks("text\n```bash\nls\n")


def test_numbers_hashes_widths_and_colours_are_masked_and_words_are_not() -> None:
    here = masked("\x1b[1mRTE\x1b[0m   71.3 %   record runs/x/0a1b2c3d4e-s0/record.json\n\n━━━━━━\n")
    there = masked("RTE 8 % record /tmp/copy/runs/x/ffff0000ff-s0/record.json\n━━", Path("/tmp/copy"))
    assert here == there
    assert masked("RTE 71.3") != masked("EIS 71.3")
    assert masked("a 1 b 2") != masked("a 1 b")


def test_make_lines_are_kept_back_except_a_run_whose_output_is_told() -> None:
    told = Block("bash", "make run ARGS='seed=1'  # a minute\nmake test\nls", 1, expected="x")
    kept = runnable(told).splitlines()
    assert len(kept) == 2
    assert kept[0].startswith("make run ARGS='seed=1' --silent READY_RUN= BIN=")
    assert kept[1] == "ls"
    assert runnable(Block("bash", "make run\nmake test  # all\n# that is all", 1)) == ""


def test_targets_of_a_line() -> None:
    assert make_targets("make lint type  # both") == ["lint", "type"]
    assert make_targets("make -k test-all ARGS=x") == ["test-all"]
    assert make_targets("cd x && OMP_NUM_THREADS=1 make test") == ["test"]
    assert make_targets("cmake .") == []
    assert make_targets("echo make test") == []
