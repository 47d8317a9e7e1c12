"""``python -m lightning_cse.describe`` as a user starts it."""

import json

import pytest

# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no
# process.
pytestmark = pytest.mark.timeout(900)


@pytest.mark.slow
def test_the_sample_is_described_and_a_corpus_that_is_missing_is_not(command, workdir):
    missing = command("describe", "encoder=tiny", "data=inli")
    assert missing.returncode == 2
    assert "python -m lightning_cse.prepare inli" in missing.stderr
    assert "Traceback" not in missing.stderr
    assert not (workdir / "runs" / "describe").exists()
    process = command("describe", "encoder=tiny", "data=ngcse_nli_nli", "+profile=laptop")
    assert process.returncode == 0, process.stderr
    for text in ("anchor - negative", "score > 4", "STS-B dev"):
        assert text in process.stdout

    assert "…" not in process.stdout, "no cell is cut"
    path = workdir / process.stdout.splitlines()[-1].removeprefix("summary: ")
    summary = json.loads(path.read_text())
    assert summary["overrides"] == ["+profile=laptop", "encoder=tiny", "data=ngcse_nli_nli"]
    assert [entry["name"] for entry in summary["sets"]] == [
        "ngcse_nli_nli",
        "STS-B dev, sample of 100 pairs",
    ]
    assert path.with_name("histograms.png").is_file()
