/* SPDX-License-Identifier: Apache-2.0
 *
 * The mappings of this process, read from its maps file one by one.
 */
#ifndef OCTAVO_PRELOAD_MAPPINGS_H
#define OCTAVO_PRELOAD_MAPPINGS_H

#include "settings.h"

struct mapping {
    unsigned long start, end;
    enum kind kind;
};

/* Goes back to the first mapping of the file open as `fd`. Returns whether that worked. */
int first_mapping(int fd);

/* Reads the next mapping. Returns 0 after the last one. */
int next_mapping(struct mapping *mapping);

#endif
