"""`octavo curves`: misses of every TLB and cache."""
