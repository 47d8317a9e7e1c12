"""Every config under ``conf/``: found, composed, validated; the papers' numbers, and their sources."""

from __future__ import annotations

import copy
import itertools
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from lightning_cse.config.check import check
from lightning_cse.config.compose import APPENDED, recipe_name
from lightning_cse.engine.build import check_nodes

Compose = Callable[..., DictConfig]

CONF = Path(__file__).resolve().parents[2] / "conf"
FILES = sorted(str(path.relative_to(CONF)) for path in CONF.rglob("*.yaml"))
OTHERS = ("describe.yaml", "evaluate.yaml", "generate.yaml", "llm/default.yaml", "suite/mteb.yaml")
COUNTS = {
    "": 5,
    "baselines": 3,
    "callbacks": 1,
    "corpora": 3,
    "data": 20,
    "debug": 2,
    "encoder": 9,
    "experiment": 33,
    "limits": 1,
    "llm": 1,
    "logger": 3,
    "method": 9,
    "paths": 2,
    "pattern": 3,
    "profile": 3,
    "suite": 9,
    "sweep": 10,
    "trainer": 1,
}


def options(group: str) -> list[str]:
    """The options of a group, without parts of others (``_name``)."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml") if not path.stem.startswith("_"))


EXPERIMENTS = options("experiment")
ENCODERS = [name for name in options("encoder") if name != "custom"]
SETTINGS = {"none": [], "tiny": ["+debug=tiny"]} | {name: [f"+profile={name}"] for name in options("profile")}
CROSS = "+experiment=dualcse_cross"


def valid(cfg: DictConfig) -> DictConfig:
    """Check a config as training does; what is automatic stays for the machine."""
    check(cfg, "train")
    plain = copy.deepcopy(cfg)
    plain.trainer.precision = "32-true"
    check_nodes(plain)
    return cfg


def test_every_config_is_found_and_none_came_or_went_unseen() -> None:
    assert Counter(name.rpartition("/")[0] for name in FILES) == COUNTS


@pytest.mark.parametrize("name", FILES)
def test_every_config_composes_and_validates(name: str, compose: Compose) -> None:
    group, _, option = name.removesuffix(".yaml").rpartition("/")
    if name == "encoder/custom.yaml":
        return  # has no source of its own: test_encoders.py
    if option.startswith("_"):  # no option of its own, but a part of others
        users = [
            other
            for other in (CONF / group).glob("*.yaml")
            if re.search(rf"^ *- {option}$", other.read_text(), re.MULTILINE)
        ]
        assert users, f"no config of {group}/ has {option} in its defaults list"
        return
    if group == "pattern" or name in OTHERS:
        return  # other commands': tests/unit/running/test_describing.py, test_evaluating*.py, test_generating.py
    if group in ("", "experiment"):
        overrides = [f"+experiment={option}" if group else CROSS]
    elif group in APPENDED:
        overrides = [CROSS, f"+{group}={option}"]
    else:
        overrides = [CROSS, f"{group}={option}"]
    cfg = valid(compose(*overrides))
    if group == "experiment":
        assert cfg.name == option


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_is_valid_in_every_setting_with_every_encoder(experiment: str, compose: Compose) -> None:
    for overrides, encoder in itertools.product(SETTINGS.values(), ENCODERS):
        cfg = valid(compose(f"+experiment={experiment}", *overrides, f"encoder={encoder}"))
        assert (cfg.name, cfg.encoder.name) == (experiment, encoder)  # the command line has the last word
        assert 0 < cfg.method.optimizer.lr <= 1e-2


# What the papers say


@pytest.mark.parametrize(
    ("experiment", "lr", "batch_size", "contradiction", "intra_sentence"),
    [
        ("dualcse_cross", 5e-5, 64, True, True),
        ("dualcse_cross_no_contradiction", 5e-5, 64, False, True),
        ("dualcse_cross_no_intra", 5e-5, 64, True, False),
        ("dualcse_cross_no_both", 5e-5, 64, False, False),
        ("dualcse_bi", 3e-5, 32, True, True),
        ("dualcse_bi_no_contradiction", 3e-5, 32, False, True),
        ("dualcse_bi_no_intra", 3e-5, 32, True, False),
        ("dualcse_bi_no_both", 3e-5, 32, False, False),
    ],
)
def test_dualcse_is_the_paper_s(
    experiment: str, lr: float, batch_size: int, contradiction: bool, intra_sentence: bool, compose: Compose
) -> None:
    cfg = compose(f"+experiment={experiment}")
    assert (cfg.encoder.name, cfg.encoder.source, cfg.encoder.pooling) == (
        "roberta_base",
        "FacebookAI/roberta-base",
        "cls",
    )
    assert cfg.method.architecture == experiment.split("_")[1]
    assert (cfg.method.optimizer.lr, cfg.data.batch_size) == (lr, batch_size)
    assert cfg.method.loss == {
        "_target_": "lightning_cse.losses.DualContrastive",
        "temperature": 0.05,
        "contradiction": contradiction,
        "intra_sentence": intra_sentence,
    }
    assert (cfg.data.train, cfg.data.train_rows, cfg.monitor) == (["inli/train"], None, "val/rte/accuracy_all")


def test_simcse_on_inli_is_supervised_simcse(compose: Compose) -> None:
    cfg = compose("+experiment=simcse_inli")
    assert cfg.encoder.name == "roberta_base"
    assert (cfg.method.optimizer.lr, cfg.method.loss.temperature, cfg.trainer.max_epochs) == (5e-5, 0.05, 3)
    assert (cfg.method.schedule.name, cfg.method.schedule.warmup, cfg.method.optimizer.weight_decay) == ("linear", 0, 0)
    assert cfg.eval_every == 125


@pytest.mark.parametrize(
    ("experiment", "sets"),
    [
        ("gausscse_ent", ["ent"]),
        ("gausscse_ent_con", ["ent", "con"]),
        ("gausscse_ent_rev", ["ent", "rev"]),
        ("gausscse", ["ent", "con", "rev"]),
    ],
)
@pytest.mark.parametrize(
    ("encoder", "lr"), [("bert_base", 5e-5), ("bert_large", 3e-5), ("roberta_base", 5e-5), ("roberta_large", 3e-5)]
)
def test_gausscse_is_the_paper_s(experiment: str, sets: list[str], encoder: str, lr: float, compose: Compose) -> None:
    cfg = compose(f"+experiment={experiment}", f"encoder={encoder}")
    assert (cfg.method.optimizer.lr, cfg.data.batch_size) == (lr, 16)
    assert cfg.method.loss == {
        "_target_": "lightning_cse.losses.GaussianContrastive",
        "temperature": 0.05,
        "sets": sets,
        "reduce": "mean_of_sims",
    }
    assert (cfg.method.optimizer.weight_decay, cfg.method.schedule.warmup, cfg.data.drop_last) == (0.01, 0.1, True)
    assert (cfg.trainer.max_epochs, cfg.eval_every, cfg.monitor) == (3, 100, "val/snli/auprc")
    assert (cfg.encoder.max_length, cfg.trainer.precision, cfg.method.simcse) == (64, "bf16-mixed", None)
    assert cfg.data.train == ["simcse_nli/train"]
    tasks = {f"{task}{part}" for task in ("snli", "mnli", "sick") for part in ("", "_direction")}
    assert {"stsb", *tasks} == set(cfg.suite)
    assert all(cfg.suite[task].dev == "snli/dev" for task in tasks), "one threshold, tuned on SNLI dev"
    assert [cfg.suite[task].test for task in ("snli", "mnli", "sick")] == [
        "snli/test",
        "mnli/dev_mismatched",
        "sick/test",
    ]


@pytest.mark.parametrize(
    ("experiment", "encoder", "lr", "batch_size"),
    [
        ("simcse_unsup", "bert_base", 3e-5, 64),
        ("simcse_unsup", "bert_large", 1e-5, 64),
        ("simcse_unsup", "roberta_base", 1e-5, 512),
        ("simcse_unsup", "roberta_large", 3e-5, 512),
        ("simcse_sup", "bert_base", 5e-5, 512),
        ("simcse_sup", "bert_large", 1e-5, 512),
        ("simcse_sup", "roberta_base", 5e-5, 512),
        ("simcse_sup", "roberta_large", 1e-5, 512),
    ],
)
def test_simcse_is_the_paper_s(experiment: str, encoder: str, lr: float, batch_size: int, compose: Compose) -> None:
    cfg = compose(f"+experiment={experiment}", f"encoder={encoder}")
    assert (cfg.method.optimizer.lr, cfg.data.batch_size) == (lr, batch_size)
    assert (cfg.method.loss.temperature, cfg.method.loss.get("hard_negative_weight", 0.0)) == (0.05, 0.0)
    assert (cfg.method.optimizer.weight_decay, cfg.method.schedule.warmup, cfg.data.drop_last) == (0.0, 0.0, False)
    assert (cfg.data.max_tokens, cfg.eval_every, cfg.monitor) == (30, 125, "val/stsb/spearman")
    unsupervised = experiment == "simcse_unsup"
    assert cfg.trainer.max_epochs == (1 if unsupervised else 3)
    assert cfg.data.train == (["wiki1m/train"] if unsupervised else ["simcse_nli/train"])
    assert cfg.diag.dropout is unsupervised


ROLES = ["anchor", "positive", "intermediate", "negative"]


@pytest.mark.parametrize(
    ("setting", "roles", "contrastive", "together"),
    [
        ("wiki_dropout", 1, "single_positive", None),
        ("wiki_token_shuffle", 2, "single_positive", None),
        ("wiki_token_cutoff", 2, "single_positive", None),
        ("wiki_nli", 3, "single_positive", 48),
        ("wiki_sts", 4, "single_positive", 16),
        ("wiki_sts_ht", 4, "hierarchical_triplet", 16),
        ("wiki_sts_ht_final", 4, "hierarchical_triplet", 48),
        ("nli_dropout", 1, "single_positive", None),
        ("nli_token_shuffle", 2, "single_positive", None),
        ("nli_token_cutoff", 2, "single_positive", None),
        ("nli_sup", 3, "single_positive", None),
        ("nli_nli", 3, "single_positive", 48),
        ("nli_sts", 4, "single_positive", 48),
        ("nli_sts_ht", 4, "hierarchical_triplet", 48),
        ("nli_sts_ht_final", 4, "hierarchical_triplet", 48),
    ],
)
@pytest.mark.parametrize("encoder", ["bert_base", "roberta_base"])
def test_ngcse_is_the_paper_s(
    setting: str, roles: int, contrastive: str, together: int | None, encoder: str, compose: Compose
) -> None:
    domain, final = setting.partition("_")[0], setting.endswith("_final")
    cfg = compose(f"+experiment=ngcse_{setting}", f"encoder={encoder}")
    assert (cfg.encoder.name, cfg.encoder.pooling) == (encoder, "prompt" if final else "cls")
    assert (cfg.method.optimizer.lr, cfg.data.batch_size, cfg.data.max_tokens) == (1e-5 if final else 3e-5, 256, 30)
    assert (cfg.trainer.max_epochs, cfg.trainer.precision) == (1 if domain == "wiki" else 3, "32-true")
    assert (cfg.method.optimizer.weight_decay, cfg.method.schedule.warmup, cfg.data.drop_last) == (0.0, 0.0, False)
    assert (cfg.eval_every, cfg.monitor, cfg.encoder.freeze_embeddings) == (125, "val/stsb/spearman", True)
    expected = ROLES[:roles] if roles != 3 else ["anchor", "positive", "negative"]
    assert (cfg.method.roles, cfg.method.contrastive) == (expected, contrastive)
    assert cfg.method.llm_positive == "intermediate"
    far = {"wiki": 5e-2, "nli": 1e-1}[domain] if final else 1e-2
    margins = cfg.method.hierarchical_triplet
    assert (margins.margin_positive, margins.margin_negative, cfg.method.beta) == (5e-3, far, 1.0)
    assert (cfg.method.loss.temperature, cfg.data.llm_rows_together) == (0.05, together)
    assert (cfg.data.held_out_share, cfg.data.held_out_rows) == (0.01 if final else 0.1, 1000)
    assert cfg.data.train == {"wiki": ["wiki1m/train"], "nli": ["simcse_nli/train"]}[domain]
    assert (cfg.diag.dropout, cfg.diag.positive_score, cfg.diag.sentences) == (True, 4.0, 1000)
    pattern = setting.split("_")[1]
    if together is not None:
        assert (cfg.data.rows.llm, cfg.data.rows.pattern) == ([f"ngcse/{domain}_{pattern}"], pattern)


def test_a_profile_takes_the_corpora_that_are_there(compose: Compose) -> None:
    small = compose("+experiment=gausscse", "+profile=small")
    assert small.suite.snli.dev == small.data.held_out[0] == "snli_senteval/dev"
    assert small.suite.mnli.test == "mnli_nyu/dev_matched"
    assert "snli_counterfactual/original_dev" not in small.data.train
    for settings in SETTINGS.values():
        cfg = compose("+experiment=gausscse", *settings)
        evaluated = {cfg.suite[task].test for task in ("snli", "mnli", "sick")} | {cfg.suite.snli.dev}
        assert evaluated | {"stsb/dev", "stsb/test"} == set(cfg.data.excluded)
    moved = compose("+experiment=gausscse", "corpora.mnli_test=mnli/dev_matched")
    assert "mnli/dev_matched" in moved.data.excluded, "what is tested is what is excluded"


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_encoder_brings_numbers_to_every_experiment(experiment: str, compose: Compose) -> None:
    found = {}
    for encoder in (*ENCODERS, "custom"):
        cfg = compose(f"+experiment={experiment}", f"encoder={encoder}")
        recipe = cfg.recipe.get(encoder) or cfg.recipe.default
        found[encoder] = (cfg.method.optimizer.lr, cfg.data.batch_size)
        assert found[encoder] == (recipe.lr, recipe.batch_size)
        assert recipe_name(cfg) == (encoder if cfg.recipe.get(encoder) else "default")
    assert found["minilm_l4"] == found["minilm_l6"] != found["custom"]


def test_an_encoder_brings_its_own_numbers(compose: Compose) -> None:
    assert compose(CROSS, "encoder=minilm_l6").method.optimizer.lr == 2e-4
    assert compose(CROSS, "encoder=bert_base").method.optimizer.lr == 5e-5
    assert compose(CROSS, "+profile=laptop").method.optimizer.lr == 2e-4
    assert compose(CROSS, "+profile=laptop", "method.optimizer.lr=1e-3").method.optimizer.lr == 1e-3


SOURCE = re.compile(r"\bpaper\b|authors' code|official|our choice|\bas (for )?(DualCSE|dualcse_cross)\b")


def test_every_number_of_an_experiment_names_its_source() -> None:
    numbers = 0
    for path in sorted((CONF / "experiment").glob("*.yaml")):
        for place, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            value, _, comment = line.partition("#")
            if re.search(r":\s*[\[{]?.*(?<![\w.])[-+]?\d", value):
                numbers += 1
                assert SOURCE.search(comment), f"{path.name}, line {place}: whose number is it? {line}"
    assert numbers == 59


# Order


def test_debug_wins_over_sweep_over_profile_over_experiment(compose: Compose) -> None:
    cfg = compose("+debug=tiny", "+profile=laptop", "+sweep=seeds", CROSS, with_hydra=True)
    tiny, laptop = compose("+debug=tiny", CROSS), compose("+profile=laptop", CROSS)
    assert cfg.encoder == tiny.encoder
    assert (laptop.encoder.name, laptop.encoder.max_length) == ("minilm_l6", 96)
    assert (laptop.data.batch_size, laptop.least_evaluations, laptop.trainer.precision) == (16, 10, "auto")
    assert (cfg.data.batch_size, cfg.eval_every, cfg.trainer.precision) == (8, 4, "32-true")
    assert (laptop.logger._target_, cfg.logger) == ("lightning_cse.loggers.WandbView", {})
    assert str(cfg.hydra.mode) == "RunMode.MULTIRUN"


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_value_on_the_command_line_wins_over_all(setting: str, compose: Compose) -> None:
    cfg = compose("encoder=bert_large", "data.batch_size=12", "logger=csv", CROSS, *SETTINGS[setting])
    assert (cfg.encoder.name, cfg.data.batch_size, cfg.logger) == ("bert_large", 12, {})


@pytest.mark.parametrize("setting", ["laptop", "tiny"])
def test_the_sample_corpus_is_used_where_it_is_asked_for_and_nowhere_else(setting: str, compose: Compose) -> None:
    sample = CONF.parent / "src" / "lightning_cse" / "data" / "sample"
    assert Path(compose(CROSS, *SETTINGS[setting]).paths.data_dir) == sample
    for other in SETTINGS.keys() - {"laptop", "tiny"}:
        assert Path(compose(CROSS, *SETTINGS[other]).paths.data_dir) != sample


# Sweeps

MARGINS = "method.hierarchical_triplet.margin_"
HIERARCHICAL_TRIPLET = (f"{MARGINS}positive", f"{MARGINS}negative", "method.beta")


@pytest.mark.parametrize(
    ("sweep", "points"),
    [
        ("seeds", {"seed": 5}),
        ("dualcse_grid", {"data.batch_size": 4, "method.optimizer.lr": 3}),
        ("dualcse_ablations_five_seeds", {"+experiment": 8, "seed": 5}),
        ("gausscse_grid", {"data.batch_size": 4, "method.optimizer.lr": 3}),
        ("gausscse_losses_five_seeds", {"method.loss.sets": 4, "seed": 5}),
        ("ngcse_settings", {"+experiment": 13, "seed": 3}),
        ("ngcse_final_three_seeds", {"+experiment": 2, "encoder": 2, "seed": 3}),
        ("ngcse_ht_grid", dict.fromkeys(("method.optimizer.lr", *HIERARCHICAL_TRIPLET), 3)),
        ("ngcse_llm_rows", {"data.llm_rows": 11, "seed": 3}),
    ],
)
def test_a_sweep_has_the_points_it_names(sweep: str, points: dict[str, int], compose: Compose) -> None:
    assert sweep in options("sweep")
    cfg = compose(f"+sweep={sweep}", with_hydra=True)
    lines = [f"{key}={value}" for key, value in cfg.hydra.sweeper.params.items()]
    parsed = OverridesParser.create().parse_overrides(lines)
    swept = {override.get_key_element(): list(override.sweep_string_iterator()) for override in parsed}
    assert {key: len(values) for key, values in swept.items()} == points
    assert set(swept.get("+experiment", [])) <= set(EXPERIMENTS)
    assert len(options("sweep")) == 10  # all of which stand above, but the one below


def test_the_margins_are_swept_one_at_a_time(compose: Compose) -> None:
    sweeper = compose("+sweep=ngcse_margins", with_hydra=True).hydra.sweeper
    assert sweeper._target_.endswith(".PointsSweeper")
    base = {key: float(value) for key, value in sweeper.params.items()}
    assert base == {f"{MARGINS}positive": 5e-3, f"{MARGINS}negative": 5e-2}
    points = [
        base | {key: float(value) for key, value in (line.split("=") for line in point)} for point in sweeper.points
    ]
    swept = {side: [point[f"{MARGINS}{side}"] for point in points] for side in ("positive", "negative")}
    assert swept["positive"] == [5e-3, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35] + [5e-3] * 7
    assert swept["negative"] == [5e-2] * 8 + [4e-2, 3e-2, 2e-2, 1e-2, 5e-3, 2e-3, 1e-3]
    final = compose("+experiment=ngcse_wiki_sts_ht_final").method.hierarchical_triplet
    assert (final.margin_positive, final.margin_negative) == (5e-3, 5e-2), "the first point is the final setting"
