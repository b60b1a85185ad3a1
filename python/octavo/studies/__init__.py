"""Papers that Octavo runs again, on programs of this machine: a folder for each.

Its module runs and measures the programs and gives numbers their names; `study.toml` has the
paper's numbers and its claims, with the expressions that decide them; `page.md` is the template of
the page, and `figures.py` draws the charts. `claims` evaluates and `page` renders for all of them.
"""
