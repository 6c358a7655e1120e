"""RNNsearch and RNNencdec (Bahdanau, Cho, Bengio 2014), equation by equation.

Symbols are the paper's (appendix A). Biases, which the paper omits "to increase readability", are present. With
``attention=False`` the context is the encoder's last state at every step, c_i = h_{T_x}, which the paper notes is the
RNN Encoder-Decoder of Cho et al. 2014a: the decoder, the readout and all sizes stay the same.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from common.nn.attentive import attentive_scan, attentive_step
from common.nn.initialisers import gaussian_, orthogonal_
from common.nn.recurrent import GatedEncoder, gated_scan, gated_step


@dataclass(frozen=True)
class Source:
    """What the decoder knows of a batch of source sentences."""

    annotations: Tensor  # (B, S, 2H) h_j; for the fixed vector (B, 1, H) h_{T_x}
    gate_values: Tensor  # (B, S, 3H) C h_j for the gates z, r and the proposal
    keys: Tensor | None  # (B, S, A) U_a h_j; None for the fixed vector
    mask: Tensor  # (B, S) bool
    s0: Tensor  # (B, H)


class RNNSearch(nn.Module):
    """p(y | x) with a gated decoder. embedding, hidden, alignment, maxout: m, n, n', l of the paper (620, 1000, 1000,
    500); source_words, target_words: K_x, K_y with the special tokens counted."""

    def __init__(
        self,
        source_words: int,
        target_words: int,
        *,
        attention: bool,
        embedding: int,
        hidden: int,
        alignment: int,
        maxout: int,
        dropout: float = 0.0,
        readout_state: str = "previous",
        init_std: float = 0.01,
    ) -> None:
        super().__init__()
        if readout_state not in ("previous", "current"):
            raise ValueError(f"model.readout_state: got {readout_state!r}, expected 'previous' or 'current'")
        self.attention, self.readout_state, self.hidden = attention, readout_state, hidden
        context = 2 * hidden if attention else hidden
        self.source_embedding = nn.Embedding(source_words, embedding)
        self.target_embedding = nn.Embedding(target_words, embedding)
        self.encoder = GatedEncoder(embedding, hidden, bidirectional=attention, std=init_std)
        # decoder gates z, r and proposal: W E y + U s + C c  (A.1.1)
        self.w = nn.Linear(embedding, 3 * hidden)
        self.c = nn.Linear(context, 3 * hidden, bias=False)
        self.u_gates = nn.Parameter(orthogonal_(torch.empty(hidden, 2 * hidden)))
        self.u_state = nn.Parameter(orthogonal_(torch.empty(hidden, hidden)))
        self.w_s = nn.Linear(hidden, hidden)  # s_0 = tanh(W_s h_1)  (A.2.2)
        if attention:  # a(s_{i-1}, h_j) = v_a^T tanh(W_a s_{i-1} + U_a h_j)  (A.1.2)
            self.w_a = nn.Parameter(gaussian_(torch.empty(hidden, alignment), init_std / 10))
            self.u_a = nn.Linear(context, alignment)
            self.v_a = nn.Parameter(torch.zeros(alignment))
        # deep output with a maxout layer (A.2.2)
        self.u_o = nn.Linear(hidden, 2 * maxout)
        self.v_o = nn.Linear(embedding, 2 * maxout, bias=False)
        self.c_o = nn.Linear(context, 2 * maxout, bias=False)
        self.w_o = nn.Linear(maxout, target_words)
        self.drop = nn.Dropout(dropout)
        self._initialise(init_std)

    def _initialise(self, std: float) -> None:
        """Appendix B.1: Gaussian with std 0.01, W_a and U_a 0.001, v_a and all biases zero, recurrent orthogonal."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                gaussian_(module.weight, std)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if self.attention:
            gaussian_(self.u_a.weight, std / 10)

    def encode(self, source: Tensor, mask: Tensor) -> Source:
        """source: (B, S) ids; mask: (B, S) bool, True at real tokens, at least one a row."""
        encoded = self.encoder(self.drop(self.source_embedding(source)), mask)
        if self.attention:
            annotations, first = encoded.annotations, encoded.last[1]
        else:
            annotations, first = encoded.last[0].unsqueeze(1), encoded.last[0]
            mask = torch.ones_like(annotations[..., 0], dtype=torch.bool)
        return Source(
            annotations=annotations,
            gate_values=self.c(annotations).to(annotations.dtype),
            keys=self.u_a(annotations).to(annotations.dtype) if self.attention else None,
            mask=mask,
            s0=torch.tanh(self.w_s(first)).to(annotations.dtype),
        )

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor, target_mask: Tensor) -> Tensor:
        """Logits (N, K_y) of the N real target positions, in the order of ``target_mask`` (teacher forcing)."""
        x = self.encode(source, source_mask)
        embedded = self.drop(self.target_embedding(target_in))
        y = self.w(embedded).to(x.s0.dtype).transpose(0, 1)
        if x.keys is None:
            keep = y.new_ones(1, 1, 1).expand(y.shape[0], y.shape[1], 1)
            states = gated_scan((y + x.gate_values[:, 0]).contiguous(), x.s0, self.u_gates, self.u_state, keep)
            contexts = x.annotations.expand(-1, target_in.shape[1], -1)
        else:
            states, weights = attentive_scan(
                y.contiguous(), x.s0, x.keys, x.gate_values, x.mask, self.w_a, self.v_a, self.u_gates, self.u_state
            )
            contexts = weights.transpose(0, 1) @ x.annotations
        if self.readout_state == "previous":
            states = torch.cat((x.s0.unsqueeze(0), states[:-1]))
        real = target_mask
        return self.readout(states.transpose(0, 1)[real], embedded[real], contexts[real])

    def readout(self, state: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """A.2.2: t~_i = U_o s_{i-1} + V_o E y_{i-1} + C_o c_i, a maxout over pairs, p(y_i) ~ exp(W_o t_i)."""
        t = self.u_o(state) + self.v_o(embedded) + self.c_o(context)
        return self.w_o(self.drop(t.unflatten(-1, (-1, 2)).amax(-1)))

    # -- the step interface of common.decode ---------------------------------------------------------------------

    def begin(self, source: Tensor, source_mask: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Memory of the source (leading dimension B) and the first decoder state (B, 1, H)."""
        x = self.encode(source, source_mask)
        memory = {"annotations": x.annotations, "gate_values": x.gate_values, "mask": x.mask}
        if x.keys is not None:
            memory["keys"] = x.keys
        return memory, {"s": x.s0.unsqueeze(1)}

    def step(
        self, memory: dict[str, Tensor], state: dict[str, Tensor], tokens: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
        """tokens: (B, K) last words of K hypotheses a sentence. Returns log-probabilities (B, K, K_y), the next state
        and the weights (B, K, S), or None for the fixed vector."""
        embedded = self.target_embedding(tokens)
        y, s, mask = self.w(embedded), state["s"], memory["mask"].unsqueeze(1)
        if "keys" in memory:
            s_next, weights = attentive_step(
                y,
                s,
                memory["keys"].unsqueeze(1),
                memory["gate_values"].unsqueeze(1),
                mask,
                self.w_a,
                self.v_a,
                self.u_gates,
                self.u_state,
            )
            context = weights @ memory["annotations"]
        else:
            s_next = gated_step(y + memory["gate_values"], s, self.u_gates, self.u_state)
            weights, context = None, memory["annotations"].expand(-1, tokens.shape[1], -1)
        logits = self.readout(s if self.readout_state == "previous" else s_next, embedded, context)
        return torch.log_softmax(logits.float(), -1), {"s": s_next}, weights
