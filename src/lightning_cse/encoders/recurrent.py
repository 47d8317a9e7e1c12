"""Word vectors from a file, and a BiLSTM over them: encoders from before transformers."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import Regex, normalizers, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutput

from lightning_cse.devices import to_device
from lightning_cse.errors import EncoderError

WORDS = r"\w+(?=n't)|n't|'(?:s|m|d|re|ve|ll)\b|\w+|[^\w\s]"
"""What is a word of a sentence: about the tokens of the Penn Treebank, as in GloVe's vocabulary."""

BEGIN, END, UNKNOWN, PADDING = SPECIAL = ("<s>", "</s>", "<unk>", "<pad>")


class RecurrentConfig(PreTrainedConfig):
    """The settings of `Recurrent`: units per direction (0: none), dropout of the word vectors."""

    model_type = "bilstm"

    def __init__(
        self,
        vocab_size: int = 4,
        word_width: int = 1,
        units: int = 0,
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.vocab_size = vocab_size
        self.word_width = word_width
        self.units = units
        self.dropout = dropout
        self.hidden_size = 2 * units or word_width


class Recurrent(PreTrainedModel):
    r"""The states of a BiLSTM over the fixed vectors of words, or these vectors themselves.

    .. math:: h_t = [\overrightarrow{\text{LSTM}}_t(w_1, \dots, w_T);
              \overleftarrow{\text{LSTM}}_t(w_1, \dots, w_T)]

    Source: InferSent (Conneau et al. 2017), section 3.2.  Differs: nothing.
    """

    config_class = RecurrentConfig
    base_model_prefix = "recurrent"

    def __init__(self, config: RecurrentConfig, words: nn.Embedding) -> None:
        super().__init__(config)
        self.words = words
        self.dropout = nn.Dropout(config.dropout)
        self.lstm: nn.LSTM | None = None
        if config.units:
            self.lstm = nn.LSTM(
                config.word_width, config.units, batch_first=True, bidirectional=True
            )

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table of word vectors."""
        return self.words

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        lengths: Tensor | None = None,
        **ignored: Any,
    ) -> BaseModelOutput:
        """Return the state of every token: (n, length, d).

        ``lengths`` (n,), in main memory, take the place of the mask.
        """
        vectors = self.dropout(self.words(input_ids))
        if self.lstm is None:
            return BaseModelOutput(last_hidden_state=vectors)

        width = input_ids.shape[1]
        if lengths is None:
            lengths = torch.full((len(input_ids),), width)
            if attention_mask is not None:
                lengths = attention_mask.sum(1).cpu()

        # torch's own sort would wait for a GPU.
        sizes, order = lengths.sort(descending=True)
        rows = vectors[to_device(order, vectors.device)]
        packed = pack_padded_sequence(rows, sizes, batch_first=True)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=width)
        ranks = to_device(order.argsort(), states.device)

        return BaseModelOutput(last_hidden_state=states[ranks])


def recurrent(words: nn.Embedding, units: int | None, dropout: float | None) -> Recurrent:
    """Return a BiLSTM with fresh weights over word vectors, which stay fixed."""
    config = RecurrentConfig(
        vocab_size=words.num_embeddings,
        word_width=words.embedding_dim,
        units=units or 0,
        dropout=dropout or 0.0,
    )

    return Recurrent(config, words.requires_grad_(False))


def read_vectors(path: str) -> tuple[nn.Embedding, PreTrainedTokenizerFast, dict[str, str]]:
    """Read word vectors in GloVe's text format: a word and its numbers on each line.

    Return the table of vectors, a tokenizer of its words, and the digests of the file. A line
    ``count width`` at the start, as word2vec writes it, is skipped; of a repeated word, the first
    counts. Sentences are lowercased if no word of the file has a capital letter. They are between
    ``<s>`` and ``</s>``; these and unknown words have a vector of zeros if the file has none.

    Raises EncoderError for a file without vectors, with the line that is wrong.
    """
    file = Path(path).expanduser()
    try:
        with file.open("rb") as lines:
            digest = hashlib.file_digest(lines, "sha256").hexdigest()

        vocabulary, vectors = _read_lines(file)
    except (OSError, UnicodeDecodeError) as error:
        raise EncoderError(f"encoder.vectors: {file} cannot be read: {error}") from error

    for word in SPECIAL:
        vocabulary.setdefault(word, len(vocabulary))

    table = nn.Embedding.from_pretrained(torch.from_numpy(vectors[: len(vocabulary)]))

    return table, _tokenizer(vocabulary), {"weights": digest, "tokenizer": digest}


def _read_lines(file: Path) -> tuple[dict[str, int], np.ndarray]:
    """Return the row of each word, and the table of vectors, with zeros for special tokens."""
    vocabulary: dict[str, int] = {}
    with file.open("rb") as lines:
        rows = sum(1 for _ in lines) + len(SPECIAL)

    table = np.empty((0, 0), dtype=np.float32)
    with file.open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            cells = line.rstrip().split(" ")
            if number == 1 and len(cells) == 2:
                continue
            if not len(table):
                table = np.zeros((rows, len(cells) - 1), dtype=np.float32)

            width = table.shape[1]
            word = " ".join(cells[:-width])  # some words of GloVe have spaces
            if word in vocabulary:
                continue

            row = len(vocabulary)
            try:
                table[row] = cells[-width:] if word else np.nan
            except ValueError:
                table[row] = np.nan

            if not np.isfinite(table[row]).all():
                raise EncoderError(
                    f"encoder.vectors: {file}:{number}: is not a word and {width} numbers, with "
                    "single spaces between them, as in GloVe's text format"
                )

            vocabulary[word] = row

    if not vocabulary:
        raise EncoderError(f"encoder.vectors: {file} has no word vectors")

    return vocabulary, table


def _tokenizer(vocabulary: dict[str, int]) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are the words of a vocabulary."""
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True)
    words.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}",
        pair=f"{BEGIN} $A {END} $B {END}",
        special_tokens=[(BEGIN, vocabulary[BEGIN]), (END, vocabulary[END])],
    )
    if all(word == word.lower() for word in vocabulary):
        words.normalizer = normalizers.Lowercase()

    return PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token=BEGIN, eos_token=END, unk_token=UNKNOWN, pad_token=PADDING
    )
