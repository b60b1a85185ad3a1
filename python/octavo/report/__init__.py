"""Reports: HTML pages that load no other files, and their figures for a paper."""
