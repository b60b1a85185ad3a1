"""Common ground of all folders: messages, units, files, signals, and facts that Linux states."""
