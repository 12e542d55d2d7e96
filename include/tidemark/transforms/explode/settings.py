"""``transform: [{explode: ..}]``."""

from pydantic import Field, StrictBool

from tidemark.transforms.settings import TransformSettings


class Settings(TransformSettings):
    """A record gets one row for each element of an array."""

    kind = "explode"
    fans_out = True

    column: str = Field(
        description="An array, of which [each element becomes a row](#explode).",
        examples=["lines"],
    )
    keep_empty: StrictBool = Field(
        default=False,
        description="Whether a row with an empty or null array stays, with null; else it is filtered.",
    )
