"""The language of a pipeline file: strict sections, single values, YAML with line numbers."""
