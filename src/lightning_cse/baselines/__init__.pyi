from .few_shot import FewShot as FewShot
from .length import Length as Length
from .verdict import NO_VERDICT as NO_VERDICT
from .verdict import Verdict as Verdict
from .whitening import Whitening as Whitening
