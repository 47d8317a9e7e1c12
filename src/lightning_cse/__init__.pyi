from .analysis.ranking import rank_training_sets as rank_training_sets
from .engine.inference import SentenceModel as SentenceModel
from .engine.load import load as load
from .errors import LightningCSEError as LightningCSEError
from .train import train as train

__version__: str
