"""The Spark job: a session, an order, a receipt."""

import warnings

# PySpark 4.2 warns of pandas 3 whenever it looks for pandas, although nothing here uses pandas.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
