"""Runs of programs under the tracer, replay and recording of traces, and manifests of results."""
