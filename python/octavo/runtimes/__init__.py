"""Detection of a program's language runtime and allocator, and their names for its memory."""
