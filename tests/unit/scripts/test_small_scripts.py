"""Scripts of a page: each runs at its smallest, or says why it cannot."""

import mutants
import pytest
import release
import train_tiny_vocabulary


def test_the_tiny_encoder_has_the_word_pieces_of_the_sample():
    committed = train_tiny_vocabulary.VOCABULARY.read_text(encoding="utf-8").split()
    pieces = train_tiny_vocabulary.trained().split()
    assert pieces[:5] == committed[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(pieces) == len(committed)
    # Merges that are as frequent come in any order, so that the last pieces differ between runs.
    assert len({*pieces} & {*committed}) > 0.99 * len(committed)


def test_a_version_that_is_not_ready_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["release.py", "v9.9.9"])
    assert release.main() == 1
    assert "the version is" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_changed_loss_is_noticed(capsys):
    assert mutants.main("ce: no temperature") == 0
    assert "1 of 1 changes were noticed" in capsys.readouterr().out
