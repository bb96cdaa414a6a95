/* The acme-mail classifier, word for word, behind Extism's ABI: the input is
 * read through the kernel eight bytes at a time and the output stored the same
 * way, as Extism's own C kit does. */
#include "../../../sdk/guest/c/examples/acme_mail.c"

#define IMPORT(n) __attribute__((import_module("extism:host/env"), import_name(#n)))
IMPORT(input_length) fb_u64 input_length(void);
IMPORT(input_load_u64) fb_u64 input_load_u64(fb_u64);
IMPORT(input_load_u8) fb_u32 input_load_u8(fb_u64);
IMPORT(alloc) fb_u64 kernel_alloc(fb_u64);
IMPORT(store_u64) void store_u64(fb_u64, fb_u64);
IMPORT(store_u8) void store_u8(fb_u64, fb_u32);
IMPORT(output_set) void output_set(fb_u64, fb_u64);

FB_EXPORT("classify") int classify(void) {
  fb_u64 n = input_length(), i = 0;
  if (n > FB_INPUT_MAX) return 1;
  for (; i + 8 <= n; i += 8) {
    fb_u64 w = input_load_u64(i);
    __builtin_memcpy(fb_input + i, &w, 8);
  }
  for (; i < n; i++) fb_input[i] = (char)input_load_u8(i);
  fb_i64 r = fb_classify(fb_input, (fb_u32)n);
  if (r <= 0) return r == 0 ? 0 : 1;
  const char *p = (const char *)(fb_u32)(r >> 32);
  fb_u64 len = (fb_u32)r, at = kernel_alloc(len);
  for (i = 0; i + 8 <= len; i += 8) {
    fb_u64 w;
    __builtin_memcpy(&w, p + i, 8);
    store_u64(at + i, w);
  }
  for (; i < len; i++) store_u8(at + i, (fb_u8)p[i]);
  output_set(at, len);
  return 0;
}
