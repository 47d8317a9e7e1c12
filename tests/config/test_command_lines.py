"""Command lines: refused with one clear message and nothing left on disk, or accepted."""

import pytest

X = "+experiment=dualcse_cross"

REFUSED = [
    # Hydra's messages, with what was probably meant
    (
        "epochs=1",
        "use +epochs=1 Key 'epochs' is not in struct - did you mean 'trainer.max_epochs'?",
    ),
    ("encoder=bert_bse", "did you mean 'bert_base'?"),
    ("data=my/pairs.csv", "a file of your own: data=file data.train=FILE"),
    ("data=null", "data: choose one of claif, "),
    ("logger=[1]", "logger: choose one of csv, tensorboard, wandb, got [1]"),
    ("logger=[csv,wndb]", "Could not load 'logger/wndb'. - did you mean 'wandb'?"),
    ("encoder=[1]", "encoder: takes one option, got the list [1]"),
    ("dualcse_cross", "Error parsing override 'dualcse_cross'"),
    ("data.batch_size=8,16", "add --multirun"),
    ("trainer.fast_dev_run=true", "use +trainer.fast_dev_run=true"),
    ("+seed=1", "'++seed=1'"),
    ("-m epochs=1,2", "did you mean 'trainer.max_epochs'?"),
    ("-m encoder=tiny,tny", "did you mean 'tiny'?"),
    ("-m seed=0,1 hydra/launcher=slrm", "joblib and submitit are extras"),
    ("-m method.optimizer.lr=interval(0,1)", "Can only enumerate CHOICE and RANGE sweeps"),
    ("-m hydra.sweeper.file=nowhere.yaml", "No such file or directory: 'nowhere.yaml'"),
    ("-m hydra.sweeper.points=[['epochs=1']]", "trainer.max_epochs"),
    ("seed=${seed}", "Recursive interpolation"),
    # What Hydra would read as something else
    ("--experiment simcse_sup", "--experiment: there is no such flag; write +experiment=NAME"),
    ("hydra.run.dir=elsewhere", "hydra.run.dir: cannot be set; a run's folder follows from its"),
    ("+experiment=[simcse_sup,gausscse]", "experiment: takes one option, got the list"),
    # Types and bounds
    ("diag=1", "diag: should be a mapping, got 1"),
    ("trainer.limit_train_batches=1.5", "trainer.limit_train_batches: should be"),
    ("+trainer.limit_val_batches=0", "trainer.limit_val_batches: should be greater"),
    ("trainer.num_nodes=0", "trainer.num_nodes: should be greater than or equal to 1, got 0"),
    ("limits.test_pairs=1", "limits.test_pairs: should be greater than or equal to 3, got 1"),
    ("seed=-1", "seed: should be greater than or equal to 0, got -1"),
    ("monitor=3", "monitor: should be a valid string, got 3"),
    ("+experimnt=simcse_inli", "experimnt: unknown key"),
    ("+method.foo=1", "method.foo: unknown key"),
    ("trainer.max_epochs=abc", "trainer.max_epochs: should be a valid integer, got 'abc'"),
    ("~data", "data: is missing"),
    ("~method.optimizer.lr", "method.optimizer.lr: is missing, and cannot be left out"),
    (
        "trainer.precision=bf16-true",
        "'bf16-mixed', '16-mixed', 'auto', '32', 'bf16', '16', 32 or 16, got",
    ),
    ("trainer.devices=65", "data.batch_size: 64 is the batch of all 65 devices"),
    ("trainer.devices=auto", "trainer.devices: should be a valid integer or should be a list"),
    ("trainer.strategy=fsdp", "fsdp shards the weights, but evaluation, gradient clipping and"),
    ("trainer.max_epochs=-1", "training never ends"),
    ("+trainer.callbacks=[]", "+callbacks.mine={_target_: my_module.MyCallback}"),
    ("+trainer.max_epoch=3", "trainer.max_epoch: unknown key - did you mean 'max_epochs'?"),
    ("callbacks.early_stopping.min_delta=0.1", "set callbacks.early_stopping.patience, too"),
    ("suite=nli suite.snli.auprc_thresholds=1", "should be greater than or equal to 2, got 1"),
    ("data.batch_size=1", "data.batch_size: should be greater than or equal to 2, got 1"),
    (f"name={'n' * 300}", "name: String should match pattern"),
    ("method.loss.temperature=nan", "method.loss.temperature: should be a finite number, got nan"),
    ("paths.runs_dir=10", "paths.runs_dir: should be a valid string, got 10"),
    ("data.columns={negative:[a,b]}", "data.columns.negative: should be a valid string, got ["),
    # Classes of another kind, which are never called
    (
        "+callbacks.mine=3",
        "callbacks.mine: should be a class and its arguments, {_target_: ...}, got 3",
    ),
    ("+callbacks.x={_target_:os.mkdir,path:made}", "callbacks.x._target_: should be a class, or a"),
    ("+callbacks.x={_target_:torch.load,f:evil.pt}", "should be Callback, got torch.load"),
    ("logger=csv +logger.x={_target_:torch.nn.Identity}", "should be Logger, got torch.nn.Iden"),
    ("+baselines.x={_target_:torch.nn.Identity}", "should be Embeds, got torch.nn.Identity"),
    ("+suite.x={_target_:torch.nn.Identity}", "should be Task, got torch.nn.Identity"),
    ("data.train=[{_target_:subprocess.Popen,args:ls}]", "data.train.0._target_: should be str"),
    ("++method.loss={_target_:subprocess.Popen,args:ls}", "should be DualContrastive, got subpro"),
    (
        "+encoder.adapter={_target_:torch.nn.Identity}",
        "should be PeftConfig, got torch.nn.Identity",
    ),
    ("method._target_=[1]", "method._target_: [1] cannot be used"),
    ("data.rows._target_=subprocess.Popen", "should be RoleRows"),
    # Files of the user's own
    ("suite=own", "or own.sts=FILE, own.pairs=FILE, own.nli=FILE,"),
    ("own.pairs=my.csv own.columns={sentence1:x}", "own.columns: no test set reads a 'sentence1'"),
    ("suite=own own.sts=my.csv own.columns={scor:x}", "reads a 'scor' - did you mean 'score'"),
    ("suite=own own.stss=my.csv", "did you mean 'own.sts'"),
]
WITHOUT_EXPERIMENT = "name: no experiment was chosen - add +experiment=<one of these>:"
OTHERS = [
    ("train", "", WITHOUT_EXPERIMENT),
    ("train", "+debug=tiny", "dualcse_cross"),
    ("train", "-m seed=0,1", WITHOUT_EXPERIMENT),
    (
        "train",
        "experiment=simcse_inli",
        "To append to your default list use +experiment=simcse_inli",
    ),
    ("evaluate", "model=tiny +suite=sts pooing=cls", "did you mean 'pooling'"),
    ("evaluate", "model=tiny", "suite: no suite was chosen - add +suite="),
    (
        "evaluate",
        "model=tiny +suite=sts precision=16-mixed",
        "precision: should be '32-true', 'bf16-mixed' or",
    ),
    ("describe", "encoder=tiny", "data: no data was chosen - add data="),
    ("describe", "data=inli rows=1", "rows: should be greater than or equal to 2, got 1"),
    ("generate", "+pattern=nli data=wiki most_words=null", "most_words: should be a valid integer"),
    ("generate", "data=wiki", "pattern: no pattern was chosen"),
]
ALL_REFUSED = [("train", f"{X} {line}", message) for line, message in REFUSED] + OTHERS


@pytest.mark.parametrize(("command", "line", "message"), ALL_REFUSED)
def test_refused_command_line(command, line, message, give, tmp_path):
    code, out, errors = give(*line.split(), command=command)
    assert code == 2
    assert message in errors
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line",
    [
        "+experiment=dualcse_cros method.los.temperature=0.1",
        f"{X} epochs=1 sede=2",
        f"{X} seed=x method.loss.temperature=nan",
    ],
)
def test_two_typos_are_in_one_message(line, give):
    code, _, errors = give(*line.split())
    assert (code, errors.splitlines()[0]) == (2, "error: 2 faults:")


ACCEPTED = [
    "seed=1 +experiment=dualcse_cross",
    f"{X} ++seed=3 force=false",
    f"{X} trainer.precision=bf16 trainer.max_time=00:01:00:00 trainer.deterministic=true",
    f"{X} +method.optimizer.momentum=0.9 ~method.optimizer.betas"
    " method.optimizer._target_=torch.optim.SGD ~method.optimizer.eps",
    f"{X} +suite.more={{_target_:lightning_cse.evaluation.STSB,data_dir:x}}",
    f"{X} corpora.snli_dev=snli/dev suite=[nli,own] own.nli={{dev:a,test:b}} limits.dev_pairs=9",
    f"{X} -m limits.dev_pairs=5 suite=stsb,inli",
    f"{X} +trainer.fast_dev_run=true +trainer.overfit_batches=2 +trainer.profiler=simple"
    " +trainer.detect_anomaly=true trainer.accumulate_grad_batches=2",
    f"{X} +trainer.limit_test_batches=2 +trainer.limit_val_batches=2 +trainer.val_check_interval=3",
    f"{X} +callbacks.monitor={{_target_:pytorch_lightning.callbacks.LearningRateMonitor}}",
    f"{X} +callbacks.nothing=null logger=csv",
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
    (experiments / "broken.yaml").write_text(
        "# @package _global_\ndefaults: [override /method: simcs]\n"
    )
    (experiments / "cyclic.yaml").write_text("# @package _global_\na: &a [*a]\n")
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
        ("+experiment=onw", "did you mean 'own'?"),
        ("+experiment=bad", "trainer.callbacks: cannot be set"),
        ("+experiment=own +flavour=swet sede=1", "did you mean 'sweet'?"),
        ("+experiment=broken seed=1", "Could not find 'method/simcs'"),
        (
            "+experiment=cyclic",
            "+experiment=cyclic: a value, or an alias in a YAML file, contains itself",
        ),
        ("seed=1", ", own, "),
    ],
)
def test_config_dir(line, message, config_dir, give):
    code, _, errors = give(*line.split(), *config_dir)
    assert code == (2 if message else 0), errors
    assert message in errors


@pytest.mark.parametrize(("name", "code"), [("bug", 1), ("user", 2), ("busy", 3)])
def test_exit_codes_of_a_run(name, code, give):
    exit_code, _, errors = give(X, f"name={name}")
    assert exit_code == code
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
    options = (*config_dir, "--cfg", "job")

    assert "data_dir: /corpora" not in give(X, *options)[1]  # no test reads the machine's file

    monkeypatch.setenv("LIGHTNING_CSE_LOCAL", "of_a_test")
    _, out, _ = give(X, "trainer.max_epochs=7", *options)

    for text in ("data_dir: /corpora", "precision: bf16-mixed", "logger: null", "max_epochs: 7"):
        assert text in out

    # The command line comes first.
    assert "data_dir: ${sample_dir:}" in give(X, "+debug=tiny", *options)[1]
    file.write_text(LOCAL.partition("\n")[2])
    assert "conf/local: the first line of the file must be" in give(X, *config_dir)[2]
