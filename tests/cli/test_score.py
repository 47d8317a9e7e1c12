"""``python -m lightning_cse.score`` as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_cse.baselines import Length
from lightning_cse.score import main

Start = Callable[..., "subprocess.Popen[str]"]

# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no process.
pytestmark = pytest.mark.timeout(900)


def hear_interrupts() -> None:
    """Undo what a shell does to its background jobs, which inherit that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path: Path, repository: Path) -> Start:
    """Start ``lightning_cse.score`` in an empty folder; the hub stays offline."""

    def started(*args: str, python: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(repository / "src")}
        line = [sys.executable, *python, "-m", "lightning_cse.score", *args]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            line,
            cwd=tmp_path,
            env=environment,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            preexec_fn=hear_interrupts,  # noqa: PLW1509 - these tests have no threads
        )

    return started


def test_help_imports_nothing_heavy(start: Start) -> None:
    stdout, stderr = (process := start("--help", python=("-X", "importtime"))).communicate(timeout=60)
    assert process.returncode == 0
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in stderr.splitlines() if "|" in line}
    assert "argparse" in imported
    assert not imported & {"torch", "pytorch_lightning", "transformers", "hydra", "numpy", "rich"}
    for word in ("--skip-bad", "entailment_reversed", "forward, backward, tie"):
        assert word in stdout
    assert max(map(len, stdout.splitlines())) <= 120


def test_what_needs_no_encoder_loads_none(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "a.txt").write_text("a b\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_text("{}")
    code = """
import sys
from lightning_cse.score import main
def loaded(*arguments):
    code = main(["--input", "a.txt", *arguments])
    print(code, *(name for name in ("torch", "transformers", "pytorch_lightning") if name in sys.modules))
loaded("--model", "run")
loaded("--model", "./none")
loaded("--model", "minilm_l6", "--output", "no/out.csv")
loaded("--model", "minilm_l6", "--input", "none.txt")
loaded("--model", "minilm_l6", "--input-format", "jsonl")
loaded("--model", "minilm_l6", "--columns", "text")
loaded("--model", "length", "--output", "out.csv")
"""
    environment = os.environ | {"PYTHONPATH": str(repository / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["2"] * 6 + ["0 torch"], done.stderr
    assert done.stderr.count("error: ") == 6
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == "1,a b,2"


@pytest.mark.slow
def test_a_pipe_is_answered_as_it_comes_and_an_interrupt_leaves_whole_lines(start: Start) -> None:
    process = start("--model", "length", "--input", "-", "--format", "jsonl", "--batch-size", "2")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("a longer sentence\ta sentence\nb\tc\nd\te\n")
    process.stdin.flush()
    first = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [(row["line"], row["direction"]) for row in first] == [(1, "forward"), (2, "tie")]
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    assert "similarity and no entailment_score: these columns are left out" in stderr
    assert stderr.endswith("\ninterrupted after 2 rows, written to standard output\n")
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("chunks", "told"),
    [
        (0, "0 rows, nothing is written"),
        (1, "1 row, written to {output}.partial; {output} is as it was"),
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_an_interrupt_tells_how_many_rows_are_written(
    chunks: int,
    told: str,
    there: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    embed, asked = Length.embed, []

    def interrupted(self: Length, sentences: list[str]) -> object:
        asked.append(sentences)
        if len(asked) > chunks:
            raise KeyboardInterrupt
        return embed(self, sentences)

    monkeypatch.setattr(Length, "embed", interrupted)
    (tmp_path / "in.txt").write_text("a b\nc\n")
    output = tmp_path / "out.csv"
    if there:
        output.write_text("mine\n")
    given = ("--input", str(tmp_path / "in.txt"), "--output", str(output), "--batch-size", "1")
    assert main(["--model", "length", *given]) == 130
    assert capsys.readouterr().err == f"interrupted after {told.format(output=output)}\n"
    partial = {"out.csv.partial": "line,sentence,implicitness\n1,a b,2\n"} if chunks else {}
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == {"in.txt": "a b\nc\n", **({"out.csv": "mine\n"} if there else {}), **partial}


@pytest.mark.parametrize(
    ("name", "text", "more", "told"),
    [
        ("in.csv", "text,label,n\na b,c,1\n", (), "premise = text, hypothesis = label (--columns chooses)\n"),
        ("in.csv", "text,label,n\na b,c,1\n", ("--columns", "text,label"), ""),
        ("in.jsonl", '{"h": "a b", "p": "c"}\n', (), "premise = h, hypothesis = p (--columns chooses)\n"),
        ("in.jsonl", '{"text": "a b"}\n', (), "sentence = text (--columns chooses)\n"),
        ("in.tsv", "a b\tc\n", (), ""),
    ],
)
def test_the_columns_that_were_taken_and_the_rows_that_were_written_are_told(
    name: str, text: str, more: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    output = tmp_path / "out.csv"
    assert main(["--model", "length", "--input", str(tmp_path / name), "--output", str(output), *more]) == 0
    lacking = "length gives no similarity and no entailment_score: these columns are left out\n"
    err = capsys.readouterr().err
    assert err.replace(lacking, "") == f"{told}1 row -> {output}\n"
    assert output.read_text().splitlines()[1].startswith("1,a b" if name != "in.csv" else "2,a b")


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_the_command_quietly(start: Start, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some words\n" * 200_000)
    process = start("--model", "length", "--input", "a.txt")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "line,sentence,implicitness\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "length", "--input", "nothing.txt"), "--input: there is no file "),
        (("--model", "length", "--input", "."), "--input: . cannot be read: Is a directory"),
        (("--model", "length", "--input", "a.txt", "--output", "a.txt"), "--output: a.txt is the input itself"),
        (("--model", "length", "--input", "a.txt", "--output", "no/b.csv"), "--output: no/b.csv cannot be written"),
        (("--model", "./nowhere", "--input", "a.txt"), "there is no folder "),
        (("--model", "runs/dualcse/0-s0", "--input", "a.txt"), "there is no folder "),
        (("--model", "run", "--input", "a.txt"), "the run run has no record.json: finish it"),
        (("--model", "length", "--input", "a.txt", "--output", "run"), "--output: run cannot be written: Is a dir"),
        (
            ("--model", "length", "--input", "a.txt", "--output", "a.txt/b"),
            "--output: a.txt/b cannot be written: Not a",
        ),
        (
            ("--model", "tny", "--input", "a.txt"),
            "there is no model 'tny' - did you mean 'tiny'?\nno encoder 'tny'",
        ),
        (("--model", "llm", "--input", "a.txt"), "llm has no encoder, and this command needs one"),
        (("--model", "tiny", "--input", "a.txt"), "tiny (PointModel) gives no implicitness of a sentence"),
        (("--model", "length", "--input", "bad.txt"), "bad.txt:2: is empty; mend it"),
        (("--model", "length", "--input", "bad.csv", "--skip-bad"), "bad.csv: has no row that can be scored"),
        pytest.param(
            ("--model", "length", "--input", "a.txt", "--output", "/dev/full"),
            "--output: /dev/full cannot be written: No space left",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full"),
        ),
    ],
)
def test_one_clear_error(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for name, text in {"a.txt": "a\n", "bad.txt": "a\n\n", "bad.csv": "p,h\n,\n", "run/config.yaml": "a: 1\n"}.items():
        (tmp_path / name).write_text(text)
    assert main(arguments) == 2
    told = capfd.readouterr().err
    assert f"error: {message}" in told.replace("error: model: ", "error: ")
    assert told.count("error: ") == 1
    assert (tmp_path / "a.txt").read_text() == "a\n"


@pytest.mark.parametrize("wrong", [("--columns", "a,b,c"), ("--columns", "a,"), ("--batch-size", "0"), ("-x",)])
def test_arguments_that_mean_nothing(wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["--model", "length", "--input", "-", *wrong])
    assert ending.value.code == 2
    assert wrong[-1].lstrip("-") in capsys.readouterr().err


def test_an_output_that_was_there_stays_where_nothing_can_be_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {"in.txt": "a\n", "out.csv": "mine\n"}.items():
        (tmp_path / name).write_text(text)
    assert main(["--model", "tiny", "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.csv")]) == 2
    assert (tmp_path / "out.csv").read_text() == "mine\n"
    assert main(["--model", "length", "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").read_text() == "line,sentence,implicitness\n1,a,1\n"
    assert capsys.readouterr().out == ""


def test_a_fault_in_the_middle_leaves_what_was_there_and_tells_where_the_rows_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"in.txt": "a b\nc\n\nd\n", "out.csv": "mine\n"}.items():
        (tmp_path / name).write_text(text)
    assert main(["--model", "length", "--input", "in.txt", "--output", "out.csv"]) == 2
    told = capsys.readouterr().err
    partial = tmp_path / "out.csv.partial"
    assert f"2 rows before the fault, written to {partial}; out.csv is as it was\nerror: in.txt:3: is empty" in told
    assert partial.read_text() == "line,sentence,implicitness\n1,a b,2\n2,c,1\n"
    assert (tmp_path / "out.csv").read_text() == "mine\n"
    (tmp_path / "in.txt").write_text("\n")
    assert main(["--model", "length", "--input", "in.txt", "--skip-bad", "--output", "out.csv"]) == 2
    assert "before the fault" not in capsys.readouterr().err
    assert (tmp_path / "out.csv").read_text() == "mine\n"
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.csv", "out.csv.partial"}


def test_the_output_is_what_it_was_until_all_rows_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    embed, seen = Length.embed, []
    real, output = tmp_path / "real.csv", tmp_path / "out.csv"
    real.write_text("mine\n")
    real.chmod(0o640)
    output.symlink_to(real)

    def watched(self: Length, sentences: list[str]) -> object:
        seen.append(output.read_text())
        return embed(self, sentences)

    monkeypatch.setattr(Length, "embed", watched)
    (tmp_path / "in.txt").write_text("a b\nc\n")
    given = ("--input", str(tmp_path / "in.txt"), "--output", str(output), "--batch-size", "1")
    assert main(["--model", "length", *given]) == 0
    assert seen == ["mine\n"] * 2
    assert output.is_symlink(), "a link stays one"
    assert real.read_text() == "line,sentence,implicitness\n1,a b,2\n2,c,1\n"
    assert real.stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.csv", "real.csv"}
    assert capsys.readouterr().err == f"2 rows -> {output}\n"


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a b\n")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # else opening it for writing would wait
    try:
        assert main(["--model", "length", "--input", str(tmp_path / "in.txt"), "--output", str(pipe)]) == 0
        assert os.read(reader, 100) == b"line,sentence,implicitness\n1,a b,2\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_bad_rows_that_are_left_out_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.csv").write_text('p,h,n\na b,c,1\n,d,2\n"e",f\ng,h,3\n')
    assert main(["--model", "length", "--input", str(tmp_path / "in.csv"), "--skip-bad", "--columns", "h,p"]) == 0
    out, err = capfd.readouterr()
    assert [line.split(",")[:3] for line in out.splitlines()[1:]] == [["2", "c", "a b"], ["5", "h", "g"]]
    assert "2 bad rows were left out" in err
