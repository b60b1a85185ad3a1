"""`octavo verify`: native measurements of a program under several huge-page settings."""
