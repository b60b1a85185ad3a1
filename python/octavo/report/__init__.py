"""The reports: HTML pages that need nothing but themselves, and their figures for a paper."""
