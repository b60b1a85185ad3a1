"""Studies of the papers that Octavo can run again."""
