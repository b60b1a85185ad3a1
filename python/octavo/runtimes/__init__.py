"""Which language runtime and allocator a program has, and what its memory is called there."""
