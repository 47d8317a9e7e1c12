"""The curves that the authors of NGCSE released."""

from __future__ import annotations

import csv
import dataclasses
import os
from pathlib import Path

import pytest

from lightning_cse.errors import DataError
from lightning_cse.papers.released import read_released
from lightning_cse.runs import summarise

ROOT = Path(__file__).parents[3]
NAMES = {  # in published_rfd.csv, and in the release
    "Wiki.dropout": "wiki/dropout",
    "Wiki.token_shuffle": "wiki/token_shuffle",
    "Wiki.STS": "wiki/sts",
    "Wiki.STS_HT": "wiki/sts_ht",
    "NLI.dropout": "nli/dropout",
    "NLI.token_cutoff": "nli/token_cutoff",
    "NLI.NLI": "nli/nli",
    "NLI.STS": "nli/sts",
    "NLI.SUP": "nli/sup",
}


@pytest.fixture(scope="module")
def released() -> Path:
    """The folder of the authors' curves; the test is skipped where there is none."""
    data, given = os.environ.get("LIGHTNING_CSE_DATA"), os.environ.get("LIGHTNING_CSE_CURVES")
    if not given and not data:
        pytest.skip("needs the released NGCSE curves: LIGHTNING_CSE_CURVES and LIGHTNING_CSE_DATA are not set")
    folder = Path(given) if given else Path(str(data)).parent / "paper" / "ngcse_curves"
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist; the released NGCSE curves are not part of this repository")
    return folder


def release(folder: Path, steps: tuple[int, ...] = (0, 5, 10)) -> Path:
    """Write a setting as the release has it; its held-out alignment is 0.5 above and its uniformity 1 below."""
    folder.mkdir(parents=True)
    rows = "".join(f"{step},9.6,{0.5 + step / 100},{0.4},0.45\n" for step in steps if step > 0)
    (folder / "metrics").write_text(f"step,loss,stsb,sickr,avg\n{rows}", encoding="utf-8")
    for name, a, u in (("train", 1.0, -3.0), ("eval", 0.5, -2.0)):
        rows = "".join(f"{step},{a + step},{u - step}\n" for step in steps)
        path = folder / f"{name}_alignment_and_uniformity"
        path.write_text(f"step,alignment,uniformity\n{rows}", encoding="utf-8")
    return folder


@pytest.mark.parametrize("setting", NAMES)
def test_released_settings_give_the_published_summary(released: Path, setting: str) -> None:
    with (ROOT / "experiments" / "ngcse" / "published_rfd.csv").open(encoding="utf-8", newline="") as file:
        want = {row.pop("setting"): row for row in csv.DictReader(file)}[setting]
    got = dataclasses.asdict(summarise(read_released(released / NAMES[setting])))
    assert got == pytest.approx({key: float(value) for key, value in want.items()}, abs=1e-6)


def test_every_released_setting_is_checked(released: Path) -> None:
    assert {p.parent.relative_to(released).as_posix() for p in released.rglob("metrics")} == set(NAMES.values())


def test_a_release_has_the_keys_of_a_run(tmp_path: Path) -> None:
    curves = read_released(release(tmp_path / "wiki" / "dropout"))
    assert curves["val/stsb/spearman"] == [(5, 0.55), (10, 0.6)]
    assert curves["diag/held_out/alignment"] == [(0, 1.0), (5, 6.0), (10, 11.0)]
    assert curves["diag/eval/uniformity"] == [(0, -2.0), (5, -7.0), (10, -12.0)]
    assert set(curves) == {
        "val/stsb/spearman",
        "val/sickr/spearman",
        *(f"diag/{side}/{measure}" for side in ("held_out", "eval") for measure in ("alignment", "uniformity")),
    }
    got = summarise(curves)
    assert (got.rfd_alignment, got.rfd_uniformity, got.best_step) == (0.5, -1.0, 10)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("metrics", None, r"metrics is missing.*give the folder of one setting"),
        ("metrics", "step,loss,sickr\n5,1,0.5\n", r"metrics, line 1: no column stsb"),
        ("metrics", "step,stsb,sickr\n5,0.5,0.5\n10,x,0.5\n", r"metrics, line 3: .*found \['10', 'x', '0.5'\]"),
        ("metrics", "step,stsb,sickr\n5,0.5,nan\n", r"metrics, line 2: expected finite numbers"),
        ("metrics", "step,stsb,sickr\n5,0.5\n", r"metrics, line 2: expected finite numbers"),
        ("metrics", "step,stsb,sickr\n5,0.5,0.5\n5,0.5,0.5\n", r"metrics, line 3: step 5 is there twice"),
        (
            "eval_alignment_and_uniformity",
            "step,alignment,uniformity\n0,1,1\n5,1,1\n",
            r"different steps, first 10",
        ),
    ],
)
def test_a_damaged_release_is_told_with_its_place(tmp_path: Path, file: str, content: str | None, message: str) -> None:
    folder = release(tmp_path / "setting")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_released(folder)
