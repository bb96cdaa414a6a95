// The official Anthropic client, with its defaults.
import Anthropic from "@anthropic-ai/sdk";

const weather = { name: "weather", input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } };

export async function call(ask, said) {
  const client = new Anthropic({ baseURL: ask.base, apiKey: "sk-test", defaultHeaders: ask.headers });
  const messages = [{ role: "user", content: ask.prompt }];
  const what = { model: ask.model, max_tokens: 1024, messages, tools: ask.tool ? [weather] : undefined };
  if (ask.stream) {
    const stream = client.messages.stream(what);
    stream.on("text", (text) => (said.text += text));
    await stream.finalMessage();
    return;
  }
  for (;;) {
    const message = await client.messages.create(what);
    const uses = message.content.filter((part) => part.type === "tool_use");
    if (!uses.length) {
      said.text += message.content[0].text;
      return;
    }
    messages.push({ role: "assistant", content: message.content });
    for (const use of uses) said.tools.push(`${use.name} ${use.input.city}`);
    messages.push({ role: "user", content: uses.map((use) => ({ type: "tool_result", tool_use_id: use.id, content: "rain" })) });
  }
}
