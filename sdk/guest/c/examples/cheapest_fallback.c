/* cheapest-fallback: while a model is not to be had, the cheapest one that loses
 * neither accuracy nor privacy, as long as the call stays under a dollar; beyond
 * that, or where nothing is left, a queue or a person.
 *
 * Prices are what this team pays, in nano-dollars for one token. They belong to
 * the module's version: a new price is a new module, and every decision says
 * under which one it was made.
 */
#define FB_NAME "cheapest-fallback"
#define FB_VERSION "1.0.0"
#define FB_CHOOSER
#include "../fusebox_guest.h"

typedef struct {
  fb_str model;
  fb_i64 input, output;
} price;

static const price prices[] = {
    {{"small-1", 7}, 150, 600},
    {{"medium-2", 8}, 800, 3200},
    {{"large-3", 7}, 3000, 15000},
    {{"eu-large-1", 10}, 3500, 14000},
};

enum { dollar = 1000000000 };

/* What the call would cost with this model; -1 when its price is not known. */
static fb_i64 cost(fb_str model, fb_i64 in, fb_i64 out) {
  for (fb_u32 i = 0; i < sizeof(prices) / sizeof(prices[0]); i++)
    if (fb_eq(model, prices[i].model)) return in * prices[i].input + out * prices[i].output;
  return -1;
}

static int loses(fb_str candidate, fb_str what) {
  fb_str losses = fb_get(candidate, FB_S("losses"));
  for (fb_u32 i = 0;; i++) {
    fb_str loss = fb_element(losses, i);
    if (!loss.p) return 0;
    if (fb_eq(loss, what)) return 1;
  }
}

static int fb_on_fallback(fb_str doc, fb_answer *out) {
  fb_str estimate = fb_get(doc, FB_S("operation.estimate"));
  fb_i64 in = fb_int(fb_get(estimate, FB_S("input_tokens")), 0);
  fb_i64 answer = fb_int(fb_get(estimate, FB_S("output_tokens")), 0);
  if (in < 0 || answer < 0 || in > 100000000 || answer > 100000000) return FB_ERR_INPUT;

  fb_str list = fb_get(doc, FB_S("candidates")), best = {0, 0}, waits = {0, 0};
  fb_i64 least = dollar + 1;
  for (fb_u32 i = 0;; i++) {
    fb_str c = fb_element(list, i);
    if (!c.p) break;
    fb_str kind = fb_get(c, FB_S("kind")), id = fb_get(c, FB_S("id"));
    if (fb_eq(kind, FB_S("queued")) || (fb_eq(kind, FB_S("human")) && !waits.p)) waits = id;
    if (!fb_eq(kind, FB_S("alternate")) || loses(c, FB_S("accuracy")) || loses(c, FB_S("privacy"))) continue;
    fb_i64 price = cost(fb_get(c, FB_S("model")), in, answer);
    if (price >= 0 && price < least) least = price, best = id;
  }
  if (best.p) return fb_choose(out, best, FB_S("cheapest that loses neither accuracy nor privacy"));
  if (waits.p) return fb_choose(out, waits, FB_S("no affordable equal model"));
  return FB_NO_OPINION;
}
