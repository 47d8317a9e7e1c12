from .few_shot import FewShot as FewShot
from .length import Length as Length
from .whitening import Whitening as Whitening
