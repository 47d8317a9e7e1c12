from .encoder import SentenceEncoder as SentenceEncoder
from .load import load_encoder as load_encoder
from .templates import Template as Template
from .tiny import tiny_encoder as tiny_encoder
