"""Papers that Octavo runs again, on programs of this machine: a folder for each.

Its module runs and measures the programs and gives numbers their names; `study.toml` has the
paper's numbers and its claims, with the expressions that decide them; `page.md` is the template of
the page, and `figures.py` draws the charts. `claims` evaluates and `page` renders for all of them;
`reproduction` is what they have in common. `all_papers` runs all studies, and `parts` keeps their
results until a study is whole.
"""

STUDIES = (
    "base-page-size",
    "two-page-sizes",
    "tailored-page-sizes",
    "softvm",
    "perforated-pages",
)
"""By the names that users give; the folder of each has underscores in place of hyphens."""
LARGE = "tailored-page-sizes"
"""The one that has workloads of gigabytes, too."""
ALL = "all"
"""All of them, with one report."""
