"""libCacheSim's LRU cache on a file of requests: misses and time. Run by a Python that has it.

    PEER_PYTHON benches/peer.py REQUESTS ENTRIES …

REQUESTS is what the example curves_requests writes. Prints a line of JSON: for each number of
entries the misses and the nanoseconds of processor time a request.
"""

import json
import sys
import time
from pathlib import Path

# Its hash table has 2^24 buckets by default; it is faster with fewer, and 2^16 was the best.
HASH_BITS = 16
RECORD_BYTES = 24


def simulate(requests: str, entries: int) -> dict[str, float | int]:
    """One cache, once through the file."""
    # Here, so that a Python without it can read this file.
    from libcachesim import LRU, ReaderInitParam, TraceReader, TraceType

    how = ReaderInitParam(ignore_obj_size=True)
    reader = TraceReader(requests, TraceType.ORACLE_GENERAL_TRACE, how)
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
