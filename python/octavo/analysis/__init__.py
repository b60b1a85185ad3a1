"""Analysis of a run: rows, advice, and tables; each is made of the one before."""
