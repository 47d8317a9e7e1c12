"""Today's results are the golden ones: configs, runs under ``+debug=tiny``, batches of all data,
and tables.

A change that means to change results regenerates them, and its commit says why:

    python scripts/golden.py            # or one part: configs, runs, batches, tables
    python scripts/golden.py --check    # compare without writing
"""

import math
import shutil

import golden
import golden_batches
import pytest

FOLDER = golden.FOLDER
CONFIGS = golden.read("configs")
# One experiment a method is quick to run: the first.
QUICK = {CONFIGS[name]["method._target_"]: name for name in reversed(golden.EXPERIMENTS)}.values()
GAUSSCSE = [name for name in CONFIGS if CONFIGS[name]["method._target_"] == "GaussCSE"]


def beyond(part, expected, result, path=""):
    differences = golden.compare(expected, golden.rounded(result), path)
    return [difference for difference in differences if difference.relative > golden.RELATIVE[part]]


def assert_golden(part, expected, result, path=""):
    __tracebackhide__ = True
    worst = sorted(
        beyond(part, expected, result, path), key=lambda difference: -difference.relative
    )
    assert not worst, "\n".join([f"{len(worst)} values differ:", *map(str, worst[:20])])


@pytest.mark.parametrize("part", ["configs", "runs"])
def test_every_experiment_has_golden_results(part):
    assert sorted(golden.read(part)) == golden.EXPERIMENTS


@pytest.mark.parametrize("experiment", golden.EXPERIMENTS)
def test_config(experiment):
    differences = beyond(
        "configs", golden.golden_of("configs", experiment), golden.config_of(experiment)
    )
    added = [difference.path for difference in differences if difference.golden == golden.ABSENT]
    changed = [str(difference) for difference in differences if difference.path not in added]
    assert not changed, f"added: {', '.join(added) or 'nothing'}"


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in golden.EXPERIMENTS
    ],
)
def test_run(experiment):
    assert_golden(
        "runs", golden.golden_of("runs", experiment), golden.run_of(experiment), experiment
    )


@pytest.fixture
def write_changed(tmp_path, monkeypatch):
    """Write the golden runs after a change of the losses and the version of every GaussCSE run."""
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    for part in ("configs", "runs"):
        shutil.copy(FOLDER / f"{part}.json", tmp_path)

    def write(factor, raised_by):
        results = golden.read("runs")
        for experiment in GAUSSCSE:
            run = results[experiment]
            run["version"] += raised_by
            losses = run["curves"]["train/loss"]
            run["curves"]["train/loss"] = {step: factor * loss for step, loss in losses.items()}

        monkeypatch.setattr(golden, "results_of", lambda part, only: results)
        golden.write_part("runs")

        return results, golden.read("runs")

    return write


def test_changed_runs_are_written_only_with_another_version(write_changed):
    before = (FOLDER / "runs.json").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match=r"golden runs of GaussCSE changed.*raise the `version`"):
        write_changed(factor=1.01, raised_by=0)

    assert (golden.FOLDER / "runs.json").read_text(encoding="utf-8") == before
    results, written = write_changed(factor=1.01, raised_by=1)
    assert written == golden.rounded(results)


def test_runs_within_the_tolerance_keep_their_version(write_changed):
    before = golden.read("runs")
    assert write_changed(factor=1 + 1e-6, raised_by=0)[1] == before


@pytest.mark.parametrize("name", golden_batches.DATA)
def test_batches(name):
    assert_golden(
        "batches", golden.golden_of("batches", name), golden_batches.batches_of(name), name
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in golden_batches.DATA if name not in golden_batches.UNAVAILABLE]
)
def test_batches_of_real_corpora(name, real_data):
    expected = golden.golden_of("batches", f"{name} (corpora)")
    assert_golden("batches", expected, golden_batches.batches_of(name, str(real_data)), name)


def test_committed_tables():
    """The files under ``experiments/`` were rendered by the same code from the same records:
    tests/unit/tables/test_kept_results.py renders them again.
    """
    expected, committed = golden.read("tables"), golden.committed_tables()
    assert len(committed) > 10
    # Made of corpora and LLM rows alone, which are not there.
    for name in (
        "gausscse/figure2.small.lengths.csv",
        "dualcse/table6.small.pairs.csv",
        "ngcse/figure7.small.pairs.csv",
    ):
        assert committed.pop(name)

    assert_golden("tables", {name: expected[name] for name in committed}, committed)


@pytest.mark.parametrize(
    ("expected", "result", "count"),
    [
        *(
            (0.5, 0.50004, 0),
            (0.5, 0.5001, 1),
            (math.nan, math.nan, 0),
            (0.5, math.nan, 1),
            ({"a": 1}, {}, 1),
            (["a"], ["b"], 1),
        )
    ],
)
def test_tolerance(expected, result, count):
    differences = beyond("runs", {"curves": expected}, {"curves": result}, "dualcse_bi")
    assert len(differences) == count
    assert all(str(difference).startswith("dualcse_bi > curves") for difference in differences)
