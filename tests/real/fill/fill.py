"""Fills Python's heap, prints "ready" and waits."""

import time

kept = [[at, str(at)] for at in range(1_200_000)]
print("ready", flush=True)
time.sleep(600)
