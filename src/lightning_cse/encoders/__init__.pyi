from .encoder import SentenceEncoder as SentenceEncoder
from .encoder import Tokenizer as Tokenizer
from .encoder import load_encoder as load_encoder
from .saved import read_max_length as read_max_length
from .saved import read_pooling as read_pooling
from .templates import PROMPTS as PROMPTS
from .templates import Template as Template
from .tiny import tiny_encoder as tiny_encoder
