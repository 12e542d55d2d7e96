"""Objects in a container of Azure's Blob storage: ``abfss://``."""
