// Objects, maps, strings and buffers in Node. Prints sums. Argument: scale.
'use strict';
const { createHash } = require('crypto');
const scale = Number(process.argv[2]);
const count = 250000 * scale;
const objects = [];
for (let i = 0; i < count; i++) {
  objects.push({ id: i, name: `object-${i}`, list: [i, i * 2, i % 17], inner: { text: 'ab'.repeat(i % 9) } });
}
const index = new Map();
for (const o of objects) index.set(o.name, o);
let sum = 0;
let x = 42;
for (let i = 0; i < 150000; i++) {
  x = (Math.imul(x, 1103515245) + 12345) >>> 0;
  const o = index.get(`object-${x % count}`);
  sum += o.list[1] + o.inner.text.length;
  o.inner = { text: o.inner.text };
}
console.log(sum, index.size);
for (let i = 0; i < count; i += 2) objects[i] = { id: -i, name: objects[i].name, list: [], inner: { text: 'new' } };
const hash = createHash('sha256');
for (const o of objects) hash.update(`${o.id}${o.name}${o.list.join()}${o.inner.text}`);
console.log(hash.digest('hex'));
const buffers = [];
for (let i = 0; i < 64 * scale; i++) {
  const b = Buffer.alloc(1 << 20);
  for (let j = 0; j < b.length; j += 8) b.writeUInt32LE((i * 2654435761 + j) >>> 0, j);
  buffers.push(b);
}
const all = createHash('sha256');
for (let round = 0; round < 2; round++) for (const b of buffers) all.update(b);
console.log(all.digest('hex'));
