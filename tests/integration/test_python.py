"""Training from a Python program: what a run gives there, and what it leaves in the process."""

from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from small_runs import LITTLE

import lightning_cse
from lightning_cse.errors import ConfigError, LightningCSEError

pytestmark = pytest.mark.slow
TINY = ("+experiment=gausscse", "+debug=tiny", "limits.dev_pairs=6", "limits.test_pairs=6", *LITTLE)


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    """An empty folder, and a process in which Hydra was not used."""
    monkeypatch.chdir(tmp_path)
    for name in ("RUNS", "CACHE", "DATA"):
        monkeypatch.delenv(f"LIGHTNING_CSE_{name}", raising=False)

    monkeypatch.setenv("LIGHTNING_CSE_CACHE", str(tmp_path / "cache"))
    before = Singleton.get_state()
    GlobalHydra.instance().clear()
    yield
    Singleton.set_state(before)


def test_run_with_its_tables_and_model(tmp_path):
    run = lightning_cse.train(TINY)
    assert run.path.is_relative_to(tmp_path / "runs" / "gausscse")
    assert Path.cwd() == tmp_path

    record = run.read()
    assert record["overrides"] == list(TINY)
    assert run.table()["gausscse"].to_dict() == record["metrics"]

    curves = run.curves()
    assert curves["val/snli/auprc"].dropna().index.tolist() == [0, 2, 4]
    assert len(curves["train/loss"].dropna()) == record["steps"] == 4
    assert lightning_cse.load(run.path).views == ["mean", "variance"]

    stamp = run.record_path.stat().st_mtime_ns
    repeated = lightning_cse.train(list(TINY))

    assert (repeated.path, repeated.record_path.stat().st_mtime_ns) == (run.path, stamp)

    reseeded = lightning_cse.train([*TINY, "seed=1"])
    assert (reseeded.seed, reseeded.config_hash) == (1, run.config_hash)


def test_hydra_is_left_as_it_was(tmp_path):
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "mine.yaml").write_text("a: 1\n")

    with hydra.initialize_config_dir(str(conf), version_base="1.2"):
        cfg = hydra.compose("mine", return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        run = lightning_cse.train(TINY)

        assert hydra.compose("mine", ["a=2"]) == {"a": 2}
        assert str(hydra.version.getbase()) == "1.2"
        assert HydraConfig.get().job.config_name == "mine"

        with pytest.raises(ConfigError, match=r"did you mean 'trainer.max_epochs'"):
            lightning_cse.train([*TINY, "epochs=1"])

        assert hydra.compose("mine") == {"a": 1}

    assert run.read()["overrides"] == list(TINY)

    lightning_cse.train(TINY)
    assert not GlobalHydra.instance().is_initialized()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([*TINY, "epochs=1"], "did you mean 'trainer.max_epochs'"),
        ([*TINY, "+sweep=seeds"], "one call from Python is one run"),
        ("+experiment=gausscse", "overrides: must be a list such as ['+experiment=gausscse']"),
    ],
)
def test_errors_are_those_of_the_command(overrides, message, tmp_path):
    with pytest.raises(LightningCSEError) as raised:
        lightning_cse.train(overrides)

    assert message in str(raised.value)
    assert not (tmp_path / "runs").exists()
