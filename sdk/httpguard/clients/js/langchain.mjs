// LangChain's chat model, and its agent for tools.
import { ChatOpenAI } from "@langchain/openai";
import { createAgent, tool } from "langchain";
import { z } from "zod";

export async function call(ask, said) {
  const model = new ChatOpenAI({
    model: ask.model,
    apiKey: "sk-test",
    configuration: { baseURL: ask.base + "/v1", defaultHeaders: ask.headers },
  });
  if (ask.stream) {
    for await (const chunk of await model.stream(ask.prompt)) said.text += chunk.content;
    return;
  }
  if (!ask.tool) {
    said.text += (await model.invoke(ask.prompt)).content;
    return;
  }
  const weather = tool(
    ({ city }) => {
      said.tools.push(`weather ${city}`);
      return "rain";
    },
    { name: "weather", description: "the weather in a city", schema: z.object({ city: z.string() }) },
  );
  const result = await createAgent({ model, tools: [weather] }).invoke({ messages: [{ role: "user", content: ask.prompt }] });
  said.text += result.messages.at(-1).content;
}
