/* A module in C that misbehaves as the tool's name in its document asks. */
#define FB_NAME "hostile-c"
#define FB_VERSION "1.0.0"
#define FB_CLASSIFIER
#define FB_CHOOSER
#include "../../../sdk/guest/c/fusebox_guest.h"

static volatile int sink;

/* Half of the shadow stack, then a trap: the guest's stack pointer is not put
 * back by the machine. */
static __attribute__((noinline)) int trap_deep(int n) {
  volatile char pad[3000];
  pad[n % 3000] = (char)n;
  if (n > 2) __builtin_trap();
  return trap_deep(n + 1) + pad[0];
}

static __attribute__((noinline)) int use_stack(int n) {
  volatile char pad[3000];
  pad[n % 3000] = (char)n;
  return n > 2 ? pad[0] : use_stack(n + 1) + pad[n];
}

/* A wild write over everything the linker put into memory. */
static __attribute__((noinline)) void scribble(void) {
  for (volatile char *p = (char *)1024; p < (char *)100000; p++) *p = (char)0xa5;
}

static int fb_on_classify(fb_str doc, fb_answer *out) {
  fb_str tool = fb_get(doc, FB_S("observation.operation.tool"));
  if (fb_eq(tool, FB_S("trap_stack"))) sink = trap_deep(0);
  if (fb_eq(tool, FB_S("spin")))
    for (;;) sink++;
  if (fb_eq(tool, FB_S("malloc_bomb"))) {
    while (__builtin_wasm_memory_grow(0, 16) != (unsigned long)-1) {
    }
    __builtin_trap();
  }
  if (fb_eq(tool, FB_S("grow_refused"))) __builtin_wasm_memory_grow(0, 60000);
  if (fb_eq(tool, FB_S("overflow"))) sink = use_stack(-100000);
  if (fb_eq(tool, FB_S("scribble"))) {
    scribble();
    return FB_NO_OPINION;
  }
  if (fb_eq(tool, FB_S("own_error"))) return -117;
  sink = use_stack(0);
  return fb_verdict(out, FB_S("FAILED"), FB_S("budget"), FB_S(""));
}

static int fb_on_fallback(fb_str doc, fb_answer *out) {
  (void)doc, (void)out;
  sink = use_stack(0);
  return FB_NO_OPINION;
}
