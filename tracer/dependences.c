/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Register dependences, read off the flat IR of a superblock: which earlier instructions of the
 * superblock made the values that an instruction uses, which registers it takes from before the
 * superblock, and which it leaves for after; and what it computes, if that takes long.
 *
 * The optimiser has already removed most reads and writes of registers inside a superblock, so a
 * value is followed through the temporaries; a plain read of a register makes no value of its own.
 */
#include "tracer.h"
#include "libvex_guest_amd64.h"

/* The bits of the register sets: see crates/octavo-types/src/segment.rs. */
enum { FLAGS = 16, X87 = 17, SEGMENTS = 18, OTHER = 19, VECTORS = 32, REGISTERS = 64 };

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

/* The origin of a value: the instruction that made it (-1: none here) and the registers that it was
   read from. */
struct origin {
   Int producer;
   ULong reads;
};

struct walk {
   struct origin* temporaries;
   struct origin registers[REGISTERS];
   struct dependences* out;
   Int now;
};

static struct origin origin_of_register(struct walk* w, UInt reg)
{
   if (w->registers[reg].producer >= 0)
      return w->registers[reg];
   struct origin live_in = {-1, 1ULL << reg};
   return live_in;
}

/* Notes that the instruction now uses a value of that origin. */
static void use(struct walk* w, struct origin from)
{
   struct dependences* d = &w->out[w->now];
   d->reads |= from.reads;
   Int distance = w->now - from.producer;
   if (from.producer >= 0 && distance > 0 && distance <= 64)
      d->producers |= 1ULL << (distance - 1);
}

/* The codes of what an instruction computes, those that take longer last, and their place in
   `reads`: see Arithmetic in crates/octavo-types/src/segment.rs. */
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

/* Notes that the instruction now computes this; of several operations the longest counts. */
static void compute(struct walk* w, IROp op)
{
   struct dependences* d = &w->out[w->now];
   ULong code = code_of(op);
   if (code > (d->reads >> ARITHMETIC_SHIFT & 7))
      d->reads = (d->reads & ~(7ULL << ARITHMETIC_SHIFT)) | code << ARITHMETIC_SHIFT;
}

static void use_expr(struct walk* w, const IRExpr* e);

static void use_list(struct walk* w, IRExpr* const* list)
{
   for (Int i = 0; list[i]; i++)
      if (!is_IRExpr_VECRET_or_GSPTR(list[i]))
         use_expr(w, list[i]);
}

static void use_expr(struct walk* w, const IRExpr* e)
{
   switch (e->tag) {
      case Iex_RdTmp: use(w, w->temporaries[e->Iex.RdTmp.tmp]); break;
      case Iex_Get: use(w, origin_of_register(w, register_of(e->Iex.Get.offset))); break;
      case Iex_GetI: use(w, origin_of_register(w, X87)); use_expr(w, e->Iex.GetI.ix); break;
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
      case Iex_Load: use_expr(w, e->Iex.Load.addr); break;
      case Iex_ITE:
         use_expr(w, e->Iex.ITE.cond);
         use_expr(w, e->Iex.ITE.iftrue);
         use_expr(w, e->Iex.ITE.iffalse);
         break;
      case Iex_CCall: use_list(w, e->Iex.CCall.args); break;
      default: break;
   }
}

static void made_now(struct walk* w, IRTemp t)
{
   if (t != IRTemp_INVALID) {
      struct origin now = {w->now, 0};
      w->temporaries[t] = now;
   }
}

static void assign(struct walk* w, IRTemp t, const IRExpr* e)
{
   if (e->tag == Iex_Get)
      w->temporaries[t] = origin_of_register(w, register_of(e->Iex.Get.offset));
   else if (e->tag == Iex_RdTmp)
      w->temporaries[t] = w->temporaries[e->Iex.RdTmp.tmp];
   else {
      use_expr(w, e);
      made_now(w, t);
   }
}

/* A register is written by the instruction that made its value, unless another one wrote the
   register since: then by the one at hand, which only copies. */
static void put(struct walk* w, UInt reg, const IRExpr* data)
{
   struct origin from = {-1, 0};
   if (data->tag == Iex_RdTmp)
      from = w->temporaries[data->Iex.RdTmp.tmp];
   if (from.producer < 0 || from.producer < w->registers[reg].producer) {
      use(w, from);
      from.producer = w->now;
   }
   w->out[from.producer].writes |= 1ULL << reg;
   struct origin written = {from.producer, 0};
   w->registers[reg] = written;
}

static void put_now(struct walk* w, UInt reg)
{
   struct origin now = {w->now, 0};
   w->out[w->now].writes |= 1ULL << reg;
   w->registers[reg] = now;
}

static void dirty(struct walk* w, const IRDirty* d)
{
   use_expr(w, d->guard);
   use_list(w, d->args);
   if (d->mAddr)
      use_expr(w, d->mAddr);
   for (Int i = 0; i < d->nFxState; i++) {
      UInt reg = register_of(d->fxState[i].offset);
      if (d->fxState[i].fx != Ifx_Write)
         use(w, origin_of_register(w, reg));
      if (d->fxState[i].fx != Ifx_Read)
         put_now(w, reg);
   }
   made_now(w, d->tmp);
}

static void cas(struct walk* w, const IRCAS* c)
{
   use_expr(w, c->addr);
   use_expr(w, c->expdLo);
   use_expr(w, c->dataLo);
   if (c->expdHi) {
      use_expr(w, c->expdHi);
      use_expr(w, c->dataHi);
   }
   made_now(w, c->oldLo);
   made_now(w, c->oldHi);
}

static void statement(struct walk* w, const IRStmt* st)
{
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
         put_now(w, X87);
         break;
      case Ist_Store: use_expr(w, st->Ist.Store.addr); use_expr(w, st->Ist.Store.data); break;
      case Ist_StoreG:
         use_expr(w, st->Ist.StoreG.details->addr);
         use_expr(w, st->Ist.StoreG.details->data);
         use_expr(w, st->Ist.StoreG.details->guard);
         break;
      case Ist_LoadG:
         use_expr(w, st->Ist.LoadG.details->addr);
         use_expr(w, st->Ist.LoadG.details->alt);
         use_expr(w, st->Ist.LoadG.details->guard);
         made_now(w, st->Ist.LoadG.details->dst);
         break;
      case Ist_CAS: cas(w, st->Ist.CAS.details); break;
      case Ist_LLSC:
         use_expr(w, st->Ist.LLSC.addr);
         if (st->Ist.LLSC.storedata)
            use_expr(w, st->Ist.LLSC.storedata);
         made_now(w, st->Ist.LLSC.result);
         break;
      case Ist_Dirty: dirty(w, st->Ist.Dirty.details); break;
      case Ist_Exit: use_expr(w, st->Ist.Exit.guard); break;
      default: break;
   }
}

void dependences_of(const IRSB* sb, struct dependences* out, UInt instructions)
{
   VG_(memset)(out, 0, instructions * sizeof *out);
   UInt temporaries = (UInt)sb->tyenv->types_used;
   struct walk w = {.out = out, .now = -1};
   w.temporaries = VG_(malloc)("octavo.dependences", (temporaries + 1) * sizeof(struct origin));
   for (UInt i = 0; i < temporaries; i++)
      w.temporaries[i] = (struct origin){-1, 0};
   for (UInt i = 0; i < REGISTERS; i++)
      w.registers[i] = (struct origin){-1, 0};

   for (Int i = 0; i < sb->stmts_used; i++) {
      const IRStmt* st = sb->stmts[i];
      if (st->tag == Ist_IMark)
         w.now++;
      else if (w.now >= 0)
         statement(&w, st);
   }
   if (w.now >= 0)
      use_expr(&w, sb->next);
   VG_(free)(w.temporaries);
}
