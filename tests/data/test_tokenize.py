"""Expected tokens are those of Moses' tokenizer.perl -no-escape, worked out from its rules."""

import pytest

from data.tokenize import detokenize, tokenize, unescape_once


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "It's John's, isn't it?", "It 's John 's , isn 't it ?"),
        ("en", 'He said: "Go (now)!"', 'He said : " Go ( now ) ! "'),
        (
            "en",
            "Mr. Smith paid 5,300.50 to e.g. a well-known firm.",
            "Mr. Smith paid 5,300.50 to e.g. a well-known firm .",
        ),
        ("fr", "L'homme n'est pas d'ici.", "L' homme n' est pas d' ici ."),
        ("fr", "Aujourd'hui, jusqu'à l'été\u00a0!", "Aujourd' hui , jusqu' à l' été !"),
        ("de", "Er hat's, z.B. den Hut.", "Er hat ' s , z.B. den Hut ."),
    ],
)
def test_moses(language, text, expected):
    assert " ".join(tokenize(text, language)) == expected


def test_clitics_depend_on_the_language():
    assert tokenize("l'eau", "fr") == ["l'", "eau"]
    assert tokenize("l'eau", "en") == ["l", "'eau"]


def test_nothing_is_escaped():
    assert tokenize("""a & b < c > "d" [e] | 'f' &amp;""", "en")[:13] == list('a&b<c>"d"[e]') + ["|"]
    assert "&" in tokenize("AT&T", "en")
    assert not any(len(token) > 1 and token.startswith("&") for token in tokenize("&<>\"'[]|", "en"))


@pytest.mark.parametrize("text", ["", " ", "\u00a0", "\u200b", "a  b ", " a\tb", "a\u00a0b", "a\u2028b"])
def test_no_empty_token_and_no_space_in_one(text):
    tokens = tokenize(text, "en")
    assert tokens == [char for char in text if char in "ab"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "It's John's, isn't it?"),
        ("en", 'He said: "Go (now)!"'),
        ("fr", "L'homme n'est pas d'ici, c'est vrai."),
    ],
)
def test_detokenizing_restores_the_text(language, text):
    assert detokenize(tokenize(text, language), language) == text


def test_detokenizing_leaves_a_literal_escape_alone():
    assert detokenize(["write", "&amp;", "here"], "en") == "write &amp; here"


@pytest.mark.parametrize(
    ("escaped", "plain"),
    [
        ("that &apos;s", "that 's"),
        ("&quot; yes &quot;", '" yes "'),
        ("&#91; 2 &#93; &#124;", "[ 2 ] |"),
        ("R &amp; D", "R & D"),
        ("type &amp;lt; for a bracket", "type &lt; for a bracket"),
    ],
)
def test_escapes_are_undone_once(escaped, plain):
    assert unescape_once(escaped) == plain
