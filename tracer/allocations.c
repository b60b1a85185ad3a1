/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Which function allocated each block: calls of the program's own allocator, with their stacks.
 *
 * The allocator is not replaced, so that the layout stays the program's. A superblock that begins
 * at the entry of an allocation function calls a helper, which reads the arguments and the stack;
 * the core is kept from putting such an entry into the middle of a superblock. Every superblock
 * that ends with a return compares the stack pointer with that of the call under way, and calls a
 * helper where the call may have returned. Only the outermost call of a thread counts: `calloc`
 * that calls `malloc` is one allocation. A call that is left by `longjmp` or an exception is
 * dropped at the first return from a frame outside it.
 */
#include "tracer.h"
#include "libvex_guest_amd64.h"
#include "pub_tool_debuginfo.h"
#include "pub_tool_hashtable.h"
#include "pub_tool_poolalloc.h"
#include "pub_tool_stacktrace.h"
#include "pub_tool_threadstate.h"

#define MOST_FRAMES 32
/* A name in a record is cut to this. */
#define NAME_BYTES 240
/* Smaller mappings are not reported as blocks. */
#define LEAST_MAPPING (64 * 1024)
/* A return to at most this far above the frame of the call under way ends the call: it has
   returned, or was left. */
#define NEAR_BYTES (1 << 20)
/* `stack_pointer_after` without a call under way: far from every stack pointer. */
#define NO_CALL (1ULL << 62)

enum function {
   NONE,
   BY_SIZE,        /* malloc(bytes) */
   BY_COUNT,       /* calloc(count, bytes) */
   RESIZE,         /* realloc(block, bytes) */
   RESIZE_COUNT,   /* reallocarray(block, count, bytes) */
   ALIGNED,        /* aligned_alloc(alignment, bytes) */
   ALIGNED_STORED, /* posix_memalign(&block, alignment, bytes) */
   MAP,            /* mmap(address, bytes, protection, flags) */
   RELEASE,        /* free(block), munmap(block) */
};

static const struct {
   const HChar* name;
   enum function function;
} functions[] = {
   {"malloc", BY_SIZE},
   {"valloc", BY_SIZE},
   {"pvalloc", BY_SIZE},
   {"mallocx", BY_SIZE},
   {"calloc", BY_COUNT},
   {"realloc", RESIZE},
   {"rallocx", RESIZE},
   {"reallocarray", RESIZE_COUNT},
   {"aligned_alloc", ALIGNED},
   {"memalign", ALIGNED},
   {"posix_memalign", ALIGNED_STORED},
   {"mmap", MAP},
   {"mmap64", MAP},
   {"munmap", RELEASE},
   {"free", RELEASE},
   {"cfree", RELEASE},
   {"dallocx", RELEASE},
   {"sdallocx", RELEASE},
};

/* Prefixes of internal names of the C library, and of the names of other allocators. */
static const HChar* const prefixes[] = {"__libc_", "__GI___libc_", "__GI_", "__",
                                        "je_",     "tc_",          "mi_"};

/* The beginnings of demangled names; further parameters do not matter. */
static const struct {
   const HChar* begin;
   enum function function;
} operators[] = {
   {"operator new(unsigned long", BY_SIZE},
   {"operator new[](unsigned long", BY_SIZE},
   {"operator delete(void*", RELEASE},
   {"operator delete[](void*", RELEASE},
};

struct stack {
   struct stack* next;
   UWord key;
   UInt number, frames;
   Addr frame[];
};

struct block {
   struct block* next;
   UWord start;
   SizeT bytes;
   UInt stack;
};

/* A thread's allocation call under way. */
struct call {
   enum function function; /* NONE: there is none */
   Addr stack_pointer;     /* at the entry, where the return address lies */
   Addr return_address;
   SizeT bytes;
   Addr old; /* the block to resize, or the place for the address of the new one */
   UInt stack;
   Bool on_other_stack; /* a signal handler runs on another stack */
};

static UInt frames_wanted;
static VgHashTable *stacks, *blocks;
static PoolAlloc* block_pool;
static struct stack** by_number;
static UInt stacks_made, stacks_room;
static struct call* calls;
static UInt threads_room, calls_under_way;
/* The stack pointer once the call under way of the running thread has returned. */
static ULong stack_pointer_after = NO_CALL;

Bool allocations_on(void)
{
   return frames_wanted > 0;
}

/* ---- functions ---- */

static enum function function_named(const HChar* name)
{
   for (UInt i = 0; i < sizeof functions / sizeof *functions; i++)
      if (VG_(strcmp)(name, functions[i].name) == 0)
         return functions[i].function;
   return NONE;
}

/* Copies a name, cut to NAME_BYTES, without the version of a dynamic symbol. */
static void copy_name(HChar* to, const HChar* name)
{
   SizeT i = 0;
   for (; i < NAME_BYTES && name[i] && name[i] != '@'; i++)
      to[i] = name[i];
   to[i] = 0;
}

/* The allocation function that begins at an address, by the symbols of its file. */
static enum function function_at(Addr entry)
{
   const HChar* whole;
   HChar name[NAME_BYTES + 1];
   if (!VG_(get_fnname_if_entry)(VG_(current_DiEpoch)(), entry, &whole))
      return NONE;
   copy_name(name, whole);
   for (UInt i = 0; i < sizeof operators / sizeof *operators; i++) {
      const HChar* begin = operators[i].begin;
      /* Placement new allocates nothing: it has a pointer as its second parameter. */
      if (VG_(strncmp)(name, begin, VG_(strlen)(begin)) == 0)
         return VG_(strstr)(name, ", void*") ? NONE : operators[i].function;
   }
   enum function found = function_named(name);
   for (UInt i = 0; found == NONE && i < sizeof prefixes / sizeof *prefixes; i++) {
      const SizeT length = VG_(strlen)(prefixes[i]);
      if (VG_(strncmp)(name, prefixes[i], length) == 0)
         found = function_named(name + length);
   }
   return found;
}

/* The core passes no `is_wrap` when it considers whether a superblock may go on at another address;
   it may not where that address is redirected. */
extern Addr __real_vgPlain_redir_do_lookup(Addr original, Bool* is_wrap);
Addr __wrap_vgPlain_redir_do_lookup(Addr original, Bool* is_wrap);
Addr __wrap_vgPlain_redir_do_lookup(Addr original, Bool* is_wrap)
{
   if (!is_wrap && allocations_on() && function_at(original) != NONE)
      return original + 1;
   return __real_vgPlain_redir_do_lookup(original, is_wrap);
}

/* ---- stacks ---- */

static Word other_stack(const void* a, const void* b)
{
   const struct stack *x = a, *y = b;
   return x->frames != y->frames
          || VG_(memcmp)(x->frame, y->frame, x->frames * sizeof *x->frame) != 0;
}

/* The number of frames up to `main`, or of all: the callers of `main` are not the program's
   code. */
static UInt frames_to_main(const struct stack* stack)
{
   for (UInt i = 0; i < stack->frames; i++)
      if (VG_(get_fnname_kind_from_IP)(VG_(current_DiEpoch)(), stack->frame[i]) != Vg_FnNameNormal)
         return i + 1;
   return stack->frames;
}

/* Writes a stack: the entry of the allocation function, an address in each of its callers, and the
   names of these functions. */
static void stack_record(const struct stack* stack)
{
   const UInt frames = frames_to_main(stack);
   ring_begin(OCTAVO_ALLOCATION_STACK);
   ring_word(stack->number);
   ring_word(frames);
   for (UInt i = 0; i < frames; i++)
      ring_word(stack->frame[i]);
   for (UInt i = 0; i < frames; i++) {
      const HChar* name;
      HChar cut[NAME_BYTES + 1] = "";
      if (VG_(get_fnname)(VG_(current_DiEpoch)(), stack->frame[i], &name))
         copy_name(cut, name);
      ring_text(cut);
   }
   ring_end();
}

/* Returns the number of a stack; a new one is described in the stream first. */
static UInt number_of(const Addr* frame, UInt frames)
{
   UWord buffer[(sizeof(struct stack) + MOST_FRAMES * sizeof(Addr)) / sizeof(UWord)];
   struct stack* wanted = (struct stack*)buffer;
   wanted->frames = frames;
   wanted->key = 0xcbf29ce484222325ULL;
   for (UInt i = 0; i < frames; i++) {
      wanted->frame[i] = frame[i];
      wanted->key = (wanted->key ^ frame[i]) * 0x9e3779b97f4a7c15ULL ^ (wanted->key >> 29);
   }
   struct stack* known = VG_(HT_gen_lookup)(stacks, wanted, other_stack);
   if (!known) {
      const SizeT bytes = sizeof *known + frames * sizeof *frame;
      known = VG_(malloc)("octavo.stack", bytes);
      VG_(memcpy)(known, wanted, bytes);
      if (stacks_made == stacks_room) {
         stacks_room = stacks_room ? 2 * stacks_room : 256;
         by_number = VG_(realloc)("octavo.stacks", by_number, stacks_room * sizeof *by_number);
      }
      known->number = stacks_made;
      by_number[stacks_made++] = known;
      VG_(HT_add_node)(stacks, known);
      stack_record(known);
   }
   return known->number;
}

/* ---- blocks ---- */

static void block_record(const struct block* block, Addr freed, Bool inherited)
{
   const ULong stack = block->stack | (inherited ? OCTAVO_INHERITED : 0);
   ULong payload[] = {block->start, block->bytes, stack, freed};
   ring_record(OCTAVO_ALLOCATE, 4, payload);
}

static Bool drop_block(Addr start)
{
   struct block* block = VG_(HT_remove)(blocks, start);
   if (block)
      VG_(freeEltPA)(block_pool, block);
   return block != NULL;
}

static void release(Addr start)
{
   if (drop_block(start)) {
      ULong payload[] = {start};
      ring_record(OCTAVO_RELEASE, 1, payload);
   }
}

static void allocated(Addr start, SizeT bytes, UInt stack, Addr old)
{
   const Addr freed = old && old != start && drop_block(old) ? old : 0;
   drop_block(start);
   struct block* block = VG_(allocEltPA)(block_pool);
   block->start = start;
   block->bytes = bytes ? bytes : 1;
   block->stack = stack;
   VG_(HT_add_node)(blocks, block);
   block_record(block, freed, False);
   /* Another thread's resize may have moved its block away from here: it must not free the new
      one. */
   for (UInt tid = 0; calls_under_way > 1 && tid < threads_room; tid++)
      if (calls[tid].old == start)
         calls[tid].old = 0;
}

/* ---- calls ---- */

static struct call* call_of(ThreadId tid)
{
   if (tid >= threads_room) {
      const UInt room = 2 * tid + 16;
      calls = VG_(realloc)("octavo.calls", calls, room * sizeof *calls);
      VG_(memset)(calls + threads_room, 0, (room - threads_room) * sizeof *calls);
      threads_room = room;
   }
   return calls + tid;
}

static void end_call(struct call* call)
{
   if (call->function != NONE)
      calls_under_way--;
   VG_(memset)(call, 0, sizeof *call);
   stack_pointer_after = NO_CALL;
}

/* Whether a call at this stack pointer was made within the call under way. */
static Bool is_within(const struct call* call, Addr stack_pointer, Addr return_address,
                      enum function function)
{
   if (call->function == NONE)
      return False;
   if (call->on_other_stack)
      return True;
   if (stack_pointer == call->stack_pointer)
      return function != call->function && return_address == call->return_address;
   /* In the frame of a call that was left, the return address has mostly been overwritten. */
   return stack_pointer < call->stack_pointer
          && VG_(am_is_valid_for_client)(call->stack_pointer, sizeof(Addr), VKI_PROT_READ)
          && *(const Addr*)call->stack_pointer == call->return_address;
}

/* Called at the entry of an allocation function, with its first arguments. */
static void called(UWord function, UWord first, UWord second, UWord third, UWord fourth)
{
   const ThreadId tid = VG_(get_running_tid)();
   struct call* call = call_of(tid);
   const Addr stack_pointer = VG_(get_SP)(tid);
   const Addr return_address = *(const Addr*)stack_pointer;
   if (is_within(call, stack_pointer, return_address, function))
      return;
   end_call(call);
   SizeT bytes = 0;
   Addr old = 0;
   switch ((enum function)function) {
      case NONE: return;
      case RELEASE: release(first); return;
      case BY_SIZE: bytes = first; break;
      case BY_COUNT: bytes = first * second; break;
      case RESIZE: old = first; bytes = second; break;
      case RESIZE_COUNT: old = first; bytes = second * third; break;
      case ALIGNED: bytes = second; break;
      case ALIGNED_STORED: old = first; bytes = third; break;
      case MAP:
         if (second < LEAST_MAPPING || !(fourth & VKI_MAP_ANONYMOUS))
            return;
         bytes = second;
         break;
   }
   Addr frame[MOST_FRAMES];
   const UInt frames = VG_(get_StackTrace)(tid, frame, frames_wanted + 1, NULL, NULL, 0);
   call->function = function;
   call->stack_pointer = stack_pointer;
   call->return_address = return_address;
   call->bytes = bytes;
   call->old = old;
   call->stack = number_of(frame, frames);
   calls_under_way++;
   stack_pointer_after = stack_pointer + sizeof(Addr);
}

/* Called after a return that leaves the stack pointer where the return of the call under way would,
   or less than NEAR_BYTES above. */
static void returned(UWord stack_pointer, UWord target, UWord value)
{
   struct call* call = call_of(VG_(get_running_tid)());
   const Bool at_frame = stack_pointer == call->stack_pointer + sizeof(Addr);
   if (!at_frame && call->on_other_stack)
      return;
   const struct call ended = *call;
   end_call(call);
   if (!at_frame || target != ended.return_address)
      return;
   switch (ended.function) {
      case ALIGNED_STORED:
         if ((UInt)value == 0)
            allocated(*(const Addr*)ended.old, ended.bytes, ended.stack, 0);
         break;
      case MAP:
         if (value != ~(UWord)0)
            allocated(value, ended.bytes, ended.stack, 0);
         break;
      case RESIZE:
      case RESIZE_COUNT:
         if (value)
            allocated(value, ended.bytes, ended.stack, ended.old);
         else if (ended.bytes == 0)
            release(ended.old);
         break;
      default:
         if (value)
            allocated(value, ended.bytes, ended.stack, 0);
         break;
   }
}

/* ---- superblocks ---- */

static IRExpr* guest(IRSB* out, Int offset)
{
   IRTemp t = newIRTemp(out->tyenv, Ity_I64);
   addStmtToIRSB(out, IRStmt_WrTmp(t, IRExpr_Get(offset, Ity_I64)));
   return IRExpr_RdTmp(t);
}

static IRExpr* word(UWord value)
{
   return IRExpr_Const(IRConst_U64(value));
}

void allocations_before(IRSB* out, Addr entry)
{
   const enum function function = frames_wanted ? function_at(entry) : NONE;
   if (function == NONE)
      return;
   IRExpr** args = mkIRExprVec_5(word(function), guest(out, offsetof(VexGuestAMD64State, guest_RDI)),
                                 guest(out, offsetof(VexGuestAMD64State, guest_RSI)),
                                 guest(out, offsetof(VexGuestAMD64State, guest_RDX)),
                                 guest(out, offsetof(VexGuestAMD64State, guest_RCX)));
   addStmtToIRSB(out, IRStmt_Dirty(unsafeIRDirty_0_N(0, "called", VG_(fnptr_to_fnentry)(called),
                                                     args)));
}

void allocations_after(IRSB* out)
{
   if (!frames_wanted || out->jumpkind != Ijk_Ret)
      return;
   IRExpr* stack_pointer = guest(out, offsetof(VexGuestAMD64State, guest_RSP));
   IRTemp expected = newIRTemp(out->tyenv, Ity_I64), above = newIRTemp(out->tyenv, Ity_I64);
   IRTemp is_near = newIRTemp(out->tyenv, Ity_I1);
   addStmtToIRSB(out, IRStmt_WrTmp(expected, IRExpr_Load(Iend_LE, Ity_I64,
                                                         word((Addr)&stack_pointer_after))));
   addStmtToIRSB(out, IRStmt_WrTmp(above, IRExpr_Binop(Iop_Sub64, stack_pointer,
                                                       IRExpr_RdTmp(expected))));
   addStmtToIRSB(out, IRStmt_WrTmp(is_near, IRExpr_Binop(Iop_CmpLT64U, IRExpr_RdTmp(above),
                                                         word(NEAR_BYTES))));
   IRExpr** args = mkIRExprVec_3(stack_pointer, out->next,
                                 guest(out, offsetof(VexGuestAMD64State, guest_RAX)));
   IRDirty* call = unsafeIRDirty_0_N(0, "returned", VG_(fnptr_to_fnentry)(returned), args);
   call->guard = IRExpr_RdTmp(is_near);
   addStmtToIRSB(out, IRStmt_Dirty(call));
}

/* ---- processes and threads ---- */

void allocations_init(UInt frames)
{
   frames_wanted = frames < MOST_FRAMES ? frames : MOST_FRAMES - 1;
   if (!frames_wanted)
      return;
   stacks = VG_(HT_construct)("octavo.stacks");
   blocks = VG_(HT_construct)("octavo.blocks");
   block_pool = VG_(newPA)(sizeof(struct block), 1024, VG_(malloc), "octavo.block", VG_(free));
   number_of(NULL, 0);
}

void allocations_describe_stacks(void)
{
   for (UInt number = 0; number < stacks_made; number++)
      stack_record(by_number[number]);
}

void allocations_describe_blocks(void)
{
   if (!frames_wanted)
      return;
   struct block* block;
   VG_(HT_ResetIter)(blocks);
   while ((block = VG_(HT_Next)(blocks)))
      block_record(block, 0, True);
}

void allocations_thread_runs(ThreadId tid)
{
   if (!frames_wanted)
      return;
   const struct call* call = call_of(tid);
   stack_pointer_after =
      call->function == NONE ? NO_CALL : call->stack_pointer + sizeof(Addr);
}

void allocations_thread_ended(ThreadId tid)
{
   if (frames_wanted)
      end_call(call_of(tid));
}

void allocations_signal(ThreadId tid, Bool alternate_stack)
{
   if (frames_wanted && alternate_stack && call_of(tid)->function != NONE)
      call_of(tid)->on_other_stack = True;
}
