"""The words of a command line before Hydra reads them, and the numbers of recipes."""

import itertools
import signal
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from lightning_cse.arguments import quote_free_text
from lightning_cse.config import launch
from lightning_cse.config.compose import parse
from lightning_cse.config.launch import ordered
from lightning_cse.errors import ConfigError, DataError, Interrupted, user_error


def test_order_of_the_choices_does_not_matter():
    choices = ["+experiment=x", "+profile=laptop", "+sweep=seeds", "+debug=tiny"]
    for shuffled in itertools.permutations(choices):
        words = ordered(["--cfg", "job", "a=1", *shuffled, "~b"])
        assert words == [*choices, "a=1", "~b", "--cfg", "job"]


@pytest.mark.parametrize(
    ("result", "score"), [(SimpleNamespace(score=0.5), 0.5), (DataError("missing"), None)]
)
def test_a_point_returns_its_dev_score_to_the_sweeper(result, score, monkeypatch):
    def run(runner, cfg):
        if isinstance(result, Exception):
            raise result

        return result

    monkeypatch.setattr(launch, "in_sweep", lambda: True)
    monkeypatch.setattr(launch, "_end_point", lambda _: None)
    monkeypatch.setattr(launch.Runner, "run", run)
    assert launch.Runner("sweep_task:run", "train")(OmegaConf.create()) == score


def test_words_are_not_changed():
    words = ["++method.x=1", "+a.b=2", "experiment=x", "logger=[csv,wandb]", "encoder=tiny"]
    assert ordered(words) == words


@pytest.mark.parametrize(
    ("word", "source"),
    [
        ("encoder=a/b", "'a/b'"),
        ("encoder=a/b,'~/my models/c'", "'a/b','~/my models/c'"),
        ("encoder=/x", "'/x'"),
    ],
)
def test_encoder_of_a_folder_or_the_hub(word, source):
    assert ordered([word]) == ["encoder=custom", f"encoder.source={source}"]


FREE_TEXT = ["a b", "a,b=c", "it's", 'This : "{}" means {mask} .', "[x]", "{x}", "C:\\folder", "8"]


@pytest.mark.parametrize("text", FREE_TEXT)
def test_free_text_survives_hydra(text):
    (line,) = quote_free_text([f"prompt={text}"])
    assert parse(line).value() == text


@pytest.mark.parametrize("line", ["prompt=null", "model='a b'", "seed=1,2", "other=a=b"])
def test_other_values_are_not_quoted(line):
    assert quote_free_text([line]) == [line]
    assert quote_free_text(["model=a,b", "-m"]) == ["model=a,b", "-m"]


def test_recipe_of_the_encoder_precedes_the_default():
    cfg = OmegaConf.create(
        {
            "encoder": {"name": "bert_base"},
            "recipe": {"default": {"lr": 5e-5, "warmup": None}, "bert_base": {"lr": 3e-5}},
            "lr": "${recipe:lr}",
            "warmup": "${recipe:warmup}",
            "other": "${recipe:warmpu}",
        }
    )

    assert (cfg.lr, cfg.warmup) == (3e-5, None)

    cfg.encoder.name = "roberta_base"
    assert cfg.lr == 5e-5

    with pytest.raises(InterpolationResolutionError) as wrapped:
        _ = cfg.other

    fault = user_error(wrapped.value)
    assert isinstance(fault, ConfigError)
    assert "recipe.default lack warmpu" in str(fault)


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (Interrupted("stopped", signal.SIGTERM), ["wait", "terminate", "wait"]),
        (KeyboardInterrupt(), ["wait", "wait"]),  # which a terminal sends to both
    ],
)
def test_sigterm_reaches_the_process_of_a_point_which_ends_by_itself(error, calls):
    process = Mock()
    process.wait.side_effect = [error, 0]
    with pytest.raises(type(error)):
        launch.wait_for(process)

    assert [name for name, *_ in process.method_calls] == calls
