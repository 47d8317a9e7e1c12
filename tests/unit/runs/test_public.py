"""URLs without user, password and signature."""

import json

import pytest

from lightning_cse.runs import Run, config_hash, decisive, public
from lightning_cse.runs.redaction import portable

SIGNED = "X-Amz-Credential=SECRET%2F2026&X-Amz-Expires=60&X-Amz-Signature=SECRET"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (f"https://me:SECRET@host/a.csv?{SIGNED}#SECRET", "https://host/a.csv"),
        ("https://host/a.csv?sv=1&sig=SECRET", "https://host/a.csv"),
        ("gs://bucket/a?X-Goog-Signature=SECRET", "gs://bucket/a"),
        ("s3://KEY:SECRET@bucket/a", "s3://bucket/a"),
        ("https://me:SEC@RET@host", "https://host"),
        ("zip://a.csv::https://u:SECRET@h/z.zip?token=SECRET", "zip://a.csv::https://h/z.zip"),
        (
            f"data.train=[https://u:SECRET@h/a?{SIGNED},'https://u:SEC,RET@g/b?sig=SECRET']",
            "data.train=[https://h/a,'https://g/b']",
        ),
        (
            "data.train=[snli/train,https://h/a?a[]=1&sig=SECRET]",
            "data.train=[snli/train,https://h/a]",
        ),
        ("{train: 'https://h/a?b=1,c&sig=SECRET'}", "{train: 'https://h/a'}"),
        ("a: https://h/a?sig=SECRET\nb: 2\n", "a: https://h/a\nb: 2\n"),
        ("https://h/a?sig=SECRET: not found", "https://h/a: not found"),
        ("hf://datasets/user/name@main/a.csv", "hf://datasets/user/name@main/a.csv"),
        ("is it? me@host, or a#b", "is it? me@host, or a#b"),
        (3, 3),
        (None, None),
    ],
)
def test_what_is_public(text, want):
    assert public(text) == want


def test_containers():
    config = {"train": [f"https://h/a?{SIGNED}"], "n": 1, "data": {"https://u:SECRET@h/b": "0a"}}
    assert public(config) == {"train": ["https://h/a"], "n": 1, "data": {"https://h/b": "0a"}}
    assert portable([f"+data.train=https://h/a?{SIGNED}"]) == ["+data.train=https://h/a"]


def test_a_freshly_signed_url_is_the_same_run():
    hashes = {
        config_hash(decisive({"data": {"train": url}}, data={url: "0a"}))
        for url in (f"https://h/a?{SIGNED}", "https://me:you@h/a?sig=other", "https://h/a")
    }
    assert len(hashes) == 1
    assert config_hash(decisive({"data": {"train": "https://h/b"}})) not in hashes


def test_files_of_a_run_have_no_secrets(tmp_path):
    url = f"https://me:SECRET@host/a.csv?{SIGNED}"
    run = Run(tmp_path, "x", "0a", 0)
    run.start(f"data:\n  train: {url}\n", "key")
    run.fail(ValueError(f"{url}: no such file"), "training")
    run.finish({"name": "x", "data": {url: "0a"}, "overrides": [f"data.train={url}"]})
    run.fail(ValueError(f"{url}: no such file"), "training")
    assert sorted(path.name for path in run.path.iterdir()) == [
        "config.yaml",
        "failed.json",
        "record.json",
    ]
    for path in run.path.iterdir():
        assert "https://host/a.csv" in path.read_text()
        assert "SECRET" not in path.read_text()

    assert json.loads(run.record_path.read_text())["data"] == {"https://host/a.csv": "0a"}
