"""`octavo sim`: simulation of designs of translation hardware."""
