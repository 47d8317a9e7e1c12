"""Small random encoders of the usual kinds, each with its own kind of tokenizer."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers as hf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.encoders import load_encoder
from lightning_cse.encoders.cpu import passes as cpu_passes
from lightning_cse.encoders.cpu.passes import PaddedPasses
from lightning_cse.tokens import Tokens

BERT = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
MPNET = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 130,
    "initializer_range": 0.3,
}
DISTILBERT = {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 32}
DEBERTA_V3 = {  # as in microsoft/deberta-v3-base, with fewer buckets
    "relative_attention": True,
    "position_buckets": 8,
    "pos_att_type": ["p2c", "c2p"],
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "position_biased_input": False,
    "type_vocab_size": 0,
}
MODERNBERT = {"local_attention": 8, "global_attn_every_n_layers": 3}


def texts():
    return [
        *read_corpus("inli", "train", sample_dir())["premise"],
        'This sentence of " means explicit, implicit',
    ]


def word_pieces(special):
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    raw.train_from_iterator(
        texts(), trainers.WordPieceTrainer(vocab_size=400, special_tokens=special)
    )

    return raw.get_vocab()


def unigram(special):
    raw = Tokenizer(models.Unigram())
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.train_from_iterator(
        texts(),
        trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token=special[3]),
    )

    return [(piece, score) for piece, score in json.loads(raw.to_str())["model"]["vocab"]]


def byte_pairs(special, sentences=None):
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    options = {"special_tokens": special, "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    raw.train_from_iterator(sentences or texts(), trainers.BpeTrainer(vocab_size=400, **options))

    return raw


def roberta_tokenizer(sentences=None):
    raw = byte_pairs(ROBERTA, sentences)
    merges = [tuple(pair) for pair in json.loads(raw.to_str())["model"]["merges"]]
    return hf.RobertaTokenizer(vocab=raw.get_vocab(), merges=merges)


def modernbert_tokenizer():
    raw, names = (
        byte_pairs(BERT),
        dict(zip(("pad", "cls", "sep", "unk", "mask"), BERT, strict=True)),
    )
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    inputs = {"tokenizer_object": raw, "model_input_names": ["input_ids", "attention_mask"]}

    return hf.PreTrainedTokenizerFast(
        **inputs, **{f"{name}_token": token for name, token in names.items()}
    )


class Kind(NamedTuple):
    """The class of the config, a function that makes a tokenizer, own settings, and whether there
    are segments.
    """

    config: type[hf.PreTrainedConfig]
    tokenizer: Callable[[], Any]
    own: dict[str, Any]
    segments: bool = False


def bert_tokenizer():
    return hf.BertTokenizer(vocab=word_pieces(BERT))


def xlm_roberta_tokenizer():
    return hf.XLMRobertaTokenizer(vocab=unigram(ROBERTA))


KINDS = {
    "bert": Kind(hf.BertConfig, bert_tokenizer, {}, True),
    "roberta": Kind(hf.RobertaConfig, roberta_tokenizer, {"type_vocab_size": 1}),
    "mpnet": Kind(hf.MPNetConfig, lambda: hf.MPNetTokenizer(vocab=word_pieces(MPNET)), {}),
    "distilbert": Kind(hf.DistilBertConfig, bert_tokenizer, DISTILBERT),
    "electra": Kind(hf.ElectraConfig, bert_tokenizer, {"embedding_size": 8}, True),
    "deberta-v3": Kind(
        hf.DebertaV2Config, lambda: hf.DebertaV2Tokenizer(vocab=unigram(BERT), unk_id=3), DEBERTA_V3
    ),
    "modernbert": Kind(hf.ModernBertConfig, modernbert_tokenizer, MODERNBERT),
    "xlm-roberta": Kind(hf.XLMRobertaConfig, xlm_roberta_tokenizer, {"type_vocab_size": 1}),
    "camembert": Kind(hf.CamembertConfig, xlm_roberta_tokenizer, {"type_vocab_size": 1}),
    "albert": Kind(hf.AlbertConfig, bert_tokenizer, {"embedding_size": 8}, True),
}


def qwen_tokenizer():
    """Byte-level, without special tokens around a text, as Qwen2's; it pads on the left."""
    raw = byte_pairs(["<|endoftext|>", "<|pad|>"])
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|endoftext|>", pad_token="<|pad|>", padding_side="left"
    )


def llama_tokenizer():
    """Of unigrams with a dummy prefix, as SentencePiece's, with a start token, and no padding."""
    raw = Tokenizer(models.Unigram())
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>"
    )
    raw.train_from_iterator(texts(), trainer)
    raw.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )

    return hf.PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
SLIDING = {
    "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}

DECODERS = {
    "qwen2": Kind(hf.Qwen2Config, qwen_tokenizer, GROUPED | {"head_dim": 4}),
    "qwen3": Kind(hf.Qwen3Config, qwen_tokenizer, GROUPED),
    "llama": Kind(hf.LlamaConfig, llama_tokenizer, GROUPED),
    "mistral": Kind(hf.MistralConfig, llama_tokenizer, GROUPED | {"sliding_window": 6}),
    "gemma3": Kind(
        hf.Gemma3TextConfig, llama_tokenizer, GROUPED | SLIDING | {"query_pre_attn_scalar": 8}
    ),
    "gpt2": Kind(hf.GPT2Config, qwen_tokenizer, {}),
}
"""Causal models; only the last one is not packed."""


def save_kind(name, folder, **changes):
    """Save a random model of a kind, with changes to its config, and its tokenizer, with
    save_pretrained.
    """
    spec = (KINDS | DECODERS)[name]
    tokenizer = spec.tokenizer()
    ids = {
        f"{which}_token_id": getattr(tokenizer, f"{which}_token_id")
        for which in ("pad", "cls", "sep")
    }
    ids |= {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    if name in DECODERS:
        ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}

    config = spec.config(**SIZES | {"vocab_size": len(tokenizer)} | ids | spec.own | changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf.AutoModel.from_config(config).save_pretrained(folder)

    tokenizer.save_pretrained(folder)

    return folder


def load(folder, **options):
    """Load a saved model, by default without dropout."""
    defaults = {"pooling": "mean", "max_length": 64, "dropout": 0.0}
    return load_encoder(name=folder.name, source=str(folder), **defaults | options)


def vectors_of(encoder, sentences, second=None, **options):
    """Return the vectors of sentences in the encoder's mode, (n, d)."""
    tokens = Tokens.pad(encoder.tokenizer(sentences))
    return encoder([(tokens, encoder.template(second))], **options)[0]


def gradients_of(encoder, sentences):
    """Return the gradient of each weight for a sum of the numbers of all vectors."""
    weights = torch.arange(encoder.width).cos()  # even ones would have no gradient behind a norm
    (vectors_of(encoder, sentences) * weights).sum().backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in encoder.parameters()]
    encoder.zero_grad()

    return gradients


def pad_groups(encoder, patch):
    encoder.passes()  # as in a run, modules are replaced before
    patch.setattr(encoder, "passes", lambda *_: PaddedPasses)


def pack(encoder, patch):
    patch.setattr(cpu_passes, "TOKENS_AT_ONCE", 40)  # several rows


PATHS = {"packed": pack, "padded": pad_groups}
"""How sentences go through an encoder while gradients are enabled."""
