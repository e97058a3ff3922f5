// Objects, strings, maps and typed arrays in Node: built, changed, replaced, sorted. Prints sums. Argument: count.
'use strict';
const count = Number(process.argv[2]);
let state = 88675123;
function below(bound) {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % bound;
}
function entry(n) {
  return { key: `entry/${n % 31}/${n}`, counts: [n, n + 1, n + 2, n + 3], owner: { id: n % 1009, label: `owner ${n % 1009}` } };
}
const entries = [];
for (let n = 0; n < count; n++) entries.push(entry(n));
const index = new Map(entries.map((e) => [e.key, e]));
let sum = 0;
// Nine of ten look-ups fall on the newest tenth of the entries.
for (let i = 0; i < 3 * count; i++) {
  const n = below(10) ? count - 1 - below(count / 10) : below(count);
  const e = index.get(entries[n].key);
  sum += e.counts[i & 3] + e.owner.label.length;
  e.counts[i & 3] += 1;
}
console.log(index.size, sum);
for (let n = 0; n < count; n += 5) {
  index.delete(entries[n].key);
  entries[n] = entry(count + n);
  index.set(entries[n].key, entries[n]);
}
const numbers = new Uint32Array(8 * count);
for (let i = 0; i < numbers.length; i++) numbers[i] = (below(1 << 20) ^ i) >>> 0;
numbers.sort();
let check = 0;
for (let i = 0; i < numbers.length; i += 3) check = (Math.imul(check, 31) + numbers[i]) | 0;
console.log(check);
const sorted = [...index.values()].sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
for (const e of sorted) check = (Math.imul(check, 31) + e.key.length + e.counts[0] + e.counts[3] + e.owner.id) | 0;
console.log(sorted.length, sorted[0].key, check);
