// The official OpenAI client, with its defaults.
import OpenAI from "openai";

const weather = {
  type: "function",
  function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } },
};

export async function call(ask, said) {
  const client = new OpenAI({ baseURL: ask.base + "/v1", apiKey: "sk-test", defaultHeaders: ask.headers });
  const messages = [{ role: "user", content: ask.prompt }];
  const tools = ask.tool ? [weather] : undefined;
  if (ask.stream) {
    for await (const chunk of await client.chat.completions.create({ model: ask.model, messages, stream: true })) {
      said.text += chunk.choices[0]?.delta?.content ?? "";
    }
    return;
  }
  for (;;) {
    const { message } = (await client.chat.completions.create({ model: ask.model, messages, tools })).choices[0];
    if (!message.tool_calls?.length) {
      said.text += message.content;
      return;
    }
    messages.push(message);
    for (const t of message.tool_calls) {
      said.tools.push(`${t.function.name} ${JSON.parse(t.function.arguments).city}`);
      messages.push({ role: "tool", tool_call_id: t.id, content: "rain" });
    }
  }
}
