"""Heads and windows that a text chooses: against a loop that computes only what is chosen and counts what it multiplies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.nn.conditional import Gate, GatedHeads, GatedWindows
from common.nn.hybrid import Sliding
from common.nn.long import LanguageModel
from common.nn.sparse import Full
from tests.common.nn.sparse.spec import compare, made, reached, texts, turned

HEADS: dict[str, dict[str, Any]] = {
    "one": {"budget": 1, "causal": True},
    "two": {"budget": 2, "causal": True},
    "two, both ways": {"budget": 2},
    "two, one key head": {"budget": 2, "causal": True, "kv_heads": 1},
    "two, rotary": {"budget": 2, "causal": True, "rotary": True},
    "two, random": {"budget": 2, "causal": True, "gate": "random", "seed": 5},
    "two of a text": {"budget": 2, "per": "sequence"},
    "one of a text, one key head": {"budget": 1, "per": "sequence", "kv_heads": 1},
    "one of a text, random": {"budget": 1, "per": "sequence", "gate": "random"},
}
WINDOWS: dict[str, dict[str, Any]] = {
    "none far": {"budget": 0, "short": 1, "long": 4},
    "one far": {"budget": 1, "short": 1, "long": 4},
    "two far, or itself alone": {"budget": 2, "short": 0, "long": 3},
    "all far": {"budget": 3, "short": 1, "long": 4},
    "one far, one key head": {"budget": 1, "short": 1, "long": 30, "kv_heads": 1},
    "one far, random": {"budget": 1, "short": 1, "long": 4, "gate": "random"},
}


def of_heads(kind: str, **settings: Any) -> GatedHeads:
    return GatedHeads(**{"backend": "reference", **HEADS[kind], **settings})


def of_windows(kind: str, **settings: Any) -> GatedWindows:
    return GatedWindows(**{"backend": "reference", **WINDOWS[kind], **settings})


@dataclass
class Counted:
    """Multiply-adds of a text."""

    total: int = 0

    def product(self, weight: Tensor, x: Tensor) -> Tensor:
        self.total += weight.numel()
        return weight @ x


def chosen(layer: Any, x: Tensor, count: Counted) -> list[int]:
    """The heads with the largest scores of one vector."""
    scores = count.product(layer.gate.weight.detach(), x.detach()).tolist()
    return sorted(sorted(range(layer.heads), key=lambda h: -scores[h])[: layer.budget])


def head_output(
    layer: Any, count: Counted, h: int, q: Tensor, t: int, keys: list[int], k: dict[int, Tensor], v: dict[int, Tensor]
) -> Tensor:  # fmt: skip
    """Of query q at position t. k, v: by position, of the key head that h reads."""
    k = {j: turned(k[j], j - t) if layer.rotary else k[j] for j in keys}
    scores = torch.stack([q @ k[j] for j in keys]) * layer.head_dim**-0.5
    weights = scores.softmax(0)
    count.total += 2 * layer.head_dim * len(keys)
    return torch.stack([weight * v[j] for weight, j in zip(weights, keys, strict=True)]).sum(0)


def weights_of(layer: Any, name: str, h: int) -> tuple[Tensor, Tensor]:
    """Rows of a projection that belong to one of its heads, and their biases."""
    at, linear = slice(h * layer.head_dim, (h + 1) * layer.head_dim), getattr(layer, name)
    return linear.weight[at], linear.bias[at]


def projected(layer: Any, name: str, h: int, x: Tensor, count: Counted) -> Tensor:
    weight, bias = weights_of(layer, name, h)
    return count.product(weight, x) + bias


def written_out(layer: Any, x: Tensor, of: Any) -> tuple[Tensor, int]:
    """One text (T, 12), causal or not; what a head reads is added up by its columns of W_o. Also what is multiplied."""
    count, rows, group = Counted(), [], layer.heads // layer.kv_heads
    whole = isinstance(of, GatedHeads) and of.per == "sequence"
    of_text = chosen(layer, x.mean(0), Counted()) if whole else []
    needed = sorted({h // group for h in of_text}) if whole else range(layer.kv_heads)
    k, v = (
        {g: {j: projected(layer, name, g, x[j], count) for j in range(len(x))} for g in needed}
        for name in ("w_k", "w_v")
    )
    for t in range(len(x)):
        heads = of_text if whole else chosen(layer, x[t], count)
        out = layer.w_o.bias
        for h in heads if isinstance(of, GatedHeads) else range(layer.heads):
            keys = [j for j in range(len(x)) if j <= t or not of.causal]
            if isinstance(of, GatedWindows):
                keys = [j for j in keys if t - j <= (of.long if h in heads else of.short)]
            q = projected(layer, "w_q", h, x[t], count)
            seen = head_output(layer, count, h, q, t, keys, k[h // group], v[h // group])
            out = out + count.product(layer.w_o.weight[:, h * layer.head_dim : (h + 1) * layer.head_dim], seen)
        rows.append(out)
    return torch.stack(rows), count.total


def unlearned(layer: Any) -> Any:
    """The choice as it is, without its gradient, which is none of the outputs'."""
    layer.gate.learned = False
    return layer


CASES = [(of_heads, kind) for kind in HEADS] + [(of_windows, kind) for kind in WINDOWS]


@pytest.mark.parametrize(("factory", "kind"), CASES, ids=[kind for _, kind in CASES])
def test_only_what_is_chosen_counts(factory: Callable[..., Any], kind: str) -> None:
    """Outputs, and the gradients of all but the gate."""
    of = factory(kind)
    layer, (x, real) = made(of), texts([9, 4, 1])
    learned: Any = layer
    with torch.no_grad():
        trained = layer(x, real=real)
    torch.testing.assert_close(unlearned(learned)(x, real=real), trained, rtol=0, atol=0)
    x.requires_grad_()
    padded = [
        nn.functional.pad(written_out(layer, x[b, :length], of)[0], (0, 0, 0, 9 - length))
        for b, length in enumerate([9, 4, 1])
    ]
    compare(layer, torch.stack(padded), x, real)


@pytest.mark.parametrize(("factory", "kind"), CASES, ids=[kind for _, kind in CASES])
def test_the_cost_is_the_formulas(factory: Callable[..., Any], kind: str) -> None:
    """Of each token of a text, whatever it says: those before it are seen, or all are."""
    of = factory(kind)
    layer: Any = made(of)
    for seed in range(3):
        x = texts([7], seed)[0][0]
        keys = [t + 1 if of.causal else 7 for t in range(7)]
        assert written_out(layer, x, of)[1] == sum(layer.multiply_adds(seen) for seen in keys)


def test_costs_by_hand() -> None:
    """d_model 12, 3 heads of 4, 10 keys: the gate has 36; a head 48 in each projection and 40 for scores, 40 for values."""
    cost = {kind: made(of_heads(kind)).multiply_adds(10) for kind in HEADS}  # type: ignore[operator]
    assert cost["one"] == 36 + 2 * 48 + 2 * 3 * 48 + 80 and cost["two"] == cost["one"] + 2 * 48 + 80
    assert cost["two, random"] == cost["two"] and cost["two, one key head"] == cost["two"] - 4 * 48
    assert cost["two of a text"] == 2 * (4 * 48 + 80)
    far = {kind: made(of_windows(kind)).multiply_adds(10) for kind in WINDOWS}  # type: ignore[operator]
    assert far["none far"] == 36 + 12 * 48 + 3 * 8 * 2 and far["all far"] == 36 + 12 * 48 + 3 * 8 * 5
    assert far["one far"] == far["one far, random"] == 36 + 12 * 48 + 8 * (5 + 2 * 2)


FULL = [
    (GatedHeads(backend="reference", budget=3), Full(backend="reference")),
    (GatedHeads(backend="reference", budget=3, per="sequence"), Full(backend="reference")),
    (GatedHeads(backend="reference", budget=3, causal=True, rotary=True), Full(backend="reference", causal=True, rotary=True)),
    (GatedHeads(backend="chunked", budget=3, causal=True, gate="random"), Full(backend="chunked", causal=True)),
    (GatedWindows(backend="reference", budget=3, short=1, long=3), Sliding(backend="reference", window=3)),
    (GatedWindows(backend="reference", budget=0, short=1, long=3), Sliding(backend="reference", window=1)),
]  # fmt: skip


@pytest.mark.parametrize(("gated", "plain"), FULL, ids=lambda of: type(of).__name__)
def test_all_heads_are_full_attention(gated: Any, plain: Any) -> None:
    """To the last bit, gradients too: where all are chosen none is."""
    chosen, other = made(gated), made(plain)
    missing = chosen.load_state_dict(other.state_dict(), strict=False)
    assert missing.missing_keys == ["gate.weight"] and not missing.unexpected_keys
    x, real = texts([9, 4])
    results = []
    for layer in (chosen, other):
        leaf = x.clone().requires_grad_()
        out = layer(leaf, real=real)
        out[real].square().sum().backward()
        results.append((out, leaf.grad, *(p.grad for n, p in layer.named_parameters() if not n.startswith("gate"))))
    for one, two in zip(*results, strict=True):
        assert one is not None and two is not None and torch.equal(one, two)
    gate: Any = chosen.get_submodule("gate")
    assert gate.weight.grad is None or not gate.weight.grad.any()


INPUTS: dict[str, Callable[[], Tensor]] = {
    "usual": lambda: texts([40])[0],
    "all alike": lambda: torch.zeros(1, 40, 12).double(),
    "huge": lambda: 1e4 * texts([40])[0],
    "tiny": lambda: 1e-30 * texts([40])[0],
    "16 bits": lambda: texts([40])[0].bfloat16(),
}


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("given", INPUTS)
def test_the_budget_is_kept_whatever_is_read(given: str, kind: str) -> None:
    """Of what W_o gets, exactly so many heads of each token are not 0, and the others exactly 0."""
    layer, x = made(of_heads(kind)), INPUTS[given]()
    layer, found = layer.to(x.dtype), []
    layer.w_v.bias.data.fill_(3.0)  # no head is 0 by itself
    layer.w_o.register_forward_pre_hook(lambda _, arguments: found.append(arguments[0]))
    layer(x)
    used = found[0].unflatten(-1, (3, 4)).abs().amax(-1) > 0
    assert torch.equal(used.sum(-1), torch.full((1, 40), HEADS[kind]["budget"]))
    if HEADS[kind].get("per") == "sequence":
        assert (used == used[:, :1]).all()
    elif given == "usual":
        assert (used != used[:, :1]).any(), "all tokens choose the same"


@pytest.mark.parametrize("k", [1, 2])
def test_heads_that_are_not_chosen_are_as_if_they_were_not_there(k: int) -> None:
    """A gate that never chooses head 1: its weights may be anything, and get no gradient."""
    layer: Any = made(GatedHeads(backend="reference", budget=k, causal=True))
    x = texts([8])[0].abs()
    layer.gate.weight.data[1] = -1e3
    once = layer(x)
    once.sum().backward()
    of_head = slice(4, 8)
    grads = [w.weight.grad[of_head] for w in (layer.w_q, layer.w_k, layer.w_v)] + [layer.w_o.weight.grad[:, of_head]]
    assert not any(grad.any() for grad in grads) and layer.w_v.weight.grad.any()
    for w in (layer.w_q, layer.w_k, layer.w_v):
        w.weight.data[of_head] = 77.0
    layer.w_o.weight.data[:, of_head] = -5.0
    assert torch.equal(layer(x), once)


def test_the_gates_gradient_by_hand() -> None:
    """Scores ln 1, ln 2, ln 5: softmax 1/8, 2/8, 5/8. With k = 2 the last two are chosen. What is worth 3 and 7 of them moves
    score j by sum over the chosen of worth_h p_h (1[h = j] - p_j): -(3 * 2 + 7 * 5) / 64, and so on; the value is 1."""
    gate = Gate(1, 3, 2, None).double()
    gate.weight.data = torch.tensor([1.0, 2, 5]).log().double()[:, None]
    value = gate(torch.ones(1, 1, 1).double())
    assert value.flatten().tolist() == [0.0, 1.0, 1.0]
    (value.flatten() @ torch.tensor([100.0, 3, 7]).double()).backward()
    assert gate.weight.grad is not None
    expected = [-(6 + 35) / 64, 6 / 8 - 2 * (6 + 35) / 64, 35 / 8 - 5 * (6 + 35) / 64]
    assert gate.weight.grad.flatten().tolist() == pytest.approx(expected)


GATES = [(of_heads, "one"), (of_heads, "two of a text"), (of_windows, "one far")]


@pytest.mark.parametrize(("factory", "kind"), GATES, ids=[kind for _, kind in GATES])
def test_the_gradient_reaches_the_gate(factory: Callable[..., Any], kind: str) -> None:
    layer: Any = made(factory(kind))
    layer(texts([9])[0]).square().sum().backward()
    assert (layer.gate.weight.grad.abs().amax(1) > 0).all()


@pytest.mark.parametrize(("factory", "kind"), GATES, ids=[kind for _, kind in GATES])
def test_the_gates_gradient_knows_no_padding(factory: Callable[..., Any], kind: str) -> None:
    """That of texts together is the sum of each one's alone."""
    layer: Any = made(factory(kind))
    x, real = texts([9, 5, 2])
    parts = [(x, real)] + [(x[b : b + 1, :length], None) for b, length in enumerate([9, 5, 2])]
    outs = [(layer(part, real=keep), keep) for part, keep in parts]
    found = [
        torch.autograd.grad((out if keep is None else out[keep]).square().sum(), layer.gate.weight)[0]
        for out, keep in outs
    ]
    torch.testing.assert_close(found[0], sum(found[1:]))


def test_a_gate_learns_which_head_to_read_with() -> None:
    """Head 0 always says 1 and head 1 says -1; a token's sign is to be said. What is learned gets all right, its control no
    more than it did before."""
    signs = torch.where(torch.rand(64, 1, generator=torch.Generator().manual_seed(0)) < 0.5, -1.0, 1.0)
    x = torch.cat((signs, torch.randn(64, 3, generator=torch.Generator().manual_seed(1))), 1)[None]
    right = {}
    for how in ("learned", "random"):
        torch.manual_seed(2)
        layer = GatedHeads(backend="reference", budget=1, causal=True, gate=how, head_dim=1, seed=3)(4, 2, 0, 1)  # type: ignore[arg-type]
        for parameter in (layer.w_q, layer.w_k, layer.w_v, layer.w_o):
            nn.init.zeros_(parameter.weight).requires_grad_(False)
        layer.w_v.bias.data, layer.w_o.weight.data[0] = torch.tensor([1.0, -1.0]), torch.ones(2)
        trained = [p for name, p in layer.named_parameters() if name.startswith("gate")]
        assert len(trained) == (how == "learned")
        first = (layer(x)[0, :, 0].sign() == signs[:, 0]).float().mean()
        for _ in range(60 if trained else 0):
            loss = (layer(x)[..., 0] - signs.mT).square().mean()
            for p, grad in zip(trained, torch.autograd.grad(loss, trained), strict=True):
                p.data -= grad
        right[how] = (layer(x)[0, :, 0].sign() == signs[:, 0]).float().mean()
        assert first < 0.95
    assert right["learned"] == 1.0 and right["random"] < 0.95


def test_the_random_gate_is_drawn_by_its_seed() -> None:
    def gate(layer: int = 0, **settings: Any) -> Tensor:
        torch.manual_seed(len(settings))  # of no matter
        return of_heads("two, random", **settings)(12, 3, layer, 2).gate.weight

    assert torch.equal(gate(), gate(budget=1)) and torch.equal(gate(), gate(rotary=True))
    assert len({tuple(g.flatten().tolist()) for g in (gate(), gate(seed=6), gate(layer=1), gate(seed=6, layer=1))}) == 4
    layer = of_heads("two, random")(12, 3, 0, 1)
    assert "gate.weight" in layer.state_dict() and not any(n.startswith("gate") for n, _ in layer.named_parameters())
    matrices = [sum(p.numel() for p in of_heads(kind)(12, 3, 0, 1).parameters()) for kind in ("two", "two, random")]
    assert matrices[0] - matrices[1] == 3 * 12
    with torch.device("meta"):
        of_heads("two, random")(12, 3, 0, 1)


STEPS = [(of_heads, kind) for kind in HEADS if HEADS[kind].get("causal")] + [(of_windows, kind) for kind in WINDOWS]


@pytest.mark.parametrize(("factory", "kind"), STEPS, ids=[kind for _, kind in STEPS])
def test_steps_give_what_the_whole_text_gives(factory: Callable[..., Any], kind: str) -> None:
    torch.manual_seed(0)
    model: Any = LanguageModel(11, 2, 12, 3, 16, attention=factory(kind)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    tokens, found = torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(1)), []
    memory: Any = None
    for t in range(12):
        logits, memory = model.step(tokens[:, t], memory)
        found.append(logits)
    torch.testing.assert_close(torch.stack(found, 1), model(tokens), atol=1e-10, rtol=1e-10)
    kept = min(12, WINDOWS[kind]["long"] + 1) if factory is of_windows else 12
    assert [of_layer.keys.shape[2] for of_layer in memory.layers] == [kept] * 2


@pytest.mark.parametrize(("factory", "kind"), CASES, ids=[kind for _, kind in CASES])
def test_neither_padding_nor_neighbours_matter(factory: Callable[..., Any], kind: str) -> None:
    layer, (x, real) = made(factory(kind)), texts([9, 5, 1])
    junk = layer(x.masked_fill(~real[..., None], torch.nan), real=real)
    assert junk.isfinite().all()
    for b, length in enumerate([9, 5, 1]):
        torch.testing.assert_close(junk[b, :length], layer(x[b : b + 1, :length])[0], atol=1e-10, rtol=1e-10)
    assert layer(x[:1], real=torch.zeros(1, 9, dtype=torch.bool)).isfinite().all()


@pytest.mark.parametrize(("factory", "kind"), STEPS, ids=[kind for _, kind in STEPS])
def test_nothing_that_follows_is_seen(factory: Callable[..., Any], kind: str) -> None:
    assert set(reached(made(factory(kind)), texts([9])[0], 3)) <= set(range(3, 9))


def test_far_and_near() -> None:
    """A token at position 3 is read by all that see it: with a short window of 1 and a long one of 4, by 4 to 7 at most."""
    for kind, last in (("none far", 4), ("all far", 7)):
        assert reached(made(of_windows(kind)), texts([12])[0], 3) == list(range(3, last + 1))


def test_the_gate_is_worked_out_in_fp32() -> None:
    """Scores that bf16 would round to one: 1 + 1 / 512 is chosen before 1."""
    gate = Gate(2, 2, 1, None)
    gate.weight.data = torch.tensor([[1.0, 0.0], [1.0, 1 / 512]])
    with torch.autocast("cpu", torch.bfloat16):
        assert gate(torch.ones(1, 1, 2)).flatten().tolist() == [0.0, 1.0]
        out = of_heads("two")(12, 3, 0, 1)(torch.randn(1, 4, 12))
    assert out.dtype == torch.bfloat16
    gate.weight.data = torch.tensor([[1.0, 0.0], [1.0, 1 / 512]])
    assert gate.bfloat16()(torch.ones(1, 1, 2).bfloat16()).flatten().tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: of_heads("one", budget=0), "budget: got 0, expected 1 head or more"),
        (lambda: of_heads("one", budget=4)(12, 3, 0, 1), "budget: got 4, expected at most 3, the heads there are"),
        (lambda: of_heads("one", gate="best"), "gate: got 'best', expected learned or random"),
        (lambda: of_heads("one", per="layer"), "per: got 'layer', expected token or sequence"),
        (lambda: of_heads("one", per="sequence"), "per: got 'sequence', expected 'token' of a causal layer"),
        (lambda: of_windows("one far", budget=-1), "budget: got -1, expected 0 heads or more"),
        (lambda: of_windows("one far", short=4), "short, long: got 4, 4, expected 0 or more, and more than that"),
        (lambda: of_windows("one far", short=-1), "short, long: got -1, 4, expected 0 or more"),
        (lambda: of_windows("one far", causal=False), "causal: got False, expected True: the windows"),
        (lambda: made(of_heads("two of a text")).step(texts([1])[0], None), "got a single position, expected whole"),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
