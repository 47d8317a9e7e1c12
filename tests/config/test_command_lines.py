"""Command lines: refused with one clear message and nothing left on disk, or accepted."""

from pathlib import Path

import pytest

X = "+experiment=dualcse_cross"

REFUSED = [
    # unknown keys
    ("epochs=1", "epochs=1: unknown key 'epochs' - did you mean 'trainer.max_epochs'?"),
    ("temperature=0.1", "did you mean 'method.loss.temperature'?"),
    ("sede=1", "did you mean 'seed'?"),
    ("+method.foo=1", "method.foo=1: unknown key 'method.foo'"),
    ("++seed=3 ++foo=2", "unknown key 'foo'"),
    ("+experimnt=simcse_inli", "did you mean '+experiment='?"),
    ("method={foo:1}", "unknown key 'method.foo'"),
    ("patience=3", "did you mean 'callbacks.early_stopping.patience'?"),
    ("transfer.protocol=lbfgs", "comes with a suite: add suite=transfer"),
    # options of groups
    ("encoder=bert_bse", "there is no encoder 'bert_bse' - did you mean 'bert_base'? (choose"),
    ("data=my/pairs.csv", "a file of your own: data=file data.train=my/pairs.csv"),
    ("hydra/launcher=jobli", "there is no launcher 'jobli' - did you mean 'joblib'?"),
    # syntax
    ("dualcse_cross", "dualcse_cross: not a valid override; write key=value"),
    ("seed=[1", "seed=[1: not a valid override; write key=value, and quote"),
    ("data.batch_size=8,16", "add --multirun"),
    # types
    ("trainer.max_epochs=abc", "trainer.max_epochs: Value 'abc' of type 'str'"),
    ("diag=1", "diag: "),
    ("force=maybe", "force: Value 'maybe'"),
    ("~data", "data: is missing"),
    ("encoder=custom", "encoder.source: Missing mandatory value"),
    # values
    ("trainer.precision=64", "must be 32-true or bf16-mixed or 16-mixed or auto, got 64"),
    ("trainer.precision=bf16-true", "got 'bf16-true' - did you mean 'bf16-mixed'?"),
    ("trainer.accelerator=cdua", "did you mean 'cuda'?"),
    ("trainer.devices=65", "data.batch_size: 64 is the batch of all 65 devices"),
    ("trainer.devices=auto", "trainer.devices: must be a number of devices"),
    ("trainer.devices=-1", "or a list of GPUs, got -1"),
    ("trainer.limit_train_batches=1.5", "or a share from 0.0 to 1.0, got 1.5"),
    ("trainer.limit_train_batches=half", "or a share from 0.0 to 1.0, got 'half'"),
    ("trainer.max_epochs=-1", "training never ends"),
    ("seed=-1", "seed: must be a number >= 0"),
    ("eval_every=0", "eval_every: must be an integer >= 1, got 0"),
    ("data.batch_size=1", "data.batch_size: must be an integer >= 2, got 1"),
    ("data.batch_size=null", "data.batch_size: must be an integer >= 2, got None"),
    ("data.batch_size='8'", "data.batch_size: must be an integer >= 2, got '8'"),
    ("diag.negative_score=-inf", "diag.negative_score: must be a number >= 0"),
    ("encoder.dropout=1", "encoder.dropout: must be a number >= 0 and < 1, got 1"),
    ("callbacks.early_stopping.patience=0", "patience: must be an integer >= 1, got 0"),
    ("callbacks.early_stopping.min_delta=0.1", "needs callbacks.early_stopping.patience"),
    (f"name={'n' * 300}", "is not a valid name"),
    # sweeps
    ("-m epochs=1,2", "unknown key 'epochs' - did you mean 'trainer.max_epochs'?"),
    ("-m encoder=tiny,tny", "there is no encoder 'tny' - did you mean 'tiny'?"),
    ("-m encoder=tiny,./tny", "there is no encoder './tny'"),
    ("-m method.optimizer.lr=interval(0,1)", "a grid needs a list of values"),
    ("-m hydra.sweeper.file=nowhere.yaml", "hydra.sweeper.file=nowhere.yaml"),
    ("-m hydra.sweeper.points=[['epochs=1']]", "trainer.max_epochs"),
    # values that nothing would read
    ("limits.dev_pairs=5", "nothing reads limits.dev_pairs here; leave it out (keys that are"),
    ("corpora.snli_test=my.csv", "nothing reads corpora.snli_test here"),
    ("suite=[stsb,own] own.sts=a.csv limits.test_rows=5", "nothing reads limits.test_rows here"),
    ("-m limits.dev_pairs=5,6 seed=1,2", "nothing reads limits.dev_pairs here"),
    # test sets of one's own
    ("own.sts=my.csv", "own.sts=my.csv: comes with a suite: add suite=own"),
    ("suite=own", "suite=own: has no test set; add own.sts=FILE, own.nli=FILE,"),
    ("suite=own own.columns={score:grade}", "suite=own: has no test set"),
    ("suite=own own.stss=my.csv", "unknown key 'own.stss' - did you mean 'own.sts'?"),
    ("suite=own own.sts=a own.columns={sentense1:q}", "did you mean 'sentence1'?"),
    ("suite=own own.sts=a own.columns={label:q}", "no test set reads a column 'label' (columns:"),
]
WITHOUT_EXPERIMENT = "name: no experiment was chosen - add +experiment=<one of these>:"
OTHERS = [
    ("train", "", WITHOUT_EXPERIMENT),
    ("train", "+debug=tiny", "DualCSE with a cross-encoder on INLI"),
    ("train", "epochs=1", WITHOUT_EXPERIMENT),
    ("train", "-m seed=0,1", WITHOUT_EXPERIMENT),
    ("evaluate", "model=tiny +suite=sts pooing=cls", "did you mean 'pooling'?"),
    ("evaluate", "model=tiny", "suite: no suite was chosen - add +suite="),
    ("evaluate", "model=tiny +suite=sts precision=16-mixed", "precision: must be 32-true or"),
    ("evaluate", "model=tiny +suite=sts limits.dev_rows=9", "nothing reads limits.dev_rows here"),
    ("evaluate", "model=tiny +suite=sts +own.sts=x", "comes with a suite: add +suite=own"),
    (
        "evaluate",
        "model=tiny +suite=sts +llm.temperature=1",
        "did you mean 'llm.parameters.temperature'?",
    ),
    ("describe", "encoder=tiny", "data: no data was chosen - add data="),
    ("describe", "data=inli rows=1", "rows: must be an integer >= 2, got 1"),
    ("describe", "data=inli beside.split=validation", "beside.split: must be"),
    ("generate", "data=wiki n=0 +pattern=sts", "n: must be an integer >= 1, got 0"),
    ("generate", "data=wiki", "pattern: no pattern was chosen"),
]
ALL_REFUSED = [("train", f"{X} {line}", message) for line, message in REFUSED] + OTHERS


@pytest.mark.parametrize(("command", "line", "message"), ALL_REFUSED)
def test_refused_command_line(command, line, message, give, tmp_path):
    code, out, errors = give(*line.split(), command=command)
    assert code == 2
    assert message in errors
    assert errors.startswith("error: ")
    assert "Traceback" not in errors
    assert out == ""
    assert not list(tmp_path.iterdir())


ACCEPTED = [
    "experiment=dualcse_cross",
    "++experiment=dualcse_cross seed=1",
    f"{X} name=2024",
    f"{X} ++seed=3 +force=false",
    f"{X} -m seed=1",
    f"{X} trainer.precision=bf16 trainer.max_time=00:01:00:00 trainer.deterministic=true",
    f"{X} trainer.max_steps=100 trainer.max_epochs=-1",
    f"{X} +method.optimizer.momentum=0.9 ~method.optimizer.betas",
    f"{X} +suite.more._target_=lightning_cse.evaluation.STSB",
    f"{X} ~baselines.length",
    f"{X} corpora.snli_dev=snli/dev suite=[nli,own] own.nli={{dev:a,test:b}} limits.dev_pairs=9",
    f"{X} -m limits.dev_pairs=5 suite=stsb,inli",
    f"{X} -m corpora={{snli_dev:snli/dev}} suite=nli,inli",
]


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepted_command_line(line, give, tmp_path):
    code, _, errors = give(*line.split())
    assert (code, errors) == (0, "")
    assert (tmp_path / "runs" / "done.txt").is_file()


MINE = """# @package _global_
defaults: [dualcse_cross, _self_]
name: own
trainer: SETTING
"""


@pytest.fixture
def config_dir(tmp_path):
    """A folder with experiments, a group and a test set of one's own, as given on a command
    line.
    """
    experiments = tmp_path / "mine" / "experiment"
    experiments.mkdir(parents=True)
    (experiments / "own.yaml").write_text(MINE.replace("SETTING", "{max_epochs: 1}"))
    (experiments / "bad.yaml").write_text(MINE.replace("SETTING", "{callback: 1}"))
    group = tmp_path / "mine" / "flavour"
    group.mkdir()
    (group / "sweet.yaml").write_text("# @package _global_\ntrainer: {max_epochs: 7}\n")

    return ("--config-dir", "mine")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("+experiment=own", ""),
        ("+experiment=own +flavour=sweet", ""),
        ("+experiment=own epochs=1", "did you mean 'trainer.max_epochs'?"),
        ("+experiment=onw", "there is no experiment 'onw' - did you mean 'own'?"),
        ("+experiment=bad", "trainer.callback"),
        ("+experiment=own +flavour=swet", "there is no flavour 'swet' - did you mean 'sweet'?"),
        ("seed=1", "\n    own "),
    ],
)
def test_config_dir(line, message, config_dir, give):
    code, _, errors = give(*line.split(), *config_dir)
    assert code == (2 if message else 0), errors
    assert message in errors


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("bug", 1),
        ("user", 2),
        ("busy", 3),
    ],
)
def test_exit_codes_of_a_run(name, code, give):
    found, _, errors = give(X, f"name={name}")
    assert found == code
    assert "Traceback" not in errors


def test_traceback_is_kept_or_shown(give, monkeypatch):
    _, _, errors = give(X, "name=bug")
    first, second = errors.splitlines()

    assert first == "error: ValueError: an odd matter"

    file = Path(second.rpartition(" ")[2])
    assert 'raise ValueError("an odd\\nmatter")' in file.read_text()

    file.unlink()

    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert "Traceback" in give(X, "name=user")[2]


LOCAL = """# @package _global_
paths: {data_dir: /corpora}
trainer: {precision: bf16-mixed}
logger: null
"""


def test_settings_of_this_machine(give, tmp_path, monkeypatch):
    # Not default.yaml, which may exist in conf/local.
    file = tmp_path / "mine" / "local" / "of_a_test.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(LOCAL)
    config_dir = ("--config-dir", str(tmp_path / "mine"))
    shown = (*config_dir, "--cfg", "job")

    assert "data_dir: /corpora" not in give(X, *shown)[1]  # no test reads the machine's file

    monkeypatch.setenv("LIGHTNING_CSE_LOCAL", "of_a_test")
    _, out, _ = give(
        X,
        "trainer.max_epochs=7",
        *shown,
    )

    for text in ("data_dir: /corpora", "precision: bf16-mixed", "logger: null", "max_epochs: 7"):
        assert text in out

    # The command line comes first.
    assert "data_dir: ${sample_dir:}" in give(X, "+debug=tiny", *shown)[1]
    assert (
        "data_dir: /corpora"
        in give(
            "model=tiny",
            "+suite=sts",
            *shown,
            command="evaluate",
        )[1]
    )

    file.write_text(LOCAL.replace("data_dir", "datadir"))
    assert "did you mean 'data_dir'?" in give(X, *config_dir)[2]

    file.write_text(LOCAL.partition("\n")[2])
    assert "conf/local: the first line of the file must be" in give(X, *config_dir)[2]
