// fusebox.ts: everything a fusebox module in AssemblyScript needs, in one file.
//
//   import { Value, get, equals, num, verdict, NO_OPINION, document } from "./fusebox";
//   export { fb_abi_1, fb_buf } from "./fusebox";
//
//   export function fb_classify(p: usize, n: u32): i64 {
//     const doc = document(p, n);
//     if (!equals(get(doc, "observation.operation.provider"), "acme")) return NO_OPINION;
//     return verdict("FAILED", "budget", "plan_volume_reached");
//   }
//
// Build: asc my.ts -O3 --runtime stub --use abort= -o my.wasm
//
// Nothing is ever freed: the host restores the memory after each call. The
// contract is written down in ABI.md.

/** A piece of text in memory: place << 32 | length. 0 is absent. Of JSON values it
 * is the text as it stands in the document: a string without its quotes, escapes
 * kept; an object or array begins there and may have more behind it. */
export type Value = u64;

export const NO_OPINION: i64 = 0;
export const ERR_INPUT: i64 = -1;
export const ERR_SCHEMA: i64 = -2;
export const ERR_INTERNAL: i64 = -3;

const INPUT: i32 = 65536;
const OUTPUT: i32 = 4096;
const input: usize = memory.data(65536);
const output: usize = memory.data(4096);

/** The marker of ABI 1; found by its name and never called. */
export function fb_abi_1(): void {}

/** Where the host writes a document. */
export function fb_buf(cap: u32): usize {
  return cap <= <u32>INPUT ? input : 0;
}

function value(p: usize, end: usize): Value {
  if (p >= end) return 0;
  const c = load<u8>(p);
  if (c == 0x7b || c == 0x5b) return make(p, end);
  if (c == 0x22) return make(p + 1, quote(p + 1, end));
  return make(p, skip(p, end));
}

// @ts-ignore: decorator
@inline
function make(p: usize, end: usize): Value {
  return (<u64>p << 32) | <u64>(end - p);
}

// @ts-ignore: decorator
@inline
function begin(v: Value): usize {
  return <usize>(v >> 32);
}

// @ts-ignore: decorator
@inline
function stop(v: Value): usize {
  return <usize>(v >> 32) + <usize>(v & 0xffffffff);
}

/** The whole document. */
export function document(p: usize, n: u32): Value {
  return make(p, p + n);
}

function space(p: usize, end: usize): usize {
  while (p < end && load<u8>(p) <= 0x20) p++;
  return p;
}

const ONES: u64 = 0x0101010101010101;

// Marks the bytes of x that are zero; the lowest mark is exact (Mycroft 1987).
// @ts-ignore: decorator
@inline
function zeros(x: u64): u64 {
  return (x - ONES) & ~x & (ONES << 7);
}

// The closing quote of the string whose first character is at p, or end.
function quote(p: usize, end: usize): usize {
  while (p < end) {
    if (p + 8 <= end) {
      const w = load<u64>(p);
      const m = zeros(w ^ (ONES * 0x22)) | zeros(w ^ (ONES * 0x5c));
      if (m == 0) {
        p += 8;
        continue;
      }
      p += <usize>(ctz(m) >> 3);
    }
    const c = load<u8>(p);
    if (c == 0x22) return p;
    p += c == 0x5c ? 2 : 1;
  }
  return end;
}

// The first byte after the value that begins at p.
function skip(p: usize, end: usize): usize {
  if (p < end) {
    const c = load<u8>(p);
    if (c != 0x22 && c != 0x7b && c != 0x5b) {
      while (p < end) {
        const d = load<u8>(p);
        if (d == 0x2c || d == 0x7d || d == 0x5d || d <= 0x20) break;
        p++;
      }
      return p;
    }
  }
  let depth = 0;
  while (p < end) {
    if (p + 8 <= end) {
      const w = load<u64>(p) | (ONES * 0x20); // '[' and '{', ']' and '}' differ in one bit
      const m = zeros(w ^ (ONES * 0x22)) | zeros(w ^ (ONES * 0x7b)) | zeros(w ^ (ONES * 0x7d));
      if (m == 0) {
        p += 8;
        continue;
      }
      p += <usize>(ctz(m) >> 3);
    }
    const c = load<u8>(p++);
    if (c == 0x22) {
      p = quote(p, end);
      if (p < end) p++;
    } else if (c == 0x7b || c == 0x5b) {
      depth++;
      continue;
    } else if (c == 0x7d || c == 0x5d) {
      depth--;
    } else {
      continue;
    }
    if (depth == 0) return p;
  }
  return end;
}

// Compares n bytes at p with the characters of s from `from` on. Keys and the
// words of this SDK are ASCII.
function same(p: usize, s: string, from: i32, n: i32): bool {
  const q = changetype<usize>(s) + (<usize>from << 1);
  for (let i = 0; i < n; i++) {
    if (<u16>load<u8>(p + i) != load<u16>(q + (<usize>i << 1))) return false;
  }
  return true;
}

function member(object: Value, path: string, from: i32, to: i32): Value {
  const end = stop(object);
  let p = space(begin(object), end);
  if (p >= end || load<u8>(p) != 0x7b) return 0;
  while (true) {
    p = space(p + 1, end);
    if (p >= end || load<u8>(p) != 0x22) return 0;
    const key = p + 1;
    p = quote(key, end);
    const n = <i32>(p - key);
    p = space(p + 1, end);
    if (p >= end || load<u8>(p) != 0x3a) return 0;
    p = space(p + 1, end);
    if (n == to - from && same(key, path, from, n)) return value(p, end);
    p = space(skip(p, end), end);
    if (p >= end || load<u8>(p) != 0x2c) return 0;
  }
}

/** A member by path: get(doc, "observation.response.status"). 0 when there is none. */
export function get(doc: Value, path: string): Value {
  let from = 0;
  const n = path.length;
  for (let i = 0; i <= n && doc != 0; i++) {
    if (i == n || path.charCodeAt(i) == 0x2e) {
      doc = member(doc, path, from, i);
      from = i + 1;
    }
  }
  return doc;
}

/** The i-th element of an array, or 0. */
export function element(array: Value, i: u32): Value {
  const end = stop(array);
  let p = begin(array);
  if (array == 0 || p >= end || load<u8>(p) != 0x5b) return 0;
  while (true) {
    p = space(p + 1, end);
    if (p >= end || load<u8>(p) == 0x5d) return 0;
    if (i-- == 0) return value(p, end);
    p = space(skip(p, end), end);
    if (p >= end || load<u8>(p) != 0x2c) return 0;
  }
}

/** Whether the text is exactly this ASCII string. */
export function equals(v: Value, s: string): bool {
  const n = <i32>(v & 0xffffffff);
  return v != 0 && n == s.length && same(begin(v), s, 0, n);
}

/** Whether the ASCII string occurs in the text; letters match in either case. */
export function contains(v: Value, s: string): bool {
  const n = s.length;
  const end = stop(v);
  for (let p = begin(v); p + n <= end; p++) {
    let k = 0;
    while (k < n) {
      let a = <u32>load<u8>(p + k);
      let b = <u32>s.charCodeAt(k);
      if (a - 0x41 < 26) a |= 0x20;
      if (b - 0x41 < 26) b |= 0x20;
      if (a != b) break;
      k++;
    }
    if (k == n) return true;
  }
  return false;
}

/** A whole number, or the fallback. */
export function num(v: Value, fallback: i64 = 0): i64 {
  let p = begin(v);
  const end = stop(v);
  const minus = p < end && load<u8>(p) == 0x2d;
  if (minus) p++;
  if (p >= end || end - p > 18) return fallback;
  let n: i64 = 0;
  for (; p < end; p++) {
    const d = load<u8>(p) - 0x30;
    if (d > 9) return fallback;
    n = n * 10 + d;
  }
  return minus ? -n : n;
}

/** Takes the escapes out of a string value where it stands, so that a JSON
 * document inside a string (a response body) can be read with get. Characters
 * beyond \u007f become '?'. */
export function inner(v: Value): Value {
  const end = stop(v);
  const start = begin(v);
  let to = start;
  for (let p = start; p < end; p++) {
    let c = load<u8>(p);
    if (c == 0x5c && p + 1 < end) {
      c = load<u8>(++p);
      if (c == 0x6e) c = 0x0a;
      else if (c == 0x74) c = 0x09;
      else if (c == 0x72) c = 0x0d;
      else if (c == 0x62) c = 0x08;
      else if (c == 0x66) c = 0x0c;
      else if (c == 0x75 && p + 4 < end) {
        let u: u32 = 0;
        for (let k: usize = 1; k <= 4; k++) {
          const h = <u32>load<u8>(p + k);
          u = u * 16 + (h <= 0x39 ? h - 0x30 : (h | 0x20) - 0x57);
        }
        p += 4;
        c = u < 0x80 ? <u8>u : 0x3f;
      }
    }
    store<u8>(to++, c);
  }
  return v == 0 ? 0 : make(start, to);
}

// ---- the answer ----

let at: usize = 0;
let members: i32 = 0;
let facts: i32 = 0;

function raw(s: string): void {
  const n = s.length;
  for (let i = 0; i < n && at < <usize>OUTPUT; i++) store<u8>(output + at++, <u8>s.charCodeAt(i));
}

// Words of this SDK and of a module's vocabulary: ASCII without quotes.
function quoted(s: string): void {
  raw('"');
  raw(s);
  raw('"');
}

function key(s: string): void {
  raw(members++ ? "," : "{");
  quoted(s);
  raw(":");
}

/** A fact beside the verdict: call it before verdict. */
export function fact(name: string, v: string): void {
  if (facts++ == 0) {
    key("facts");
    raw("{");
  } else {
    raw(",");
  }
  quoted(name);
  raw(":");
  quoted(v);
}

function done(): i64 {
  raw("}");
  if (at >= <usize>OUTPUT) return ERR_INTERNAL; // it may have been cut
  return (<i64>output << 32) | <i64>at;
}

/** A whole verdict. Reason and facts must be in the module's vocabulary. */
export function verdict(outcome: string, cls: string, reason: string, retryAfterMS: i64 = 0): i64 {
  if (facts) raw("}");
  key("outcome");
  quoted(outcome);
  key("class");
  quoted(cls);
  key("reason");
  quoted(reason);
  if (retryAfterMS > 0) {
    key("retry_after_ms");
    raw(retryAfterMS.toString());
  }
  return done();
}

/** A choice among the candidates, by the id as it stands in the document. */
export function choose(id: Value, reason: string): i64 {
  key("choose");
  raw('"');
  const end = stop(id);
  for (let p = begin(id); p < end && at < <usize>OUTPUT; p++) store<u8>(output + at++, load<u8>(p));
  raw('"');
  key("reason");
  quoted(reason);
  return done();
}
