"""Machines: presets and configurations, and which of them this processor is."""
