// Random look-ups in a Map of objects: node lookups.js ENTRIES LOOKUPS
const [entries, lookups] = process.argv.slice(2).map(Number);
const table = new Map();
for (let i = 0; i < entries; i++) table.set(i * 7, { id: i, name: "n" + i });
let seed = 2463534242;
function random() {
  seed ^= seed << 13;
  seed ^= seed >>> 17;
  seed ^= seed << 5;
  return (seed >>> 0) % entries;
}
require("fs").writeSync(1, "ready\n");
require("fs").readSync(0, Buffer.alloc(1));
const start = process.hrtime.bigint();
let sum = 0;
for (let i = 0; i < lookups; i++) sum += table.get(random() * 7).id;
const taken = Number(process.hrtime.bigint() - start);
console.log(`${(taken / lookups).toFixed(2)} ns per operation, sum ${sum}`);
