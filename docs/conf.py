"""How Sphinx makes the site of README.md, docs/ and the tables in results/: `make docs` builds it in site/.

The root of the checkout is the source folder, so that a link between two files leads to the same place on the site as
it does on GitHub or in an editor.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # whose docstrings docs/library.md shows

project = "CUDAMaster and MSKernelBench"
author = "The authors of CUDAMaster"
html_title = "CUDAMaster"

extensions = ["myst_parser", "sphinx_copybutton", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["README.md", "docs/*.md", "docs/log/*.md", "results/README.md", "results/*/*.md"]
exclude_patterns = [".*", "site", "runs", "**/__pycache__"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # the docstrings say it in words

copybutton_prompt_text = "$ "

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "to_start.html"}  # the site's own address leads to its start page
templates_path = ["templates"]
html_copy_source = False
html_show_copyright = False
pygments_style = "default"
pygments_dark_style = "github-dark"
