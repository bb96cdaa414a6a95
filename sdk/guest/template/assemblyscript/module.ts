// Where a module in AssemblyScript begins: a classifier with one rule.
import { document, get, inner, equals, verdict, NO_OPINION } from "./fusebox";
export { fb_abi_1, fb_buf } from "./fusebox";

// Says what an observation means. Where it has nothing to say it returns
// NO_OPINION, and the next classifier is asked.
export function fb_classify(p: usize, n: u32): i64 {
  const obs = get(document(p, n), "observation");
  if (!equals(get(obs, "operation.provider"), "example")) return NO_OPINION;

  // The body is a JSON document inside a JSON string.
  const body = inner(get(obs, "response.body"));
  if (equals(get(body, "error.code"), "plan_exhausted")) return verdict("FAILED", "budget", "plan_exhausted");
  return NO_OPINION;
}
