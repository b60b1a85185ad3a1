"""All rows of small configurations of all commands, kept to detect changes of behaviour."""
