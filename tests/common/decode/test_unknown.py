"""Unknown words by their aligned source word, by hand; forced decoding against the model's own steps."""

import pytest
import torch

from common.decode.forced import forced_weights
from common.decode.unknown import learn_dictionary, replace_unknown

UNK = "<unk>"


def looks(*places: int, width: int) -> torch.Tensor:
    """Weights whose largest entry of row i is places[i]."""
    return 0.1 + torch.nn.functional.one_hot(torch.tensor(places), width).float()


def test_a_dictionary_is_what_most_often_looks_at_a_word() -> None:
    pairs = [
        (["dog"], ["Rüde"], looks(0, 1, width=2)),  # met first, but once
        (["the", "dog"], ["der", "Hund"], looks(0, 1, 2, width=3)),
        (["dog"], ["Hund"], looks(0, 1, width=4)),  # padded
        (["the", "dog", "runs"], ["Köter", "der", "läuft"], looks(1, 0, 2, 3, width=4)),
    ]
    assert learn_dictionary(pairs) == {"the": "der", "dog": "Hund"}
    assert learn_dictionary(pairs, least=1) == {"the": "der", "dog": "Hund", "runs": "läuft"}


def test_unknown_words_become_the_entry_or_the_source_word() -> None:
    source, weights = ["Ruth", "saw", "Boaz"], looks(2, 0, 1, 3, width=5)
    assert replace_unknown([UNK, UNK, "sah"], source, weights, {"Ruth": "Rut"}, UNK) == ["Boaz", "Rut", "sah"]
    assert replace_unknown(["a", "b", "c"], source, weights, {"Ruth": "Rut"}, UNK) == ["a", "b", "c"]


def test_the_end_mark_is_no_word() -> None:
    """Column 1 is the end of a source of one word, row 1 that of the target."""
    weights = torch.tensor([[0.2, 0.8], [0.9, 0.1]])
    assert replace_unknown([UNK], ["x"], weights, {}, UNK) == ["x"]
    assert learn_dictionary([(["x"], ["y"], weights)], least=1) == {"x": "y"}


class Reader:
    """Looks at column 10 * state + token; the state counts words."""

    def begin(self, source, source_mask):
        return {"mask": source_mask}, {"t": torch.zeros(len(source), 1, dtype=torch.int64)}

    def step(self, memory, state, tokens):
        weights = torch.nn.functional.one_hot(10 * state["t"] + tokens, memory["mask"].shape[1]).float()
        return torch.zeros(*tokens.shape, 5), {"t": state["t"] + 1}, weights


def test_forced_weights_read_the_given_words() -> None:
    source = torch.zeros(2, 40, dtype=torch.int64)
    found = forced_weights(Reader(), source, source == 0, torch.tensor([[1, 4, 5], [1, 9, 2]]))
    assert found is not None and found.shape == (2, 3, 40)
    assert found.argmax(-1).tolist() == [[1, 14, 25], [1, 19, 22]]


def test_a_model_without_attention_has_no_weights() -> None:
    class Blind(Reader):
        def step(self, memory, state, tokens):
            log_probs, state, _ = super().step(memory, state, tokens)
            return log_probs, state, None

    assert forced_weights(Blind(), torch.zeros(1, 2), torch.ones(1, 2) > 0, torch.tensor([[1]])) is None


def test_a_source_without_words_has_no_translation() -> None:
    with pytest.raises(AssertionError):
        replace_unknown([UNK], [], torch.ones(1, 1), {}, UNK)
