"""Opens transforms. Executors open them here, so this imports the standard library and pyarrow, nothing else."""

from tidemark.kinds import TRANSFORMS
from tidemark.model.order import TransformOrder
from tidemark.transforms.base import Transform


def open_transform(order: TransformOrder) -> Transform:
    """One transform of an order; ``ConfigurationError`` when its kind is not registered, or its options are wrong."""
    transform: Transform = TRANSFORMS.module(order.kind, "transform").open_transform(order.options)
    return transform
