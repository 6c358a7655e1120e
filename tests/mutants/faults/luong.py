"""Attentional LSTMs: which state attends, what is read backwards, windows, what is fed; loops with deferred gradients."""

from tests.mutants.fault import Fault

MODEL, LSTM, DEFERRED = "reproductions/luong/model.py", "common/nn/lstm.py", "common/nn/deferred.py"
UNKNOWN = "common/decode/unknown.py"

TESTS = "tests/repro/luong/test_model.py::"
FOLLOWS = (TESTS + "test_forward_follows_the_equations",)
DECODES = (TESTS + "test_decoding_is_the_forward_pass_word_by_word",)
BACKWARDS = (TESTS + "test_reading_backwards_keeps_padding_where_it_is",)
FED = ("tests/common/nn/test_lstm.py::test_a_fed_loop_is_a_step_on_words_and_what_is_fed",)
SAME = ("tests/common/nn/test_deferred.py::test_values_and_gradients_are_those_of_the_plain_product",)
TWICE = ("tests/common/nn/test_deferred.py::test_a_second_backward_counts_alone",)
LEARNT = ("tests/common/decode/test_unknown.py::test_a_dictionary_is_what_most_often_looks_at_a_word",)
REPLACED = ("tests/common/decode/test_unknown.py::test_unknown_words_become_the_entry_or_the_source_word",)
END = ("tests/common/decode/test_unknown.py::test_the_end_mark_is_no_word",)

FAULTS = (
    Fault(
        "the state before attends",
        MODEL,
        "self.attend(h, x, places)[0]",
        "self.attend(h.roll(1, 1), x, places)[0]",
        FOLLOWS,
    ),
    Fault(
        "the state before attends in decoding",
        MODEL,
        'self.attend(h, x, state["place"][0])',
        'self.attend(x.state.h[..., -1, :], x, state["place"][0])',
        DECODES,
    ),
    Fault("nothing is fed", MODEL, "h = step(t, vector)", "h = step(t, 0 * vector)", FOLLOWS),
    Fault(
        "nothing is fed in decoding",
        MODEL,
        'torch.cat((embedded, state["vector"]), -1)',
        'torch.cat((embedded, 0 * state["vector"]), -1)',
        DECODES,
    ),
    Fault(
        "the context comes behind the state",
        MODEL,
        "torch.cat((x.context(weights), h), -1)",
        "torch.cat((h, x.context(weights)), -1)",
        FOLLOWS,
    ),
    Fault("padding is attended to", MODEL, "seen = x.mask.unsqueeze(1)", "seen = x.mask.unsqueeze(1) | True", FOLLOWS),
    Fault(
        "no Gaussian",
        MODEL,
        "return inside * truncated_gaussian(center, self.half_width, length)",
        "return inside",
        FOLLOWS,
    ),
    Fault("local-m is a word late", MODEL, "window(places, self", "window(places + 1, self", FOLLOWS),
    Fault("decoding stays at its first word", MODEL, '"place": state["place"] + 1', '"place": state["place"]', DECODES),
    Fault(
        "padding is read first", MODEL, "mask.sum(1, keepdim=True) - 1 - place", "mask.shape[1] - 1 - place", BACKWARDS
    ),
    Fault(
        "positions count from the end",
        MODEL,
        "annotations = annotations.gather(1, order.unsqueeze(-1).expand_as(annotations))",
        "pass",
        FOLLOWS,
    ),
    Fault("a loop's state is the layer below's", LSTM, "hs[layer] = x", "hs[layer] = hs[0]", FED),
    Fault("a loop's biases are the words'", LSTM, "totals[t] if layer == 0 else linears[layer].bias", "totals[t]", FED),
    Fault(
        "a loop starts at its second word",
        LSTM,
        "totals = given.to(state.h.dtype).unbind(1)",
        "totals = given.to(state.h.dtype).roll(-1, 1).unbind(1)",
        FED,
    ),
    Fault("the last step's gradient is lost", DEFERRED, "torch.cat(side, -2)", "torch.cat(side[1:], -2)", SAME),
    Fault("the gradient passes the matrix as it is", DEFERRED, "(grad @ ctx.low.mT)", "(grad @ ctx.low)", SAME),
    Fault("a loop's uses are kept", DEFERRED, "        ctx.uses.clear()\n", "", TWICE),
    Fault("a dictionary of what is met first", UNKNOWN, "found.most_common(1)[0]", "next(iter(found.items()))", LEARNT),
    Fault(
        "the word before is replaced",
        UNKNOWN,
        "dictionary.get(source[j], source[j])",
        "dictionary.get(source[j - 1], source[j - 1])",
        REPLACED,
    ),
    Fault("the end mark is a word", UNKNOWN, "weights[:target, :source]", "weights[:target]", END),
)
