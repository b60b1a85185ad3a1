"""Output on standard error: a live line, tables, advice. Plain when not on a terminal."""
