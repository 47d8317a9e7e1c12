"""Write the README's summary of the papers' claims from the pages of experiments/: ``python
scripts/claims.py``.

The table "Claims" of a page has one row per claim: the claim, what was measured, and the verdict
(`VERDICTS`).
"""

import re
from collections.abc import Iterator
from pathlib import Path

VERDICTS = ("shows", "shows in part", "does not show here", "not measured yet")
BLOCK = re.compile(r"(?<=<!-- claims -->\n).*?(?=<!-- end of claims -->)", re.DOTALL)


def claims(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each claim of a page with its verdict; raise ValueError for an unknown verdict or a
    page without claims.
    """
    section = page.read_text(encoding="utf-8").partition("\n## Claims\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line[:1] == "|"
    ]
    if len(rows) < 3:
        raise ValueError(f"{page}: has no table under '## Claims'")

    for claim, _, verdict in rows[2:]:
        if verdict not in VERDICTS:
            raise ValueError(f"{page}: {verdict!r} is none of {', '.join(VERDICTS)}")

        yield claim, verdict


def summary(repository: Path) -> str:
    """Return the README's table: one row per paper, one column per verdict, and the claims in the
    cells.
    """
    lines = [f"| | {' | '.join(VERDICTS)} |", f"|---|{'---|' * len(VERDICTS)}"]
    for numbers in sorted((repository / "experiments").glob("*/published.csv")):
        page = numbers.with_name("README.md")
        paper = page.read_text(encoding="utf-8").partition(",")[0].removeprefix("# ")
        found = list(claims(page))
        cells = [
            "<br>".join(claim for claim, verdict in found if verdict == each) for each in VERDICTS
        ]
        lines.append(
            f"| [{paper}]({page.relative_to(repository).as_posix()}) | {' | '.join(cells)} |"
        )

    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    readme = root / "README.md"
    readme.write_text(
        BLOCK.sub(lambda _: summary(root), readme.read_text(encoding="utf-8")), encoding="utf-8"
    )
