"""Analysis of a run: rows, advice made from rows, and tables made from both."""
