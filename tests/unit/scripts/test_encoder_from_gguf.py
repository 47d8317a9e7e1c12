"""A small random Qwen2 in GGUF becomes an encoder with the weights of the file."""

import numpy as np
import pytest
import torch
from encoder_from_gguf import convert
from transformers import AutoModel, AutoTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

gguf = pytest.importorskip("gguf")

WIDTH = 32
HEADS = 2
INNER = 64


@pytest.fixture
def file(tmp_path):
    """A GGUF file, and the tensors that it has, by name."""
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    tokens = [*bytes_to_unicode().values(), "an", "<|end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 1) + [3])
    writer.add_token_merges(["a n"])
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_pad_token_id(len(tokens) - 1)

    shapes = {
        "token_embd.weight": (len(tokens), WIDTH),
        "output.weight": (len(tokens), WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        "blk.0.attn_output.weight": (WIDTH, WIDTH),
        "blk.0.ffn_up.weight": (INNER, WIDTH),
        "blk.0.ffn_gate.weight": (INNER, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, INNER),
    }
    for projection in "qkv":
        shapes[f"blk.0.attn_{projection}.weight"] = (WIDTH, WIDTH)
        shapes[f"blk.0.attn_{projection}.bias"] = (WIDTH,)

    random = np.random.default_rng(0)
    tensors = {name: random.normal(size=shape, scale=0.1) for name, shape in shapes.items()}
    for name, values in tensors.items():
        packed = values.astype(np.float32)
        if values.ndim == 2:
            quantization = gguf.GGMLQuantizationType.Q8_0
            packed = gguf.quantize(packed, quantization)
            tensors[name] = gguf.dequantize(packed, quantization)
            writer.add_tensor(name, packed, raw_dtype=quantization)
        else:
            writer.add_tensor(name, packed)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    return path, tensors


def test_encoder_has_the_weights_and_the_tokenizer_of_the_file(file, tmp_path):
    path, tensors = file
    head = convert(path, tmp_path / "encoder")
    np.testing.assert_array_equal(head.weight.detach().numpy(), tensors["output.weight"])

    model = AutoModel.from_pretrained(tmp_path / "encoder")
    assert (model.dtype, model.config.model_type) == (torch.bfloat16, "qwen2")
    assert not hasattr(model.config, "quantization_config")
    for name, parameter in (
        ("token_embd.weight", model.embed_tokens.weight),
        ("blk.0.attn_q.weight", model.layers[0].self_attn.q_proj.weight),
        ("blk.0.ffn_down.weight", model.layers[0].mlp.down_proj.weight),
    ):
        want = torch.tensor(tensors[name], dtype=torch.float32).to(torch.bfloat16)
        torch.testing.assert_close(parameter, want, rtol=0, atol=0)

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "encoder")
    assert tokenizer.tokenize("ban") == ["b", "an"]
    assert tokenizer.decode(tokenizer("a pan")["input_ids"]) == "a pan"
