"""``transform: [{spark: ..}]``."""

from pydantic import Field

from tidemark.transforms.function_settings import FunctionSettings, NameOfFunction


class Settings(FunctionSettings):
    """A function of the ``code`` folder: a DataFrame of Spark in, a DataFrame out, for all rows of a manifest."""

    kind = "spark"

    function: NameOfFunction = Field(
        description="A function `pyspark.sql.DataFrame -> DataFrame` of the `code` folder, which runs in the driver. "
        "Each row keeps `_topic`, `_partition` and `_offset`. `spark: shop:enrich` is short for it.",
        examples=["shop:enrich"],
    )
