"""The registry of transforms: the package of each kind, with the modules ``settings`` and ``transform``.

Executors open transforms here, so this imports the standard library and pyarrow, nothing else.
"""

from importlib import import_module
from typing import Final

from tidemark.errors import ConfigurationError
from tidemark.order import TransformOrder
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
    try:
        module = import_module(f"{TRANSFORMS[order.kind]}.transform")
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"{order.kind} needs the package {missing.name}, which this Python has not",
            next_step=f"install it here and where Spark's executors run: pip install {missing.name}",
        ) from missing
    transform: Transform = module.open_transform(order.options)
    return transform
