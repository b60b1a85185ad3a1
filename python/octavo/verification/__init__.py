"""Native measurements of a program under several huge-page settings: what `octavo verify` does."""
