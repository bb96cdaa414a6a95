// Vercel's AI SDK over its OpenAI provider, which speaks the Responses API.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

export async function call(ask, said) {
  const openai = createOpenAI({ baseURL: ask.base + "/v1", apiKey: "sk-test", headers: ask.headers });
  const what = { model: openai(ask.model), prompt: ask.prompt };
  if (ask.stream) {
    let failed;
    const result = streamText({ ...what, onError: ({ error }) => (failed ??= error) });
    for await (const text of result.textStream) said.text += text;
    if (failed) throw failed; // textStream ends without a word, by design: onError is where it is told
    if ((await result.finishReason) === "error") throw new Error("the stream finished with an error");
    return;
  }
  if (ask.tool) {
    what.stopWhen = stepCountIs(4);
    what.tools = {
      weather: tool({
        inputSchema: z.object({ city: z.string() }),
        execute: ({ city }) => {
          said.tools.push(`weather ${city}`);
          return "rain";
        },
      }),
    };
  }
  said.text += (await generateText(what)).text;
}
