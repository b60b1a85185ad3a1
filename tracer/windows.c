/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Windows: which parts of an execution are traced. Outside them superblocks are translated without
 * instrumentation, so that the program runs as under `--tool=none`. At a switch all translations
 * are discarded, and made again when the program reaches them.
 *
 * A switch happens between two superblocks only, where the core enters translations: after each
 * time slice (100,000 superblocks at most), system call or signal. Where windows go by
 * instructions, every superblock adds its instructions to a counter beside the guest's registers,
 * and the time slice in which a switch is due is cut so that it ends there: late by one superblock
 * at most.
 */
#include "tracer.h"
#include "libvex_guest_amd64.h"
#include "libvex_trc_values.h"

/* Exported by the core's archive, not declared in the headers that tools get. The function for
   tools, VG_(discard_translations_safely), works only during a client request. */
extern void VG_(discard_translations)(Addr start, ULong bytes, const HChar* who);

/* As the core has it in pub_core_dispatch_asm.h: the next superblock has to be looked up. */
#define VG_TRC_INNER_FASTMISS 37
/* Where the core's first shadow of the guest's registers begins; nothing but this tool uses it. */
#define COUNTER_OFFSET ((Int)sizeof(VexGuestAMD64State))
/* At least as many as a superblock can have: VEX's limit is 60. */
#define MOST_INSTRUCTIONS 64

static Bool on = True;
/* Instructions executed by this image and the images that it comes from; instructions executed
   before this image; and the number at which the next switch is due. */
static ULong executed, executed_before, next_switch;
/* The guest state that runs translations now. */
static VexGuestAMD64State* running;

Bool windows_on(void)
{
   return on;
}

Bool windows_count(void)
{
   return ring_session->window_instructions != 0;
}

ULong windows_instructions(void)
{
   return executed;
}

/* Finds the end of the window or gap that is under way. */
static void find_next_switch(void)
{
   const ULong window = ring_session->window_instructions;
   const ULong period = window + ring_session->gap_instructions;
   const ULong begin = executed - executed % period;
   next_switch = executed < begin + window ? begin + window : begin + period;
}

void windows_init(void)
{
   if (windows_count())
      find_next_switch();
}

void windows_continue(ULong instructions)
{
   executed = executed_before = instructions;
}

static void record(enum octavo_record kind)
{
   const Bool by_time = !windows_count();
   ULong payload[] = {by_time ? OCTAVO_UNKNOWN : executed - executed_before,
                      by_time ? ring_session->elapsed_milliseconds : OCTAVO_UNKNOWN};
   ring_record(kind, 2, payload);
}

void windows_forked(void)
{
   executed_before = executed;
   if (!on)
      record(OCTAVO_WINDOW_END);
}

void windows_finished(Bool replaced)
{
   /* The image that replaces this one goes on where it ends, in a window as well. */
   if (!on || (!replaced && windows_count()))
      record(OCTAVO_WINDOW_END);
}

/* ---- superblocks ---- */

void windows_count_instructions(IRSB* out, UInt instructions)
{
   IRTemp before = newIRTemp(out->tyenv, Ity_I64), after = newIRTemp(out->tyenv, Ity_I64);
   addStmtToIRSB(out, IRStmt_WrTmp(before, IRExpr_Get(COUNTER_OFFSET, Ity_I64)));
   IRExpr* sum = IRExpr_Binop(Iop_Add64, IRExpr_RdTmp(before),
                              IRExpr_Const(IRConst_U64(instructions)));
   addStmtToIRSB(out, IRStmt_WrTmp(after, sum));
   addStmtToIRSB(out, IRStmt_Put(COUNTER_OFFSET, IRExpr_RdTmp(after)));
}

static void count_executed(IRSB* out, UInt instructions)
{
   if (windows_count())
      windows_count_instructions(out, instructions);
}

IRSB* windows_instrument(IRSB* in, Addr entry)
{
   if (!windows_count() && !allocations_on())
      return in;
   IRSB* out = deepCopyIRSBExceptStmts(in);
   UInt instructions = 0;
   Bool begun = False;
   for (Int i = 0; i < in->stmts_used; i++) {
      IRStmt* st = in->stmts[i];
      if (st->tag == Ist_IMark && !begun) {
         allocations_before(out, entry);
         begun = True;
      }
      if (st->tag == Ist_IMark && st->Ist.IMark.len > 0)
         instructions++;
      /* Counted up to each exit, as in segments. */
      if (st->tag == Ist_Exit && instructions) {
         count_executed(out, instructions);
         instructions = 0;
      }
      addStmtToIRSB(out, st);
   }
   if (instructions)
      count_executed(out, instructions);
   allocations_after(out);
   return out;
}

/* ---- switching ---- */

static ULong* counter(VexGuestAMD64State* state)
{
   return (ULong*)((Addr)state + COUNTER_OFFSET);
}

static void switch_to(Bool wanted)
{
   if (on)
      record(OCTAVO_WINDOW_END);
   if (wanted)
      record(OCTAVO_WINDOW_BEGIN);
   if (wanted != on)
      VG_(discard_translations)(VKI_PAGE_SIZE, ~(ULong)(VKI_PAGE_SIZE - 1), "octavo");
   on = wanted;
}

/* Switches if a switch is due. Returns whether translations have been discarded. */
static Bool switch_if_due(void)
{
   const Bool before = on;
   Bool wanted = !*(volatile UInt*)&ring_session->paused, passed = False;
   if (windows_count()) {
      passed = executed >= next_switch;
      find_next_switch();
      const ULong period = ring_session->window_instructions + ring_session->gap_instructions;
      wanted = wanted && executed % period < ring_session->window_instructions;
   }
   if (wanted != on || (on && passed))
      switch_to(wanted);
   return on != before;
}

/* How many of the superblocks of a time slice must not execute before the next check whether a
   switch is due. */
static UInt superblocks_held_back(UInt superblocks)
{
   ULong sure = 1;
   if (!windows_count())
      return 0;
   if (next_switch > executed + MOST_INSTRUCTIONS)
      sure = (next_switch - executed) / MOST_INSTRUCTIONS;
   return sure < superblocks ? superblocks - (UInt)sure : 0;
}

/* The core enters translations. */
extern void __real_vgPlain_disp_run_translations(HWord* result, volatile void* state, Addr code);
void __wrap_vgPlain_disp_run_translations(HWord* result, volatile void* state, Addr code);
void __wrap_vgPlain_disp_run_translations(HWord* result, volatile void* state, Addr code)
{
   /* The translation of a function as it is without its replacement has to be entered at once, and
      alone: the core does not note which one it was. */
   static Bool unreplaced;
   if (!unreplaced && switch_if_due()) {
      result[0] = VG_TRC_INNER_FASTMISS;
      return;
   }
   running = (VexGuestAMD64State*)(Addr)state;
   *counter(running) = 0;
   UInt* left = &running->host_EvC_COUNTER;
   const UInt held_back = unreplaced ? 0 : superblocks_held_back(*left);
   *left -= held_back;
   __real_vgPlain_disp_run_translations(result, state, code);
   unreplaced = result[0] == VEX_TRC_JMP_NOREDIR;
   if (held_back && (Int)*left < 0) {
      *left = held_back;
      result[0] = VG_TRC_INNER_FASTMISS;
   } else {
      *left += held_back;
   }
}

/* Also after a fault, which leaves translations by a jump past the function above. */
void windows_stopped(void)
{
   if (!running)
      return;
   executed += *counter(running);
   *counter(running) = 0;
   ring_slot->instructions = executed;
   running = NULL;
}
