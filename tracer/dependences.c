/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Register dependences, read off the flat IR of a superblock. For each instruction: the earlier
 * instructions of the superblock that made the values it uses; the registers that it reads from
 * before the superblock, and those that it leaves for after; what it computes, if that takes long;
 * and which of the values its data addresses do not need.
 *
 * The optimiser has already removed most reads and writes of registers inside a superblock, so a
 * value is followed through the temporaries. A plain read of a register makes no value of its own,
 * and neither does the calculation of an address: an instruction that uses the address again, as
 * the next push uses the stack pointer, depends on the sources of the calculation. So it does not
 * wait for the data at the address.
 */
#include "tracer.h"
#include "libvex_guest_amd64.h"

/* The bits of the register sets: see crates/octavo-types/src/segment.rs. */
enum { FLAGS = 16, X87 = 17, SEGMENTS = 18, OTHER = 19, VECTORS = 32, REGISTERS = 64 };
/* A bit of `reads` that is no register: the instruction makes a vector that other instructions
   use. */
#define VECTOR_VALUE (1ULL << 24)

static UInt register_of(Int offset)
{
   const Int rax = (Int)offsetof(VexGuestAMD64State, guest_RAX);
   const Int ymm = (Int)offsetof(VexGuestAMD64State, guest_YMM0);
   const Int ftop = (Int)offsetof(VexGuestAMD64State, guest_FTOP);
   const Int after_x87 = (Int)offsetof(VexGuestAMD64State, guest_FC3210) + 8;
   if (offset >= rax && offset < rax + 16 * 8)
      return (UInt)(offset - rax) / 8;
   if (offset >= (Int)offsetof(VexGuestAMD64State, guest_CC_OP)
       && offset < (Int)offsetof(VexGuestAMD64State, guest_RIP))
      return FLAGS;
   if (offset >= ymm && offset < ymm + 17 * 32)
      return VECTORS + (UInt)(offset - ymm) / 32;
   if (offset >= ftop && offset < after_x87)
      return X87;
   if (offset == (Int)offsetof(VexGuestAMD64State, guest_FS_CONST)
       || offset == (Int)offsetof(VexGuestAMD64State, guest_GS_CONST))
      return SEGMENTS;
   return OTHER;
}

enum { MOST = 256, WORDS = MOST / 64 };

/* The sources of values: instructions of the superblock, and registers from before it. */
struct origins {
   ULong makers[WORDS];
   ULong reads;
};

/* The value of a temporary: its sources; the instruction that computed it (-1: none, it is a copy
   of a register); and whether it is transparent, so that its users depend on its sources: an
   address, or another value that an instruction with data computed without the data. */
struct value {
   struct origins sources;
   Int maker;
   Bool is_transparent, is_vector;
};

struct walk {
   struct value* temporaries;
   /* The instruction that wrote each register last (-1: none here). */
   Int writers[REGISTERS];
   /* Whether each instruction has data references. */
   Bool has_data[MOST];
   struct dependences* out;
   Int now;
   /* Used by the current instruction, and used for its addresses. */
   struct origins used, for_addresses;
   /* Used by the current statement, and whether data that the instruction has loaded are used. */
   struct origins of_statement;
   Bool uses_data;
};

static void add(struct origins* to, const struct origins* from)
{
   for (Int i = 0; i < WORDS; i++)
      to->makers[i] |= from->makers[i];
   to->reads |= from->reads;
}

static void add_maker(struct origins* to, Int instruction)
{
   to->makers[instruction / 64] |= 1ULL << (instruction % 64);
}

/* The origins of a temporary's value, as the current instruction sees them. */
static struct origins origins_of(struct walk* w, IRTemp t)
{
   const struct value* v = &w->temporaries[t];
   if (v->maker < 0 || v->maker == w->now || v->is_transparent)
      return v->sources;
   struct origins one = {{0}, 0};
   add_maker(&one, v->maker);
   if (v->is_vector)
      w->out[v->maker].reads |= VECTOR_VALUE;
   return one;
}

static struct origins origins_of_register(const struct walk* w, UInt reg)
{
   struct origins one = {{0}, 0};
   if (w->writers[reg] >= 0 && w->writers[reg] != w->now)
      add_maker(&one, w->writers[reg]);
   else if (w->writers[reg] < 0)
      one.reads = 1ULL << reg;
   return one;
}

static void use_temporary(struct walk* w, IRTemp t)
{
   const struct origins from = origins_of(w, t);
   const struct value* v = &w->temporaries[t];
   add(&w->of_statement, &from);
   w->uses_data |= v->maker == w->now && !v->is_transparent;
}

static void use_register(struct walk* w, UInt reg)
{
   const struct origins from = origins_of_register(w, reg);
   add(&w->of_statement, &from);
}

/* Codes of computations, those that take longer last, and the place of a code in `reads`: see
   Arithmetic in crates/octavo-types/src/segment.rs. */
enum { MULTIPLY = 1, FLOAT = 2, FLOAT_DIVIDE = 3, DIVIDE = 4, ARITHMETIC_SHIFT = 20 };

static ULong code_of(IROp op)
{
   switch (op) {
      case Iop_Mul16: case Iop_Mul32: case Iop_Mul64:
      case Iop_MullS16: case Iop_MullS32: case Iop_MullS64:
      case Iop_MullU16: case Iop_MullU32: case Iop_MullU64:
      case Iop_Mul16x8: case Iop_Mul32x4: case Iop_Mul16x16: case Iop_Mul32x8:
      case Iop_MulHi16Ux8: case Iop_MulHi16Sx8: case Iop_MulHi16Ux16: case Iop_MulHi16Sx16:
      case Iop_MullEven32Ux4: case Iop_MullEven32Sx4:
         return MULTIPLY;
      case Iop_DivU32: case Iop_DivS32: case Iop_DivU64: case Iop_DivS64:
      case Iop_DivModU64to32: case Iop_DivModS64to32:
      case Iop_DivModU128to64: case Iop_DivModS128to64:
      case Iop_DivModS64to64: case Iop_DivModU64to64: case Iop_DivModS32to32:
      case Iop_DivModU32to32:
         return DIVIDE;
      case Iop_AddF64: case Iop_SubF64: case Iop_MulF64: case Iop_MAddF64: case Iop_MSubF64:
      case Iop_AddF32: case Iop_SubF32: case Iop_MulF32: case Iop_MAddF32: case Iop_MSubF32:
      case Iop_Add32F0x4: case Iop_Sub32F0x4: case Iop_Mul32F0x4:
      case Iop_Min32F0x4: case Iop_Max32F0x4:
      case Iop_Add64F0x2: case Iop_Sub64F0x2: case Iop_Mul64F0x2:
      case Iop_Min64F0x2: case Iop_Max64F0x2:
      case Iop_Add32Fx4: case Iop_Sub32Fx4: case Iop_Mul32Fx4:
      case Iop_Min32Fx4: case Iop_Max32Fx4:
      case Iop_Add64Fx2: case Iop_Sub64Fx2: case Iop_Mul64Fx2:
      case Iop_Min64Fx2: case Iop_Max64Fx2:
      case Iop_Add32Fx8: case Iop_Sub32Fx8: case Iop_Mul32Fx8:
      case Iop_Min32Fx8: case Iop_Max32Fx8:
      case Iop_Add64Fx4: case Iop_Sub64Fx4: case Iop_Mul64Fx4:
      case Iop_Min64Fx4: case Iop_Max64Fx4:
      case Iop_CmpF64: case Iop_CmpF32: case Iop_RoundF64toInt: case Iop_RoundF32toInt:
      case Iop_F64toI32S: case Iop_F64toI64S: case Iop_F32toI32S: case Iop_F32toI64S:
      case Iop_F64toI32U: case Iop_F64toI64U:
      case Iop_I32StoF64: case Iop_I64StoF64: case Iop_I32StoF32: case Iop_I64StoF32:
      case Iop_I32UtoF64: case Iop_I64UtoF64: case Iop_F32toF64: case Iop_F64toF32:
      case Iop_I32StoF32x4: case Iop_F32toI32Sx4: case Iop_I32StoF32x8: case Iop_F32toI32Sx8:
         return FLOAT;
      case Iop_DivF64: case Iop_DivF32: case Iop_SqrtF64: case Iop_SqrtF32:
      case Iop_Div32F0x4: case Iop_Sqrt32F0x4: case Iop_Div64F0x2: case Iop_Sqrt64F0x2:
      case Iop_Div32Fx4: case Iop_Sqrt32Fx4: case Iop_Div64Fx2: case Iop_Sqrt64Fx2:
      case Iop_Div32Fx8: case Iop_Sqrt32Fx8: case Iop_Div64Fx4: case Iop_Sqrt64Fx4:
         return FLOAT_DIVIDE;
      default: return 0;
   }
}

/* Records an operation of the current instruction; of several, the one that takes longest
   counts. */
static void compute(struct walk* w, IROp op)
{
   struct dependences* d = &w->out[w->now];
   ULong code = code_of(op);
   if (code > (d->reads >> ARITHMETIC_SHIFT & 7))
      d->reads = (d->reads & ~(7ULL << ARITHMETIC_SHIFT)) | code << ARITHMETIC_SHIFT;
}

static void use_expr(struct walk* w, const IRExpr* e);

/* An address is a constant or a temporary. */
static void use_address(struct walk* w, const IRExpr* e)
{
   use_expr(w, e);
   if (e->tag == Iex_RdTmp) {
      const struct origins from = origins_of(w, e->Iex.RdTmp.tmp);
      add(&w->for_addresses, &from);
   }
}

static void use_list(struct walk* w, IRExpr* const* list)
{
   for (Int i = 0; list[i]; i++)
      if (!is_IRExpr_VECRET_or_GSPTR(list[i]))
         use_expr(w, list[i]);
}

static void use_expr(struct walk* w, const IRExpr* e)
{
   switch (e->tag) {
      case Iex_RdTmp: use_temporary(w, e->Iex.RdTmp.tmp); break;
      case Iex_Get: use_register(w, register_of(e->Iex.Get.offset)); break;
      case Iex_GetI: use_register(w, X87); use_expr(w, e->Iex.GetI.ix); break;
      case Iex_Qop:
         compute(w, e->Iex.Qop.details->op);
         use_expr(w, e->Iex.Qop.details->arg1);
         use_expr(w, e->Iex.Qop.details->arg2);
         use_expr(w, e->Iex.Qop.details->arg3);
         use_expr(w, e->Iex.Qop.details->arg4);
         break;
      case Iex_Triop:
         compute(w, e->Iex.Triop.details->op);
         use_expr(w, e->Iex.Triop.details->arg1);
         use_expr(w, e->Iex.Triop.details->arg2);
         use_expr(w, e->Iex.Triop.details->arg3);
         break;
      case Iex_Binop:
         compute(w, e->Iex.Binop.op);
         use_expr(w, e->Iex.Binop.arg1);
         use_expr(w, e->Iex.Binop.arg2);
         break;
      case Iex_Unop: compute(w, e->Iex.Unop.op); use_expr(w, e->Iex.Unop.arg); break;
      case Iex_Load:
         use_address(w, e->Iex.Load.addr);
         w->uses_data = True;
         break;
      case Iex_ITE:
         use_expr(w, e->Iex.ITE.cond);
         use_expr(w, e->Iex.ITE.iftrue);
         use_expr(w, e->Iex.ITE.iffalse);
         break;
      case Iex_CCall: use_list(w, e->Iex.CCall.args); break;
      default: break;
   }
}

static void set_value(struct walk* w, IRTemp t, Bool is_of_data)
{
   if (t != IRTemp_INVALID) {
      struct value* v = &w->temporaries[t];
      v->sources = w->of_statement;
      v->maker = w->now;
      v->is_transparent = !is_of_data && w->has_data[w->now];
   }
}

static void assign(struct walk* w, IRTemp t, const IRExpr* e)
{
   struct value* v = &w->temporaries[t];
   if (e->tag == Iex_Get) {
      UInt reg = register_of(e->Iex.Get.offset);
      v->sources = origins_of_register(w, reg);
      v->maker = w->writers[reg];
      v->is_transparent = False;
   } else if (e->tag == Iex_RdTmp) {
      Bool is_vector = v->is_vector;
      *v = w->temporaries[e->Iex.RdTmp.tmp];
      v->is_vector = is_vector;
   } else {
      use_expr(w, e);
      set_value(w, t, w->uses_data);
   }
}

/* The instruction that is the only origin, or -1 if there are others or none. */
static Int only_maker(const struct origins* origins)
{
   Int maker = -1;
   for (Int i = 0; i < WORDS; i++) {
      if (origins->makers[i] == 0)
         continue;
      if (maker >= 0 || (origins->makers[i] & (origins->makers[i] - 1)) != 0)
         return -1;
      maker = 64 * i;
      for (ULong bits = origins->makers[i]; bits != 1; bits >>= 1)
         maker++;
   }
   return origins->reads == 0 ? maker : -1;
}

static Bool is_of_register(const struct origins* origins, UInt reg)
{
   for (Int i = 0; i < WORDS; i++)
      if (origins->makers[i] != 0)
         return False;
   return origins->reads == 1ULL << reg;
}

/* A register counts as written by the instruction that made the value. If another instruction has
   written the register since, it counts as written by the current one, which copies the value. A
   register to which instructions with data only add constants, as pushes do to the stack pointer,
   counts as not written. */
static void put(struct walk* w, UInt reg, const IRExpr* data)
{
   Int maker = -1;
   if (data->tag == Iex_RdTmp) {
      const struct value* v = &w->temporaries[data->Iex.RdTmp.tmp];
      maker = v->maker;
      if (v->is_transparent) {
         if (w->writers[reg] < 0 && is_of_register(&v->sources, reg))
            return;
         Int before = only_maker(&v->sources);
         maker = before >= 0 ? before : maker;
      }
   }
   if (maker < 0 || maker < w->writers[reg]) {
      use_expr(w, data);
      maker = w->now;
   }
   w->out[maker].writes |= 1ULL << reg;
   w->writers[reg] = maker;
}

static void set_writer(struct walk* w, UInt reg)
{
   w->out[w->now].writes |= 1ULL << reg;
   w->writers[reg] = w->now;
}

static void dirty(struct walk* w, const IRDirty* d)
{
   use_expr(w, d->guard);
   use_list(w, d->args);
   if (d->mAddr)
      use_address(w, d->mAddr);
   for (Int i = 0; i < d->nFxState; i++) {
      UInt reg = register_of(d->fxState[i].offset);
      if (d->fxState[i].fx != Ifx_Write)
         use_register(w, reg);
      if (d->fxState[i].fx != Ifx_Read)
         set_writer(w, reg);
   }
   set_value(w, d->tmp, True);
}

static void cas(struct walk* w, const IRCAS* c)
{
   use_address(w, c->addr);
   use_expr(w, c->expdLo);
   use_expr(w, c->dataLo);
   if (c->expdHi) {
      use_expr(w, c->expdHi);
      use_expr(w, c->dataHi);
   }
   set_value(w, c->oldLo, True);
   set_value(w, c->oldHi, True);
}

static void statement(struct walk* w, const IRStmt* st)
{
   w->of_statement = (struct origins){{0}, 0};
   w->uses_data = False;
   switch (st->tag) {
      case Ist_WrTmp: assign(w, st->Ist.WrTmp.tmp, st->Ist.WrTmp.data); break;
      case Ist_Put:
         /* VEX stores the instruction pointer wherever something may ask for it: no dependence. */
         if (st->Ist.Put.offset != (Int)offsetof(VexGuestAMD64State, guest_RIP))
            put(w, register_of(st->Ist.Put.offset), st->Ist.Put.data);
         break;
      case Ist_PutI:
         use_expr(w, st->Ist.PutI.details->ix);
         use_expr(w, st->Ist.PutI.details->data);
         set_writer(w, X87);
         break;
      case Ist_Store: use_address(w, st->Ist.Store.addr); use_expr(w, st->Ist.Store.data); break;
      case Ist_StoreG:
         use_address(w, st->Ist.StoreG.details->addr);
         use_expr(w, st->Ist.StoreG.details->data);
         use_expr(w, st->Ist.StoreG.details->guard);
         break;
      case Ist_LoadG:
         use_address(w, st->Ist.LoadG.details->addr);
         use_expr(w, st->Ist.LoadG.details->alt);
         use_expr(w, st->Ist.LoadG.details->guard);
         set_value(w, st->Ist.LoadG.details->dst, True);
         break;
      case Ist_CAS: cas(w, st->Ist.CAS.details); break;
      case Ist_LLSC:
         use_address(w, st->Ist.LLSC.addr);
         if (st->Ist.LLSC.storedata)
            use_expr(w, st->Ist.LLSC.storedata);
         set_value(w, st->Ist.LLSC.result, True);
         break;
      case Ist_Dirty: dirty(w, st->Ist.Dirty.details); break;
      case Ist_Exit: use_expr(w, st->Ist.Exit.guard); break;
      default: break;
   }
   add(&w->used, &w->of_statement);
}

static Bool is_data(const IRStmt* st)
{
   switch (st->tag) {
      case Ist_WrTmp: return st->Ist.WrTmp.data->tag == Iex_Load;
      case Ist_Store: case Ist_StoreG: case Ist_LoadG: case Ist_CAS: case Ist_LLSC: return True;
      case Ist_Dirty: return st->Ist.Dirty.details->mFx != Ifx_None;
      default: return False;
   }
}

static Bool is_vector_type(IRType type)
{
   switch (type) {
      case Ity_I1: case Ity_I8: case Ity_I16: case Ity_I32: case Ity_I64: case Ity_I128:
         return False;
      default: return True;
   }
}

/* Earlier instructions as distances from the current one. */
static ULong distances(const struct walk* w, const struct origins* origins)
{
   ULong bits = 0;
   for (Int distance = 1; distance <= 64 && distance <= w->now; distance++) {
      Int maker = w->now - distance;
      if (origins->makers[maker / 64] >> (maker % 64) & 1)
         bits |= 1ULL << (distance - 1);
   }
   return bits;
}

static void end_instruction(struct walk* w)
{
   struct dependences* d = &w->out[w->now];
   d->producers = distances(w, &w->used);
   d->reads |= w->used.reads;
   if (w->has_data[w->now]) {
      d->late_producers = d->producers & ~distances(w, &w->for_addresses);
      d->late_reads = w->used.reads & ~w->for_addresses.reads;
   }
   w->used = w->for_addresses = (struct origins){{0}, 0};
}

void dependences_of(const IRSB* sb, struct dependences* out, UInt instructions)
{
   tl_assert(instructions <= MOST);
   VG_(memset)(out, 0, instructions * sizeof *out);
   UInt temporaries = (UInt)sb->tyenv->types_used;
   struct walk w = {.out = out, .now = -1};
   w.temporaries = VG_(calloc)("octavo.dependences", temporaries + 1, sizeof(struct value));
   for (UInt i = 0; i < temporaries; i++) {
      w.temporaries[i].maker = -1;
      w.temporaries[i].is_vector = is_vector_type(sb->tyenv->types[i]);
   }
   for (UInt i = 0; i < REGISTERS; i++)
      w.writers[i] = -1;
   for (Int i = 0, instruction = -1; i < sb->stmts_used; i++) {
      instruction += sb->stmts[i]->tag == Ist_IMark;
      if (instruction >= 0)
         w.has_data[instruction] |= is_data(sb->stmts[i]);
   }

   for (Int i = 0; i < sb->stmts_used; i++) {
      const IRStmt* st = sb->stmts[i];
      if (st->tag == Ist_IMark) {
         if (w.now >= 0)
            end_instruction(&w);
         w.now++;
      } else if (w.now >= 0)
         statement(&w, st);
   }
   if (w.now >= 0) {
      w.of_statement = (struct origins){{0}, 0};
      use_expr(&w, sb->next);
      add(&w.used, &w.of_statement);
      end_instruction(&w);
   }
   VG_(free)(w.temporaries);
}
