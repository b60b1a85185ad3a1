/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives up the privileges of the advising thread. The C library does not know this thread, which
 * would keep its privileges when the program gives up its own (setuid and its like).
 */
#ifndef OCTAVO_PRELOAD_PRIVILEGES_H
#define OCTAVO_PRELOAD_PRIVILEGES_H

/* Gives up the capabilities of this thread, if it has any. Returns whether it is privileged, by
 * them or as root. */
int drop_capabilities(void);

/* Restricts this thread to the system calls that advising needs. Returns whether that worked. */
int confine(void);

#endif
