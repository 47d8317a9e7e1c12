"""Command lines: refused with one clear message and nothing left on disk, or accepted."""

import pytest

X = "+experiment=dualcse_cross"

REFUSED = [
    ("epochs=1", "unknown key 'epochs' - did you mean 'trainer.max_epochs'?"),
    ("temperature=0.1", "'method.loss.temperature'"),
    ("sede=1", "did you mean 'seed'"),
    ("+method.foo=1", "unknown key 'method.foo'"),
    ("+experimnt=simcse_inli", "did you mean '+experiment='?"),
    ("encoder=bert_bse", "there is no encoder 'bert_bse' - did you mean 'bert_base'? (choose"),
    ("data=my/pairs.csv", "a file of your own: data=file data.train=my/pairs.csv"),
    ("hydra/launcher=jobli", "there is no launcher 'jobli' - joblib and submitit are extras"),
    ("dualcse_cross", "dualcse_cross: not a valid override; write key=value"),
    ("data.batch_size=8,16", "add --multirun"),
    ("trainer.max_epochs=abc", "trainer.max_epochs: Value 'abc' of type 'str'"),
    ("diag=1", "int is not a subclass of Diagnostics"),
    ("~data", "data: is missing"),
    ("trainer.precision=bf16-true", "got 'bf16-true' - did you mean 'bf16-mixed'?"),
    ("trainer.devices=65", "data.batch_size: 64 is the batch of all 65 devices"),
    ("trainer.devices=auto", "trainer.devices: must be a number of devices"),
    ("trainer.strategy=fsdp", "fsdp shards the weights, but evaluation, gradient clipping and"),
    ("trainer.strategy=dpp", "must be auto or ddp or ddp_find_unused_parameters_true, got 'dpp'"),
    ("trainer.max_epochs=-1", "training never ends"),
    ("trainer.limit_train_batches=1.5", "a number of batches, or a share from 0.0 to 1.0, got"),
    ("+trainer.fast_dev_run=true", "trainer.fast_dev_run: is set by lightning_cse; it leaves no"),
    (
        "trainer.fast_dev_run=true",
        "unknown key 'trainer.fast_dev_run' - it leaves no record: +debug",
    ),
    ("trainer.detect_anomaly=true", "is added with a plus: +trainer.detect_anomaly=..."),
    ("+trainer.callbacks=[]", "+callbacks.mine={_target_: my_module.MyCallback}"),
    ("ckpt_path=last.ckpt", "unknown key 'ckpt_path' - the same command resumes a run; init_from="),
    ("+callbacks.mine=3", "callbacks.mine: give its class: {_target_: my_module.MyCallback}"),
    (
        "+callbacks.early_stopping.patienc=3",
        "callbacks.early_stopping.patienc: Key 'patienc' not in 'EarlyStopping' - did you mean",
    ),
    ("callbacks.early_stopping.min_delta=0.1", "set callbacks.early_stopping.patience, too"),
    ("suite=nli suite.snli.auprc_thresholds=1", "must be an integer >= 2, got 1"),
    ("seed=-1", "seed: must be a number >= 0"),
    ("data.batch_size=1", "data.batch_size: must be an integer >= 2, got 1"),
    ("data.batch_size=null", "data.batch_size: must be an integer >= 2, got None"),
    (f"name={'n' * 300}", "is not a valid name"),
    ("-m epochs=1,2", "unknown key 'epochs' - did you mean 'trainer.max_epochs'?"),
    ("-m encoder=tiny,tny", "there is no encoder 'tny' - did you mean 'tiny'?"),
    ("-m method.optimizer.lr=interval(0,1)", "Can only enumerate CHOICE and RANGE sweeps"),
    ("-m hydra.sweeper.file=nowhere.yaml", "nowhere.yaml: No such file"),
    ("-m hydra.sweeper.points=[['epochs=1']]", "trainer.max_epochs"),
    ("suite=own", "suite=own: has no test set; add own.sts=FILE, own.nli=FILE,"),
    ("suite=own own.sts=my.csv own.columns={scor:x}", "reads a 'scor' - did you mean 'score'"),
    ("suite=own own.stss=my.csv", "did you mean 'own.sts'"),
]
WITHOUT_EXPERIMENT = "name: no experiment was chosen - add +experiment=<one of these>:"
OTHERS = [
    ("train", "", WITHOUT_EXPERIMENT),
    ("train", "+debug=tiny", "dualcse_cross"),
    ("train", "-m seed=0,1", WITHOUT_EXPERIMENT),
    ("evaluate", "model=tiny +suite=sts pooing=cls", "did you mean 'pooling'"),
    ("evaluate", "model=tiny", "suite: no suite was chosen - add +suite="),
    ("evaluate", "model=tiny +suite=sts precision=16-mixed", "precision: must be 32-true or"),
    ("describe", "encoder=tiny", "data: no data was chosen - add data="),
    ("describe", "data=inli rows=1", "rows: must be an integer >= 2, got 1"),
    ("generate", "+pattern=nli data=wiki most_words=null", "most_words: must be an integer"),
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
    f"{X} ++seed=3 +force=false",
    f"{X} trainer.precision=bf16 trainer.max_time=00:01:00:00 trainer.deterministic=true",
    f"{X} +method.optimizer.momentum=0.9 ~method.optimizer.betas",
    f"{X} +suite.more._target_=lightning_cse.evaluation.STSB",
    f"{X} corpora.snli_dev=snli/dev suite=[nli,own] own.nli={{dev:a,test:b}} limits.dev_pairs=9",
    f"{X} -m limits.dev_pairs=5 suite=stsb,inli",
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
    (experiments / "bad.yaml").write_text(MINE.replace("SETTING", "{callbacks: 1}"))
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
        ("+experiment=bad", "trainer.callbacks: is set by lightning_cse"),
        ("+experiment=own +flavour=swet", "there is no flavour 'swet' - did you mean 'sweet'?"),
        ("seed=1", ", own, "),
    ],
)
def test_config_dir(line, message, config_dir, give):
    code, _, errors = give(*line.split(), *config_dir)
    assert code == (2 if message else 0), errors
    assert message in errors


@pytest.mark.parametrize(("name", "code"), [("bug", 1), ("user", 2), ("busy", 3)])
def test_exit_codes_of_a_run(name, code, give):
    found, _, errors = give(X, f"name={name}")
    assert found == code
    assert ("Traceback" in errors) == (name == "bug")


def test_traceback_of_a_bug_is_shown(give, monkeypatch):
    errors = give(X, "name=bug")[2]

    assert 'raise ValueError("an odd\\nmatter")' in errors
    assert errors.endswith("error: ValueError: an odd matter (a bug in lightning_cse)\n")

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
    _, out, _ = give(X, "trainer.max_epochs=7", *shown)

    for text in ("data_dir: /corpora", "precision: bf16-mixed", "logger: null", "max_epochs: 7"):
        assert text in out

    # The command line comes first.
    assert "data_dir: ${sample_dir:}" in give(X, "+debug=tiny", *shown)[1]
    file.write_text(LOCAL.partition("\n")[2])
    assert "conf/local: the first line of the file must be" in give(X, *config_dir)[2]
