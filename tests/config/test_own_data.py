"""What ``data=file`` and ``own.*`` make of a config: suites, values, recipes."""

import pytest
from omegaconf import OmegaConf

from lightning_cse.config.check import check
from lightning_cse.config.recipe import recipe_name

X = "+experiment=simcse_sup"
OWN = (X, "data=file", "data.train=my/x.csv", "encoder=minilm_l6")
BOTH = "own.sts={dev: my/dev.csv, test: my/test.csv}"


@pytest.fixture
def valid(compose):
    """Compose and check a config."""

    def composed(*overrides):
        cfg = compose(*overrides)
        check(cfg, "train")
        return cfg

    return composed


@pytest.mark.parametrize(
    ("overrides", "tasks"),
    [
        ((), ["held_out", "stsb_sample"]),
        (("own.pairs=my/test.csv",), ["own_pairs", "held_out", "stsb_sample"]),
        ((BOTH,), ["own_sts"]),
        (
            (BOTH, "own.nli=[a.csv,b.csv]", "own.direction=c.csv"),
            ["own_sts", "own_nli", "own_direction"],
        ),
        (("suite=stsb",), ["stsb"]),
        (("suite=stsb", "own.nli=my/test.csv"), ["own_nli", "stsb"]),
        (("suite=own", BOTH), ["own_sts"]),
    ],
)
def test_a_run_on_own_files_has_own_test_sets_or_a_stand_in(overrides, tasks, valid):
    cfg = valid(*OWN, *overrides)
    assert list(cfg.suite) == tasks
    assert cfg.monitor == "auto"
    assert "replaces" not in cfg.data


def test_a_run_on_a_corpus_has_the_suite_of_its_experiment_and_own_test_sets(valid):
    alone = valid(X)
    combined = valid(X, BOTH, "own.pairs=my/p.csv")
    assert list(combined.suite) == ["own_sts", "own_pairs", *alone.suite]
    assert not any("own" in task for task in alone.suite.values())
    assert (combined.monitor, combined.data.max_tokens) == ("val/stsb/spearman", 30)


def test_own_files_replace_what_fits_the_corpora_of_the_papers(valid):
    cfg = valid(*OWN)
    assert (cfg.data.max_tokens, cfg.encoder.max_length) == (None, "auto")
    assert (cfg.diag.evaluation, cfg.least_evaluations) == ("none", 5)
    assert cfg.suite.stsb_sample.data_dir != cfg.paths.data_dir


def test_what_the_command_line_says_stays(valid):
    lines = {
        "data.max_tokens": 20,
        "encoder.max_length": 77,
        "diag.evaluation": "stsb_dev",
        "monitor": "val/stsb_sample/spearman",
    }
    cfg = valid(*OWN, *(f"{key}={value}" for key, value in lines.items()))
    assert {key: OmegaConf.select(cfg, key) for key in lines} == lines


def numbers(cfg):
    return (recipe_name(cfg), cfg.method.optimizer.lr, cfg.data.batch_size, cfg.method.head)


def test_recipe_of_a_sentence_encoder_is_for_own_files_alone(valid, compose):
    trained = ("own", 5e-6, 64, False)
    assert numbers(valid(*OWN)) == trained
    assert numbers(valid(X, "encoder=minilm_l6")) == ("minilm_l6", 3e-4, 32, True)
    assert numbers(valid(*OWN, "encoder=minilm_l4")) == ("minilm_l4", 3e-4, 32, True)
    assert numbers(valid(*OWN, "encoder=tiny")) == ("default", 5e-5, 512, True)
    assert numbers(valid(*OWN, "encoder=tiny", "init_from=runs/mine")) == trained
    assert numbers(valid(*OWN, "method.optimizer.lr=1e-3"))[:2] == ("own", 1e-3)


def test_a_folder_says_whether_it_is_a_sentence_encoder(valid, tmp_path):
    encoder = ("encoder=custom", f"encoder.source={tmp_path}", "encoder.pooling=mean")
    assert numbers(valid(*OWN, *encoder))[0] == "default"
    (tmp_path / "modules.json").write_text("[]")
    assert numbers(valid(*OWN, *encoder))[0] == "own"
