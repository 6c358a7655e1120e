"""Self-attention of long texts: factories of layers that are exchanged for one another.

Each is called with (d_model, heads, layer, layers), the layer's number from 0 and how many there are, and gives a module
with `forward(x, *, real=None, is_global=None, stage=0)`: see `common.nn.sparse.layer.SelfAttention`.
"""

from common.nn.sparse.bigbird import BigBird
from common.nn.sparse.full import Full
from common.nn.sparse.layer import Factory
from common.nn.sparse.local import Local
from common.nn.sparse.windowed import Windowed

__all__ = ["BigBird", "Factory", "Full", "Local", "Windowed"]
