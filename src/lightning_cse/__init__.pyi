from .errors import LightningCSEError as LightningCSEError
from .inference import SentenceModel as SentenceModel
from .inference import load as load
from .train import train as train

__version__: str
