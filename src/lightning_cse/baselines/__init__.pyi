from .few_shot import FewShot as FewShot
from .few_shot import Verdict as Verdict
from .length import Length as Length
from .whitening import Whitening as Whitening
