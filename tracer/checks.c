/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * VEX checks the types of a superblock after each step of its translation. These checks find faults
 * of VEX and of this tool, not of programs, and take a twentieth of the time of programs that
 * execute much code once, such as a compiler. So they run only with the option
 * --octavo-check-translations, which a test gives.
 */
#include "tracer.h"

Bool check_translations = False;

extern void __real_sanityCheckIRSB(const IRSB* block, const HChar* caller, Bool require_flatness,
                                   IRType word);
void __wrap_sanityCheckIRSB(const IRSB* block, const HChar* caller, Bool require_flatness,
                            IRType word);

void __wrap_sanityCheckIRSB(const IRSB* block, const HChar* caller, Bool require_flatness,
                            IRType word)
{
   if (check_translations)
      __real_sanityCheckIRSB(block, caller, require_flatness, word);
}
