"""Adapters in every kind of backbone: what is trained, what a state dict has, and their start."""

import sys

import peft
import pytest
import torch
from encoder_kinds import save_kind, vectors_of
from safetensors.torch import load_file

from lightning_cse.encoders import load_encoder, tiny_encoder
from lightning_cse.encoders.adapters import REFUSED
from lightning_cse.errors import EncoderError
from lightning_cse.models import ImpScoreModel

TEXTS = ["The ferry leaves at noon.", "Tea.", "A boat departs from the old harbour at midday."]
LORA = {"_target_": "peft.LoraConfig", "r": 4, "target_modules": "all-linear"}
KINDS = {
    "lora": LORA,
    "dora": {**LORA, "use_dora": True},
    "pissa": {**LORA, "init_lora_weights": "pissa"},
    "ia3": {"_target_": "peft.IA3Config"},
    "vera": {"_target_": "peft.VeraConfig", "r": 4, "target_modules": ["query"]},
    "loha": {"_target_": "peft.LoHaConfig", "r": 4, "target_modules": ["query", "dense"]},
    "oft": {"_target_": "peft.OFTConfig", "oft_block_size": 4, "target_modules": ["query"]},
}


def trained(encoder):
    return {name for name, weight in encoder.named_parameters() if weight.requires_grad}


def step(encoder):
    """Change every trained weight along its gradient."""
    encoder.train()
    vectors_of(encoder, TEXTS).square().sum().backward()
    with torch.no_grad():
        for weight in encoder.parameters():
            if weight.grad is not None:
                weight -= 0.5 * weight.grad / weight.grad.norm().clamp(min=1e-9)


@pytest.mark.parametrize("name", KINDS)
def test_state_of_an_adapter_rebuilds_the_encoder(name, tmp_path):
    folder = save_kind("bert", tmp_path / "bert")

    def build():
        return load_encoder(name="bert", source=str(folder), max_length=64, adapter=KINDS[name])

    torch.manual_seed(0)
    encoder = build()
    step(encoder)
    assert all(weight.grad is not None for weight in encoder.parameters() if weight.requires_grad)

    state = encoder.state_dict()
    assert trained(encoder) <= state.keys()
    adapted_names = {key.removeprefix("backbone.").replace("base_layer.", "") for key in state}
    unchanged = adapted_names & load_file(folder / "model.safetensors").keys()
    assert (not unchanged) == (name != "pissa")  # PiSSA takes the adapter out of the weights

    torch.manual_seed(1)  # loading does not depend on the seed
    rebuilt = build()
    rebuilt.load_state_dict(state)
    expected = vectors_of(encoder.eval(), TEXTS)
    assert torch.equal(vectors_of(rebuilt.eval(), TEXTS), expected)
    assert not torch.allclose(expected, vectors_of(build().eval(), TEXTS), atol=1e-3)

    merged = load_encoder(name="bert", source=str(folder), max_length=64)
    merged.backbone.load_state_dict(encoder.adapter.merged().state_dict())
    torch.testing.assert_close(vectors_of(merged.eval(), TEXTS), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "model_type", ["roberta", "mpnet", "distilbert", "deberta-v3", "modernbert", "qwen2", "llama"]
)
def test_lora_in_other_backbones(model_type, tmp_path):
    folder = save_kind(model_type, tmp_path / model_type)
    options = {"name": model_type, "source": str(folder), "pooling": "mean", "max_length": 64}
    plain = load_encoder(**options).eval()
    encoder = load_encoder(**options, adapter=LORA).eval()
    # B is zero at the start, so the encoder is as before.
    torch.testing.assert_close(
        vectors_of(encoder, TEXTS), vectors_of(plain, TEXTS), atol=1e-5, rtol=1e-4
    )
    step(encoder)
    assert {name.split(".")[-3] for name in trained(encoder)} == {"lora_A", "lora_B"}
    assert set(encoder.state_dict()) == trained(encoder)
    vectors = vectors_of(encoder.eval(), TEXTS)
    plain.backbone.load_state_dict(encoder.adapter.merged().state_dict())
    torch.testing.assert_close(vectors_of(plain, TEXTS), vectors, atol=1e-5, rtol=1e-4)


def test_start_follows_from_the_seed_alone():
    def start(seed, draws=0):
        torch.manual_seed(seed)
        torch.rand(draws)
        before = torch.get_rng_state()
        state = tiny_encoder(adapter=LORA).state_dict()
        assert torch.equal(torch.get_rng_state(), before)

        return state

    first = start(1)
    after_draws = start(1, draws=7)
    other_seed = start(2)
    assert all(torch.equal(first[key], after_draws[key]) for key in first)
    assert any(not torch.equal(first[key], other_seed[key]) for key in first)


def test_modules_to_save_and_biases_are_trained():
    config = peft.LoraConfig(target_modules=["query"], modules_to_save=["pooler"], bias="lora_only")
    encoder = tiny_encoder(pooling="cls_pooler", adapter=config)
    names = trained(encoder)
    assert any("pooler.modules_to_save" in name for name in names)
    assert any(name.endswith("query.base_layer.bias") for name in names)
    assert set(encoder.state_dict()) == names


@pytest.mark.parametrize(
    ("model_type", "prefix"), [("roberta", "embeddings."), ("qwen2", "embed_tokens.weight")]
)
def test_frozen_embeddings_are_left_out_and_a_state_with_them_is_read(model_type, prefix, tmp_path):
    folder = save_kind(model_type, tmp_path / model_type)
    options = {"name": model_type, "source": str(folder), "pooling": "mean", "max_length": 64}
    encoder = load_encoder(**options, freeze_embeddings=True)
    vectors_of(encoder.train(), TEXTS).pow(2).sum().backward()
    names = {name for name, weight in encoder.named_parameters() if weight.grad is None}
    assert set(encoder.frozen) == names
    assert names == {
        key for key in dict(encoder.named_parameters()) if key.startswith(f"backbone.{prefix}")
    }
    state = encoder.state_dict()
    assert not state.keys() & names

    changed = {name: weight.detach() + 1 for name, weight in encoder.named_parameters()}
    encoder.load_state_dict(changed)
    for name, weight in encoder.named_parameters():
        assert torch.equal(weight, changed[name])

    state.popitem()
    with pytest.raises(RuntimeError, match="Missing key"):
        encoder.load_state_dict(state)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"_target_": "peft.LoraConfig", "target_modules": ["q_proj"]}, "q_proj"),
        ({"_target_": "peft.PromptTuningConfig", "num_virtual_tokens": 3}, "PROMPT_TUNING is not"),
        ({"_target_": "peft.AdaLoraConfig", "total_step": 3}, "ADALORA is not supported"),
        ({**LORA, "inference_mode": True}, "trains nothing; leave out inference_mode"),
        ({**LORA, "alora_invocation_tokens": [3]}, "LORA is not supported"),
        ({**LORA, "rank": 3}, "peft.LoraConfig cannot be used .*'rank'"),
        ({"_target_": "os.path.join"}, "os.path.join cannot be used"),
        ({"_target_": "torch.nn.Linear"}, "it is not a config of peft"),
        ("lora", "must be a config of peft .* got 'lora'"),
    ],
)
def test_refused_adapters(config, message):
    with pytest.raises(EncoderError, match=f"encoder.adapter: .*{message}"):
        tiny_encoder(adapter=config)


def test_refused_types_are_those_of_peft():
    assert {peft.PeftType(name).value for name in REFUSED} == REFUSED


def test_peft_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(EncoderError, match=r"pip install 'lightning_cse\[adapters\]'"):
        tiny_encoder(adapter=LORA)

    tiny_encoder()


def test_frozen_encoder_takes_no_adapter():
    encoder = tiny_encoder(adapter=LORA)
    with pytest.raises(EncoderError, match=r"set method\.frozen=false"):
        ImpScoreModel(encoder)


# Gradient checkpointing


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("options", [{}, {"adapter": LORA}, {"freeze_embeddings": True}])
@pytest.mark.parametrize("pooling", ["cls", "first_last"])
def test_checkpointed_gradients_are_equal(pooling, options, chunk_size, one_thread):
    results = []
    for gradient_checkpointing in (False, True):
        torch.manual_seed(0)
        encoder = tiny_encoder(
            pooling=pooling, dropout=0.2, gradient_checkpointing=gradient_checkpointing, **options
        )
        encoder.chunk_size = chunk_size
        encoder.train()
        vectors = vectors_of(encoder, TEXTS)
        vectors.square().sum().backward()
        gradients = {name: weight.grad for name, weight in encoder.named_parameters()}
        results.append((vectors, gradients))

    (vectors, gradients), (same, recomputed) = results
    assert torch.equal(vectors, same)
    for name, gradient in gradients.items():
        assert (gradient is None) == (recomputed[name] is None)
        if gradient is not None:
            torch.testing.assert_close(recomputed[name], gradient)


def test_checkpointing_is_refused_where_transformers_has_none(tmp_path):
    folder = save_kind("mpnet", tmp_path / "mpnet")
    with pytest.raises(EncoderError, match=r"gradient_checkpointing: MPNetModel .*chunk_size"):
        load_encoder(name="mpnet", source=str(folder), max_length=64, gradient_checkpointing=True)


@pytest.mark.parametrize(
    "model_type", ["bert", "electra", "distilbert", "modernbert", "deberta-v3", "qwen2"]
)
def test_checkpointing_keeps_fewer_activations(model_type, tmp_path):
    folder = save_kind(model_type, tmp_path / model_type)
    saved_sizes = []
    for gradient_checkpointing in (False, True):
        encoder = load_encoder(
            name=model_type,
            source=str(folder),
            pooling="mean",
            max_length=64,
            gradient_checkpointing=gradient_checkpointing,
        ).train()
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda saved, sizes=sizes: sizes.append(saved.numel()) or saved, lambda saved: saved
        ):
            vectors_of(encoder, TEXTS).sum().backward()

        saved_sizes.append(sum(sizes))

    assert saved_sizes[1] < saved_sizes[0]
