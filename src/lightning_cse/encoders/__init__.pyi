from .encoder import SentenceEncoder as SentenceEncoder
from .load import load_encoder as load_encoder
from .load import tiny_encoder as tiny_encoder
from .templates import Template as Template
