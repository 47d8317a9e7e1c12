"""The sources of a training set."""

import pytest

from lightning_cse.data.declarations import sample_dir
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["inli"], "'inli' is not of the form corpus/split"),
        (["my/rows.xlsx"], "'my/rows.xlsx' is not of the form corpus/split"),
        ([], "give a file of your own, or corpus/split"),
        (["my/no.jsonl"], "my/no.jsonl: there is no such file"),
        (["inly/train"], "unknown corpus 'inly' - did you mean 'inli'"),
    ],
)
def test_errors_name_the_key(names, words):
    with pytest.raises((ConfigError, DataError), match=r"^data\.train: ") as caught:
        read_sources(names, sample_dir(), key="data.train")

    assert words in str(caught.value)
