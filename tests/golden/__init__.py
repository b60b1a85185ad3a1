"""Every row of small configurations of all commands, kept so that a change of behaviour shows."""
