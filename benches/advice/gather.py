"""Sums of random elements of an array: python3 gather.py ELEMENTS LOOKUPS"""

import sys
import time

import numpy

elements, lookups = map(int, sys.argv[1:])
numbers = numpy.random.default_rng(1)
values = numbers.random(elements)
chosen = numbers.integers(0, elements, size=1_000_000)
total = 0.0
print("ready", flush=True)
sys.stdin.read(1)
start = time.perf_counter()
for first in range(0, lookups, 1_000_000):
    total += values[(chosen + first) % elements].sum()
taken = time.perf_counter() - start
print(f"{taken / lookups * 1e9:.2f} ns per operation, sum {total:.6f}")
