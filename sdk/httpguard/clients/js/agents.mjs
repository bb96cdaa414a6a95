// The OpenAI Agents SDK, with the OpenAI client that it brings along.
import { createRequire } from "node:module";
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";

const { default: OpenAI } = createRequire(import.meta.resolve("@openai/agents"))("openai");

setTracingDisabled(true); // it would send traces to a host of its own

export async function call(ask, said) {
  const openAIClient = new OpenAI({ baseURL: ask.base + "/v1", apiKey: "sk-test", defaultHeaders: ask.headers });
  const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient }) });
  const weather = tool({
    name: "weather",
    description: "the weather in a city",
    parameters: z.object({ city: z.string() }),
    errorFunction: null,
    execute: ({ city }) => {
      said.tools.push(`weather ${city}`);
      return "rain";
    },
  });
  const agent = new Agent({ name: "forecaster", model: ask.model, tools: ask.tool ? [weather] : [] });
  if (ask.stream) {
    const result = await runner.run(agent, ask.prompt, { stream: true });
    for await (const text of result.toTextStream()) said.text += text;
    await result.completed;
    if (result.error) throw result.error;
    return;
  }
  said.text += (await runner.run(agent, ask.prompt)).finalOutput;
}
