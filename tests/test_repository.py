"""What holds for the repository as a whole: it imports, it is finished, it is small, it names no machine."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
from pathlib import Path

import pytest

LARGEST = 1024 * 1024
TEXT = frozenset({"", ".cfg", ".csv", ".ini", ".json", ".md", ".py", ".sh", ".toml", ".tsv", ".txt", ".yaml", ".yml"})
# "TO" "DO": this file is searched as well.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
# A path that exists on one machine only. /tmp is everywhere.
SOMEBODYS_PATH = re.compile(r"(?<![\w.:/~}-])/(home|Users|root|work|workspace|mnt)/\w|\b[A-Z]:\\Users\\")
OUTSIDE = re.compile(r"\.\./shared\b")


def tracked(repository: Path) -> list[Path]:
    """Every file git has or would take: an untracked one that is not ignored is about to be committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    names = sorted(set(os.fsdecode(listed.stdout).split("\0")) - {""})
    return [path for name in names if (path := repository / name).is_file()]


@pytest.fixture(scope="module")
def files(repository: Path) -> list[Path]:
    found = tracked(repository)
    assert len(found) > 50, f"git lists only {len(found)} files; has .gitignore swallowed some?"
    return found


def lines(path: Path) -> list[tuple[int, str]]:
    return list(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))


def test_every_module_imports(repository: Path) -> None:
    source = repository / "src"
    modules = []
    for path in sorted((source / "lightning_cse").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        modules.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    assert len(modules) > 30
    for name in modules:
        if not name.endswith("__main__"):
            importlib.import_module(name)


def test_every_folder_of_modules_is_a_package(repository: Path) -> None:
    folders = {path.parent for path in (repository / "src" / "lightning_cse").rglob("*.py")}
    assert len(folders) > 5
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_nothing_is_left_to_do_in_the_product(files: list[Path], repository: Path) -> None:
    looked = [
        path for path in files if path.relative_to(repository).parts[0] in {"src", "conf", "scripts", "experiments"}
    ]
    assert len(looked) > 50
    found = [
        f"{path.relative_to(repository)}:{number}: {line.strip()}"
        for path in looked
        if path.suffix in {".py", ".yaml"}
        for number, line in lines(path)
        if UNFINISHED.search(line)
    ]
    assert found == []


def test_no_file_is_large(files: list[Path], repository: Path) -> None:
    large = {str(path.relative_to(repository)): size for path in files if (size := path.stat().st_size) > LARGEST}
    assert large == {}, "corpora, checkpoints and figures of runs stay out of the history"


def test_no_path_of_one_machine(files: list[Path], repository: Path) -> None:
    looked = [path for path in files if path.suffix in TEXT]
    assert len(looked) > 50
    found = []
    for path in looked:
        name = path.relative_to(repository).as_posix()
        for number, line in lines(path):
            outside = OUTSIDE.search(line) and name not in {".ci/run", "tests/test_repository.py"}
            if SOMEBODYS_PATH.search(line) or outside:
                found.append(f"{name}:{number}: {line.strip()}")
    assert found == []


def test_the_path_rule_knows_a_path_when_it_sees_one() -> None:
    for bad in ("see /home" + "/ann/x", 'open("/Users' + '/ann/x")', "C:" + r"\Users\ann", "=/root" + "/x"):
        assert SOMEBODYS_PATH.search(bad), bad
    for good in ("https://example.org/home/page", "runs/home/x", "/tmp/x", "~/home/x", "${HOME}/place/x"):
        assert not SOMEBODYS_PATH.search(good), good


def test_commands_are_executable(repository: Path) -> None:
    assert os.access(repository / ".ci" / "run", os.X_OK)


def test_pre_commit_calls_make_targets_that_exist(repository: Path) -> None:
    called = re.findall(r"entry: make ([a-z-]+)", (repository / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    called += re.findall(r"^make ([a-z-]+)$", (repository / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    targets = set(re.findall(r"^([a-z-]+):", (repository / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert called
    assert set(called) <= targets


TABLE = re.compile(r"<!-- table: (?P<file>\S+) -->\n(?P<shown>.*?)<!-- end of table -->", re.DOTALL)


def test_tables_in_the_readme_are_those_of_their_files(repository: Path) -> None:
    shown = list(TABLE.finditer((repository / "README.md").read_text(encoding="utf-8")))
    assert shown
    for match in shown:
        rows = [line for line in match["shown"].splitlines() if line.startswith("|")]
        assert len(rows) > 2
        text = (repository / match["file"]).read_text(encoding="utf-8")
        assert "\n".join(rows) in text, f"the README's table is not that of {match['file']}"
