"""Results in files: a directory, with a report, or one Parquet file."""
