"""Traces: by name, described, converted, shrunk, and as Parquet."""
