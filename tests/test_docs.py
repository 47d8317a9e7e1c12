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
  money or needs a server: nothing is run. Its commands are checked instead: those with overrides
  are composed and checked as before a run, each point of a sweep; those with options are parsed;
  make must know the target and pip the extra. A command that is neither, of a program not in
  `UNCHECKED`, fails. Indented commands, as in experiments/, are checked likewise.
- ``<!-- docs-check: file PATH -->`` on the line before a block writes it to this file, for the
  blocks below it.
- ```` ```yaml ```` must parse. `LEFT_ALONE` are the other languages; any other is refused, so that
  no block escapes by its spelling.
"""

import argparse
import ast
import functools
import html
import importlib
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
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
UNCHECKED = frozenset(
    {"cd", "export", "printf", "seq", "source", "tail", "tensorboard", "wandb", "ray"}
)
SECONDS = 1500  # for one block
give = command_lines.give  # the fixture

_SKIP = re.compile(r"<!--\s*docs-check:\s*skip\s*(?:\((?P<reason>.+)\))?\s*-->\s*$")
_FILE = re.compile(r"<!--\s*docs-check:\s*file\s+(?P<path>[\w./-]+)\s*-->\s*$")
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
    """A fenced block of a page."""

    language: str
    body: str
    line: int
    page: str = ""
    skipped: bool = False
    reason: str = ""
    expected: str | None = None  # the text block that follows
    file: str = ""  # where it is written

    def write(self, folder):
        """Write it to its file, if it has one."""
        if self.file:
            (folder / self.file).parent.mkdir(
                parents=True,
                exist_ok=True,
            )
            (folder / self.file).write_text(self.body, encoding="utf-8")

    def __str__(self):
        return f"{self.page}:{self.line}-{self.language or 'unnamed'}"


def read_blocks(markdown, page=""):
    """Return the fenced blocks from top to bottom; a text block also becomes the ``expected`` of
    the one before it.

    Indented commands are blocks that are skipped.
    """
    blocks: list[Block] = []
    before = ""
    for token in MarkdownIt().parse(markdown):
        if token.type == "code_block" and token.map and "python -m lightning_cse" in token.content:
            blocks.append(
                Block(
                    "bash",
                    token.content,
                    token.map[0] + 1,
                    page,
                    skipped=True,
                    reason="indented",
                )
            )
        if token.type == "fence":
            comment, file = _SKIP.search(before), _FILE.search(before)
            language, start = token.info.strip(), token.map[0] + 1 if token.map else 0
            reason = (comment["reason"] or "") if comment else ""
            if language == "text" and blocks and blocks[-1].language in RUN:
                blocks[-1].expected = token.content
            blocks.append(
                Block(
                    language,
                    token.content,
                    start,
                    page,
                    comment is not None,
                    reason,
                )
            )
            blocks[-1].file = file["path"] if file else ""
        before = token.content
    return blocks


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
    found = _MAKE.search(line)
    return (
        [word for word in shlex.split(found["rest"]) if "=" not in word and word[0] != "-"]
        if found
        else []
    )


def runnable(block):
    """Return what of a bash block is run here: nothing through make, but ``make run`` where its
    output is told.
    """
    kept = []
    for line in block.body.splitlines():
        targets = make_targets(line)
        if targets == ["run"] and block.expected is not None:
            there = shlex.quote(str(Path(sys.executable).parent))
            kept.append(f"{line.split('#')[0].rstrip()} --silent READY_RUN= BIN={there}")
        elif not targets:
            kept.append(line)
    return "\n".join(kept) if any(line.split("#")[0].strip() for line in kept) else ""


PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "experiments").rglob("README.md")),
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


def params(skipped):
    """Return the bash and Python blocks, those of a page for one worker: they build on each
    other.
    """
    chosen = [block for block in BLOCKS if block.language in RUN and block.skipped == skipped]
    return [
        pytest.param(
            block,
            id=str(block),
            marks=pytest.mark.xdist_group(block.page),
        )
        for block in chosen
    ]


@pytest.fixture(scope="session")
def checkout_of(tmp_path_factory):
    """A copy of the checkout for each page, without what git ignores, in which its blocks may do as
    they like.
    """

    @functools.cache
    def copied(page):
        folder = tmp_path_factory.mktemp(re.sub(r"\W", "_", page)) / "lightning_cse"
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        if listed.returncode != 0:
            shutil.copytree(
                ROOT,
                folder,
                ignore=shutil.ignore_patterns(
                    ".*_cache",
                    ".git",
                    ".venv",
                    "runs",
                    "site",
                ),
            )
            return folder
        for name in set(os.fsdecode(listed.stdout).split("\0")) - {""}:
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(
                    parents=True,
                    exist_ok=True,
                )
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


# What is run


@pytest.mark.docs
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("block", params(skipped=False))
def test_block_runs(block, checkout_of):
    checkout = checkout_of(block.page)
    for other in BLOCKS:
        if other.page == block.page and other.line <= block.line:
            other.write(checkout)
    if block.language == "python":
        output = run(
            [
                sys.executable,
                "-c",
                block.body,
            ],
            checkout,
        )
    else:
        script = runnable(block)
        if not script:
            pytest.skip("make targets only: checked by name")
        output = run(
            [
                "bash",
                "-euo",
                "pipefail",
                "-c",
                script,
            ],
            checkout,
        )
    if block.expected is not None:
        want = masked(block.expected, checkout)
        assert masked(output, checkout)[-len(want) :] == want, (
            f"it ended otherwise; it printed\n{output}"
        )


# What is checked instead


class Parsed(Exception):  # noqa: N818 - nothing is wrong
    """Raised in place of what a command does once its options are read."""


def commands(shell):
    """Yield the words of each command of some lines of shell; a placeholder such as <corpora> is a
    word.
    """
    shell = re.sub(
        r"<(\w+)>",
        r"\1",
        shell.replace("\\\n", " "),
    )
    for line in shell.splitlines():
        lexer = shlex.shlex(
            line,
            posix=True,
            punctuation_chars=True,
        )
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word[0] in "|;&":
                if words:
                    yield words
                words = []
            elif words or not re.match(r"\w+=", word):
                words.append(word)


def check_command(words, give, patch):
    """Fail if a command could not start."""
    words = words[
        : next((place for place, word in enumerate(words) if word[0] in "<>"), len(words))
    ]
    if words[:2] == ["python", "-m"]:
        words = [
            "lightning-cse",
            *words[2].split(".", 1)[1:],
            *words[3:],
        ]
    program, *args = words
    if program == "make":
        assert set(make_targets(" ".join(words))) <= make_known()
    elif program == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert set(re.findall(r"\[(\w+)\]", " ".join(args))) <= set(
            project["optional-dependencies"]
        )
    elif program == "python":
        assert (ROOT / args[0]).is_file()
    elif program != "lightning-cse":
        assert program in UNCHECKED, f"{program}: is not run here, nor checked"
    elif args[0] in HYDRA:
        launcher = [arg for arg in args if re.match(r"\+?hydra[/.]launcher", arg)]
        code, _, errors = give(*(arg for arg in args[1:] if arg not in launcher), command=args[0])
        assert code == 0, errors
        if launcher:
            from hydra import compose, initialize_config_dir

            with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
                compose(
                    args[0],
                    launcher,
                    return_hydra_config=True,
                )
    else:
        read = argparse.ArgumentParser.parse_args

        def parsed(self, *given, **named):
            read(self, *given, **named)  # type: ignore[call-overload]
            raise Parsed

        patch.setattr(
            argparse.ArgumentParser,
            "parse_args",
            parsed,
        )
        with pytest.raises(Parsed):
            inspect.unwrap(importlib.import_module(f"lightning_cse.{args[0]}").main)(args[1:])


def make_known():
    """Return the targets of the Makefile."""
    return set(
        re.findall(
            r"^([a-z-]+):",
            (ROOT / "Makefile").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )


@pytest.mark.docs
@pytest.mark.parametrize("block", params(skipped=True))
def test_skipped_block_could_start(block, give, monkeypatch):
    if block.language == "python":
        ast.parse(block.body)
        return
    assert (
        subprocess.run(
            [
                "bash",
                "-n",
                "-c",
                re.sub(
                    r"<\w+>",
                    "x",
                    block.body,
                ),
            ]
        ).returncode
        == 0
    )
    for other in BLOCKS:
        if other.page == block.page and other.line <= block.line:
            other.write(Path())
    for words in commands(block.body):
        check_command(
            words,
            give,
            monkeypatch,
        )


# The documents


def test_blocks_have_a_known_language_and_a_reason_to_be_skipped():
    assert {block.page for block in BLOCKS} >= {
        "README.md",
        "docs/using.md",
        "experiments/README.md",
    }
    assert [str(block) for block in BLOCKS if block.language not in RUN | LEFT_ALONE] == []
    assert [str(block) for block in BLOCKS if block.skipped and not block.reason.strip()] == []
    for block in BLOCKS:
        assert block.language != "yaml" or yaml.safe_load(block.body) is not None, block


def test_readme_is_short_and_starts_with_the_two_commands():
    assert len(README.splitlines()) <= 160
    named = [target for line in SHELL for target in make_targets(line)]
    assert named[:2] == ["run", "test"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert {*named, *re.findall(r"`make ([a-z-]+)[^`]*`", text)} <= make_known()


@pytest.mark.parametrize("module", ["losses", "metrics", "models", "methods"])
def test_every_public_name_is_in_the_reference(module):
    stub = (ROOT / "src" / "lightning_cse" / module / "__init__.pyi").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "reference" / f"{module}.md").read_text(encoding="utf-8")
    shown = re.findall(rf"(?m)^::: lightning_cse\.{module}\.(\w+)$", page)
    assert sorted(shown) == sorted(re.findall(r" as (\w+)", stub))


@pytest.mark.parametrize(
    "line",
    [
        "python -m lightning_cse.train +experiment=dualcse_cros",
        "python -m lightning_cse.train -m +experiment=dualcse_cross seed=0,1 data.batchsize=32",
        "python -m lightning_cse.train +experiment=gausscse hydra/launcher=joblib hydra.launcher.jobs=2",
        "tail -f x | python -m lightning_cse.export --modle minilm_l6 --to x",
        "python -m lightning_cse.exprt --model minilm_l6",
        "lightning-cse export --model length",
        "OMP_NUM_THREADS=1 make tests",
        "pip install 'lightning_cse[rays]'",
        "python examples/missing.py",
        "rm -rf runs",
    ],
)
def test_faulty_commands_are_detected(line, give, monkeypatch):
    with pytest.raises((Exception, SystemExit)):
        for words in commands(line):
            check_command(
                words,
                give,
                monkeypatch,
            )


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as by ``make docs``: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--site-dir",
        str(folder),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.docs
@pytest.mark.xdist_group("site")
def test_site_builds_and_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    loaded = re.compile(
        r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>|@import|url\(http"
    )
    found = [
        (page.name, tag)
        for page in pages
        for tag in loaded.findall(page.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.docs
@pytest.mark.xdist_group("site")
def test_site_shows_formulas_and_committed_results(site):
    for name, formulas in (
        ("methods/dualcse", 1),
        ("methods/gausscse", 3),
        ("reference/losses", 5),
    ):
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        assert page.count('<div class="formula"><svg') == formulas
        assert not re.search(
            r"\$\$|\.\. math|:math:",
            re.sub(
                r"(?s)<(pre|code).*?</\1>",
                "",
                page,
            ),
        )
    page = html.unescape((site / "methods" / "simcse.html").read_text(encoding="utf-8"))
    shown = re.findall(
        r"<td>((?:Wiki|NLI)\.\w+)</td>\s*<td[^>]*>([\d/]+)</td>\s*<td[^>]*>([^<]+)", page
    )
    measured = (ROOT / "experiments/ngcse/results/figure1.small.md").read_text(encoding="utf-8")
    assert {row[0] for row in shown} == {"Wiki.dropout", "NLI.dropout", "NLI.SUP"}
    assert all(f"| {name} | {n} | {cell}" in measured for name, n, cell in shown)
