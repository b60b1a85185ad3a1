// Fills V8's heap, prints "ready" and waits.
const kept = [];
for (let at = 0; at < 2_000_000; at++) kept.push({ at, pair: [at, at] });
console.log("ready");
setTimeout(() => console.log(kept.length), 600_000);
