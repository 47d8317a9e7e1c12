"""What happens to a command line before Hydra reads it, what recipes give, and what a group offers."""

import itertools
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from lightning_cse.arguments import quote_free_text
from lightning_cse.config.compose import describe, options, register
from lightning_cse.config.launch import ordered
from lightning_cse.errors import ConfigError, user_error


def test_the_order_does_not_matter() -> None:
    given = ["+experiment=x", "++profile=laptop", "sweep=seeds", "+debug=tiny"]
    wanted = [
        "+experiment=x",
        "+profile=laptop",
        "+sweep=seeds",
        "+debug=tiny",
        "a=1",
        "~b",
        "--cfg",
        "job",
    ]
    for shuffled in itertools.permutations(given):
        assert ordered(["--cfg", "job", "a=1", *shuffled, "~b"]) == wanted
    assert ordered(["b=2", "a=1", "-m", "b=3"]) == ["b=2", "a=1", "b=3", "-m"]


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "a,b=c",
        "it's",
        'This : "{}" means {mask} .',
        "[x]",
        "${x}"[1:],
        "C:\\folder",
        "runs/x-s0",
        "8",
    ],
)
def test_free_text_survives_hydra(text: str) -> None:
    (line,) = quote_free_text([f"prompt={text}"], ["model", "prompt"])
    assert OverridesParser.create().parse_override(line).value() == text


def test_what_is_no_free_text_stays() -> None:
    for line in ("prompt=null", "model='a b'", "seed=1,2", "other=a=b"):
        assert quote_free_text([line], ["model", "prompt"]) == [line]
    assert quote_free_text(["model=a,b", "-m"], ["model"]) == ["model=a,b", "-m"]


RECIPE = {"default": {"lr": 5e-5, "warmup": None}, "bert_base": {"lr": 3e-5}}


def test_the_number_of_the_encoder_comes_before_the_default() -> None:
    register()
    tree: dict[str, Any] = {"encoder": {"name": "bert_base"}, "recipe": RECIPE}
    config = OmegaConf.create(
        tree | {"lr": "${recipe:lr}", "warmup": "${recipe:warmup}", "other": "${recipe:warmpu}"}
    )
    assert (config.lr, config.warmup) == (3e-5, None)
    config.encoder.name = "roberta_base"
    assert config.lr == 5e-5
    with pytest.raises(InterpolationResolutionError) as wrapped:
        _ = config.other
    known = user_error(wrapped.value)
    assert isinstance(known, ConfigError)
    assert "did you mean 'warmup'?" in str(known)


def test_groups_and_their_options() -> None:
    assert {"dualcse_cross", "gausscse", "simcse_sup"} <= set(options("experiment"))
    assert not [name for name in options("method") if name.startswith("_")]
    assert describe("experiment", "dualcse_cross").startswith("DualCSE with a cross-encoder")
