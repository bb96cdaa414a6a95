/* fusebox_guest.h: everything a fusebox module in C needs, in one header.
 *
 * Freestanding: no libc, no imports, no allocation. Include it in exactly one
 * file and write one or both of
 *
 *     static int fb_on_classify(fb_str doc, fb_answer *out);
 *     static int fb_on_fallback(fb_str doc, fb_answer *out);
 *
 * after defining FB_CLASSIFIER and/or FB_CHOOSER, FB_NAME and FB_VERSION. Return FB_ANSWER when out
 * holds one, FB_NO_OPINION to let the next classifier decide, or a negative
 * FB_ERR_ code. Build:
 *
 *     clang --target=wasm32-unknown-unknown -O2 -nostdlib -fno-builtin \
 *       -Wl,--no-entry -Wl,--strip-all -Wl,-z,stack-size=16384 -o my.wasm my.c
 *
 * The stack of 16 KiB is enough for this header; a small memory is restored
 * faster between calls. The contract is written down in ABI.md.
 */
#ifndef FUSEBOX_GUEST_H
#define FUSEBOX_GUEST_H

typedef unsigned char fb_u8;
typedef unsigned int fb_u32;
typedef int fb_i32;
typedef unsigned long long fb_u64;
typedef long long fb_i64;

/* Sizes in bytes; define before including to change. The host sends documents
 * of at most 64 KiB and takes answers of at most 4 KiB. */
#ifndef FB_INPUT_MAX
#define FB_INPUT_MAX 65536
#endif
#ifndef FB_OUTPUT_MAX
#define FB_OUTPUT_MAX 2048
#endif

#define FB_ANSWER 1
#define FB_NO_OPINION 0
#define FB_ERR_INPUT (-1)
#define FB_ERR_SCHEMA (-2)
#define FB_ERR_INTERNAL (-3)

#define FB_ONES 0x0101010101010101ull
#define FB_EXPORT(name) __attribute__((export_name(name), used))

/* ---- text ---- */

/* A piece of text that is not NUL-terminated. Of JSON values it is the text as
 * it stands in the document: a string without its quotes, escapes kept; an
 * object or array begins there and may have more behind it, since its end is
 * only looked for when somebody asks (fb_whole). p is 0 when there is none. */
typedef struct {
  const char *p;
  fb_u32 n;
} fb_str;

#define FB_S(literal) ((fb_str){(literal), sizeof(literal) - 1})

static inline int fb_eq(fb_str a, fb_str b) {
  if (a.n != b.n) return 0;
  for (fb_u32 i = 0; i < a.n; i++)
    if (a.p[i] != b.p[i]) return 0;
  return 1;
}

static inline int fb_starts(fb_str s, fb_str prefix) {
  return s.n >= prefix.n && fb_eq((fb_str){s.p, prefix.n}, prefix);
}

/* 1 when needle occurs in s; ASCII letters match in either case. */
static inline int fb_contains(fb_str s, fb_str needle) {
  if (needle.n == 0) return 1;
  for (fb_u32 i = 0; i + needle.n <= s.n; i++) {
    fb_u32 k = 0;
    while (k < needle.n) {
      char a = s.p[i + k], b = needle.p[k];
      if (a >= 'A' && a <= 'Z') a += 32;
      if (b >= 'A' && b <= 'Z') b += 32;
      if (a != b) break;
      k++;
    }
    if (k == needle.n) return 1;
  }
  return 0;
}

/* ---- reading JSON ---- */

/* Documents from the host are canonical: valid JSON, no white space, keys
 * sorted. The scanner below also passes white space and never reads past the
 * end, so that it can be used on text inside the document too. */

static inline const char *fb_space(const char *p, const char *end) {
  while (p < end && (fb_u8)*p <= ' ') p++;
  return p;
}

/* Marks the bytes of x that are zero; the lowest mark is exact (Mycroft 1987). */
static inline fb_u64 fb_zeros(fb_u64 x) { return (x - FB_ONES) & ~x & (FB_ONES << 7); }

static inline fb_u64 fb_word(const char *p) {
  fb_u64 w;
  __builtin_memcpy(&w, p, 8);
  return w;
}

/* The closing quote of the string whose first character is at p, or end. Eight
 * bytes at a time: bodies are long. */
static inline const char *fb_quote(const char *p, const char *end) {
  while (p < end) {
    if (end - p >= 8) {
      fb_u64 w = fb_word(p), m = fb_zeros(w ^ FB_ONES * '"') | fb_zeros(w ^ FB_ONES * '\\');
      if (m == 0) {
        p += 8;
        continue;
      }
      p += __builtin_ctzll(m) >> 3;
    }
    if (*p == '"') return p;
    p += *p == '\\' ? 2 : 1;
  }
  return end;
}

/* Marks the bytes of w that are c, exactly. */
static inline fb_u64 fb_marks(fb_u64 w, char c) {
  fb_u64 x = w ^ FB_ONES * (fb_u8)c, low = FB_ONES * 0x7f;
  return ~(((x & low) + low) | x | low);
}

/* The first byte after the object or array that begins at p. Brackets count
 * only outside of strings, and a string begins and ends where the number of
 * quotes so far turns odd and even: eight bytes at a time, by parity. */
__attribute__((unused)) static const char *fb_skip_container(const char *p, const char *end) {
  fb_i32 depth = 1;
  fb_u64 inside = 0; /* FB_ONES << 7 in a string */
  for (p++; p < end;) {
    fb_u64 w = 0, s, opens, closes;
    const char *stop = end;
    if (end - p >= 8) {
      w = fb_word(p);
      stop = p + 8;
      if (fb_zeros(w ^ FB_ONES * '\\') == 0) {
        s = fb_marks(w, '"');
        s ^= s << 8, s ^= s << 16, s ^= s << 32;
        s ^= inside;
        w |= FB_ONES * 0x20; /* '[' and '{', ']' and '}' differ in one bit */
        opens = fb_marks(w, '{') & ~s;
        closes = fb_marks(w, '}') & ~s;
        fb_i32 down = __builtin_popcountll(closes);
        if (down < depth) {
          depth += __builtin_popcountll(opens) - down;
          inside = s >> 63 ? FB_ONES << 7 : 0;
          p += 8;
          continue;
        }
      }
    }
    for (; p < stop; p++) { /* an escape, the end, or the last few bytes */
      char c = *p;
      if (inside) {
        if (c == '\\') p++;
        else if (c == '"') inside = 0;
      } else if (c == '"') {
        inside = FB_ONES << 7;
      } else if (c == '{' || c == '[') {
        depth++;
      } else if ((c == '}' || c == ']') && --depth == 0) {
        return p + 1;
      }
    }
  }
  return end;
}

/* The first byte after the value that begins at p. */
static inline const char *fb_skip(const char *p, const char *end) {
  if (p >= end) return end;
  if (*p == '"') {
    p = fb_quote(p + 1, end);
    return p < end ? p + 1 : end;
  }
  if (*p == '{' || *p == '[') return fb_skip_container(p, end);
  while (p < end && *p != ',' && *p != '}' && *p != ']' && (fb_u8)*p > ' ') p++;
  return p;
}

static inline fb_str fb_value(const char *p, const char *end) {
  if (p >= end) return (fb_str){0, 0};
  if (*p == '{' || *p == '[') return (fb_str){p, (fb_u32)(end - p)};
  if (*p == '"') return (fb_str){p + 1, (fb_u32)(fb_quote(p + 1, end) - p - 1)};
  return (fb_str){p, (fb_u32)(fb_skip(p, end) - p)};
}

/* An object or array cut at its end. */
static inline fb_str fb_whole(fb_str v) {
  return (fb_str){v.p, (fb_u32)(fb_skip(v.p, v.p + v.n) - v.p)};
}

/* The member of an object, or {0} when there is none. Keys are compared as they
 * are written. */
__attribute__((unused)) static fb_str fb_member(fb_str object, fb_str key) {
  const char *p = object.p, *end = object.p + object.n;
  p = fb_space(p, end);
  if (p >= end || *p != '{') return (fb_str){0, 0};
  for (p++;; p++) {
    p = fb_space(p, end);
    if (p >= end || *p != '"') return (fb_str){0, 0};
    const char *k = p + 1;
    p = fb_quote(k, end);
    fb_str name = {k, (fb_u32)(p - k)};
    p = fb_space(p + 1, end);
    if (p >= end || *p != ':') return (fb_str){0, 0};
    p = fb_space(p + 1, end);
    if (fb_eq(name, key)) return fb_value(p, end);
    p = fb_space(fb_skip(p, end), end);
    if (p >= end || *p != ',') return (fb_str){0, 0};
  }
}

/* A member by path: fb_get(doc, FB_S("observation.response.status")). */
static inline fb_str fb_get(fb_str doc, fb_str path) {
  fb_u32 from = 0;
  for (fb_u32 i = 0; i <= path.n && doc.p; i++) {
    if (i == path.n || path.p[i] == '.') {
      doc = fb_member(doc, (fb_str){path.p + from, i - from});
      from = i + 1;
    }
  }
  return doc;
}

/* The i-th element of an array, or {0}. */
static inline fb_str fb_element(fb_str array, fb_u32 i) {
  const char *p = array.p, *end = array.p + array.n;
  if (p >= end || *p != '[') return (fb_str){0, 0};
  for (p++;; p++) {
    p = fb_space(p, end);
    if (p >= end || *p == ']') return (fb_str){0, 0};
    if (i-- == 0) return fb_value(p, end);
    p = fb_space(fb_skip(p, end), end);
    if (p >= end || *p != ',') return (fb_str){0, 0};
  }
}

/* A whole number, or fallback when the text is none. */
static inline fb_i64 fb_int(fb_str s, fb_i64 fallback) {
  fb_u32 i = 0;
  fb_i64 v = 0;
  int minus = s.n && s.p[0] == '-';
  if (minus) i++;
  if (i == s.n || s.n - i > 18) return fallback;
  for (; i < s.n; i++) {
    if (s.p[i] < '0' || s.p[i] > '9') return fallback;
    v = v * 10 + (s.p[i] - '0');
  }
  return minus ? -v : v;
}

/* Takes the escapes out of a string value, in place or elsewhere: what is a
 * JSON document inside a string (a response body) can then be read with
 * fb_get. to must have room for s.n bytes. Characters beyond \u007f become '?'. */
__attribute__((unused)) static fb_str fb_unescape(fb_str s, char *to) {
  const char *p = s.p, *end = s.p + s.n;
  char *q = to;
  while (p < end) {
    if (end - p >= 8) { /* eight bytes without a backslash */
      fb_u64 w = fb_word(p);
      if (fb_zeros(w ^ FB_ONES * '\\') == 0) {
        __builtin_memcpy(q, &w, 8);
        p += 8, q += 8;
        continue;
      }
    }
    char c = *p++;
    if (c == '\\' && p < end) {
      c = *p++;
      if (c == 'n') c = '\n';
      else if (c == 't') c = '\t';
      else if (c == 'r') c = '\r';
      else if (c == 'b') c = '\b';
      else if (c == 'f') c = '\f';
      else if (c == 'u' && end - p >= 4) {
        fb_u32 v = 0;
        for (int k = 0; k < 4; k++) v = v * 16 + (fb_u32)(p[k] <= '9' ? p[k] - '0' : (p[k] | 32) - 'a' + 10);
        p += 4;
        c = v < 0x80 ? (char)v : '?';
      }
    }
    *q++ = c;
  }
  return (fb_str){to, (fb_u32)(q - to)};
}

/* ---- writing the answer ---- */

typedef struct {
  char *p;
  fb_u32 n, cap, members, facts;
} fb_answer;

static inline void fb_byte(fb_answer *a, char c) {
  if (a->n < a->cap) a->p[a->n++] = c;
}

/* Eight bytes at a time; the buffer has that much room behind its end. */
__attribute__((unused)) static void fb_raw(fb_answer *a, fb_str s) {
  if (s.n > a->cap - a->n) s.n = a->cap - a->n;
  char *to = a->p + a->n;
  fb_u32 i = 0;
  for (; i + 8 <= s.n; i += 8) {
    fb_u64 w = fb_word(s.p + i);
    __builtin_memcpy(to + i, &w, 8);
  }
  for (; i < s.n; i++) to[i] = s.p[i];
  a->n += s.n;
}

/* A string with what JSON must escape escaped. Pass plain text, not the raw
 * text of a JSON string. */
__attribute__((unused)) static void fb_quoted(fb_answer *a, fb_str s) {
  fb_u32 i = 0;
  fb_byte(a, '"');
  while (i < s.n && (fb_u8)s.p[i] >= 0x20 && s.p[i] != '"' && s.p[i] != '\\') i++;
  fb_raw(a, (fb_str){s.p, i});
  for (; i < s.n; i++) {
    fb_u8 c = (fb_u8)s.p[i];
    if (c == '"' || c == '\\') fb_byte(a, '\\');
    fb_byte(a, c < 0x20 ? ' ' : (char)c);
  }
  fb_byte(a, '"');
}

/* A key of this header: plain letters. */
static inline void fb_key(fb_answer *a, fb_str key) {
  fb_raw(a, a->members++ ? FB_S(",\"") : FB_S("{\""));
  fb_raw(a, key);
  fb_raw(a, FB_S("\":"));
}

static inline void fb_text(fb_answer *a, fb_str key, fb_str value) {
  fb_key(a, key);
  fb_quoted(a, value);
}

static inline void fb_number(fb_answer *a, fb_str key, fb_i64 v) {
  char digits[20];
  fb_u32 i = 20;
  fb_u64 u = v < 0 ? 0 - (fb_u64)v : (fb_u64)v;
  do digits[--i] = (char)('0' + u % 10); while (u /= 10);
  fb_key(a, key);
  if (v < 0) fb_byte(a, '-');
  fb_raw(a, (fb_str){digits + i, 20 - i});
}

/* A whole verdict. Outcome and class are the host's words; reason and facts must
 * be in the module's vocabulary. */
static inline int fb_verdict(fb_answer *a, fb_str outcome, fb_str cls, fb_str reason) {
  fb_raw(a, FB_S("{\"outcome\":\""));
  fb_raw(a, outcome);
  fb_raw(a, FB_S("\",\"class\":\""));
  fb_raw(a, cls);
  fb_raw(a, FB_S("\",\"reason\":"));
  fb_quoted(a, reason);
  a->members = 3;
  return FB_ANSWER;
}

/* A fact beside the verdict: call it after fb_verdict, facts last. */
static inline void fb_fact(fb_answer *a, fb_str name, fb_str value) {
  if (a->facts++ == 0) {
    fb_key(a, FB_S("facts"));
    fb_raw(a, FB_S("{"));
  } else {
    fb_raw(a, FB_S(","));
  }
  fb_quoted(a, name);
  fb_raw(a, FB_S(":"));
  fb_quoted(a, value);
}

static inline int fb_choose(fb_answer *a, fb_str id, fb_str reason) {
  fb_text(a, FB_S("choose"), id);
  fb_text(a, FB_S("reason"), reason);
  return FB_ANSWER;
}

/* ---- the ABI ---- */

static char fb_input[FB_INPUT_MAX];
static char fb_output[FB_OUTPUT_MAX + 8];

FB_EXPORT("fb_abi_1") void fb_abi_1(void) {}

FB_EXPORT("fb_buf") char *fb_buf(fb_u32 cap) { return cap <= FB_INPUT_MAX ? fb_input : 0; }

static inline fb_i64 fb_run(int (*on)(fb_str, fb_answer *), const char *p, fb_u32 n) {
  fb_answer a = {fb_output, 0, FB_OUTPUT_MAX, 0, 0};
  int r = on((fb_str){p, n}, &a);
  if (r <= 0) return r;
  if (a.facts) fb_raw(&a, FB_S("}"));
  fb_raw(&a, FB_S("}"));
  if (a.n == a.cap) return FB_ERR_INTERNAL; /* it may have been cut */
  return (fb_i64)(fb_u32)a.p << 32 | a.n;
}

#ifdef FB_CLASSIFIER
static int fb_on_classify(fb_str doc, fb_answer *out);
FB_EXPORT("fb_classify") fb_i64 fb_classify(const char *p, fb_u32 n) { return fb_run(fb_on_classify, p, n); }
#endif

#ifdef FB_CHOOSER
static int fb_on_fallback(fb_str doc, fb_answer *out);
FB_EXPORT("fb_fallback") fb_i64 fb_fallback(const char *p, fb_u32 n) { return fb_run(fb_on_fallback, p, n); }
#endif

#ifdef FB_LOG
/* Needs `log = true` for this module in policy.toml; keep it out otherwise. */
__attribute__((import_module("fusebox"), import_name("log"))) void fb_host_log(fb_i32 level, const char *p, fb_u32 n);
static inline void fb_log(fb_i32 level, fb_str s) { fb_host_log(level, s.p, s.n); }
#endif

/* The compiler may call these for copies it finds in your code. */
__attribute__((used)) void *memcpy(void *restrict to, const void *restrict from, unsigned long n) {
  for (unsigned long i = 0; i < n; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}
__attribute__((used)) void *memset(void *to, int c, unsigned long n) {
  for (unsigned long i = 0; i < n; i++) ((char *)to)[i] = (char)c;
  return to;
}

/* ---- the manifest ---- */

/* The module's own description, in the custom section fusebox.manifest. */
#if defined(FB_NAME) && defined(FB_VERSION)
#if defined(FB_CLASSIFIER) && defined(FB_CHOOSER)
#define FB_KINDS_ "\\\"classifier\\\",\\\"fallback\\\""
#define FB_SCHEMAS_ "\\\"fusebox.classify/v1\\\",\\\"fusebox.fallback/v1\\\""
#elif defined(FB_CHOOSER)
#define FB_KINDS_ "\\\"fallback\\\""
#define FB_SCHEMAS_ "\\\"fusebox.fallback/v1\\\""
#else
#define FB_KINDS_ "\\\"classifier\\\""
#define FB_SCHEMAS_ "\\\"fusebox.classify/v1\\\""
#endif
__asm__(".section .custom_section.fusebox.manifest,\"\",@\n"
        ".ascii \"{\\\"abi\\\":1,\\\"kinds\\\":[" FB_KINDS_ "],\\\"name\\\":\\\"" FB_NAME "\\\",\\\"profile\\\":\\\"pure\\\","
        "\\\"schemas\\\":[" FB_SCHEMAS_ "],\\\"source\\\":\\\"\\\",\\\"version\\\":\\\"" FB_VERSION "\\\"}\"\n"
        ".text\n");
#endif

#endif
