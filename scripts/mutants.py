"""Check that the tests notice each change of `mutants.yaml` (about ten minutes).

    python scripts/mutants.py [WORDS]

Each change is made in a copy of the repository, where the tests of its part run. Prints the first
test that fails; a change that none notices survives. WORDS select changes by name.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[1]
TESTS: Final = {
    "encoders": ["tests/unit/methods/test_consert.py"],
    "methods": ["tests/unit/methods/test_consert.py"],
    "losses": ["tests/unit/losses"],
    "metrics": ["tests/unit/metrics"],
    "similarity.py": [
        "tests/unit/losses",
        "tests/unit/test_similarity.py",
        "tests/unit/test_similarity_gaussian.py",
    ],
}


def main(words: str = "") -> int:
    """Print a line a change, and return 1 if any survives."""
    changes = yaml.safe_load((ROOT / "scripts" / "mutants.yaml").read_text(encoding="utf-8"))
    chosen = [change for change in changes if words in change["name"]]
    survived = 0

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"

        for name in ("conf", "scripts", "src", "tests"):
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=skipped)

        shutil.copy(ROOT / "pyproject.toml", copy)

        for change in chosen:
            failed = _first_failure(copy, change)
            survived += not failed
            print(f"{change['name']}: {failed or 'SURVIVED'}", flush=True)

    print(f"{len(chosen) - survived} of {len(chosen)} changes were noticed")

    return int(survived > 0)


def _first_failure(copy: Path, change: dict[str, str]) -> str:
    """Return the first test that notices a change; empty if none does."""
    path = copy / change["file"]
    text = path.read_text(encoding="utf-8")

    if change["old"] not in text:
        raise SystemExit(f"{change['name']}: {change['file']} has no {change['old']!r}")

    path.write_text(text.replace(change["old"], change["new"], 1), encoding="utf-8")
    part = change["file"].split("/")[2]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *TESTS[part]]
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.run(
        command, check=False, cwd=copy, env=environment, capture_output=True, text=True
    )
    path.write_text(text, encoding="utf-8")

    if process.returncode not in (0, 1):
        raise SystemExit(f"{change['name']}: the tests cannot run:\n{process.stdout[-2000:]}")

    failures = [line for line in process.stdout.splitlines() if line.startswith("FAILED")]

    return failures[0].split(" - ")[0] if failures else ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
