"""``transform: [{explode: ..}]``."""

from pydantic import Field, StrictBool

from tidemark.transforms.settings import TransformSettings


class Settings(TransformSettings):
    """A record gets one row for each element of an array."""

    kind = "explode"
    fans_out = True

    column: str = Field(
        description="An array. Each element becomes a row, and the column has the element ([explode](#explode)).",
        examples=["lines"],
    )
    keep_empty: StrictBool = Field(
        default=False,
        description="Whether a row with an empty or null array stays, with null as its element. Else it is filtered.",
    )
