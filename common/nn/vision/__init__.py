"""Attention for images: gates of convolutional features (`CBAM`), and self-attention of pixels, by factories of layers that
are exchanged for one another (`Full`, `Axial`, `Swin`): see `common.nn.vision.grid.GridAttention`.
"""

from common.nn.vision.axial import Axial
from common.nn.vision.cbam import CBAM
from common.nn.vision.classifier import VisionClassifier
from common.nn.vision.control import Bottleneck
from common.nn.vision.convolutional import ConvClassifier
from common.nn.vision.grid import Factory, Full
from common.nn.vision.swin import Swin

__all__ = ["CBAM", "Axial", "Bottleneck", "ConvClassifier", "Factory", "Full", "Swin", "VisionClassifier"]
