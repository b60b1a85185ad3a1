"""Putting advice into effect: on a program to be started, and on one that runs."""

SCHEMA = "octavo/apply/1"
"""Of the documents of `octavo apply --json`."""
