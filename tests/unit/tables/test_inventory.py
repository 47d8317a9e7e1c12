"""The table of all runs, and the removal of some."""

import io

import pandas as pd
import pytest
from fake_table import leave_run

from lightning_cse import runs
from lightning_cse.list_runs import main
from lightning_cse.methods import SimCSE
from lightning_cse.tables.inventory import COLUMNS

METHOD = {"_target_": "lightning_cse.methods.SimCSE"}


def begin(root, digest, seed=0):
    run = runs.Run(root, "gausscse", digest, seed)
    run.start("name: x\n", "key" + digest)
    return run


def finish(root, name, digest, seed=0, score=0.5, version=SimCSE.version, overrides=()):
    leave_run(
        root,
        name,
        seed,
        digest,
        key=f"key{digest}",
        overrides=[f"+experiment={name}", f"seed={seed}", *overrides],
        decisive={"config": {"method": METHOD}},
        version=version,
        best={"score": score},
        seconds={"training": 60.0, "test": 30.0},
    )


@pytest.fixture
def root(tmp_path):
    finish(tmp_path, "simcse_sup", "0a", 0, 0.70, overrides=["encoder=tiny"])
    finish(tmp_path, "simcse_sup", "0a", 1, 0.80, overrides=["encoder=tiny"])
    finish(tmp_path, "dualcse_cross", "0b", version=0)
    begin(tmp_path, "0c").fail(ValueError("no such row"), "training")
    stopped = begin(tmp_path, "0d", 3)
    stopped.checkpoints.mkdir()
    (stopped.checkpoints / "last.ckpt").touch()

    return tmp_path


@pytest.fixture
def listed(root, capsys):
    """Run the command on the folder; return its exit code and its table."""

    def command(*words):
        code = main([*words, "--runs-dir", str(root), "--format", "csv"])
        out, err = capsys.readouterr()
        assert out, err
        return code, pd.read_csv(io.StringIO(out), dtype={"seeds": str})

    return command


def test_a_line_for_the_seeds_of_a_setting(listed):
    code, table = listed()
    assert code == 0
    assert tuple(table.columns) == COLUMNS
    by_folder = table.set_index("folder")
    two_seeds = by_folder.loc["simcse_sup/0a-s*"]
    assert (two_seeds.seeds, two_seeds.differs, two_seeds.status) == (
        "0 1",
        "encoder=tiny",
        "finished",
    )
    assert two_seeds.score == pytest.approx(0.75)
    assert two_seeds.minutes == pytest.approx(3)
    assert by_folder.loc["dualcse_cross/0b-s0"].status == "finished, stale"
    assert by_folder.loc["gausscse/0c-s0"].status == "failed"
    assert by_folder.loc["gausscse/0c-s0"].differs == "ValueError: no such row"
    assert by_folder.loc["gausscse/0d-s3"].status == "interrupted"
    assert pd.isna(by_folder.loc["gausscse/0d-s3"].score)


def test_a_damaged_file_does_not_hide_the_other_runs(root, listed):
    record = root / "simcse_sup" / "0a-s0" / "record.json"
    content_before = record.read_bytes()
    flipped = [bytearray(content_before) for _ in range(0, len(content_before), 7)]
    for number, content in enumerate(flipped):
        content[7 * number] ^= 1 << number % 8

    contents = [b"", b"[]", b"3", b"{}", b"\xff\xfe", content_before[:-9], *map(bytes, flipped)]
    damaged = 0
    for content in contents:
        record.write_bytes(content)
        code, table = listed()
        assert code == 0
        lines = table[table.status == "damaged"]
        damaged += len(lines)
        assert all(f"{record} is damaged" in line for line in lines.differs)
        assert {"dualcse_cross/0b-s0", "gausscse/0c-s0", "gausscse/0d-s3"} <= {*table.folder}
        assert any("simcse_sup/0a" in folder for folder in table.folder)

    assert damaged > 20
    (root / "gausscse" / "0c-s0" / "failed.json").write_bytes(b"[")
    _, table = listed("failed")
    assert "failed.json is damaged" in table.differs[0]


@pytest.mark.parametrize(
    ("words", "folders"),
    [
        (["SIMCSE"], ["simcse_sup/0a-s*"]),
        (["encoder=tiny"], ["simcse_sup/0a-s*"]),
        (["stale"], ["dualcse_cross/0b-s0"]),
        (["gausscse", "failed"], ["gausscse/0c-s0"]),
        (["--sort", "seeds", "gausscse"], ["gausscse/0c-s0", "gausscse/0d-s3"]),
        (["--sort", "score", "finished"], ["simcse_sup/0a-s*", "dualcse_cross/0b-s0"]),
    ],
)
def test_filtered_and_sorted(words, folders, listed):
    assert list(listed(*words)[1].folder) == folders


def test_a_table_for_a_terminal(root, capsys):
    assert main(["--runs-dir", str(root), "simcse"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == list(COLUMNS)
    assert line.split()[:5] == ["simcse_sup", "encoder=tiny", "0", "1", "0.7500"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing", "here"], "has no runs with nothing and here"),
        (["--sort", "scor"], "--sort: no column 'scor' - did you mean 'score'? (choose: "),
        (["rm", "simcse"], "nothing was removed: answer in a terminal, or give --yes"),
    ],
)
def test_refused(words, message, root, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main([*words, "--runs-dir", str(root)]) == 2
    assert message in capsys.readouterr().err
    assert len(list(runs.find_runs(root))) == 5


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "remaining"), [("n", 5), ("", 5), ("y", 3), ("YES", 3)])
def test_runs_are_removed_after_a_question(answer, remaining, root, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    assert main(["rm", "simcse", "--runs-dir", str(root)]) == 0
    assert "remove 2 runs, 0 MiB, with all their files? [y/N]" in capsys.readouterr().out
    assert len(list(runs.find_runs(root))) == remaining
    assert (root / "simcse_sup/0a-s0").exists() is (remaining == 5)


def test_an_evaluation_goes_with_its_training(root, capsys):
    folder = root / "simcse_sup/0a-s0"
    finish(folder / "evaluate", "simcse_sup", "0e")
    assert main(["rm", "simcse", "--yes", "--runs-dir", str(root)]) == 0
    assert not folder.exists()
    assert capsys.readouterr().out.count("removed: ") == 2


def test_a_run_that_another_process_trains_stays(root, capsys):
    run = runs.Run(root, "gausscse", "0d", 3)
    with run.lock():
        assert main(["rm", "0d", "--yes", "--runs-dir", str(root)]) == 3
        assert run.path.exists()

    assert main(["rm", "0d", "--yes", "--runs-dir", str(root)]) == 0
    assert not run.path.exists()
    assert (root / "gausscse/0c-s0").exists()
