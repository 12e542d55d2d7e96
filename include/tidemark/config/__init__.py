"""How a pipeline file is written: strict sections, single values, YAML with line numbers."""
