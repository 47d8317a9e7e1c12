"""Which keys have a place in a config."""

from __future__ import annotations

import pytest

from lightning_cse.config.keys import is_open
from lightning_cse.config.overrides import check_overrides
from lightning_cse.config.paths import conf_dir
from lightning_cse.errors import ConfigError

TREE = {"llm": {"model": "m", "price": None, "parameters": {"temperature": 0.0}}, "data": {"weights": None}}


@pytest.mark.parametrize(
    ("path", "key", "open_"),
    [
        ("llm.parameters.top_p", "llm.parameters.top_p", True),
        ("llm.parameters.stop.0", "llm.parameters.stop", True),
        ("llm.price.input", "llm.price", True),  # llm.price={input: 0.5}, where there was null
        ("llm.price.input", "llm.price.input", False),  # nothing below a null can be set by itself
        ("llm.model.name", "llm.model", False),  # a text has a value already
        ("llm.prce.input", "llm.prce", False),
        ("data.weights", "data.weights", False),  # it is there: nothing has to be open
    ],
)
def test_open_places(path: str, key: str, open_: bool) -> None:
    assert is_open(TREE, path.split("."), key.split(".")) is open_


def test_a_price_and_further_parameters_are_taken_from_the_command_line() -> None:
    asked = ["model=llm", "+suite=inli", "llm.model=m"]
    given = ["llm.price={input: 0.15, output: 0.6}", "+llm.parameters.top_p=0.9"]
    check_overrides([*asked, *given], conf_dir(), "evaluate")
    with pytest.raises(ConfigError, match=r"unknown key 'llm\.pice\.input'"):
        check_overrides([*asked, "+llm.pice={input: 0.15}"], conf_dir(), "evaluate")
