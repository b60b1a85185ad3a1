"""Constants of Linux that Python's own modules lack.

References: linux/prctl.h, asm-generic/mman-common.h.
"""

PR_SET_CHILD_SUBREAPER = 36
PR_SET_THP_DISABLE = 41
PR_GET_THP_DISABLE = 42
PR_THP_DISABLE_EXCEPT_ADVISED = 2
"""Flag of PR_SET_THP_DISABLE, since Linux 6.18."""
MADV_COLLAPSE = 25
