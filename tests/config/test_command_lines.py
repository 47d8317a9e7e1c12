"""Command lines that are refused: one clear message, no traceback, nothing left on disk."""

from pathlib import Path

import pytest
from config.conftest import Give

X = "+experiment=dualcse_cross"
REFUSED: list[tuple[str, str]] = [
    # unknown keys
    ("epochs=1", "unknown key 'epochs' - did you mean 'trainer.max_epochs'?"),
    ("temperature=0.1", "unknown key 'temperature' - did you mean 'method.loss.temperature'?"),
    ("sede=1", "unknown key 'sede' - did you mean 'seed'?"),
    ("sede=1 epochs=1", "2 faults:"),
    ("+method.foo=1", "+method.foo=1: unknown key 'method.foo'"),
    ("++seed=3 ++foo=2", "++foo=2: unknown key 'foo'"),
    ("+experimnt=simcse_inli", "did you mean '+experiment='?"),
    ("method={foo: 1}", "foo"),
    # options
    (
        "encoder=bert_bse",
        "there is no encoder 'bert_bse' - did you mean 'bert_base'? (choose from: bert_base,",
    ),
    ("data=my/pairs.csv", "a file of your own: data=file data.train=my/pairs.csv"),
    ("hydra/launcher=jobli", "there is no hydra/launcher 'jobli' - did you mean 'joblib'?"),
    (
        "dualcse_cros",
        "dualcse_cros: not an override of the form key=value - did you mean '+experiment=dualcse_cross'?",
    ),
    ("seed=[1", "seed=[1: Hydra cannot read this value; quote it"),
    ("data.batch_size=8,16", "add --multirun"),
    # types
    (
        "trainer.max_epochs=abc",
        "trainer.max_epochs: Value 'abc' of type 'str' could not be converted to Integer",
    ),
    ("diag=1", "diag: must be a mapping, got 1"),
    ("force=maybe", "force: Value 'maybe'"),
    ("~data", "data: is missing"),
    # values
    (
        "trainer.precision=64",
        "trainer.precision: must be 32-true or bf16-mixed or 16-mixed or auto, got 64",
    ),
    ("trainer.precision=bf16-true", "got 'bf16-true' - did you mean 'bf16-mixed'?"),
    ("trainer.accelerator=cdua", "did you mean 'cuda'?"),
    (
        "trainer.devices=65",
        "data.batch_size: 64 is the batch of all 65 devices, too small for one row each; raise it",
    ),
    (
        "trainer.devices=auto",
        "trainer.devices: must be a number of devices, at least 1, or a list of GPUs, got 'auto'",
    ),
    ("trainer.devices=-1", "or a list of GPUs, got -1"),
    (
        "trainer.limit_train_batches=1.5",
        "must be a number of batches, or a share from 0.0 to 1.0, got 1.5",
    ),
    ("trainer.limit_train_batches=half", "or a share from 0.0 to 1.0, got 'half'"),
    ("trainer.max_epochs=-1", "training never ends"),
    ("seed=-1", "seed: must be a number >= 0"),
    ("eval_every=0", "eval_every: must be an integer >= 1, got 0"),
    ("data.batch_size=1", "data.batch_size: must be an integer >= 2, got 1"),
    ("data.batch_size=null", "data.batch_size: must be an integer >= 2, got None"),
    ("data.batch_size='8'", "data.batch_size: must be an integer >= 2, got '8'"),
    ("diag.negative_score=-inf", "diag.negative_score: must be a finite number, got -inf"),
    ("encoder.dropout=1", "encoder.dropout: must be a number >= 0 and < 1, got 1"),
    ("patience=3", "unknown key 'patience' - did you mean 'callbacks.early_stopping.patience'?"),
    (
        "callbacks.early_stopping.patience=0",
        "callbacks.early_stopping.patience: must be an integer >= 1, got 0",
    ),
    (
        "callbacks.early_stopping.min_delta=0.1",
        "needs callbacks.early_stopping.patience; set that too",
    ),
    (f"name={'n' * 300}", "is not a valid name"),
    # sweeps
    ("-m epochs=1,2", "unknown key 'epochs' - did you mean 'trainer.max_epochs'?"),
    ("encoder=custom", "encoder.source: Missing mandatory value"),
    (
        "-m encoder=tiny,./tny",
        "encoder=tiny,./tny: a sweep takes either options of conf/encoder or folders and hub ids",
    ),
    ("-m encoder=tiny,tny", "there is no encoder 'tny' - did you mean 'tiny'?"),
    ("-m method.optimizer.lr=interval(0,1)", "a grid needs a list of values"),
    ("-m hydra.sweeper.file=nowhere.yaml", "hydra.sweeper.file=nowhere.yaml"),
    # what nothing would read
    (
        "limits.dev_pairs=5",
        "nothing reads limits.dev_pairs here; leave it out (keys that are read: limits.dev_rows, limits.test_rows)",
    ),
    (
        "corpora.snli_test=my.csv",
        "nothing reads corpora.snli_test here; leave it out (keys that are read: none)",
    ),
    ("suite=[stsb,own] own.sts=a.csv limits.test_rows=5", "nothing reads limits.test_rows here"),
    ("-m limits.dev_pairs=5,6 seed=1,2", "nothing reads limits.dev_pairs here"),
    (
        "transfer.protocol=lbfgs",
        "transfer.protocol=lbfgs: comes with a suite: add suite=transfer, or suite=[stsb,transfer]",
    ),
    # test sets of one's own
    ("own.sts=my.csv", "own.sts=my.csv: comes with a suite: add suite=own, or suite=[stsb,own]"),
    ("suite=own", "suite=own: has no test set; add own.sts=FILE, own.nli=FILE,"),
    ("suite=own own.columns={score:grade}", "suite=own: has no test set"),
    ("suite=own own.stss=my.csv", "unknown key 'own.stss' - did you mean 'own.sts'?"),
    (
        "suite=own own.sts=a.csv own.columns={sentense1:q}",
        "reads a column 'sentense1' - did you mean 'sentence1'?",
    ),
    (
        "suite=own own.sts=a.csv own.columns={label:q}",
        "no test set reads a column 'label' (columns: sentence1, sentence2",
    ),
]


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_refused_command_line(line: str, message: str, give: Give, tmp_path: Path) -> None:
    args = [line] if line.startswith("method={") else line.split()
    code, out, errors = give(X, *args)
    assert code == 2
    assert message in errors
    assert errors.startswith("error: ")
    assert "Traceback" not in errors
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_without_an_experiment_all_are_listed(give: Give) -> None:
    for line in ((), ("+debug=tiny",), ("epochs=1",), ("-m", "seed=0,1")):
        code, _, errors = give(*line)
        assert code == 2
        assert (
            "no experiment was chosen - add +experiment=<one of these>:\n    dualcse_bi " in errors
        )
        assert "DualCSE with a cross-encoder on INLI" in errors


ACCEPTED = [
    "experiment=dualcse_cross",
    "++experiment=dualcse_cross seed=1",
    f"{X} name=2024",
    f"{X} ++seed=3",
    f"{X} -m seed=1",
    f"{X} trainer.precision=bf16 trainer.max_time=00:01:00:00 trainer.deterministic=true",
    f"{X} trainer.max_steps=100 trainer.max_epochs=-1",
    f"{X} method.optimizer._target_=torch.optim.SGD +method.optimizer.momentum=0.9 ~method.optimizer.betas",
    f"{X} +suite.more._target_=lightning_cse.evaluation.STSB",
    f"{X} ~baselines.length",
    f"{X} corpora.snli_dev=snli/dev suite=[nli,own] own.nli={{dev:a,test:[b,c]}} limits.dev_pairs=9",
    f"{X} -m limits.dev_pairs=5 suite=stsb,inli",
    f"{X} -m corpora={{snli_dev:snli/dev}} suite=nli,inli",
]


@pytest.mark.parametrize("line", ACCEPTED)
def test_an_accepted_command_line(line: str, give: Give, tmp_path: Path) -> None:
    code, _, errors = give(*line.split())
    assert (code, errors) == (0, "")
    assert (tmp_path / "runs" / "done.txt").is_file()


def test_other_commands_are_checked_alike(give: Give) -> None:
    for command, line, message in (
        ("evaluate", "model=tiny +suite=sts pooing=cls", "did you mean 'pooling'?"),
        ("evaluate", "model=tiny", "suite: no suite was chosen - add +suite="),
        (
            "evaluate",
            "model=tiny +suite=sts precision=16-mixed",
            "precision: must be 32-true or bf16-mixed or auto",
        ),
        (
            "evaluate",
            "model=tiny +suite=sts limits.dev_rows=9",
            "nothing reads limits.dev_rows here",
        ),
        ("evaluate", "model=tiny +suite=sts +own.sts=x", "add +suite=own, or +suite=[stsb,own]"),
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
    ):
        code, _, errors = give(*line.split(), command=command)
        assert code == 2, line
        assert message in errors, line


def test_a_folder_of_configs_of_ones_own(give: Give, tmp_path: Path) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    for name, values in (("own", "{max_epochs: 1}"), ("bad", "{callback: 1}")):
        text = f"# @package _global_\ndefaults: [dualcse_cross, _self_]\nname: own\ntrainer: {values}\n"
        (tmp_path / "mine" / "experiment" / f"{name}.yaml").write_text(text)
    assert give("+experiment=own", "--config-dir", "mine")[0] == 0
    for line, message in (
        (("+experiment=own", "epochs=1"), "epochs"),
        (("+experiment=bad",), "trainer.callback"),
    ):
        code, _, errors = give(*line, "--config-dir", "mine")
        assert code == 2
        assert message in errors


def test_a_fault_of_ours_keeps_its_traceback_in_a_file(
    give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, errors = give(X, "name=bug")
    assert code == 1
    first, second = errors.splitlines()
    assert first == "error: ValueError: an odd matter"
    file = Path(second.rpartition(" ")[2])
    assert 'raise ValueError("an odd\\nmatter")' in file.read_text()
    file.unlink()
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    code, _, errors = give(X, "name=user")
    assert code == 2
    assert "Traceback" in errors
    assert give(X, "name=busy")[0] == 3


LOCAL = "# @package _global_\npaths: {data_dir: /corpora}\ntrainer: {precision: bf16-mixed}\nlogger: null\n"


def test_settings_of_this_machine(
    give: Give, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = (
        tmp_path / "mine" / "local" / "of_a_test.yaml"
    )  # default.yaml may be there, in conf/local
    file.parent.mkdir(parents=True)
    file.write_text(LOCAL)
    shown = ("--config-dir", str(tmp_path / "mine"), "--cfg", "job")
    assert "data_dir: /corpora" not in give(X, *shown)[1], "no test reads the file of a machine"
    monkeypatch.setenv("LIGHTNING_CSE_LOCAL", "of_a_test")
    _, out, _ = give(X, "trainer.max_epochs=7", *shown)
    for text in ("data_dir: /corpora", "precision: bf16-mixed", "logger: null", "max_epochs: 7"):
        assert text in out
    _, out, _ = give(X, "+debug=tiny", *shown)
    assert "data_dir: ${sample_dir:}" in out, "what is asked for on the command line comes first"
    assert "data_dir: /corpora" in give("model=tiny", "+suite=sts", *shown, command="evaluate")[1]
    for text, message in (
        (LOCAL.replace("data_dir", "datadir"), "did you mean 'data_dir'?"),
        (
            LOCAL.partition("\n")[2],
            "conf/local: the first line of the file must be '# @package _global_'",
        ),
    ):
        file.write_text(text)
        code, _, errors = give(X, *shown[:2])
        assert code == 2
        assert message in errors
