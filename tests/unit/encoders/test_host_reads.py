"""The padded pass of a training step reads no tensor from a GPU, whatever the architecture."""

import pytest
from encoder_kinds import DECODERS, KINDS, load, save_kind, vectors_of
from host_reads import host_reads
from oracles import SENTENCES

from lightning_cse.encoders.architecture import MODEL_TYPES

# transformers' own masks of other architectures are read.
COUNTED = [
    name for name, family in (KINDS | DECODERS).items() if family.config.model_type in MODEL_TYPES
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*COUNTED, "mpnet"])
def test_a_pass_reads_nothing_from_the_device(name, tmp_path):
    encoder = load(save_kind(name, tmp_path / name), dropout=0.1).train()
    with host_reads() as names:
        vectors_of(encoder, SENTENCES).sum().backward()

    assert not names
