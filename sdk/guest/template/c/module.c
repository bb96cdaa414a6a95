/* Where a module in C begins: a classifier with one rule. */
#define FB_CLASSIFIER
#include "fusebox_guest.h"

/* Says what an observation means. Where it has nothing to say it returns
 * FB_NO_OPINION, and the next classifier is asked. */
static int fb_on_classify(fb_str doc, fb_answer *out) {
  fb_str obs = fb_get(doc, FB_S("observation"));
  if (!fb_eq(fb_get(obs, FB_S("operation.provider")), FB_S("example"))) return FB_NO_OPINION;

  /* The body is a JSON document inside a JSON string; the buffer is ours to write. */
  fb_str body = fb_get(obs, FB_S("response.body"));
  body = fb_unescape(body, (char *)body.p);
  fb_str code = fb_get(body, FB_S("error.code"));
  if (fb_eq(code, FB_S("plan_exhausted"))) return fb_verdict(out, FB_S("FAILED"), FB_S("budget"), code);
  return FB_NO_OPINION;
}
