"""`octavo run`: its configuration, its result, and its answer to "which page size?"."""
