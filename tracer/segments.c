/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Superblocks become segments.
 *
 * A segment is a run of instructions of a superblock with no exit between: it executes whole or
 * not at all. At translation time its definition goes into the stream, once. At run time it costs
 * one store of its number and one store for each data address, at constant distances from the
 * write address, which is loaded once a superblock and stored back before every exit.
 */
#include "tracer.h"
#include "pub_tool_hashtable.h"

enum item_kind { FETCH = 0, LOAD = 1, STORE = 2, MODIFY = 3 };
#define GUARDED (1u << 2)
#define ATOMIC (1u << 3)
#define JOINED (1u << 4)
#define KIND_MASK 3u
#define SIZE_SHIFT 16
#define SIZE_MASK 0xffffu
#define OFFSET_SHIFT 32

/* The longest address group. A page-level consumer takes a group that spans two pages apart, and a
   wide group does so more often. Measured on bzip2, sqlite, gzip and perl: a limit of 64 bytes
   makes up to 7% more words, and one of 4096 bytes at most 1% fewer. */
#define MAX_GROUP_BYTES 128u

/* A superblock has at most some sixty instructions, and an instruction a few items. */
#define MAX_INSTRUCTIONS 256
#define MAX_ITEMS 1024
/* A definition: id and counts, two words a fetch, one a data item, up to five an instruction. */
#define MAX_DEFINITION (2 + MAX_ITEMS + 6 * MAX_INSTRUCTIONS)

/* A definition already in the stream, found again when the same code is translated again. */
struct definition {
   struct definition* next;
   UWord key;
   UInt id;
   UInt words;
   ULong payload[]; /* payload[0] without the id */
};

static VgHashTable* definitions;
/* The definitions by number. */
static struct definition** by_id;
static UInt definitions_made, definitions_room;

/* The current superblock. */
static struct {
   IRSB* out;
   IRTemp write; /* the write address at its start */
   UInt written; /* bytes from there to the end of the last whole segment */
   /* The current segment. */
   UInt first_instruction, instructions, items, address_groups;
   ULong item[MAX_ITEMS]; /* as in a definition; data of the current group without its offset */
   /* Of a fetch, its address; of data, the constant part of its address. */
   ULong address[MAX_ITEMS];
   /* The current address group: its lowest address, as an atom (NULL: there is no group) and as a
      sum, and its length in bytes. */
   struct {
      const IRExpr* lowest;
      struct address start;
      UInt first_item, bytes;
   } group;
   /* The last data item's address expression, while a store to it would make it a modify. */
   const IRExpr* mergeable;
} sb;

static struct dependences dependences[MAX_INSTRUCTIONS];

static Word same_definition(const void* a, const void* b)
{
   const struct definition *x = a, *y = b;
   return x->words != y->words || VG_(memcmp)(x->payload, y->payload, 8 * x->words) != 0;
}

static void define(const struct definition* d)
{
   ring_begin(OCTAVO_DEFINE);
   ring_word(d->payload[0] | d->id);
   for (UInt i = 1; i < d->words; i++)
      ring_word(d->payload[i]);
   ring_end();
}

/* The number of the current segment, defined in the stream if it is new. */
static UInt intern_segment(void)
{
   ULong buffer[MAX_DEFINITION + sizeof(struct definition) / 8];
   struct definition* d = (struct definition*)buffer;
   UInt n = 0;
   d->payload[n++] = (ULong)sb.items << 32;
   d->payload[n++] = sb.instructions;
   for (UInt i = 0; i < sb.items; i++) {
      d->payload[n++] = sb.item[i];
      if ((sb.item[i] & KIND_MASK) == FETCH)
         d->payload[n++] = sb.address[i];
   }
   for (UInt i = 0; i < sb.instructions; i++) {
      const struct dependences* dep = &dependences[sb.first_instruction + i];
      Bool has_late = (dep->late_producers | dep->late_reads) != 0;
      d->payload[n++] = dep->producers;
      d->payload[n++] = dep->reads | (has_late ? OCTAVO_HAS_LATE : 0);
      d->payload[n++] = dep->writes;
      if (has_late) {
         d->payload[n++] = dep->late_producers;
         d->payload[n++] = dep->late_reads;
      }
   }
   tl_assert(n <= MAX_DEFINITION && n + 1 < OCTAVO_SLACK_WORDS);
   d->words = n;
   d->key = 0xcbf29ce484222325ULL;
   for (UInt i = 0; i < n; i++)
      d->key = (d->key ^ d->payload[i]) * 0x9e3779b97f4a7c15ULL ^ (d->key >> 29);

   struct definition* known = VG_(HT_gen_lookup)(definitions, d, same_definition);
   if (!known) {
      SizeT bytes = sizeof(struct definition) + 8 * n;
      known = VG_(malloc)("octavo.definition", bytes);
      VG_(memcpy)(known, d, bytes);
      if (definitions_made == definitions_room) {
         definitions_room = definitions_room ? 2 * definitions_room : 1024;
         by_id = VG_(realloc)("octavo.by_id", by_id, definitions_room * sizeof *by_id);
      }
      tl_assert(definitions_made < 0x7fffffff);
      known->id = definitions_made;
      by_id[definitions_made++] = known;
      VG_(HT_add_node)(definitions, known);
      define(known);
   }
   return known->id;
}

void segments_init(void)
{
   definitions = VG_(HT_construct)("octavo.definitions");
}

void segments_redefine(void)
{
   for (UInt id = 0; id < definitions_made; id++)
      define(by_id[id]);
}

/* ---- building IR ---- */

static IRTemp new_temp(IRType type, IRExpr* value)
{
   IRTemp t = newIRTemp(sb.out->tyenv, type);
   addStmtToIRSB(sb.out, IRStmt_WrTmp(t, value));
   return t;
}

static IRExpr* constant(ULong value)
{
   return IRExpr_Const(IRConst_U64(value));
}

static IRExpr* load_word(const void* where)
{
   return IRExpr_Load(Iend_LE, Ity_I64, constant((ULong)(Addr)where));
}

static IRExpr* at_offset(UInt bytes)
{
   return IRExpr_RdTmp(
      bytes == 0
         ? sb.write
         : new_temp(Ity_I64, IRExpr_Binop(Iop_Add64, IRExpr_RdTmp(sb.write), constant(bytes))));
}

static void store_word(UInt offset, IRExpr* value)
{
   addStmtToIRSB(sb.out, IRStmt_Store(Iend_LE, at_offset(offset), value));
}

/* Leaves the chunk if it is nearly full, then loads the write address. */
static void begin_superblock(void)
{
   IRTemp write = new_temp(Ity_I64, load_word(&ring_slot->write_address));
   IRTemp limit = new_temp(Ity_I64, load_word(&ring_slot->limit_address));
   IRTemp full = new_temp(Ity_I1, IRExpr_Binop(Iop_CmpLT64U, IRExpr_RdTmp(limit),
                                               IRExpr_RdTmp(write)));
   IRDirty* call = unsafeIRDirty_0_N(0, "ring_next_chunk", VG_(fnptr_to_fnentry)(ring_next_chunk),
                                     mkIRExprVec_0());
   call->guard = IRExpr_RdTmp(full);
   addStmtToIRSB(sb.out, IRStmt_Dirty(call));
   sb.write = new_temp(Ity_I64, load_word(&ring_slot->write_address));
   sb.written = 0;
}

static void begin_segment(void)
{
   sb.first_instruction += sb.instructions;
   sb.instructions = sb.items = sb.address_groups = 0;
   sb.mergeable = NULL;
}

/* Writes the address of the current group, if there is one. */
static void end_group(void)
{
   if (!sb.group.lowest)
      return;
   for (UInt i = sb.group.first_item; i < sb.items; i++)
      if ((sb.item[i] & KIND_MASK) != FETCH)
         sb.item[i] |= (sb.address[i] - sb.group.start.offset) << OFFSET_SHIFT;
   sb.address_groups++;
   store_word(sb.written + 8 * sb.address_groups, (IRExpr*)sb.group.lowest);
   sb.group.lowest = NULL;
}

/* Adds the bytes at an address to the current group if they fit; returns whether they do. */
static Bool joins_group(const IRExpr* atom, struct address at, UInt bytes)
{
   if (!sb.group.lowest || at.base != sb.group.start.base)
      return False;
   /* Modulo 2^64: one of the two distances is small if the addresses are near. */
   ULong above = at.offset - sb.group.start.offset, below = -above;
   if (above < MAX_GROUP_BYTES && above + bytes <= MAX_GROUP_BYTES) {
      if (sb.group.bytes < above + bytes)
         sb.group.bytes = (UInt)above + bytes;
   } else if (below < MAX_GROUP_BYTES && below + sb.group.bytes <= MAX_GROUP_BYTES
              && bytes <= MAX_GROUP_BYTES) {
      sb.group.bytes = below + sb.group.bytes > bytes ? (UInt)below + sb.group.bytes : bytes;
      sb.group.start = at;
      sb.group.lowest = atom;
   } else
      return False;
   return True;
}

/* Writes the segment's number and publishes the segment, just before an exit. */
static void end_segment(void)
{
   if (sb.items == 0)
      return;
   end_group();
   store_word(sb.written, constant(intern_segment()));
   sb.written += 8 * (1 + sb.address_groups);
   tl_assert(sb.written < 8 * OCTAVO_SLACK_WORDS);
   addStmtToIRSB(sb.out, IRStmt_Store(Iend_LE, constant((ULong)(Addr)&ring_slot->write_address),
                                      at_offset(sb.written)));
   if (windows_count())
      windows_count_instructions(sb.out, sb.instructions);
   begin_segment();
}

static void add_item(UInt kind, UInt bytes)
{
   tl_assert(sb.items < MAX_ITEMS && bytes <= OCTAVO_PAGE_BYTES);
   sb.item[sb.items++] = kind | (bytes << SIZE_SHIFT);
}

static void add_fetch(Addr addr, UInt bytes)
{
   tl_assert(sb.first_instruction + sb.instructions < MAX_INSTRUCTIONS);
   sb.address[sb.items] = addr;
   add_item(FETCH, bytes);
   sb.instructions++;
   sb.mergeable = NULL;
}

static Bool same_atom(const IRExpr* a, const IRExpr* b)
{
   return eqIRAtom((IRExpr*)a, (IRExpr*)b);
}

/* Adds a data reference at `addr`. One with a guard may not happen: its word is then 0. A store
   right after the load of the same bytes turns that item into a modify, as in
   `add %rax, (%rbx)`. */
static void add_data(enum item_kind kind, UInt flags, IRExpr* addr, UInt bytes, IRExpr* guard)
{
   if (kind == STORE && !guard && sb.mergeable && same_atom(sb.mergeable, addr)
       && (sb.item[sb.items - 1] >> SIZE_SHIFT & SIZE_MASK) == bytes) {
      sb.item[sb.items - 1] |= MODIFY;
      sb.mergeable = NULL;
      return;
   }
   if (guard) {
      flags |= GUARDED;
      addr = IRExpr_RdTmp(new_temp(Ity_I64, IRExpr_ITE(guard, addr, constant(0))));
   }
   struct address at = address_of(addr);
   if (joins_group(addr, at, bytes))
      flags |= JOINED;
   else {
      end_group();
      sb.group.first_item = sb.items;
      sb.group.lowest = addr;
      sb.group.start = at;
      sb.group.bytes = bytes;
   }
   sb.address[sb.items] = at.offset;
   add_item(kind | flags, bytes);
   sb.mergeable = kind == LOAD && !guard ? addr : NULL;
}

static UInt bytes_of(const IRExpr* e)
{
   return (UInt)sizeofIRType(typeOfIRExpr(sb.out->tyenv, e));
}

static void add_guarded_load(const IRLoadG* load)
{
   IRType wide, narrow;
   typeOfIRLoadGOp(load->cvt, &wide, &narrow);
   add_data(LOAD, 0, load->addr, (UInt)sizeofIRType(narrow), load->guard);
}

/* A helper's memory effect. A guarded helper that does not run touches nothing. */
static void add_helper(const IRDirty* d)
{
   if (d->mFx == Ifx_None)
      return;
   IRExpr* guard =
      d->guard->tag == Iex_Const && d->guard->Iex.Const.con->Ico.U1 ? NULL : d->guard;
   enum item_kind kind = d->mFx == Ifx_Read ? LOAD : d->mFx == Ifx_Write ? STORE : MODIFY;
   add_data(kind, 0, d->mAddr, (UInt)d->mSize, guard);
   sb.mergeable = NULL;
}

/* A compare-and-swap loads and stores, whether it succeeds or not. */
static void add_cas(const IRCAS* c)
{
   add_data(MODIFY, ATOMIC, c->addr, bytes_of(c->dataLo) * (c->dataHi ? 2 : 1), NULL);
   sb.mergeable = NULL;
}

static void add_llsc(const IRStmt* st)
{
   const IRExpr* stored = st->Ist.LLSC.storedata;
   UInt bytes = stored ? bytes_of(stored)
                       : (UInt)sizeofIRType(typeOfIRTemp(sb.out->tyenv, st->Ist.LLSC.result));
   add_data(stored ? STORE : LOAD, ATOMIC, st->Ist.LLSC.addr, bytes, NULL);
   sb.mergeable = NULL;
}

static void instrument_statement(const IRStmt* st)
{
   switch (st->tag) {
      case Ist_IMark:
         /* An instruction that Valgrind does not know has no length, and does not execute. */
         if (st->Ist.IMark.len > 0)
            add_fetch(st->Ist.IMark.addr, st->Ist.IMark.len);
         break;
      case Ist_WrTmp: {
         const IRExpr* e = st->Ist.WrTmp.data;
         if (e->tag == Iex_Load)
            add_data(LOAD, 0, e->Iex.Load.addr, (UInt)sizeofIRType(e->Iex.Load.ty), NULL);
         break;
      }
      case Ist_Store: add_data(STORE, 0, st->Ist.Store.addr, bytes_of(st->Ist.Store.data), NULL);
         break;
      case Ist_StoreG: {
         const IRStoreG* s = st->Ist.StoreG.details;
         add_data(STORE, 0, s->addr, bytes_of(s->data), s->guard);
         break;
      }
      case Ist_LoadG: add_guarded_load(st->Ist.LoadG.details); break;
      case Ist_Dirty: add_helper(st->Ist.Dirty.details); break;
      case Ist_CAS: add_cas(st->Ist.CAS.details); break;
      case Ist_LLSC: add_llsc(st); break;
      case Ist_Exit: end_segment(); break;
      default: break;
   }
}

IRSB* segments_instrument(VgCallbackClosure* closure, IRSB* in, const VexGuestLayout* layout,
                          const VexGuestExtents* extents, const VexArchInfo* host,
                          IRType guest_word, IRType host_word)
{
   tl_assert(guest_word == Ity_I64 && host_word == Ity_I64);
   const Addr entry = (Addr)closure->readdr;
   if (!windows_on())
      return windows_instrument(in, entry);
   sb.out = deepCopyIRSBExceptStmts(in);
   sb.first_instruction = sb.instructions = 0;
   begin_segment();
   addresses_of(in);
   dependences_of(in, dependences, MAX_INSTRUCTIONS);

   /* Code before the first instruction checks that the translation is still valid, and may exit
      before anything has executed. */
   Int i = 0;
   for (; i < in->stmts_used && in->stmts[i]->tag != Ist_IMark; i++)
      addStmtToIRSB(sb.out, in->stmts[i]);
   allocations_before(sb.out, entry);
   begin_superblock();
   for (; i < in->stmts_used; i++) {
      instrument_statement(in->stmts[i]);
      addStmtToIRSB(sb.out, in->stmts[i]);
   }
   end_segment();
   allocations_after(sb.out);
   return sb.out;
}
