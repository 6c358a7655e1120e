"""State spaces, layers in turns, heads and windows that are chosen, heads that are to differ."""

from tests.mutants.fault import Fault

CODE, TESTS = "common/nn/", "tests/common/nn/test_"
STATE = (TESTS + "selective.py::test_outputs_and_gradients[selective-[9, 4, 1]]",)
PADDED = (TESTS + "selective.py::test_neither_padding_nor_neighbours_matter",)
SCANS = (TESTS + "selective.py::test_scans_of_any_chunk_are_the_recurrence",)
STEPS = (TESTS + "selective.py::test_steps_give_what_the_whole_text_gives",)
TURNS = (TESTS + "hybrid.py::test_each_layer_is_of_its_kind",)
SLIDES = (TESTS + "hybrid.py::test_a_window_step_by_step",)
CHOSEN = (TESTS + "conditional.py::test_only_what_is_chosen_counts",)
COSTS = (TESTS + "conditional.py::test_the_cost_is_the_formulas",)
GATE = (TESTS + "conditional.py::test_the_gates_gradient_by_hand",)
HAND = (TESTS + "diversity.py::test_disagreement_by_hand",)
APART = (TESTS + "diversity.py::test_divergence_by_hand",)
CKA = (TESTS + "diversity.py::test_cka_by_hand_and_by_its_other_form",)
SEEN = (TESTS + "diversity.py::test_what_is_watched_is_what_the_layers_compute",)

FAULTS = (
    Fault("selective: state grows", CODE + "selective.py", "* -self.log_a.to(wide).exp()).exp()", "* self.log_a.to(wide).exp()).exp()", STATE),
    Fault("selective: B not times Delta", CODE + "selective.py", "(delta * of_u).unsqueeze(-1) * b", "of_u.unsqueeze(-1) * b", (TESTS + "selective.py::test_constants_make_a_convolution",) + STATE),
    Fault("selective: no D", CODE + "selective.py", "read + self.skip.to(wide) * of_u", "read", (TESTS + "selective.py::test_a_state_by_hand",)),
    Fault("selective: convolution looks ahead", CODE + "selective.py", "torch.cat((before, u), 1), u.shape[1]", "torch.cat((before[:, 1:], u, before[:, :1]), 1), u.shape[1]", (TESTS + "selective.py::test_nothing_that_follows_is_seen[selective]",)),
    Fault("selective: padding decays the state", CODE + "selective.py", "delta = delta.masked_fill(~real[..., None], 0.0)", "delta = delta + 0.0", PADDED),
    Fault("selective: a bias stands at padding", CODE + "selective.py", "u = u.masked_fill(~real[..., None], 0.0)", "u = u + 0.0", PADDED),
    Fault("selective: state in 16 bits", CODE + "selective.py", "wide = torch.promote_types(u.dtype, torch.float32)", "wide = u.dtype", (TESTS + "selective.py::test_autocast_keeps_the_state_in_fp32",)),
    Fault("selective: convolution forgets in steps", CODE + "selective.py", "return out, seen[:, time:]", "return out, seen[:, time:] * 0", STEPS),
    Fault("scan: chunks start from nothing", CODE + "selective.py", "left[:, n, -1], state)", "left[:, n, -1], 0 * state)", SCANS),
    Fault("scan: quotients", CODE + "selective.py", "left = decay.cumprod(2)", "left = decay.cumprod(2)\n    local = local / left * left", (TESTS + "selective.py::test_states_that_die_out_or_stay",)),
    Fault("scan: gradient by its own decay", CODE + "selective.py", "torch.cat((decay[:, 1:], torch.zeros_like(decay[:, :1])), 1)", "decay", SCANS),
    Fault("scan: gradient of the state before", CODE + "selective.py", "return grad * before, grad,", "return grad * hidden, grad,", SCANS),
    Fault("hybrid: first kind throughout", CODE + "hybrid.py", "self.kinds[place](d_model", "self.kinds[0](d_model", TURNS),
    Fault("hybrid: number among all layers", CODE + "hybrid.py", "(d_model, heads, number, same)", "(d_model, heads, layer, layers)", (TESTS + "hybrid.py::test_schedules_go_over_the_layers_of_one_place", TESTS + "hybrid.py::test_what_layers_share_they_share_in_any_place")),
    Fault("sliding: own position not counted", CODE + "hybrid.py", "memory, self.window + 1)", "memory, max(1, self.window))", SLIDES),
    Fault("gate: one head more", CODE + "conditional.py", "scores.topk(self.k)", "scores.topk(min(self.k + 1, len(self.weight)))", (TESTS + "conditional.py::test_the_budget_is_kept_whatever_is_read",)),
    Fault("gate: no gradient", CODE + "conditional.py", "(1 + (soft - soft.detach()))", "(1 + 0 * soft)", (TESTS + "conditional.py::test_the_gradient_reaches_the_gate",)),
    Fault("gate: softmax in the forward pass", CODE + "conditional.py", "(1 + (soft - soft.detach()))", "soft", (TESTS + "conditional.py::test_all_heads_are_full_attention",)),
    Fault("gate: gradient where all are chosen", CODE + "conditional.py", " * (0 < self.k < len(self.weight))", "", (TESTS + "conditional.py::test_all_heads_are_full_attention",)),
    Fault("gate: heads not chosen get gradient", CODE + "conditional.py", "chosen = chosen * (1 + (soft - soft.detach()))", "chosen = chosen + (soft - soft.detach())", GATE),
    Fault("gate: random drawn by the model's seed", CODE + "conditional.py", "(std=d_model**-0.5, generator=generator)", "(std=d_model**-0.5)", (TESTS + "conditional.py::test_the_random_gate_is_drawn_by_its_seed",)),
    Fault("gate: padding in the mean", CODE + "conditional.py", "x.shape[1] if real is None else real.sum(1)", "x.shape[1] if True else real.sum(1)", (TESTS + "conditional.py::test_the_gates_gradient_knows_no_padding",)),
    Fault("heads: cost of all keys' heads", CODE + "conditional.py", "min(self.kv_heads, self.budget) if whole", "self.kv_heads if whole", COSTS),
    Fault("windows: far and near exchanged", CODE + "conditional.py", "gate * far + (1 - gate) * near", "gate * near + (1 - gate) * far", CHOSEN),
    Fault("windows: keeps the short one", CODE + "conditional.py", "return self.long + 1", "return self.short + 1", (TESTS + "conditional.py::test_steps_give_what_the_whole_text_gives",)),
    Fault("diversity: no pair with itself", CODE + "diversity.py", "cosines(x, real)).mean()", "cosines(x, real) - torch.eye(x.shape[1])).mean()", HAND),
    Fault("diversity: endless gradient", CODE + "diversity.py", "rows / size.masked_fill(size == 0, 1.0)", "rows / size.clamp(min=1e-30)", (TESTS + "diversity.py::test_a_head_of_zeros_is_like_none_and_gets_no_endless_gradient",)),
    Fault("diversity: divergence in nats", CODE + "diversity.py", " / math.log(2))", ")", APART),
    Fault("diversity: CKA not centred", CODE + "diversity.py", "(rows - rows.mean(0))", "rows", CKA),
    Fault("diversity: entropy over all keys", CODE + "diversity.py", "count[counted].to(found.dtype)", "count[counted].fill_(keys).to(found.dtype)", (TESTS + "diversity.py::test_entropies_by_hand",)),
    Fault("diversity: what W_o gives", CODE + "diversity.py", "layer.w_o.register_forward_pre_hook(lambda _, arguments: inside(arguments[0]))", "layer.w_o.register_forward_hook(lambda _, __, out: inside(out))", SEEN),
    Fault("diversity: padding is forgotten", CODE + "diversity.py", 'given["real"] = named.get("real")', 'given["real"] = None', (TESTS + "diversity.py::test_padding_goes_along",)),
    Fault("diversity: rewards what is alike", CODE + "diversity.py", "return -torch.stack([disagreement", "return torch.stack([disagreement", (TESTS + "diversity.py::test_the_penalty_is_minus_the_mean_over_layers",)),
)  # fmt: skip
