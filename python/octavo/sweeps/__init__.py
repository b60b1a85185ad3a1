"""Sweeps: plans of many simulations, their run by processes or a cluster, and their results."""
