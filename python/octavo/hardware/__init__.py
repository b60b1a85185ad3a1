"""Machines: presets and configurations, and the one that describes this processor."""
