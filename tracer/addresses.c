/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Addresses as sums: the flat IR of a superblock shows each address as a temporary plus a constant.
 * Two addresses on the same temporary always have the same distance.
 */
#include "tracer.h"

/* By temporary of the current superblock; base IRTemp_INVALID: the superblock does not assign
   it. */
static struct address* sums;
static Int sums_room;

static struct address sum_of(IRTemp temporary)
{
   /* A temporary that instrumentation has added stands for itself. */
   struct address own = {temporary, 0};
   return (Int)temporary < sums_room && sums[temporary].base != IRTemp_INVALID ? sums[temporary]
                                                                               : own;
}

struct address address_of(const IRExpr* atom)
{
   struct address constant = {IRTemp_INVALID, 0};
   if (atom->tag == Iex_RdTmp)
      return sum_of(atom->Iex.RdTmp.tmp);
   constant.offset = atom->Iex.Const.con->Ico.U64;
   return constant;
}

static Bool is_sum(const IRExpr* e)
{
   return e->tag == Iex_Binop && (e->Iex.Binop.op == Iop_Add64 || e->Iex.Binop.op == Iop_Sub64);
}

/* The value of a temporary to which the superblock assigns `e`. */
static struct address value_of(IRTemp temporary, const IRExpr* e)
{
   struct address own = {temporary, 0};
   if (e->tag == Iex_RdTmp)
      return sum_of(e->Iex.RdTmp.tmp);
   if (!is_sum(e))
      return own;
   const IRExpr *left = e->Iex.Binop.arg1, *right = e->Iex.Binop.arg2;
   Bool adds = e->Iex.Binop.op == Iop_Add64;
   if (adds && left->tag == Iex_Const) {
      left = right;
      right = e->Iex.Binop.arg1;
   }
   if (left->tag != Iex_RdTmp || right->tag != Iex_Const)
      return own;
   struct address sum = sum_of(left->Iex.RdTmp.tmp);
   ULong constant = right->Iex.Const.con->Ico.U64;
   sum.offset += adds ? constant : -constant;
   return sum;
}

void addresses_of(const IRSB* sb)
{
   if (sums_room < sb->tyenv->types_used) {
      sums_room = 2 * sb->tyenv->types_used;
      sums = VG_(realloc)("octavo.sums", sums, (SizeT)sums_room * sizeof *sums);
   }
   for (Int t = 0; t < sums_room; t++)
      sums[t].base = IRTemp_INVALID;
   for (Int i = 0; i < sb->stmts_used; i++) {
      const IRStmt* st = sb->stmts[i];
      if (st->tag == Ist_WrTmp)
         sums[st->Ist.WrTmp.tmp] = value_of(st->Ist.WrTmp.tmp, st->Ist.WrTmp.data);
   }
}
