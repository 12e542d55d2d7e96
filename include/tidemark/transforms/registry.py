"""Opens transforms. Executors open them here, so this module imports only the standard library and pyarrow."""

from tidemark.kinds import TRANSFORMS
from tidemark.model.order import TransformOrder
from tidemark.transforms.base import Transform


def open_transform(order: TransformOrder) -> Transform:
    """Open one transform of an order. Raises ``ConfigurationError`` if its kind is not registered, or its options are
    wrong.
    """
    transform: Transform = TRANSFORMS.module(order.kind, "transform").open_transform(order.options)
    return transform
