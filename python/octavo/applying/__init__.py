"""Putting advice into effect: on a program to be started, and on one that runs."""
