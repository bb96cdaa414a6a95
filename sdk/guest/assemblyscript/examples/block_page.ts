// block-page: a browser tool whose block page returns 200.
//
// The tool fetches pages for an agent. A site that has had enough of it answers
// 200 with a page that says so; the built-in table sees a good answer, and the
// agent reads the block page as if it were the article. For this team it is a
// rate limit of the site, and the agent shall wait.
import { Value, document, get, equals, num, contains, fact, verdict, NO_OPINION } from "../fusebox";
export { fb_abi_1, fb_buf } from "../fusebox";

export function fb_classify(p: usize, n: u32): i64 {
  const observation = get(document(p, n), "observation");
  if (!equals(get(observation, "operation.tool"), "browser")) return NO_OPINION;
  if (num(get(observation, "response.status")) != 200) return NO_OPINION;

  // The body is read as it stands in the document: the words need no unescaping.
  const body = get(observation, "response.body");
  if (contains(body, "unusual traffic from your computer network")) return blocked("search");
  if (contains(body, "cf-challenge") || contains(body, "checking your browser")) return blocked("cdn");
  if (contains(body, "you have been blocked") || contains(body, "access to this page has been denied")) return blocked("site");
  return NO_OPINION;
}

function blocked(by: string): i64 {
  fact("blocked_by", by);
  return verdict("FAILED", "rate_limit", "block_page", 600000);
}
