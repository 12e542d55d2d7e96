"""The site of these pages: `make docs` builds it into `.tidemark/site`."""

project = "Tidemark"
copyright = "the authors of Tidemark"  # noqa: A001 - the name that Sphinx reads
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Tidemark"
html_copy_source = False
exclude_patterns = ["images"]
highlight_language = "none"  # a block that names no language is what a command prints
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
