"""``lightning_cse.evaluate`` as a user starts it: in this process, but for Ctrl-C."""

import json
import re
import signal

import pytest
from oracles import save_tiny

SAMPLE = ("corpora=sample", "paths=sample")


@pytest.fixture
def tiny(tmp_path):
    """The tiny encoder in a folder whose name Hydra's grammar could not read."""
    return save_tiny(tmp_path / "models, all" / 'it\'s {a}="b" [c]')


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("model=tiny", "+suite=nly"), "did you mean 'nli'?"),
        (
            ("model=tiny", "+suite=nli", "+debug=tiny"),
            "In 'debug/tiny': Could not override 'encoder'",
        ),
        (("+suite=stsb",), "model: "),
        (("model=org/nothing like it", "+suite=stsb", *SAMPLE), "no model 'org/nothing like it'"),
        (("model=tiny", "+suite=stsb", *SAMPLE, "pooling=men"), "did you mean 'mean'?"),
    ],
)
def test_a_mistake_is_one_error(line, message, evaluate, tmp_path):
    code, stdout, stderr = evaluate(*line)
    assert (code, "Traceback" in stdout + stderr) == (2, False)
    assert stderr.startswith("error: ")
    assert message in stderr
    assert not list((tmp_path / "runs").rglob("record.json"))


def test_a_path_with_anything_in_it_is_evaluated_once(evaluate, tiny, tmp_path):
    line = (f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=64", *SAMPLE)
    code, stdout, stderr = evaluate(*line)
    assert (code, stderr) == (0, ""), "no progress bar without a terminal"
    (path,) = (tmp_path / "runs" / "evaluate").rglob("record.json")
    assert path.parents[2].name == tiny.name
    assert stdout.splitlines()[-1] == f"record: {path}"
    record = json.loads(path.read_text())
    assert record["model"]["given"] == tiny.name  # no path of this machine
    assert {"+suite=stsb", "pooling=mean", "paths=sample"} <= set(record["overrides"])
    assert f"{100 * record['metrics']['test/stsb/spearman']:.2f}" in stdout
    stamp = path.stat().st_mtime_ns
    code, repeated, _ = evaluate(*line)
    assert "is finished; force=true evaluates it again" in repeated
    assert repeated.splitlines()[-3:] == stdout.splitlines()[-3:]
    assert path.stat().st_mtime_ns == stamp


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ctrl_c_keeps_what_is_finished(evaluate, start, tmp_path):
    line = (
        "model=tiny",
        "+suite=transfer",
        *SAMPLE,
    )  # whose tasks take long enough to be interrupted
    process = start("evaluate", *line)
    assert process.stdout is not None
    for output in process.stdout:
        if "1/7 mr: " in output:
            process.send_signal(signal.SIGINT)
            break

    _, stderr = process.communicate(timeout=400)
    assert process.returncode == 130
    assert stderr.startswith("interrupted; the same command continues")
    assert not list((tmp_path / "runs" / "evaluate").rglob("record.json"))
    code, stdout, stderr = evaluate(*line)
    assert code == 0, stderr
    assert "1/7 mr: done before: accuracy " in stdout
    assert re.search(r"7/7 mrpc: accuracy \d", stdout)
