"""Traces: opening by name, description, conversion, sampling, and Parquet files."""
