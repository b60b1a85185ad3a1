"""`octavo sim`: designs of translation hardware, simulated."""
