"""Programs run under the tracer, traces replayed or recorded, and the manifest of each."""
