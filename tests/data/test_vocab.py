import pytest

from data.vocab import BOS, EOS, PAD, UNK, Vocab

COUNTS = {"d": 1, "c": 1, "a": 2, "b": 3}


def test_the_most_frequent_words_ties_by_word():
    assert Vocab.from_counts(COUNTS, size=3).words == ("b", "a", "c")
    assert Vocab.from_counts(dict(reversed(COUNTS.items())), size=3).words == ("b", "a", "c")


def test_the_special_ids_are_not_counted_in_size():
    vocab = Vocab.from_counts(COUNTS, size=3)
    assert len(vocab) == 7
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)


def test_encode_and_decode():
    vocab = Vocab(("b", "a"))
    assert vocab.encode(["a", "b", "x"]) == [5, 4, UNK]
    assert vocab.decode([BOS, 5, 4, UNK, EOS, PAD]) == ["<s>", "a", "b", "<unk>", "</s>", "<pad>"]


def test_a_word_spelled_like_a_special_never_becomes_one():
    vocab = Vocab.from_counts({"<pad>": 1, "</s>": 2}, size=1)
    assert vocab.encode(["</s>", "<pad>", "<s>"]) == [4, UNK, UNK]


def test_a_size_beyond_the_words_takes_all_of_them():
    assert len(Vocab.from_counts(COUNTS, size=1000)) == 4 + 4


def test_an_empty_shortlist_is_refused():
    with pytest.raises(ValueError, match="got 0"):
        Vocab.from_counts(COUNTS, size=0)
