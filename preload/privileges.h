/* SPDX-License-Identifier: Apache-2.0
 *
 * What the advising thread gives up: the C library does not know it, so when the program gives up
 * its privileges (setuid and its like), this thread would keep them.
 */
#ifndef OCTAVO_PRELOAD_PRIVILEGES_H
#define OCTAVO_PRELOAD_PRIVILEGES_H

/* Gives up the capabilities of this thread, if it has any. Returns whether it is privileged, by
 * them or as root. */
int drop_capabilities(void);

/* Lets this thread make no system calls but those that advising needs. Returns whether that
 * worked. */
int confine(void);

#endif
