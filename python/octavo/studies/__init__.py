"""Studies: papers whose measurements Octavo repeats on programs of this machine.

Each study has a folder: its module runs and measures the programs and names the numbers;
`study.toml` has the paper's numbers and claims, with the expressions that decide them; `page.md` is
the template of the page, and `figures.py` draws the charts. All studies share `claims`, which
evaluates the expressions, `page`, which renders the templates, and the classes of `reproduction`.
`all_papers` runs all studies, and `parts` keeps results until a study is finished.
"""

STUDIES = (
    "base-page-size",
    "two-page-sizes",
    "tailored-page-sizes",
    "softvm",
    "perforated-pages",
)
"""Names of the studies in commands; their folders have underscores in place of hyphens."""
LARGE = "tailored-page-sizes"
"""The study that also has workloads of gigabytes."""
ALL = "all"
"""The name that stands for all studies, with one report."""
