"""Putting advice into effect: on a program to be started, and on one that runs."""

SCHEMA = "octavo/apply/1"
"""The schema of the documents of `octavo apply --json`."""
