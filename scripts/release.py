"""Check that a version is ready for release, and print its notes.

    python scripts/release.py v0.2.0

The version must be that of the package and of CITATION.cff, and have an entry in CHANGELOG.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PLACES: Final = {
    "src/lightning_cse/__init__.py": r'__version__ = "(.+)"',
    "CITATION.cff": r"(?m)^version: (.+)$",
}


def notes_of(version: str, repository: Path = REPOSITORY) -> str:
    """Return the entry of a version in the changelog.

    Raises:
        ValueError: if the entry is missing or empty, or a file names another version.
    """
    for name, pattern in PLACES.items():
        match = re.search(pattern, (repository / name).read_text(encoding="utf-8"))
        if match is None or match[1] != version:
            raise ValueError(f"{name}: the version is {match and match[1]}, not {version}")

    changelog = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    entry = re.search(rf"(?ms)^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog)
    if entry is None or not entry[1].strip():
        raise ValueError(f"CHANGELOG.md: there is no entry '## [{version}]', or it is empty")

    return entry[1].strip() + "\n"


def main() -> int:
    """Print the notes of the version on the command line; return 1 if it is not ready."""
    if len(sys.argv) != 2 or not sys.argv[1].startswith("v"):
        print(__doc__, file=sys.stderr)
        return 2

    try:
        print(notes_of(sys.argv[1][1:]), end="")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1

    return 0


if __name__ == "__main__":
    sys.exit(main())
