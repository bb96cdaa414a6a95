/* acme-mail: what Acme's mail provider says, in Acme's words.
 *
 * The provider answers 402 and 403 when a plan's monthly volume is used up, and
 * 422 with its own codes for addresses it will not send to. The built-in table
 * reads a 403 as a lack of permission; for Acme it is a matter of budget, and
 * nobody's credential should be locked for it.
 */
#define FB_NAME "acme-mail"
#define FB_VERSION "1.0.0"
#define FB_CLASSIFIER
#include "../fusebox_guest.h"

static int fb_on_classify(fb_str doc, fb_answer *out) {
  fb_str obs = fb_get(doc, FB_S("observation"));
  if (!fb_eq(fb_get(obs, FB_S("operation.provider")), FB_S("acme-mail"))) return FB_NO_OPINION;

  fb_str response = fb_get(obs, FB_S("response"));
  fb_i64 status = fb_int(fb_get(response, FB_S("status")), 0);
  if (status < 400 || status > 499) return FB_NO_OPINION;

  /* The body is a JSON text inside a JSON string; the buffer is ours to write. */
  fb_str text = fb_get(response, FB_S("body"));
  text = fb_unescape(text, (char *)text.p);
  fb_str code = fb_get(text, FB_S("error.code"));

  if (fb_eq(code, FB_S("plan_volume_reached")) || fb_eq(code, FB_S("invoice_overdue"))) {
    fb_verdict(out, FB_S("FAILED"), FB_S("budget"), code);
    fb_fact(out, FB_S("owner"), FB_S("finance"));
    return FB_ANSWER;
  }
  if (fb_eq(code, FB_S("recipient_suppressed")))
    return fb_verdict(out, FB_S("FAILED"), FB_S("validation"), code);
  return FB_NO_OPINION;
}
