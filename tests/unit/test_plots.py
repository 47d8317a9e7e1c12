"""The plot style, and the figures of a run: which are drawn and what they show."""

import math

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from lightning_cse import plots
from lightning_cse.loggers.plots import run_figures

MONITOR = "val/rte/accuracy_all"
STEPS = [0, 125, 250, 375]


def curves(*views):
    """Return curves of a small run, of the primary view and of others."""
    found: dict[str, list[tuple[int, float]]] = {
        "train/loss": [(step, 2 + math.exp(-step / 50)) for step in range(1, 376)],
        MONITOR: [
            (0, 0.6),
            (125, 0.7),
            (250, 0.75),
            (375, 0.7),
        ],
        "val/rte/accuracy_implied": [(step, 0.5) for step in STEPS],
        "val/rte/threshold": [(step, 0.5) for step in STEPS],
    }
    for prefix in ("", *(f"{view}/" for view in views)):
        for measure in ("alignment", "uniformity"):
            for side in ("held_out", "eval"):
                found[f"diag/{prefix}{side}/{measure}"] = [(step, 1.0) for step in STEPS]
            found[f"diag/{prefix}rfd_{measure}"] = [(step, 0.1) for step in STEPS[1:]]
    return found


@pytest.fixture
def drawn(monkeypatch):
    """The figures themselves, in the order in which they are saved."""
    kept: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure,
        "savefig",
        lambda figure, *a, **b: (kept.append(figure), save(figure, *a, **b)),
    )
    return kept


def lines(axes):
    return {
        line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")
    }


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (("train/", "val/", "diag/"), ["loss.png", "dev_score.png", "diagnostics.png"]),
        (("val/", "diag/"), ["dev_score.png", "diagnostics.png"]),
        (("train/", "val/rte/accuracy_implied"), ["loss.png", "dev_score.png"]),  # not the monitor
        (("diag/implicit/",), ["diagnostics.png"]),
    ],
)
def test_a_figure_is_drawn_where_its_curves_were_logged(keys, names, tmp_path):
    given = {key: points for key, points in curves("implicit").items() if key.startswith(keys)}
    paths = run_figures(
        given,
        tmp_path / "figures",
        MONITOR,
    )
    assert [path.name for path in paths] == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_the_best_step_is_marked(tmp_path, drawn):
    run_figures(
        curves(),
        tmp_path,
        MONITOR,
    )
    (scores,) = drawn[1].axes
    shown = lines(scores)
    assert set(shown) == {
        "rte/accuracy_implied",
        "rte/accuracy_all (monitor)",
        "best: 0.7500 at step 250",
    }
    assert shown["best: 0.7500 at step 250"].get_xydata().tolist() == [[250, 0.75]]


def test_a_row_a_view(tmp_path, drawn):
    run_figures(
        curves("implicit"),
        tmp_path,
        MONITOR,
    )
    axes = drawn[-1].axes
    assert len(axes) == 6
    for row in (0, 3):
        for panel in axes[row : row + 2]:
            styles = {label: line.get_linestyle() for label, line in lines(panel).items()}
            assert styles == {"held-out side": "-", "evaluation side": "--"}
        assert list(axes[row + 2].get_lines()[0].get_xdata()) == STEPS[1:]
    assert [panel.get_ylabel() for panel in axes[::3]] == [
        "explicit view: alignment",
        "implicit view: alignment",
    ]


def test_values_that_are_not_finite_are_drawn(tmp_path):
    odd: dict[str, list[tuple[int, float]]] = {
        "train/loss": [(1, math.nan), (2, math.inf)],
        MONITOR: [(0, math.nan)],
    }
    assert (
        len(
            run_figures(
                odd,
                tmp_path,
                MONITOR,
            )
        )
        == 2
    )


def test_the_files_do_not_depend_on_the_settings_of_matplotlib(tmp_path):
    run_figures(
        curves(),
        tmp_path / "a",
        MONITOR,
    )
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        before = dict(mpl.rcParams)
        run_figures(
            curves(),
            tmp_path / "b",
            MONITOR,
        )
        assert dict(mpl.rcParams) == before
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_the_moving_average_against_a_loop():
    values = [
        math.nan if i % 6 == 5 else math.inf if i == 9 else float(i * i % 7) for i in range(20)
    ]
    want = []
    for i in range(20):
        window = [values[j] for j in range(20) if abs(j - i) <= 2 and math.isfinite(values[j])]
        want.append(sum(window) / len(window))
    assert plots.moving_average(values, 5) == pytest.approx(want)
    assert math.isnan(plots.moving_average([math.nan], 3)[0])
