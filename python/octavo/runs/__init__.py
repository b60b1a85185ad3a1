"""`octavo run`: its configuration, its result, and the answer to which page size."""
