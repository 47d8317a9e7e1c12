"""Kept records become event files that have their curves and final values."""

import kept_in_tensorboard as script
import pytest

pytest.importorskip("tensorboard", reason="needs the extra `tensorboard`")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightning_cse.tables.records import read_runs


def test_a_kept_run(tmp_path, repository):
    file = repository / "experiments" / "ngcse" / "results" / "ngcse_nli_sts-*-s0"
    assert script.main([str(tmp_path), str(file)]) == 0

    (run,) = read_runs([file])
    folder = tmp_path / "ngcse_nli_sts" / f"{run.record['config_hash']}-s0"
    accumulator = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert run.curves["diag/rfd_alignment"]
    for key, points in run.curves.items():
        events = accumulator.Scalars(key)
        assert [event.step for event in events] == [step for step, _ in points]
        assert [event.value for event in events] == pytest.approx([value for _, value in points])

    (best,) = accumulator.Scalars("best/score")
    assert best.value == pytest.approx(run.record["best"]["score"])


def test_what_is_no_run_is_one_line(tmp_path, capsys):
    assert script.main([str(tmp_path / "to"), str(tmp_path)]) == 2
    assert "holds no finished runs" in capsys.readouterr().err
