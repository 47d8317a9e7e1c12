"""What holds for the repository as a whole: it imports, it is finished, it is small, it names no
machine.
"""

import ast
import importlib
import os
import pkgutil
import re
import runpy
import subprocess
from types import SimpleNamespace

import pytest
import release

import lightning_cse
from lightning_cse.tables.records import read_runs

LARGEST = 1024 * 1024
KEPT = re.compile(r"experiments/\w+/results/(runs\.jsonl|curves\.parquet|predictions\.parquet)")
TEXT = frozenset(
    {
        "",
        ".cfg",
        ".csv",
        ".ini",
        ".json",
        ".jsonl",
        ".md",
        ".py",
        ".sh",
        ".toml",
        ".tsv",
        ".txt",
        ".yaml",
        ".yml",
    }
)
# A path that exists on one machine only. /tmp is everywhere.
SOMEBODYS_PATH = re.compile(
    r"(?<![\w.:/~}-])/(home|Users|root|work|workspace|mnt)/\w|\b[A-Z]:\\Users\\"
)
OUTSIDE = re.compile(r"\.\./shared\b")


@pytest.fixture(scope="module")
def files(repository):
    """Every file git has or would take, by name: an untracked one that is not ignored is about to
    be committed.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")

    names = sorted(set(listed.stdout.split("\0")) - {""})
    paths = {name: repository / name for name in names if (repository / name).is_file()}
    assert len(paths) > 50, f"git lists only {len(paths)} files; has .gitignore swallowed some?"

    return paths


def lines(files, suffixes):
    """File, number and text of every line."""
    chosen = {name: path for name, path in files.items() if path.suffix in suffixes}
    assert len(chosen) > 50

    return [
        (name, number, line)
        for name, path in chosen.items()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    ]


def test_every_module_can_be_imported():
    modules = list(pkgutil.walk_packages(lightning_cse.__path__, "lightning_cse."))
    assert len(modules) > 30
    for module in modules:
        importlib.import_module(module.name)


def test_no_file_is_large(files):
    sizes = {name: path.stat().st_size for name, path in files.items()}
    released = {name for name in sizes if KEPT.fullmatch(name)}
    assert len(released) == 12
    assert sum(map(sizes.__getitem__, released)) < 15 * LARGEST
    large = {name: size for name, size in sizes.items() if size > LARGEST and name not in released}
    assert large == {}, "corpora, checkpoints and figures of runs stay out of the history"


def test_no_path_of_a_single_machine(files):
    faults = []
    for name, number, line in lines(files, TEXT):
        outside = OUTSIDE.search(line) and name not in {".ci/run", "tests/test_repository.py"}
        if SOMEBODYS_PATH.search(line) or outside:
            faults.append(f"{name}:{number}: {line.strip()}")

    assert faults == []


def test_no_repository_of_a_model_runs_code(repository):
    """Each ``from_pretrained`` says so; without it, transformers asks on a terminal."""
    calls = 0
    for folder in ("src", "scripts", "benchmarks", "examples"):
        for path in sorted((repository / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                if node.func.attr != "from_pretrained" or "Embedding" in ast.unparse(node.func):
                    continue

                keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert keywords.get("trust_remote_code") == "False", f"{path}:{node.lineno}"
                calls += 1

    assert calls >= 3


def test_ci_and_hooks_call_existing_make_targets(repository):
    assert os.access(repository / ".ci" / "run", os.X_OK)
    texts = [(repository / name).read_text() for name in (".pre-commit-config.yaml", ".ci/run")]
    called = re.findall(r"(?m)^(?:make|.*entry: make) ([a-z-]+)", "\n".join(texts))
    assert called
    assert set(called) <= set(re.findall(r"(?m)^([a-z-]+):", (repository / "Makefile").read_text()))


def test_version_has_its_release_notes_and_is_everywhere_the_same(tmp_path):
    for name in release.PLACES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((release.REPOSITORY / name).read_text())

    version = lightning_cse.__version__
    notes = f"## [Unreleased]\n\n## [{version}] - 2026-11-25\n\n- Two.\n\n## [0.0.1]\n"
    (tmp_path / "CHANGELOG.md").write_text(notes)
    assert release.notes_of(version, tmp_path) == "- Two.\n"
    with pytest.raises(ValueError, match=r"the version is .*, not 9\.9\.9"):
        release.notes_of("9.9.9", tmp_path)


def test_kept_records_name_commits_of_the_history(repository):
    command = ["git", "rev-list", "HEAD"]
    history = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    if history.returncode or (repository / ".git" / "shallow").exists():
        pytest.skip("needs the complete history")

    runs = read_runs([repository / "experiments"])
    assert len(runs) > 100
    named = {run.record["environment"]["commit"] for run in runs}
    assert named <= {None, *history.stdout.split()}


@pytest.mark.slow
def test_readme_has_the_claims_of_every_paper(repository):
    claims = SimpleNamespace(**runpy.run_path(str(repository / "scripts" / "claims.py")))
    blocks = claims.BLOCK.findall((repository / "README.md").read_text(encoding="utf-8"))
    assert blocks == [claims.summary(repository)], "run python scripts/claims.py"
