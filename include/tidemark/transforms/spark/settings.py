"""``transform: [{spark: ..}]``."""

from pydantic import Field

from tidemark.transforms.function_settings import FunctionSettings, NameOfFunction


class Settings(FunctionSettings):
    """A function of the ``code`` folder: a DataFrame of Spark in, a DataFrame out, for all rows of a manifest."""

    kind = "spark"

    function: NameOfFunction = Field(
        description="A function `pyspark.sql.DataFrame -> DataFrame` of the `code` folder, which runs in the driver; "
        "for short `spark: shop:enrich`.",
        examples=["shop:enrich"],
    )
