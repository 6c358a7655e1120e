"""The Transformer as a translation model, its decoding a word at a time, and its training."""

from tests.mutants.fault import Fault

NN = "common/nn/"
MODEL, DECODER, MULTI, BLOCKS = NN + "encoder_decoder.py", NN + "decoder.py", NN + "multihead.py", NN + "transformer.py"
EMBEDDING, FEEDFORWARD = NN + "embedding.py", NN + "feedforward.py"
BEAM, HYPOTHESES = "common/decode/beam.py", "common/decode/hypotheses.py"
OPTIM, LIT, AVERAGE = "common/optim.py", "common/lit/training.py", "common/callbacks/average.py"

WHOLE = "tests/common/nn/test_encoder_decoder.py::"
SEEN = (WHOLE + "test_padding_is_never_seen_and_every_word_is[as published]",)
TORCH = (WHOLE + "test_as_torch_layers[post-False]",)
SIDE = (WHOLE + "test_the_side_of_the_padding_does_not_matter[as published]",)
COUNT = (WHOLE + "test_parameters_of_every_row_of_table_3",)
DROPPED = (WHOLE + "test_where_dropout_is",)
STEPS = "tests/common/nn/test_decoder.py::"
STEP = (STEPS + "test_each_step_is_as_recomputed",)
SEARCH = (STEPS + "test_a_hypothesis_has_the_score_and_the_weights_of_its_words",)
NAN = (STEPS + "test_padding_of_the_source_is_never_looked_at",)
MATCHED = "tests/common/nn/test_matched.py::"
LOOKS = (STEPS + "test_weights_are_those_of_the_last_layer",)
NOAM = ("tests/common/test_optim.py::test_noam_of_the_base_model",)
BEAMS = "tests/common/decode/test_beam.py::"
SMOOTH = "tests/common/lit/test_seq2seq.py::"
MEAN = "tests/common/callbacks/test_average.py::"

FAULTS = (
    # masks
    Fault("encoder sees the padding alone", MODEL, "mask=Padding(mask))", "mask=Padding(~mask))", SEEN),
    Fault("encoder sees padding", MODEL, "mask=Padding(mask))", "mask=Padding(mask | True))", SEEN),
    Fault("cross-attention sees padding", DECODER, "Padding(source_mask)", "Padding(source_mask | True)", SEEN),
    Fault(
        "decoder sees what comes",
        DECODER,
        "mask=self.mask, source",
        "mask=Padding(x[..., 0] == x[..., 0]), source",
        SEEN,
    ),
    Fault("a step looks at padding", MULTI, "mask[:, None, None])", "mask[:, None, None] | True)", STEP),
    Fault("a step looks at padding alone", MULTI, "mask[:, None, None])", "~mask[:, None, None])", STEP),
    Fault("a NaN at padding is mixed in", DECODER, "of_source.masked_fill(padding, 0.0)", "of_source", NAN),
    # embeddings and positions
    Fault("no sqrt(d_model)", MODEL, "scale=True", "scale=False", TORCH),
    Fault(
        "positions count from 1",
        EMBEDDING,
        "torch.arange(start, start + count",
        "1 + torch.arange(start, start + count",
        TORCH,
    ),
    Fault(
        "padding in front is counted",
        EMBEDDING,
        "(real.cumsum(-1) - 1).clamp(min=0)",
        "(real | True).cumsum(-1) - 1",
        SIDE,
    ),
    Fault(
        "a step's position is one late",
        MODEL,
        "start=self.decoder.position(state)",
        "start=self.decoder.position(state) + 1",
        STEP,
    ),
    Fault("every step is the first", MODEL, "start=self.decoder.position(state)", "start=0", STEP),
    Fault(
        "rotary steps turn keys too far",
        MULTI,
        "q, k = rotary(q, place), rotary(k, place)",
        "q, k = rotary(q, place), rotary(k, place + 1)",
        STEP,
    ),
    Fault("steps know no bias", DECODER, ', memory["mask"], bias)', ', memory["mask"], None)', STEP),
    Fault("three matrices", MODEL, "self.target_embedding.weight if share_embeddings else None", "None", COUNT),
    # blocks
    Fault("norm before the sum", BLOCKS, "norm(x + sublayer(x))", "x + norm(sublayer(x))", TORCH),
    Fault("a residual connection is missing", BLOCKS, "norm(x + sublayer(x))", "norm(sublayer(x))", TORCH),
    Fault(
        "cross-attention reads itself",
        DECODER,
        "self.cross(y, annotations, mask=source_mask)",
        "self.cross(annotations[:, :1] + y, annotations, mask=source_mask)",
        TORCH,
    ),
    Fault(
        "no norm at the end of pre-norm",
        BLOCKS,
        'if self.norm == "pre" else nn.Identity()',
        'if self.norm == "neither" else nn.Identity()',
        (WHOLE + "test_as_torch_layers[pre-False]",),
    ),
    Fault("dropout of cross-attention is missing", DECODER, "self.dropout(cross(y))", "cross(y)", DROPPED),
    Fault("dropout of a decoder's attention is missing", DECODER, "self.dropout(attend(y))", "attend(y)", DROPPED),
    Fault("embeddings are not dropped", MODEL, "scale=True, dropout=dropout", "scale=True", DROPPED),
    Fault("d_v is d_k", MULTI, "if head_dim_v is None else head_dim_v", "if head_dim_k is None else head_dim_k", COUNT),
    Fault("biases of attention", BLOCKS, "linear_bias=self.linear_bias", "linear_bias=True", COUNT),
    Fault(
        "swiglu's gate is on the wrong side",
        FEEDFORWARD,
        "self.w_2(inner if self.w_3 is None else inner * self.w_3(x))",
        "self.w_2(inner if self.w_3 is None else self.w_1(x) * torch.relu(self.w_3(x)))",
        ("tests/common/nn/test_feedforward.py::test_swiglu_by_hand",),
    ),
    # cache
    Fault(
        "the cache is not reordered",
        BEAM,
        "index = (rows.unsqueeze(1) * size[1] + parents).flatten()",
        "index = (rows.unsqueeze(1) * size[1] + (parents * 0 if size[1] == 1 else torch.arange(parents.shape[1]).expand_as(parents))).flatten()",
        SEARCH,
    ),
    Fault(
        "beams that change places stay",
        BEAM,
        "if torch.equal(index, torch.arange(size[0] * size[1], device=index.device)):",
        "if len(index) == size[0] * size[1]:",
        SEARCH,
    ),
    Fault(
        "sentences that stay get the memory of others",
        BEAM,
        "memory = {name: tensor[go_on] for",
        "memory = {name: tensor[: len(go_on)] for",
        (STEPS + "test_a_search_does_not_depend_on_its_batch",),
    ),
    Fault(
        "layers share one cache",
        DECODER,
        'block.step(x, state[f"target_{n}"], source',
        'block.step(x, after.get("target_0", state[f"target_{n}"]), source',
        STEP,
    ),
    Fault("values are keys", MULTI, "after = before.extended(k, v)", "after = before.extended(k, k)", STEP),
    Fault(
        "a step sees not itself",
        MULTI,
        "(q * self.scale) @ after.keys.mT",
        "(q * self.scale) @ after.keys.mT.tril(-1)",
        STEP,
    ),
    Fault("a step's scores are not scaled", MULTI, "(q * self.scale) @ after.keys.mT", "q @ after.keys.mT", STEP),
    Fault(
        "weights are those of the first layer",
        DECODER,
        'x, after[f"target_{n}"], weights = block.step(x, state[f"target_{n}"], source, memory["mask"], bias)',
        'x, after[f"target_{n}"], found = block.step(x, state[f"target_{n}"], source, memory["mask"], bias)\n            weights = found if weights is None else weights',
        LOOKS,
    ),
    Fault("weights are those of one head", DECODER, "weights.mean(2)", "weights[:, :, 0]", LOOKS),
    # fewer heads, fewer positions
    Fault("the decoder sees one position more", DECODER, "Window(window - 1, 0)", "Window(window, 0)", STEP),
    Fault(
        "the heads of a place that is not named are fewer",
        MODEL,
        "settings if name in grouped else",
        "settings if grouped else",
        (MATCHED + "test_which_attentions_are_grouped",),
    ),
    Fault(
        "what attention saves is shared by the encoder alone",
        MODEL,
        "matched_d_ff(match, d_model, d_ff, makers, 2, activation)",
        "matched_d_ff(match, d_model, d_ff, makers, 1, activation)",
        (MATCHED + "test_translation",),
    ),
    Fault(
        "a gated layer is matched as a plain one",
        NN + "matched.py",
        '3 if activation == "swiglu" else 2',
        "2",
        (MATCHED + "test_translation",),
    ),
    # search
    Fault(
        "gnmt starts at 6",
        HYPOTHESES,
        "else (5 + length) / 6",
        "else (6 + length) / 6",
        (BEAMS + "test_the_length_rules_by_hand",),
    ),
    Fault(
        "gnmt stops with power's bound",
        BEAM,
        "length_norm(limit.to(live.dtype), length_penalty, length_rule)",
        'length_norm(limit.to(live.dtype), length_penalty, "power")',
        (BEAMS + "test_a_search_stops_as_soon_as_nothing_better_can_come",),
    ),
    Fault(
        "gnmt stops with the present length's bound",
        BEAM,
        "length_norm(limit.to(live.dtype), length_penalty, length_rule)",
        "norm",
        (BEAMS + "test_stopping_early_loses_nothing",),
    ),
    # training
    Fault("noam's first step is 0", OPTIM, "step = update + 1\n", "step = max(update, 1)\n", NOAM),
    Fault("noam without d_model", OPTIM, "return d_model**-0.5 * min(step**-0.5", "return min(step**-0.5", NOAM),
    Fault("noam starts a step late", OPTIM, "step = update + 1\n", "step = update + 2\n", NOAM),
    Fault(
        "smoothing over padding",
        "common/lit/seq2seq.py",
        "return logits.float(), batch.target_out[batch.target_mask]",
        "scored = batch.target_mask | bool(self.label_smoothing)\n        nearest = batch.target_mask.flatten().cumsum(0).sub(1).view_as(scored)\n        return logits[nearest[scored]].float(), batch.target_out[scored]",
        (SMOOTH + "test_smoothing_is_of_the_training_loss_alone_and_never_of_padding",),
    ),
    Fault(
        "smoothing over the other words alone",
        LIT,
        "share * log_p.sum(-1), nll",
        "epsilon * (log_p.sum(-1) + nll) / (log_p.shape[-1] - 1), nll",
        (SMOOTH + "test_smoothed_by_hand",),
    ),
    Fault(
        "dev nll is smoothed",
        LIT,
        'return functional.cross_entropy(*self.logits(batch), reduction="none")',
        'return functional.cross_entropy(*self.logits(batch), reduction="none", label_smoothing=self.label_smoothing)',
        (SMOOTH + "test_smoothing_is_of_the_training_loss_alone_and_never_of_padding",),
    ),
    Fault(
        "a training's nll is smoothed",
        LIT,
        "return loss, nll.detach()",
        "return loss, loss.detach()",
        (SMOOTH + "test_smoothing_is_of_the_training_loss_alone_and_never_of_padding",),
    ),
    Fault(
        "a resumed mean forgets",
        AVERAGE,
        'return {"count": self.count, "sums": self.sums}',
        'return {"count": 0, "sums": {}}',
        (MEAN + "test_a_killed_training_has_the_same_mean",),
    ),
    Fault(
        "the last weights are averaged twice",
        AVERAGE,
        "self.sums.get(name, 0.0)",
        "self.sums.get(name, tensor)",
        (MEAN + "test_the_mean_of_a_training",),
    ),
    Fault(
        "averaged one update early",
        AVERAGE,
        "trainer.global_step in self.updates",
        "trainer.global_step + 1 in self.updates",
        (MEAN + "test_the_mean_of_a_training",),
    ),
)
