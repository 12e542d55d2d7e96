"""The registry of transforms: the package of each kind, with the modules ``settings`` and ``transform``.

Executors open transforms here, so this imports the standard library and pyarrow, nothing else.
"""

from typing import Final

from tidemark.errors import ConfigurationError
from tidemark.extras import module_of_kind
from tidemark.model.order import TransformOrder
from tidemark.transforms.base import Transform

TRANSFORMS: Final[dict[str, str]] = {
    "filter": "tidemark.transforms.filter",
    "select": "tidemark.transforms.select",
    "sql": "tidemark.transforms.sql",
    "python": "tidemark.transforms.python",
    "dedupe": "tidemark.transforms.dedupe",
    "explode": "tidemark.transforms.explode",
}


def open_transform(order: TransformOrder) -> Transform:
    """One transform of an order; ``ConfigurationError`` when its kind is not registered, or its options are wrong."""
    if order.kind not in TRANSFORMS:
        raise ConfigurationError(f"no transform of kind {order.kind}", next_step=f"use one of: {', '.join(TRANSFORMS)}")
    module = module_of_kind(f"{TRANSFORMS[order.kind]}.transform", order.kind)
    transform: Transform = module.open_transform(order.options)
    return transform
