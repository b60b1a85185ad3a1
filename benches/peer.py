"""Misses and time of libCacheSim's LRU cache on a file of requests.

    PEER_PYTHON benches/peer.py REQUESTS ENTRIES …

PEER_PYTHON is a Python with the package `libcachesim`; REQUESTS is a file that the example
curves_requests has written. Prints a line of JSON: for each number of entries the misses and the
nanoseconds of processor time per request.
"""

import json
import sys
import time
from pathlib import Path

# The hash table has 2^24 buckets by default; 2^16 are the fastest.
HASH_BITS = 16
RECORD_BYTES = 24


def simulate(requests: str, entries: int) -> dict[str, float | int]:
    """Misses and time of one cache over the whole file."""
    # Imported here so that a Python without libcachesim can import this module.
    from libcachesim import LRU, ReaderInitParam, TraceReader, TraceType

    parameters = ReaderInitParam(ignore_obj_size=True)
    reader = TraceReader(requests, TraceType.ORACLE_GENERAL_TRACE, parameters)
    cache = LRU(cache_size=entries, hashpower=HASH_BITS)
    began = time.thread_time()
    miss_ratio, _ = cache.process_trace(reader)
    took = time.thread_time() - began
    count = Path(requests).stat().st_size // RECORD_BYTES
    return {
        "entries": entries,
        "requests": count,
        "misses": round(miss_ratio * count),
        "ns_per_request": took * 1e9 / count,
    }


if __name__ == "__main__":
    print(json.dumps([simulate(sys.argv[1], int(entries)) for entries in sys.argv[2:]]))
