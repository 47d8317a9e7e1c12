"""The recipe resolver, and the user's error behind OmegaConf's."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from lightning_cse.config.causes import user_error
from lightning_cse.config.resolvers import register
from lightning_cse.errors import ConfigError, DataError


def _config(encoder: str, key: str, **recipe: Any) -> DictConfig:
    register()
    return OmegaConf.create(
        {"encoder": {"name": encoder}, "recipe": recipe, "deep": {"er": {"x": f"${{recipe:{key}}}"}}}
    )


RECIPE: dict[str, Any] = {
    "default": {"lr": 5e-5, "batch_size": 64, "warmup": None, "optim": {"eps": 1e-8}},
    "bert_base": {"lr": 3e-5, "batch_size": None},
}


@pytest.mark.parametrize(
    ("encoder", "key", "value"),
    [
        ("bert_base", "lr", 3e-5),
        ("roberta_base", "lr", 5e-5),
        ("bert_base", "optim.eps", 1e-8),
        ("roberta_base", "warmup", None),
        ("bert_base", "batch_size", None),  # null is a value too
    ],
)
def test_the_encoder_s_number_comes_before_the_default(encoder: str, key: str, value: float | None) -> None:
    assert _config(encoder, key, **RECIPE).deep.er.x == value


def test_it_follows_an_encoder_that_is_changed_afterwards() -> None:
    config = _config("roberta_base", "lr", **RECIPE)
    assert config.deep.er.x == 5e-5
    config.encoder.name = "bert_base"
    assert config.deep.er.x == 3e-5


def test_a_recipe_may_itself_interpolate() -> None:
    config = _config("bert_base", "lr", default={"lr": "${recipe.base}"}, base=7)
    assert config.deep.er.x == 7


def test_registering_twice_changes_nothing() -> None:
    register()
    register()
    assert _config("bert_base", "lr", **RECIPE).deep.er.x == 3e-5


def test_a_key_in_neither_names_both_and_the_encoder() -> None:
    with pytest.raises(InterpolationResolutionError) as caught:
        _ = _config("bert_base", "lrr", **RECIPE).deep.er.x
    mistake = user_error(caught.value)
    assert isinstance(mistake, ConfigError)
    assert mistake.faults == [
        "${recipe:lrr}: neither `recipe.bert_base.lrr` nor `recipe.default.lrr` exists (the encoder is 'bert_base')"
        " - did you mean 'lr'?"
    ]


def test_a_missing_value_does_not_count_as_there() -> None:
    config = _config("bert_base", "lr", default={"lr": 1}, bert_base={"lr": "???"})
    assert config.deep.er.x == 1


def test_without_a_recipe_the_experiment_is_missing() -> None:
    register()
    with pytest.raises(InterpolationResolutionError, match=r"\$\{recipe:lr\}: the config has no `recipe`"):
        _ = OmegaConf.create({"x": "${recipe:lr}"}).x


def test_only_the_wrappers_of_omegaconf_and_hydra_are_looked_through() -> None:
    bug = ValueError("a bug while handling it")
    bug.__context__ = DataError("line 3")
    assert user_error(bug) is None
    wrapper = InstantiationException("Error in call to target")
    wrapper.__cause__ = DataError("line 3")
    assert user_error(wrapper) is wrapper.__cause__
    assert user_error(None) is None


def test_a_config_error_survives_pickling_with_its_faults() -> None:
    error = pickle.loads(pickle.dumps(ConfigError(["a: b", "c: d"])))
    assert error.faults == ["a: b", "c: d"]
