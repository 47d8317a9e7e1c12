"""Every config under ``conf/``: found, composed, validated; the papers' numbers, and their sources."""

import copy
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from lightning_cse.config.check import check
from lightning_cse.config.compose import APPENDED, recipe_name
from lightning_cse.engine.build import check_nodes

Compose = Callable[..., DictConfig]

CONF = Path(__file__).resolve().parents[2] / "conf"
FILES = sorted(
    str(path.relative_to(CONF)) for path in CONF.rglob("*.yaml") if path.parent.name != "local"
)
# Of other commands, whose tests compose them; custom.yaml has no source of its own.
OTHERS = (
    "describe.yaml",
    "encoder/custom.yaml",
    "evaluate.yaml",
    "generate.yaml",
    "llm/default.yaml",
    "suite/mteb.yaml",
)
COUNTS = (
    {
        "": 5,
        "baselines": 3,
        "callbacks": 1,
        "corpora": 3,
        "data": 21,
        "debug": 2,
        "encoder": 9,
        "experiment": 33,
    }
    | {
        "limits": 1,
        "llm": 1,
        "logger": 3,
        "method": 9,
        "paths": 2,
        "pattern": 6,
        "profile": 3,
        "suite": 10,
    }
    | {"sweep": 10, "trainer": 1}
)


def options(group: str) -> list[str]:
    """The options of a group, without parts of others (``_name``)."""
    return sorted(
        path.stem for path in (CONF / group).glob("*.yaml") if not path.stem.startswith("_")
    )


EXPERIMENTS = options("experiment")
ENCODERS = [name for name in options("encoder") if name != "custom"]
SETTINGS = {"none": [], "tiny": ["+debug=tiny"]} | {
    name: [f"+profile={name}"] for name in options("profile")
}
CROSS = "+experiment=dualcse_cross"


def valid(cfg: DictConfig) -> DictConfig:
    """Check a config as training does; what is automatic stays for the machine."""
    check(cfg, "train")
    plain = copy.deepcopy(cfg)
    plain.trainer.precision = "32-true"
    check_nodes(plain)
    return cfg


def has(cfg: DictConfig, wanted: dict[str, Any]) -> None:
    """The config has these values at these keys, separated by dots."""
    __tracebackhide__ = True
    assert {key: OmegaConf.select(cfg, key) for key in wanted} == wanted


def test_every_config_is_found_and_none_came_or_went_unseen() -> None:
    assert Counter(name.rpartition("/")[0] for name in FILES) == COUNTS


GIVEN = {"suite/own.yaml": ["own.sts=my.csv"]}
"""What an option does not do without."""


@pytest.mark.parametrize(
    "name", [name for name in FILES if name not in OTHERS and not name.startswith("pattern/")]
)
def test_every_config_composes_and_validates(name: str, compose: Compose) -> None:
    group, _, option = name.removesuffix(".yaml").rpartition("/")
    if option.startswith("_"):  # no option of its own, but a part of others
        texts = [other.read_text() for other in (CONF / group).glob("*.yaml")]
        assert any(re.search(rf"^ *- {option}$", text, re.MULTILINE) for text in texts)
        return
    if group in ("", "experiment"):
        overrides = [f"+experiment={option}" if group else CROSS]
    else:
        overrides = [
            CROSS,
            f"{'+' if group in APPENDED else ''}{group}={option}",
            *GIVEN.get(name, ()),
        ]
    cfg = valid(compose(*overrides))
    if group == "experiment":
        assert cfg.name == option


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_is_valid_in_every_setting(experiment: str, compose: Compose) -> None:
    for place, overrides in enumerate(SETTINGS.values(), start=EXPERIMENTS.index(experiment)):
        encoder = ENCODERS[place % len(ENCODERS)]
        cfg = valid(compose(f"+experiment={experiment}", *overrides, f"encoder={encoder}"))
        assert (cfg.name, cfg.encoder.name) == (
            experiment,
            encoder,
        )  # the command line has the last word
        assert 0 < cfg.method.optimizer.lr <= 1e-2


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_takes_a_file_of_ones_own(experiment: str, compose: Compose) -> None:
    data = (
        "data=file",
        "data.train=my/x.csv",
        "data.columns={anchor: question}",
    )
    for setting in ((), ("+debug=tiny",), ("+profile=small", "+debug=overfit")):
        cfg = valid(compose(f"+experiment={experiment}", *setting, *data))
        assert (cfg.data.train, cfg.data.held_out, cfg.data.excluded) == ("my/x.csv", None, [])


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_encoder_brings_numbers_to_every_experiment(
    experiment: str, compose: Compose
) -> None:
    cfg, found = compose(f"+experiment={experiment}"), {}
    for encoder in (*ENCODERS, "folder/of my own"):
        cfg.encoder.name = encoder
        recipe = cfg.recipe.get(encoder) or cfg.recipe.default
        found[encoder] = (cfg.method.optimizer.lr, cfg.data.batch_size)
        assert found[encoder] == (recipe.lr, recipe.batch_size)
        assert recipe_name(cfg) == (encoder if cfg.recipe.get(encoder) else "default")
    assert found["minilm_l4"] == found["minilm_l6"] != found["folder/of my own"]


# What the papers say


@pytest.mark.parametrize("architecture", ["cross", "bi"])
@pytest.mark.parametrize("ablation", ["", "_no_contradiction", "_no_intra", "_no_both"])
def test_dualcse_is_the_paper_s(architecture: str, ablation: str, compose: Compose) -> None:
    cfg = compose(f"+experiment=dualcse_{architecture}{ablation}")
    assert (cfg.method.optimizer.lr, cfg.data.batch_size) == {
        "cross": (5e-5, 64),
        "bi": (3e-5, 32),
    }[architecture]
    assert cfg.method.loss == {
        "_target_": "lightning_cse.losses.DualContrastive",
        "temperature": 0.05,
        "contradiction": ablation in ("", "_no_intra"),
        "intra_sentence": ablation in ("", "_no_contradiction"),
    }
    has(
        cfg,
        {
            "encoder.name": "roberta_base",
            "encoder.source": "FacebookAI/roberta-base",
            "encoder.pooling": "cls",
        },
    )
    has(cfg, {"method.architecture": architecture, "monitor": "val/rte/accuracy_all"})
    has(cfg, {"data.train": ["inli/train"], "data.train_rows": None})


@pytest.mark.parametrize(
    ("experiment", "sets"),
    [
        ("gausscse_ent", ["ent"]),
        ("gausscse_ent_con", ["ent", "con"]),
        ("gausscse_ent_rev", ["ent", "rev"]),
        ("gausscse", ["ent", "con", "rev"]),
    ],
)
def test_gausscse_is_the_paper_s(experiment: str, sets: list[str], compose: Compose) -> None:
    cfg = compose(f"+experiment={experiment}")
    rates = {"bert_base": 5e-5, "bert_large": 3e-5, "roberta_base": 5e-5, "roberta_large": 3e-5}
    for encoder, rate in rates.items():
        cfg.encoder.name = encoder
        has(cfg, {"method.optimizer.lr": rate, "data.batch_size": 16})
    assert cfg.method.loss == {
        "_target_": "lightning_cse.losses.GaussianContrastive",
        "temperature": 0.05,
        "sets": sets,
        "reduce": "mean_of_sims",
    }
    has(
        cfg,
        {
            "method.optimizer.weight_decay": 0.01,
            "method.schedule.warmup": 0.1,
            "data.drop_last": True,
        },
    )
    has(
        cfg,
        {
            "trainer.max_epochs": 3,
            "eval_every": 100,
            "monitor": "val/snli/auprc",
            "method.simcse": None,
        },
    )
    has(cfg, {"trainer.gradient_clip_val": None, "method.schedule.name": "linear"})  # authors' code
    has(
        cfg,
        {
            "encoder.max_length": 64,
            "trainer.precision": "bf16-mixed",
            "data.train": ["simcse_nli/train"],
        },
    )
    tests = {"snli": "snli/test", "mnli": "mnli/dev_mismatched", "sick": "sick/test"}
    assert {"stsb", *tests, *(f"{task}_direction" for task in tests)} == set(cfg.suite)
    for task, test in tests.items():  # one threshold, tuned on SNLI dev
        has(cfg, {f"suite.{task}.dev": "snli/dev", f"suite.{task}_direction.dev": "snli/dev"})
        has(cfg, {f"suite.{task}.test": test})


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
        ("simcse_inli", "roberta_base", 5e-5, 64),
    ],
)
def test_simcse_is_the_paper_s(
    experiment: str, encoder: str, lr: float, batch_size: int, compose: Compose
) -> None:
    cfg = compose(f"+experiment={experiment}", f"encoder={encoder}")
    unsupervised = experiment == "simcse_unsup"
    has(
        cfg,
        {"method.optimizer.lr": lr, "data.batch_size": batch_size, "method.loss.temperature": 0.05},
    )
    has(
        cfg,
        {
            "method.optimizer.weight_decay": 0,
            "method.schedule.warmup": 0,
            "method.schedule.name": "linear",
        },
    )
    has(cfg, {"eval_every": 125, "trainer.max_epochs": 1 if unsupervised else 3})
    assert cfg.method.loss.get("hard_negative_weight", 0.0) == 0.0
    if experiment != "simcse_inli":
        has(cfg, {"data.max_tokens": 30, "data.drop_last": False, "monitor": "val/stsb/spearman"})
        has(cfg, {"data.train": ["wiki1m/train"] if unsupervised else ["simcse_nli/train"]})
        has(cfg, {"diag.dropout": unsupervised})


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
def test_ngcse_is_the_paper_s(
    setting: str, roles: int, contrastive: str, together: int | None, compose: Compose
) -> None:
    domain, final = setting.partition("_")[0], setting.endswith("_final")
    cfg = compose(f"+experiment=ngcse_{setting}")
    for encoder in ("roberta_base", "bert_base"):
        cfg.encoder.name = encoder
        has(
            cfg,
            {
                "method.optimizer.lr": 1e-5 if final else 3e-5,
                "data.batch_size": 256,
                "data.max_tokens": 30,
            },
        )
    has(cfg, {"trainer.max_epochs": 1 if domain == "wiki" else 3, "trainer.precision": "32-true"})
    has(
        cfg,
        {
            "method.optimizer.weight_decay": 0.0,
            "method.schedule.warmup": 0.0,
            "data.drop_last": False,
        },
    )
    has(cfg, {"eval_every": 125, "monitor": "val/stsb/spearman"})
    has(cfg, {"encoder.pooling": "prompt" if final else "cls", "encoder.freeze_embeddings": True})
    has(cfg, {"method.roles": ROLES[:roles] if roles != 3 else ["anchor", "positive", "negative"]})
    positive = "positive" if setting.endswith("_sts") else "intermediate"
    has(
        cfg,
        {"method.contrastive": contrastive, "method.llm_positive": positive, "method.beta": 1.0},
    )
    far = {"wiki": 5e-2, "nli": 1e-1}[domain] if final else 1e-2
    has(cfg.method.hierarchical_triplet, {"margin_positive": 5e-3, "margin_negative": far})
    has(cfg, {"method.loss.temperature": 0.05, "data.llm_rows_together": together})
    has(cfg, {"data.held_out_share": 0 if final else 0.1, "data.held_out_rows": 1000})
    has(cfg, {"data.watched_in": [] if final else [f"ngcse/{domain}_nli", f"ngcse/{domain}_sts"]})
    has(cfg, {"data.train": {"wiki": ["wiki1m/train"], "nli": ["simcse_nli/train"]}[domain]})
    has(cfg, {"diag.dropout": True, "diag.positive_score": 4.0, "diag.sentences": 1000})
    if together is not None:
        pattern = setting.split("_")[1]
        has(cfg, {"data.rows.llm": [f"ngcse/{domain}_{pattern}"], "data.rows.pattern": pattern})


SOURCE = re.compile(
    r"\bpaper\b|authors' code|official|our choice|\bas (for )?(DualCSE|dualcse_cross)\b"
)


def test_every_number_of_an_experiment_names_its_source() -> None:
    numbers = 0
    for path in sorted((CONF / "experiment").glob("*.yaml")):
        for place, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            value, _, comment = line.partition("#")
            if re.search(r":\s*[\[{]?.*(?<![\w.])[-+]?\d", value):
                numbers += 1
                assert SOURCE.search(comment), (
                    f"{path.name}, line {place}: whose number is it? {line}"
                )
    assert numbers == 58


# Order and settings


def test_debug_wins_over_sweep_over_profile_over_experiment(compose: Compose) -> None:
    cfg = compose("+debug=tiny", "+profile=laptop", "+sweep=seeds", CROSS, with_hydra=True)
    tiny, laptop = compose("+debug=tiny", CROSS), compose("+profile=laptop", CROSS)
    assert cfg.encoder == tiny.encoder
    has(
        laptop, {"encoder.name": "minilm_l6", "encoder.max_length": 96, "method.optimizer.lr": 2e-4}
    )
    has(laptop, {"data.batch_size": 16, "least_evaluations": 10, "trainer.precision": "auto"})
    has(cfg, {"data.batch_size": 8, "eval_every": 4, "trainer.precision": "32-true"})
    assert (laptop.logger._target_, cfg.logger) == ("lightning_cse.loggers.WandbView", {})
    assert str(cfg.hydra.mode) == "RunMode.MULTIRUN"


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_command_line_wins_and_only_small_settings_use_the_sample_corpus(
    setting: str, compose: Compose
) -> None:
    overrides = (
        "encoder=bert_large",
        "data.batch_size=12",
        "method.optimizer.lr=1e-3",
        "logger=csv",
    )
    cfg = compose(*overrides, CROSS, *SETTINGS[setting])
    has(
        cfg,
        {
            "encoder.name": "bert_large",
            "data.batch_size": 12,
            "method.optimizer.lr": 1e-3,
            "logger": {},
        },
    )
    sample = CONF.parent / "src" / "lightning_cse" / "data" / "sample"
    assert (Path(cfg.paths.data_dir) == sample) is (setting in ("laptop", "tiny"))


def test_a_profile_takes_the_corpora_that_are_there(compose: Compose) -> None:
    small = compose("+experiment=gausscse", "+profile=small")
    assert small.suite.snli.dev == small.data.held_out[0] == "snli_senteval/dev"
    assert small.suite.mnli.test == "mnli_nyu/dev_matched"
    assert "snli_counterfactual/original_dev" not in small.data.train
    for overrides in (*SETTINGS.values(), ["corpora.mnli_test=mnli/dev_matched"]):
        cfg = compose("+experiment=gausscse", *overrides)
        evaluated = {cfg.suite[task].test for task in ("snli", "mnli", "sick")} | {
            cfg.suite.snli.dev
        }
        assert evaluated | {"stsb/dev", "stsb/test"} == set(cfg.data.excluded), (
            "what is tested is what is excluded"
        )


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
def test_a_sweep_has_the_points_it_names(
    sweep: str, points: dict[str, int], compose: Compose
) -> None:
    cfg = compose(f"+sweep={sweep}", with_hydra=True)
    lines = [f"{key}={value}" for key, value in cfg.hydra.sweeper.params.items()]
    parsed = OverridesParser.create().parse_overrides(lines)
    swept = {
        override.get_key_element(): list(override.sweep_string_iterator()) for override in parsed
    }
    assert {key: len(values) for key, values in swept.items()} == points
    assert set(swept.get("+experiment", [])) <= set(EXPERIMENTS)


def test_the_margins_are_swept_one_at_a_time(compose: Compose) -> None:
    sweeper = compose("+sweep=ngcse_margins", with_hydra=True).hydra.sweeper
    assert sweeper._target_.endswith(".PointsSweeper")
    base = {key: float(value) for key, value in sweeper.params.items()}
    assert base == {f"{MARGINS}positive": 5e-3, f"{MARGINS}negative": 5e-2}
    points = [
        base | {key: float(value) for key, value in (line.split("=") for line in point)}
        for point in sweeper.points
    ]
    swept = {
        side: [point[f"{MARGINS}{side}"] for point in points] for side in ("positive", "negative")
    }
    assert swept["positive"] == [5e-3, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35] + [5e-3] * 7
    assert swept["negative"] == [5e-2] * 8 + [4e-2, 3e-2, 2e-2, 1e-2, 5e-3, 2e-3, 1e-3]
    final = compose("+experiment=ngcse_wiki_sts_ht_final").method.hierarchical_triplet
    assert (final.margin_positive, final.margin_negative) == (5e-3, 5e-2), (
        "the first point is the final setting"
    )


def test_contrastive_learning_alone_has_the_llm_s_positive_in_table_3(compose: Compose) -> None:
    rows: Any = OmegaConf.load(CONF.parent / "experiments" / "ngcse" / "table3.yaml").rows
    single = rows["CL.single_positive"]
    cfg = compose(f"+experiment={single.experiment}", *single.overrides)
    has(cfg.method, {"contrastive": "single_positive", "llm_positive": "positive"})
