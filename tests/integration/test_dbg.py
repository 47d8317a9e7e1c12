import sys

sys.path.insert(0, "/work/main/tests/integration")
from test_resume import *


def test_x(run_tiny, tmp_path):
    a = run_tiny(tmp_path / "a", *SMALL)
    kill(run_tiny, tmp_path / "b", 14)
    for l in ("last",):
        c = torch.load(next((tmp_path / "b").rglob("last.ckpt")), weights_only=True)
        print({k: v for k, v in c["loops"]["fit_loop"].items()})
    b = run_tiny(tmp_path / "b", *SMALL)
    A = a.curves.read_text().splitlines()
    B = b.curves.read_text().splitlines()
    print(len(A), len(B))
    for x, y in zip(A, B):
        if x != y:
            print(x, y)
